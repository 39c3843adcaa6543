"""Rows in sources and in databases that count: what they keep, what they are told, how rows are numbered."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_ENGINES = "tests/property/test_engines.py"
_ROW_IDS = "tests/property/test_row_ids.py"
_RUNS = "tests/integration/test_engines.py"
_RELATIONS = "engines/sql/relations.py"
_VIEWS = "engines/sql/views.py"
_CHECKS = "engines/sql/checks.py"
_AGREE = f"{_ENGINES}::test_engines_agree_on_random_schemas_and_views"
_SAME_CHILDREN = f"{_ENGINES}::test_engines_keep_the_same_children_whatever_their_keys_are"
_TEXTS = f"{_ENGINES}::test_a_unit_counts_once_for_a_text_however_many_rows_have_it"

ENGINES = [
    Mutant(
        "sql-weight-of-one",
        "rows in databases",
        "a row weighs 1, however many its unit has",
        _RELATIONS,
        "found = found.when(few, number(WEIGHT_SCALE // most))",
        "found = found.when(few, number(WEIGHT_SCALE))",
        (_AGREE,),
    ),
    Mutant(
        "sql-weight-by-group",
        "rows in databases",
        "a row weighs by the children of its owner, not by the rows of its unit",
        _RELATIONS,
        'exp.cast(column("s", "r"), "double")',
        'exp.cast(column("g", "r"), "double")',
        (_AGREE,),
    ),
    Mutant(
        "sql-one-more-than-tau",
        "rows in databases",
        "τ + 1 children are kept",
        _RELATIONS,
        'beyond = exp.GT(this=column("place"), expression=number(bound))',
        'beyond = exp.GT(this=column("place"), expression=number(bound + 1))',
        (_SAME_CHILDREN,),
    ),
    Mutant(
        "sql-order-without-secret",
        "rows in databases",
        "which children are kept follows from their keys alone",
        _RELATIONS,
        "exp.DPipe(this=text(order_key(secret)), expression=key_text(",
        'exp.DPipe(this=text(""), expression=key_text(',
        (_SAME_CHILDREN,),
    ),
    Mutant(
        "sql-key-without-lengths",
        "rows in databases",
        "keys of several columns run into each other",
        _RELATIONS,
        'parts += [exp.cast(exp.Length(this=value), exp.DataType.Type.TEXT), text(":"), value.copy()]',
        "parts += [value.copy()]",
        (_SAME_CHILDREN,),
    ),
    Mutant(
        "sql-counts-dropped-siblings",
        "rows in databases",
        "rows beyond τ count as siblings",
        _RELATIONS,
        "size = exp.Least(this=siblings, expressions=[number(bound)], ignore_nulls=True)",
        "size = siblings",
        (_AGREE,),
    ),
    Mutant(
        "sql-every-row-a-unit",
        "rows in databases",
        "a row is of a unit of its own",
        _RELATIONS,
        """unit = exp.func("COALESCE", column("u", f"p{table.foreign_keys.index(table.owner_key)}"), own)""",
        "unit = own",
        (_AGREE,),
    ),
    Mutant(
        "sql-rows-that-leave-their-unit",
        "rows in databases",
        "rows whose same-unit key leaves their unit are kept",
        _RELATIONS,
        'equal(column("u", parent), unit.copy())))',
        'equal(column("u", parent), column("u", parent))))',
        (_AGREE,),
    ),
    Mutant(
        "sql-looks-into-other-units",
        "rows in databases",
        "views see the rows of other units along same-unit keys",
        _VIEWS,
        "if key.same_unit and not self._schema.table(key.parent).public:",
        "if False:",
        (_AGREE,),
    ),
    Mutant(
        "sql-private-parents-by-place",
        "rows in databases",
        "the position of a private row is a code",
        _VIEWS,
        'there = column("n", parent) if public else number(0)',
        'there = column("n", parent)',
        (_AGREE,),
    ),
    Mutant(
        "sql-texts-by-row",
        "rows in databases",
        "a text counts once per row, not once per unit",
        _VIEWS,
        'exp.alias_(value, "key")).distinct()',
        'exp.alias_(value, "key"))',
        (_TEXTS,),
    ),
    Mutant(
        "sql-texts-held-by-all",
        "rows in databases",
        "how many texts a unit has is counted over all units",
        _VIEWS,
        'held = exp.Window(this=count(), partition_by=[column("u")])',
        'held = exp.Window(this=count(), partition_by=[column("key")])',
        (_TEXTS,),
    ),
    Mutant(
        "sql-orphans-pass",
        "rows in databases",
        "rows that break the spec are counted all the same",
        _CHECKS,
        "        findings.refuse()\n",
        "",
        (f"{_ENGINES}::test_engines_refuse_the_same_rows_in_the_same_words",),
    ),
    Mutant(
        "sql-text-ends-early",
        "rows in databases",
        "a setting of the server decides where a text of a statement ends",
        "engines/postgres.py",
        '        self._statement("SET LOCAL standard_conforming_strings = on")  # else \\\' ends no text\n',
        "",
        (f"{_ENGINES}::test_no_setting_of_the_server_turns_a_value_into_sql",),
    ),
    Mutant(
        "sql-quotes-values-in-errors",
        "rows in databases",
        "errors of the database are passed on",
        "engines/duckdb.py",
        'f"engine duckdb: counting failed ({kind}); run again with --engine memory"',
        'f"engine duckdb: counting failed ({error}); run again with --engine memory"',
        (f"{_RUNS}::test_errors_of_engines_quote_no_value",),
    ),
    Mutant(
        "rows-of-a-killed-run",
        "rows in databases",
        "copies of rows that a killed run has left stay",
        "engines/left_over.py",
        "        if folder.is_dir() and not is_locked(lock_of(folder)):",
        "        if False:",
        (f"{_RUNS}::test_a_killed_run_leaves_rows_to_nobody",),
    ),
    Mutant(
        "row-numbers-by-place",
        "rows in databases",
        "rows without a key are numbered by where they stand",
        "backends/row_ids.py",
        "    return pa.array((hashed >> np.uint64(1)).astype(np.int64))",
        "    return pa.array(np.arange(len(hashed)))",
        (f"{_ROW_IDS}::test_the_numbers_of_other_units_stay_when_one_goes",),
    ),
    Mutant(
        "row-numbers-of-equal-rows",
        "rows in databases",
        "a row's number depends on rows that differ from it",
        "backends/row_ids.py",
        "seen = texts.groupby(texts, sort=False).cumcount().astype(str)",
        "seen = pd.Series(range(len(texts)), dtype=object).astype(str)",
        (f"{_ROW_IDS}::test_the_numbers_of_other_units_stay_when_one_goes",),
    ),
    Mutant(
        "row-numbers-let-references-go",
        "rows in databases",
        "rows identified by their values may lose a reference with another unit",
        "spec/rules_of_keys.py",
        "if table.row_id and private and not key.cascades and not key.same_unit:",
        "if False:",
        (f"{_ROW_IDS}::test_references_that_a_removed_unit_takes_away_are_refused",),
    ),
]
