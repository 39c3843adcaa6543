"""Read and write YAML for specs: safe, strict about duplicate keys, and without YAML 1.1's implicit conversions.

PyYAML follows YAML 1.1, where ``NO`` is false, ``012`` is ten and ``1e-9`` is text. Column names and category values
are often exactly such words, so plain scalars are resolved by the core schema of YAML 1.2 (section 10.3) instead. Two
deviations: numbers with leading zeros stay text, being codes and not counts, and so do dates, as domains hold them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from privbench_core.errors import SpecError

_INT = r"[-+]?(?:0|[1-9][0-9]*)"
_NUMBER = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_FLOAT = rf"{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_RESOLVERS = (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", "~|null|Null|NULL|", ("~", "n", "N", "")),
    ("merge", "<<", "<"),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with core-schema scalars, keys that are always text, and a list of duplicate keys."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key.start_mark)
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            key.tag = "tag:yaml.org,2002:str"
            if key.value in seen:
                line = key.start_mark.line + 1
                self.duplicates.append(f"line {line}: the key {key.value!r} occurs twice in one mapping; remove one")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which either YAML 1.1 or the core schema would read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Represent text of several lines on one line, with escapes: a line break would end the comment after it."""
    style = '"' if len(text.splitlines()) > 1 or text.endswith(("\n", "\r")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(str, _represent_text)  # words of enumerations
_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """Parse one YAML document.

    Args:
        text: The document.

    Returns:
        Its value, and one problem per duplicate key (the last value wins, so that parsing can go on).

    Raises:
        SpecError: The text is not YAML; the message gives the line.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data(), loader.duplicates
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise SpecError(f"{line}: not valid YAML ({error.problem or error.context}); fix the syntax there") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise SpecError(f"spec: not valid YAML ({what}); save it as plain text in UTF-8") from None


def write_yaml(value: object) -> str:
    """Return ``value`` as block-style YAML with short lists inline, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def flow_yaml(value: object) -> str:
    """Return ``value`` on one line in flow style: text is quoted only where necessary."""
    dumped = yaml.dump(
        [value], Dumper=_Dumper, sort_keys=False, default_flow_style=True, allow_unicode=True, width=float("inf")
    )
    return dumped.strip()[1:-1]
