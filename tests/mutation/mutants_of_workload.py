"""What an owner's queries would tell although their constants are hidden."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

_ANONYMISE = "workload/anonymise.py"
_REBIND = "workload/rebind.py"
_T = "tests/unit/test_workload_hide.py"
_NOTHING = (f"{_T}::test_nothing_of_a_constant_alias_or_comment_is_published",)
_WRITTEN = ("tests/unit/test_workload_writes.py::test_no_constant_of_what_is_written_travels",)
_SAME = (f"{_T}::test_other_constants_make_the_same_text",)
_BUNDLE = ("tests/unit/test_publish_workload.py::test_hidden_constants_are_in_no_file_of_the_bundle",)


def _bug(name: str, bug: str, old: str, new: str, tests: tuple[str, ...], file: str = _ANONYMISE) -> Mutant:
    return Mutant(name, bug, file, old, new, tests)


HIDDEN_CONSTANTS = [
    _bug("hide-spec", "the spec's wish to hide constants is not passed on", 'spec.literals == "hide"', "False", _BUNDLE,
         "pipeline/__init__.py"),
    _bug("hide-nothing", "constants are re-bound as if they were public",
         "if workload.hide_literals or write:\n", "if write:\n", _NOTHING, _REBIND),
    _bug("hide-conditions", "constants in the conditions of statements that write are published where queries are",
         "if workload.hide_literals or write:\n", "if workload.hide_literals:\n", _WRITTEN, _REBIND),
    _bug("hide-written", "values that are written stay", "return exp.Parameter(this=exp.Literal.number(1))", "pass",
         _WRITTEN, "workload/writes.py"),
    _bug("hide-names", "names of statements are published",
         'name = "" if workload.hide_literals else statement.name', "name = statement.name", _NOTHING, _REBIND),
    _bug("hide-reasons", "reasons quote the query that is left out",
         "NOT_HIDDEN if workload.hide_literals else str(reason)", "str(reason)", _NOTHING, _REBIND),
    _bug("hide-comments", "comments stay", "        node.pop_comments()\n", "", _NOTHING),
    _bug("hide-lists", "lists keep their length", "for _ in range(3)", "for _ in items", _SAME),
    _bug("hide-others", "constants that are compared with no column stay", "node.root() is tree and not _stays(node)",
         "False", _NOTHING),
    _bug("hide-aliases", "aliases stay", "    _rename(tree, query)\n", "", _NOTHING),
    _bug("hide-refusal", "what no rule hides is published", "                if not known:\n",
         "                if False:\n", _NOTHING),
    _bug("hide-functions", "any name of a function is published", "known = str(text).lower() in functions",
         "known = True", _NOTHING),
    _bug("hide-positions", "any number in ORDER BY is taken for a position",
         " and int(node.name) <= len(owner.selects)", "", _SAME),
]  # fmt: skip
