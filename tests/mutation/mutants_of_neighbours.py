"""What stays changes with another unit: keys, targets of keys, generated numbers of rows."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_RULES = "spec/rules_of_keys.py"
_NUMBERS = "backends/registry.py"
_KEYS = "tests/unit/test_spec_keys.py"
_AUDIT = "tests/property/test_audit.py"
_ROW_IDS = "tests/property/test_row_ids.py"
_ENGINES = "tests/property/test_engines.py"

NEIGHBOURS = [
    Mutant("same-unit-keys-of-numbered-rows",
        "rows that are identified by their values lose a reference along a key with `same_unit`", _RULES,
        "if table.row_id and not table.public and not key.cascades:",
        "if table.row_id and not table.public and not key.cascades and not key.same_unit:",
        (f"{_KEYS}::test_rows_that_are_identified_by_their_values_lose_none_of_them",)),
    Mutant("targets-that-become-null", "a key refers to a column that becomes NULL with another unit", _RULES,
        "lost = set(key.parent_columns).intersection(schema.changing_columns(other))", "lost = set[str]()",
        (f"{_KEYS}::test_a_key_cannot_refer_to_a_column_that_another_unit_empties",)),
    Mutant("required-targets-that-become-null", "only optional keys are taken for columns that become NULL",
        "schema/tables.py",
        "return self.emptied_columns(key) if key.optional else key.columns", "return self.emptied_columns(key)",
        (f"{_KEYS}::test_a_required_key_that_lets_go_is_no_target_either",)),
    Mutant("keys-that-cannot-be-null", "an optional key has to become NULL, and none of its columns can", _RULES,
        "_row_ids, _cannot_be_null, _changing_target)", "_row_ids, _changing_target)",
        (f"{_KEYS}::test_a_key_that_has_to_become_null_has_a_column_that_can",)),
    Mutant("orphans-take-rows-along-keys-that-let-go",
        "a row that refers to a dropped orphan is dropped, where removing that one's unit would keep it",
        "backends/integrity.py",
        "emptied = table.columns_set_null(key)", "emptied = () if key.cascades else table.emptied_columns(key)",
        (f"{_ENGINES}::test_engines_drop_the_same_orphans_and_what_depends_on_them",)),
    Mutant("orphans-take-rows-along-keys-that-let-go-in-sql", "the same in databases", "engines/sql/relations.py",
        "emptied = self._schema.table(key.child).columns_set_null(key)",
        "emptied = () if key.cascades else self._schema.table(key.child).emptied_columns(key)",
        (f"{_ENGINES}::test_engines_drop_the_same_orphans_and_what_depends_on_them",)),
    Mutant("nothing-in-a-required-key",
        "a row may refer to nothing along a required key that shares a nullable column: no code stands for that",
        "schema/tables.py",
        "return frozenset(self.primary_key).union(declared, *required)",
        "return frozenset(self.primary_key).union(declared)",
        (f"{_ENGINES}::test_engines_refuse_the_same_rows_in_the_same_words",)),
    Mutant("public-numbers-of-rows",
        "numbers of rows do not depend on the secret, so that two that collide can be searched for", _NUMBERS,
        "hash_key=key, ", "", (f"{_ROW_IDS}::test_numbers_of_rows_depend_on_the_secret",)),
    Mutant("stability-1-for-all", "rows that a removed unit takes away from others count for nothing",
        "privacy/relations.py",
        "return 1.0 + 2.0 * _other_units(schema, *tables)", "return 1.0", (f"{_AUDIT}::test_no_claim_is_exceeded",)),
]  # fmt: skip
