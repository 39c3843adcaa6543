"""Text made by public patterns: it matches, it fits, it is distinct where it should be, and bad patterns are named."""

from __future__ import annotations

import re
import time

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer, merge_cells
from privbench_core.columns.registry import codec_for
from privbench_core.errors import SpecError
from privbench_core.schema.columns import Column, ColumnType, Pattern
from privbench_core.stored import restored

T = ColumnType


def made(pattern, n=300, seed=0, **column):
    codec = codec_for(Column("x", T.TEXT, pattern, **column), table="t")
    array = codec.decode(np.zeros(n, np.int32), np.random.default_rng(seed))
    array.validate(full=True)
    assert array.type == pa.string()
    return array.to_pylist()


@pytest.mark.parametrize(
    "regex",
    [
        r"[A-Z]{3}-\d{6}",
        r"^(foo|bar|)\w+@[a-z.]*\.(com|org)$",
        r"\+1 \(\d{3}\) \d{3}-\d{4}",
        r"(?:a|b(?:c|d){2,3}?){1,4}(?i:x)",
        r"\A(?P<year>19|20)\d\d\Z",
        r".[^a-z]\s\S\D\W[^x]",
        r"é{2}[α-ω]*",
        r"(?>a+)b",
        r"a*+b",
        r"(\w{0,1000}){0,1000}",
        r"",
    ],
)
def test_made_text_matches_in_full_and_follows_the_seed(regex):
    texts = made(Pattern(regex))
    assert len(texts) == 300
    assert all(re.fullmatch(regex, text) and len(text) <= 64 for text in texts)
    assert texts == made(Pattern(regex))
    if regex:
        assert texts != made(Pattern(regex), seed=1) or len(set(texts)) == 1


def test_every_alternative_every_character_and_every_number_of_repetitions_occurs():
    assert set(made(Pattern("a|b{2,3}|[cd]"))) == {"a", "bb", "bbb", "c", "d"}
    assert {len(text) for text in made(Pattern("a+"))} == set(range(1, 12))
    characters = "".join(made(Pattern("[^a-z]{60}")))
    assert set(characters) == set(map(chr, range(32, 127))) - set("abcdefghijklmnopqrstuvwxyz")


def test_lengths_are_bounded_by_the_column():
    assert {len(text) for text in made(Pattern(r"\w{1,200}@\w{1,200}"), max_length=9)} <= set(range(3, 10))
    assert max(len(text) for text in made(Pattern(r"(ab|c){0,30}"), sql_type="character varying(7)")) == 7
    assert max(map(len, made(Pattern(provider="address"), sql_type="varchar(12)"))) <= 12
    emails = made(Pattern(provider="email"), n=3000, sql_type="varchar(16)")
    assert all(re.fullmatch(r"[^@]+@example\.(com|net|org)", text) and len(text) <= 16 for text in emails)
    assert len(set(emails)) == len(emails)


def test_near_unique_stays_near_unique_and_quick():
    begun = time.process_time()
    plates = made(Pattern(r"[A-Z]{3}-\d{6}"), n=100_000)
    assert len(set(plates)) > 99_900
    assert time.process_time() - begun < 3
    for provider in ("email", "user_name", "phone_number", "ssn"):
        texts = made(Pattern(provider=provider), n=5000)
        assert len(set(texts)) == len(texts)
    assert len(set(made(Pattern(provider="name"), n=5000))) > 4900


def test_repeated_names_of_accounts_get_a_number():
    texts = made(Pattern(provider="user_name"), n=3000, max_length=3)
    assert max(map(len, texts)) == 3
    assert len(set(texts)) > 1500
    assert any(text[-1].isdigit() for text in texts)


def test_providers_follow_the_seed_and_give_one_line():
    for provider in ("address", "date", "pyint"):
        texts = made(Pattern(provider=provider), n=50)
        assert texts == made(Pattern(provider=provider), n=50)
        assert texts != made(Pattern(provider=provider), n=50, seed=1)
        assert not any("\n" in text for text in texts)


def test_nothing_but_null_is_looked_at():
    codec = codec_for(Column("x", T.TEXT, Pattern(regex="[ab]"), nullable=True))
    assert (codec.size, codec.null, codec.labels()) == (2, 1, ["[ab]", "NULL"])
    assert codec.encode(pa.chunked_array([["secret", None, ""]])).tolist() == [0, 1, 0]
    binning = merge_cells(np.array([900.0, 100.0]), codec, 1.0, 100)
    discretizer = Discretizer(restored(codec.to_dict()), binning)
    values = discretizer.decode(np.array([0, 1, 0], np.int32), np.random.default_rng(0))
    assert [value is None for value in values.to_pylist()] == [False, True, False]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (Pattern(regex="(a"), r"'\(a' is not a regular expression \(missing \)"),
        (Pattern(regex="(?=a)b"), "holds look-around"),
        (Pattern(regex=r"(a)\1"), "holds .* a reference to a group"),
        (Pattern(regex=r"\bword"), "holds .* a word boundary"),
        (Pattern(regex="[^ -~]"), "a class without a printable character"),
        (Pattern(regex="a{65}"), "matches no text of at most 64 characters; shorten it or raise max_length"),
        (Pattern(regex="a^b"), "in its middle, or a possessive repetition"),
        (Pattern(provider="emial"), "Faker has no provider 'emial'; did you mean 'email'"),
        (Pattern(provider="seed"), "Faker has no provider 'seed'"),
        (Pattern(provider="binary"), "makes no text by itself"),
        (Pattern(provider="enum"), "makes no text by itself"),
        (Pattern(), "give one of the two"),
        (Pattern("a", "name"), "give one of the two"),
    ],
)
def test_bad_patterns_are_named(pattern, message):
    with pytest.raises(SpecError, match=rf"^t\.x: .*{message}"):
        codec_for(Column("x", T.TEXT, pattern), table="t")


def test_patterns_are_for_text():
    with pytest.raises(SpecError, match="a pattern on a column of type integer"):
        codec_for(Column("x", T.INTEGER, Pattern("1")))
