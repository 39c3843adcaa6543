"""CSV files that are not regular are refused before anything is paid for, and only the owner hears where."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.backends.folder.read import FolderSource
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

PERSON = Table(
    "person", tuple(Column(name, ColumnType.TEXT, nullable=True) for name in ("id", "mail", "note")), ("id",)
)


def read(folder: Path, text: str) -> list[dict[str, str | None]]:
    (folder / "person.csv").write_text("id,mail,note\n" + text, encoding="utf-8")
    return FolderSource(folder).read(PERSON).to_pylist()


@pytest.mark.parametrize(
    ("text", "found", "where"),
    [
        # Before, the three lines after the quote were one value, without a word.
        ('1,a,x\n2,"ann,y\n3,c,z\n4,d,w\n', "a quote is not closed", "line 3, row 2: the quoted value of column mail"),
        ('1,a,x\n2,"ann,y\n3,"c",z\n', "a quote is not closed", "line 3, row 2: the quoted value of column mail"),
        ("1,a,x\n2,b\n", "not as many fields", "line 3, row 2: 2 fields where the header has 3; the last that fits is"),
        ("1,a,x,9\n", "not as many fields", "line 2, row 1: 4 fields where the header has 3"),
        ('1,"a\nb",x\n2,b\n', "not as many fields", "line 4, row 2: 2 fields"),
    ],
)
def test_broken_lines_are_refused(tmp_path, text, found, where):
    with pytest.raises(SourceError, match=found) as caught:
        read(tmp_path, text)
    assert where in caught.value.private_detail
    assert "ann" not in f"{caught.value} {caught.value.private_detail}"
    assert "line" not in str(caught.value).replace("some line", "")


def test_regular_quotes_are_read(tmp_path):
    rows = read(tmp_path, '1,"a ""q"", b","two\nlines"\n2,5" pipe,""\n')
    assert [row["mail"] for row in rows] == ['a "q", b', '5" pipe']
    assert [row["note"] for row in rows] == ["two\nlines", ""]
    assert len(read(tmp_path, f'1,"{"x" * 200_000}",y\n')[0]["mail"]) == 200_000
