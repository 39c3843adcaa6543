"""Rows in sources and in databases that count: what they keep, what they are told, how rows are numbered."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_ENGINES = "tests/property/test_engines.py"
_ROW_IDS = "tests/property/test_row_ids.py"
_RUNS = "tests/integration/test_engines.py"
_RELATIONS = "engines/sql/relations.py"
_VIEWS = "engines/sql/views.py"
_CHECKS = "engines/sql/relations.py"
_AGREE = f"{_ENGINES}::test_engines_agree_on_random_schemas_and_views"
_SAME_CHILDREN = f"{_ENGINES}::test_engines_keep_the_same_children_whatever_their_keys_are"
_TEXTS = f"{_ENGINES}::test_a_unit_counts_once_for_a_text_however_many_rows_have_it"

ENGINES = [
    Mutant("sql-vectors-by-their-squares", "units are clipped by the squares of lengths", _VIEWS,
        "FLOOR(SQRT(FLOOR(CAST({WEIGHT_SCALE**2} AS DOUBLE) / squares)))",
        "FLOOR(FLOOR(CAST({WEIGHT_SCALE**2} AS DOUBLE) / squares))", (_AGREE,)),
    Mutant("sql-vectors-without-scales", "scales make the vectors of units no longer", _VIEWS,
        "squared = exp.Mul(this=length, expression=length.copy())",
        'squared = exp.Mul(this=column("number"), expression=column("number"))', (_AGREE,)),
    Mutant("sql-units-by-table", "all large units are clipped as one", _VIEWS,
        "CASE WHEN {many} THEN {UNIT} END AS {UNIT}", "CASE WHEN {many} THEN 1 END AS {UNIT}", (_AGREE,)),
    Mutant("parts-end-within-units", "a unit whose rows come in two parts is clipped in each by itself",
        "engines/sql/counting.py",
        "int(np.searchsorted(units[1:], last))", "batch.num_rows",
        ("tests/unit/test_privacy_clipping.py::test_parts_of_rows_that_come_by_unit_do_not_end_within_one",)),
    Mutant("sql-weight-of-one", "a row weighs 1, however many its unit has", _RELATIONS,
        "THEN {WEIGHT_SCALE // most}", "THEN {WEIGHT_SCALE}", (_AGREE,)),
    Mutant("sql-constraints-of-missing-values", "a row keeps a constraint between values that are not there",
        "engines/sql/codes.py",
        "exp.or_(*missing.values()), _is_kept", "exp.and_(*missing.values()), _is_kept",
        (f"{_ENGINES}::test_engines_agree_on_which_rows_keep_a_constraint",)),
    Mutant("sql-difference-turned-round", "a difference is base less value", _RELATIONS,
        "difference_of(stored, beside, (own, base))", "difference_of(beside, stored, (own, base))",
        (f"{_ENGINES}::test_engines_give_a_difference_the_same_code",)),
    Mutant("sql-weight-by-group", "a row weighs by the children of its owner, not by the rows of its unit", _RELATIONS,
        "CAST(r.s AS DOUBLE)", "CAST(r.g AS DOUBLE)", (_AGREE,)),
    Mutant("sql-one-more-than-tau", "τ + 1 children are kept", _RELATIONS,
        "place > {bound}", "place > {bound + 1}", (_SAME_CHILDREN,)),
    Mutant("sql-order-without-secret", "which children are kept follows from their keys alone", _RELATIONS,
        "exp.DPipe(this=text(order_key(self._secret)), expression=key)", 'exp.DPipe(this=text(""), expression=key)',
        (_SAME_CHILDREN,)),
    Mutant("sql-key-without-lengths", "keys of several columns run into each other", _RELATIONS,
        'parts += [exp.cast(exp.Length(this=value), exp.DataType.Type.TEXT), text(":"), value.copy()]',
        "parts += [value.copy()]", (_SAME_CHILDREN,)),
    Mutant("sql-counts-dropped-siblings", "rows beyond τ count as siblings", _RELATIONS,
        "LEAST(COALESCE({siblings}, 1), {bound}) AS g", "COALESCE({siblings}, 1) AS g", (_AGREE,)),
    Mutant("sql-counts-siblings-that-are-gone", "rows that another key takes away count as siblings", _RELATIONS,
        "if all(key.owner or not carries(tables.schema, key) for key in table.foreign_keys):", "if True:", (_AGREE,)),
    Mutant("sql-every-row-a-unit", "a row is of a unit of its own", _RELATIONS,
        'unit = f"COALESCE({_alias(table, table.owner_key)}.u, {unit})"', "pass", (_AGREE,)),
    Mutant("sql-rows-that-leave-their-unit", "rows whose same-unit key leaves their unit are kept", _RELATIONS,
        "{parent}.u = {unit}", "{parent}.u = {parent}.u", (_AGREE,)),
    Mutant("sql-looks-into-other-units", "views see the rows of other units along same-unit keys", _VIEWS,
        "if key.same_unit and private:", "if False:", (_AGREE,)),
    Mutant("sql-private-parents-by-place", "the position of a private row is a code", _VIEWS,
        'there = f"{parent}.n" if public else "0"', 'there = f"{parent}.n"', (_AGREE,)),
    Mutant("sql-texts-by-row", "a text counts once per row, not once per unit", _VIEWS,
        'exp.alias_(value, "key")).distinct()', 'exp.alias_(value, "key"))', (_TEXTS,)),
    Mutant("sql-texts-held-by-all", "how many texts a unit has is counted over all units", _VIEWS,
        "OVER (PARTITION BY u)", "OVER (PARTITION BY key)", (_TEXTS,)),
    Mutant("sql-orphans-pass", "rows that break the spec are counted all the same", _CHECKS,
        "        findings.refuse()\n", "", (f"{_ENGINES}::test_engines_refuse_the_same_rows_in_the_same_words",)),
    Mutant("sql-text-ends-early", "a setting of the server decides where a text of a statement ends",
        "engines/postgres.py",
        '        self._statement("SET LOCAL standard_conforming_strings = on")  # else \\\' ends no text\n', "",
        (f"{_ENGINES}::test_no_setting_of_the_server_turns_a_value_into_sql",)),
    Mutant("sql-quotes-values-in-errors", "errors of the database are passed on", "engines/duckdb.py",
        'f"engine duckdb: counting failed ({kind}); run again with --engine memory"',
        'f"engine duckdb: counting failed ({error}); run again with --engine memory"',
        (f"{_RUNS}::test_errors_of_engines_quote_no_value",)),
    Mutant("rows-of-a-killed-run", "copies of rows that a killed run has left stay", "files.py",
        "        if folder.is_dir() and not is_locked(lock_of(folder)):", "        if False:",
        (f"{_RUNS}::test_a_killed_run_leaves_rows_to_nobody",)),
    Mutant("times-beyond-64-bits", "one row with a time at infinity decides whether a count fails",
        "engines/sql/codes.py", "bounded(value, 0, INT64_MAX - NO_DISTANCE)", "_clamped(value)",
        (f"{_ENGINES}::test_no_time_is_too_far_from_others_to_be_counted",)),
    Mutant("row-numbers-by-place", "rows without a key are numbered by where they stand", "backends/registry.py",
        "    return pa.array((hashed >> np.uint64(1)).astype(np.int64))", "    return pa.array(np.arange(len(hashed)))",
        (f"{_ROW_IDS}::test_the_numbers_of_other_units_stay_when_one_goes",)),
    Mutant("row-numbers-of-equal-rows", "a row's number depends on rows that differ from it", "backends/registry.py",
        "seen = texts.groupby(texts, sort=False).cumcount().astype(str)",
        "seen = pd.Series(range(len(texts)), dtype=object).astype(str)",
        (f"{_ROW_IDS}::test_the_numbers_of_other_units_stay_when_one_goes",)),
    Mutant("row-numbers-let-references-go", "rows identified by their values may lose a reference with another unit",
        "spec/rules_of_keys.py",
        "if table.row_id and not table.public and not key.cascades:", "if False:",
        (f"{_ROW_IDS}::test_references_that_a_removed_unit_takes_away_are_refused",)),
]  # fmt: skip
