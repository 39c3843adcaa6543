"""References of synthetic rows that have to stay inside of a unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privbench_core.backends.integrity import check_rows
from privbench_core.errors import InternalError
from privbench_core.links.parent_choice import Distinct, ParentChoice, pick_parents
from privbench_core.publishing import read_bundle
from privbench_core.sampling.references import Parent, choice_of
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.validate.derived import integrity_frame, unit_column
from tests.helpers.databases import keyed
from tests.helpers.planted import (
    broken_expectations,
    category,
    draw_exactly,
    integer,
    place_of,
    rows_of,
    samples_of,
    texts,
)


def refers(child: str, column: str, parent: str, **more: bool) -> ForeignKey:
    """A key to ``parent.id`` that stays inside of a unit."""
    return ForeignKey(child, (column,), parent, ("id",), same_unit=True, **more)


def owned(child: str, column: str, parent: str, most: int, **more: bool) -> ForeignKey:
    """An owner key."""
    return ForeignKey(child, (column,), parent, ("id",), most, owner=True, **more)


def rentals(seed: int = 0, customers: int = 150) -> tuple[Schema, dict[str, pa.Table]]:
    """Customers rent, some rentals are nobody's; a payment is for at most one rental, of its kind, and refunds follow.

    A customer has a favourite among its rentals, a rental the one before, both filled in last; nine in ten references
    stay with their customer in these rows.
    """
    customer = keyed(
        "customer",
        category("region", 3),
        integer("favourite", nullable=True),
        keys=(refers("customer", "favourite", "rental", optional=True),),
    )
    rental = keyed(
        "rental",
        integer("customer", nullable=True),
        integer("before", nullable=True),
        category("kind", 4),
        keys=(
            owned("rental", "customer", "customer", 8, optional=True),
            refers("rental", "before", "rental", optional=True),
        ),
    )
    payment = keyed(
        "payment",
        integer("customer"),
        integer("rental", nullable=True),
        category("kind", 4),
        keys=(owned("payment", "customer", "customer", 8), refers("payment", "rental", "rental", optional=True)),
        unique=(("rental",),),
    )
    refund = keyed(
        "refund",
        integer("rental"),
        integer("payment"),
        integer("customer"),
        keys=(
            owned("refund", "rental", "rental", 2),
            refers("refund", "payment", "payment"),
            refers("refund", "customer", "customer"),
        ),
    )
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7, customers)
    owners, first = np.repeat(np.arange(customers), counts), np.cumsum(counts) - counts
    n = len(owners)
    mine, free = rng.random(n) < 0.9, rng.random(n) < 0.1
    kinds = rng.integers(0, 4, n)
    paid = np.flatnonzero(rng.random(n) < 0.8)
    m = len(paid)
    pays_for = np.where(mine[paid], paid, rng.permutation(paid))
    pays_for = np.where(pd.Series(pays_for).duplicated(), -1, pays_for)
    back = rng.choice(m, m // 3, replace=False)
    rows = {
        "customer": rows_of(
            customer,
            id=np.arange(customers),
            region=texts(rng.integers(0, 3, customers)),
            favourite=pa.array(np.where(rng.random(customers) < 0.9, first % n, 0), mask=counts == 0),
        ),
        "rental": rows_of(
            rental,
            id=np.arange(n),
            customer=pa.array(owners, mask=free),
            before=pa.array(np.arange(n) - 1, mask=np.arange(n) == 0),
            kind=texts(kinds),
        ),
        "payment": rows_of(
            payment,
            id=np.arange(m),
            customer=owners[paid],
            rental=pa.array(pays_for, mask=pays_for < 0),
            kind=texts(kinds[paid]),
        ),
        "refund": rows_of(
            refund, id=np.arange(len(back)), rental=paid[back], payment=back, customer=owners[paid][back]
        ),
    }
    schema = Schema("rentals", (customer, rental, payment, refund), "customer")
    return schema, check_rows(schema, rows, {})


def test_references_are_drawn_inside_of_the_unit() -> None:
    schema, tables = rentals()
    samples = draw_exactly(schema, tables)
    made = {name: sample.table.to_pandas() for name, sample in samples.items()}
    who = made["rental"].set_index("id")["customer"]
    assert who.isna().any(), "no rental without a customer: the test looks at less"
    favourites = made["customer"].dropna(subset="favourite")
    assert (who[favourites["favourite"]].to_numpy() == favourites["id"].to_numpy()).all()
    before = made["rental"].dropna(subset="before")
    mine, theirs = who[before["id"]].to_numpy(), who[before["before"]].to_numpy()
    assert ((mine == theirs) | (before["id"] == before["before"]).to_numpy()).all()
    paid = made["payment"].dropna(subset="rental")
    assert paid["rental"].is_unique
    assert (who[paid["rental"]].to_numpy() == paid["customer"].to_numpy()).all()
    refunds = made["refund"]
    payer = made["payment"].set_index("id")["customer"]
    assert (payer[refunds["payment"]].to_numpy() == refunds["customer"].to_numpy()).all()
    assert (who[refunds["rental"]].to_numpy() == refunds["customer"].to_numpy()).all()
    for found, least in ((favourites, 75), (paid, 180), (refunds, 45)):  # 54 to 63 refunds over eight seeds
        assert len(found) > least
    kinds = made["rental"].set_index("id")["kind"]
    right = (kinds[paid["rental"]].to_numpy() == paid["kind"].to_numpy()).mean()
    assert right > 0.4, "a payment is for a rental of its kind where its customer has one; by chance one in four is"


def test_an_owner_is_given_no_more_rows_than_its_unit_has_for_them_to_refer_to() -> None:
    """Payments that must be for a rental of their own: no customer is given more of them than rentals."""
    schema, tables = rentals()
    payment = schema.table("payment")
    key = replace(payment.foreign_keys[1], optional=False)
    columns = tuple(replace(c, nullable=False) for c in payment.columns)
    required = replace(payment, columns=columns, foreign_keys=(payment.foreign_keys[0], key))
    customer = replace(schema.table("customer"), foreign_keys=(), columns=schema.table("customer").columns[:2])
    firm = Schema("firm", (customer, schema.table("rental"), required), "customer")
    few = {name: tables[name] for name in firm.by_name} | {"customer": tables["customer"].select(["id", "region"])}
    few["payment"] = few["payment"].filter(few["payment"].column("rental").is_valid())
    few["rental"] = few["rental"].set_column(2, "before", pa.nulls(few["rental"].num_rows, pa.int64()))
    samples = draw_exactly(firm, check_rows(firm, few, {}), seed=3)
    assert samples["payment"].table.column("rental").null_count == 0
    frame = integrity_frame(firm, required, {name: sample.table for name, sample in samples.items()})
    assert frame[unit_column(key)].all()
    assert samples["payment"].dropped == {}


def test_the_validate_step_proves_it(tmp_path: Path) -> None:
    schema, tables = rentals(1, 60)
    result = place_of(tmp_path, schema, tables).run(3.2)
    assert broken_expectations(result) == []
    found = result.releases["validate", "payment"].artifact.data["expectations"]
    assert [e["success"] for e in found if e["column"] == "rental rental of the same unit"] == [True]
    terms = read_bundle(result.out).manifest["privacy"]["tables"]["payment"]
    assert terms["enforced_inside_of_a_unit"] == [{"key": "payment.rental", "parent": "rental"}]
    assert terms["stability"] == 1
    assert "protected_only_by_the_declared_bound" not in terms
    made = samples_of(result)
    crossed = made["payment"].set_column(
        1,
        "customer",
        made["payment"].column("customer").take(pa.array(np.roll(np.arange(made["payment"].num_rows), 1))),
    )
    frame = integrity_frame(schema, schema.table("payment"), {**made, "payment": crossed})
    assert not frame[unit_column(schema.table("payment").foreign_keys[1])].all()


def test_all_of_a_unit_s_rows_are_given_out_one_each() -> None:
    """As many rows as parents in each of many groups: nothing is left over, whatever was wished for."""
    rng = np.random.default_rng(0)
    n, groups = 4_000, 800
    of = rng.integers(0, groups, n)
    unique = (Distinct(np.zeros(n, dtype=np.int64), np.arange(n)),)
    choice = ParentChoice(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), unique).inside(
        of, rng.permutation(of)
    )
    preferences = [(rng.integers(0, 5, n), rng.integers(0, 5, n))]
    got = pick_parents(preferences, np.ones(n, dtype=bool), choice, rng)
    assert np.array_equal(np.sort(got), np.arange(n))
    assert np.array_equal(choice.of_parent[got], choice.of_row)
    fewer = replace(choice, of_parent=np.where(np.arange(n) % 2, choice.of_parent, -1))
    got = pick_parents(preferences, np.ones(n, dtype=bool), fewer, rng)
    assert np.array_equal(np.sort(got[got >= 0]), np.arange(1, n, 2)), "all that may be chosen are, and nothing else"


def test_units_that_are_not_known_are_an_error() -> None:
    schema, tables = rentals(2, 10)
    key = schema.table("payment").foreign_keys[1]
    parent = Parent(tables["rental"], {}, {}, None)
    with pytest.raises(InternalError, match=r"payment\.rental: stays inside of a unit"):
        choice_of(schema.table("payment"), key, {}, parent, 3)
