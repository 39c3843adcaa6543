"""What the session and the curator refuse, and that nothing is charged when they do."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid
from privbench_core.columns.group_codes import AGREEMENTS, index_coder
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.columns.registry import codec_for
from privbench_core.columns.row_constraints import VERDICTS
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import (
    AsStored,
    CoMember,
    Feature,
    GroupTypes,
    MemberPlace,
    OfParent,
    Own,
    OwnDifference,
    OwnerDifference,
    OwnerFanout,
    OwnerType,
    OwnFanout,
    OwnType,
    ParentFanout,
    ParentRow,
    SameReference,
    Satisfies,
    SiblingAgreement,
    SincePrevious,
)
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import Counts
from privbench_core.privacy.queries import CentreSums, Distances, Marginal, SignProducts
from privbench_core.privacy.session import PrivateSession, open_session
from privbench_core.privacy.split_rules import ByValue, Centres
from privbench_core.privacy.views import CodedView, ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import (
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    SameValue,
)
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import Database, database_from, town
from tests.helpers.depot import depot
from tests.helpers.noise import SeededNoise

PRICE = Price(Measure.GDP, 0.1)
SCHEMA = town(0).schema
OWNER = next(key for key in SCHEMA.table("person").foreign_keys if key.owner)
ROOMS = Discretizer(codec_for(SCHEMA.table("household").column("rooms"), table="household"))
SIZE = ROOMS.size


def session_on(database: Database) -> tuple[PrivateSession, list[str]]:
    """A session with much to spend, and the labels charged."""
    labels: list[str] = []
    account = PrivacyFilter(Price(Measure.GDP, 100.0, 1e-3), lambda label, _: labels.append(label))
    return PrivateSession(database.private(), account, SeededNoise(0), "test"), labels


def rooms() -> tuple[Curator, list[str]]:
    """Households by their number of rooms."""
    session, labels = session_on(town(0))
    return session.view(ViewSpec("household", {"rooms": (Own("rooms"), ROOMS)})), labels


@dataclass(frozen=True)
class CheapDistances(Distances):
    """A subclass that gets the raw view."""

    def evaluate(self, view: CodedView) -> Counts:
        return np.array([view.data.held().rows] * len(self.groups), dtype=np.int64)


class CheapMarginal(Marginal):
    """A subclass that claims to move less."""

    def moves(self, view: CodedView) -> tuple[float, float]:
        return float(view.data.held().rows), 0.0


class Twice(tuple[Any, ...]):
    """Goes on for longer than it says."""

    __slots__ = ()

    def __len__(self) -> int:
        return 1


class Watching(np.ndarray[Any, Any]):
    """Is handed what it is combined with."""


class Free(Price):
    """Adds up to nothing."""

    def __radd__(self, other: Price) -> Price:
        return other


REFERENCE = (("rooms",), np.zeros(SIZE))
DISTANCES = {
    "a subclass": CheapDistances(((REFERENCE,),)),
    "a group that is longer than it says": Distances((Twice((REFERENCE, REFERENCE)),)),
    "groups in a list": Distances([(REFERENCE,)]),  # type: ignore[arg-type]
    "a reference that is broadcast": Distances((((("rooms",), np.zeros((1000, SIZE))),),)),
    "a reference of one cell": Distances((((("rooms",), np.zeros(1)),),)),
    "a reference that is a list": Distances((((("rooms",), [0.0] * SIZE),),)),  # type: ignore[arg-type]
    "a reference of a subclass": Distances((((("rooms",), np.zeros(SIZE).view(Watching)),),)),
    "a reference of objects": Distances((((("rooms",), np.zeros(SIZE, dtype=object)),),)),
    "a reference that is no number": Distances((((("rooms",), np.full(SIZE, np.nan)),),)),
    "a column that is not there": Distances((((("colour",), np.zeros(SIZE)),),)),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_of_exact_types_and_shapes(name: str) -> None:
    curator, labels = rooms()
    with pytest.raises(InternalError):
        curator.select("choose", DISTANCES[name], PRICE)
    with pytest.raises(InternalError):
        curator.measure("ask", [DISTANCES[name]], PRICE)
    assert labels == []


class MoreThanItSays(dict[str, Any]):
    """Has other signs when they are used than when they are looked at."""


HALVES = np.resize([-1, 1], SIZE)
SIGN_PRODUCTS = {
    "no subset": SignProducts({"rooms": HALVES}, ()),
    "a column twice": SignProducts({"rooms": HALVES}, (("rooms", "rooms"),)),
    "a column without signs": SignProducts({}, (("rooms",),)),
    "a column that is not there": SignProducts({"colour": HALVES}, (("colour",),)),
    "signs that are numbers": SignProducts({"rooms": 2 * HALVES}, (("rooms",),)),
    "signs that wrap around": SignProducts({"rooms": np.full(SIZE, -128, dtype=np.int8)}, (("rooms",),)),
    "signs in floats": SignProducts({"rooms": HALVES.astype(float)}, (("rooms",),)),  # type: ignore[dict-item]
    "signs that are broadcast": SignProducts({"rooms": np.ones(1, dtype=np.int64)}, (("rooms",),)),
    "signs of a subclass": SignProducts({"rooms": HALVES.view(Watching)}, (("rooms",),)),
    "another kind of mapping": SignProducts(MoreThanItSays(rooms=HALVES), (("rooms",),)),
    "subsets in a list": SignProducts({"rooms": HALVES}, [("rooms",)]),  # type: ignore[arg-type]
    "subsets that go on for longer": SignProducts({"rooms": HALVES}, Twice((("rooms",), ("rooms",)))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", SIGN_PRODUCTS)
def test_signs_are_of_exact_types_shapes_and_values(name: str) -> None:
    curator, labels = rooms()
    with pytest.raises(InternalError):
        curator.measure("ask", [SIGN_PRODUCTS[name]], PRICE)
    assert labels == []
    curator.measure("ask", [SignProducts({"rooms": HALVES}, (("rooms",),))], PRICE)
    assert len(labels) == 1


def test_only_distances_are_selected_by() -> None:
    curator, labels = rooms()
    with pytest.raises(InternalError, match="only candidates of the type"):
        curator.select("choose", Marginal(("rooms",)), PRICE)  # type: ignore[arg-type]
    assert labels == []


CODES = np.zeros(SIZE, dtype=np.int64)
MARGINALS = {
    "a subclass": CheapMarginal(("rooms",)),
    "groups that are broadcast": Marginal(("rooms",), (np.zeros((SIZE, SIZE), dtype=np.int64),)),
    "groups of a subclass": Marginal(("rooms",), (CODES.view(Watching),)),
    "groups of too few codes": Marginal(("rooms",), (CODES[:-1],)),
    "groups that are not numbered": Marginal(("rooms",), (np.zeros(SIZE),)),  # type: ignore[arg-type]
    "columns in a list": Marginal(["rooms"]),  # type: ignore[arg-type]
    "a column that is not there": Marginal(("colour",)),
}


@pytest.mark.parametrize("name", MARGINALS)
def test_marginals_are_of_exact_types_and_shapes(name: str) -> None:
    curator, labels = rooms()
    with pytest.raises(InternalError):
        curator.measure("ask", [Marginal(()), MARGINALS[name]], PRICE)
    with pytest.raises(InternalError):
        curator.sigma([MARGINALS[name]], PRICE)
    assert labels == []


def centres(
    columns: Any = (("rooms", "ordered"),), points: Any = (((0.0,) * SIZE,),), kind: type[Centres] = Centres
) -> Centres:
    """One centre at no distance, unless told otherwise."""
    return kind(columns, (SIZE,), points)


RULES = {
    "too few codes": ByValue("rooms", (0,) * (SIZE - 1)),  # else it would fail only where a row has the last one
    "parts below 0": ByValue("rooms", (-1,) * SIZE),
    "parts in a list": ByValue("rooms", [0] * SIZE),  # type: ignore[arg-type]
    "a column that is not there": ByValue("colour", (0,) * SIZE),
    "a subclass": type("Mine", (ByValue,), {})("rooms", (0,) * SIZE),
    "no columns": centres((), ((),)),
    "no centres": centres(points=()),
    "too few distances": centres(points=(((0.0,) * (SIZE - 1),),)),
    "distances in an array": centres(points=((np.zeros(SIZE),),)),
    "an unknown kind": centres((("rooms", "other"),)),
    "centres of a subclass": centres(kind=type("MyCentres", (Centres,), {})),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_give_every_code_a_part(name: str) -> None:
    curator, labels = rooms()
    with pytest.raises(InternalError):
        curator.split(RULES[name])
    if not isinstance(RULES[name], ByValue):
        with pytest.raises(InternalError):
            curator.measure("centres", [CentreSums(RULES[name])], PRICE)  # type: ignore[arg-type]
    with pytest.raises(InternalError):
        curator.measure("centres", [CentreSums(ByValue("rooms", (0,) * SIZE))], PRICE)  # type: ignore[arg-type]
    assert labels == []


def test_prices_are_exactly_prices() -> None:
    session, labels = session_on(town(0))
    curator = session.view(ViewSpec("household", {"rooms": (Own("rooms"), ROOMS)}))
    free = Free(Measure.GDP, 1e6, 1e-4)
    with pytest.raises(InternalError, match="must be a Price"):
        curator.measure("ask", [Marginal(("rooms",))], free)
    with pytest.raises(InternalError, match="must be a Price"):
        curator.select("choose", Distances(((REFERENCE,),)), free)
    with pytest.raises(InternalError, match="must be a Price"):
        session.discover("household", "colour", free)
    assert labels == []
    with closing(Ledger(":memory:", "town", "household", Budget(1.0, 1e-6))) as ledger:
        with pytest.raises(InternalError, match="must be a Price"):
            open_session(town(0).private(), ledger, SeededNoise(0), release="r", step="s", run="x", price=free)
        assert ledger.entries() == []


TYPE = Discretizer(FanoutCodec(2))
AGE = Discretizer(codec_for(Column("age", ColumnType.INTEGER, Range(0, 110)), table="person"))
SCORES = np.zeros((SIZE, 2), dtype=np.int64)
AGE_OR_NULL = Discretizer(codec_for(Column("age", ColumnType.INTEGER, Range(0, 110), nullable=True), table="person"))
PLACE = MemberPlace(OWNER, "age", AGE, np.arange(AGE.size), 2)
TYPES = GroupTypes((3,), ROOMS, SCORES, ())
KEYS = {
    "undeclared": ForeignKey("person", ("id",), "household", ("id",), max_children=1, owner=True),
    "another bound": replace(OWNER, max_children=1000),
    "no owner": replace(OWNER, owner=False),
    "optional": replace(OWNER, optional=not OWNER.optional),
    "inside of a unit": replace(OWNER, same_unit=True),
    "another parent": replace(OWNER, parent="person"),
    "a subclass": type("MyKey", (ForeignKey,), {"__eq__": lambda *_: True, "__hash__": lambda _: 0})(
        OWNER.child, OWNER.columns, OWNER.parent, OWNER.parent_columns
    ),
}


def looking_along(key: ForeignKey) -> dict[str, tuple[str, Feature]]:
    """Every feature that has a key, and the table whose view may have it."""
    return {
        "of parent": ("person", OfParent(key, "rooms")),
        "parent row": ("person", ParentRow(key)),
        "difference from the owner": ("person", OwnerDifference(key, "age", "rooms")),
        "siblings": ("person", OwnerFanout(key)),
        "others of the owner": ("person", ParentFanout(key, OWNER)),
        "others along a key": ("person", ParentFanout(OWNER, key)),
        "children": ("household", OwnFanout(key)),
        "co_member": ("person", CoMember(key, 1, "rooms")),
        "own type": ("household", OwnType(key, TYPES, 0)),
        "place": ("person", replace(PLACE, key=key)),
        "agreement": ("person", SiblingAgreement(key, "age", AGE_OR_NULL)),
        "since the row before": ("person", SincePrevious(key, "age")),
        "two ways": ("person", SameReference(OWNER, None, None, key)),
        "owner's type": ("person", OwnerType(key, TYPES, 0)),
    }


WRONG_TYPES = {
    "a subclass": type("MyTypes", (GroupTypes,), {})((3,), ROOMS, np.zeros((SIZE, 2), dtype=np.int64), ()),
    "scores that are broadcast": replace(TYPES, size_scores=np.zeros((1, 2), dtype=np.int64)),
    "scores that are no whole numbers": replace(TYPES, size_scores=np.zeros((SIZE, 2))),
    "scores of other types": replace(TYPES, size_scores=np.zeros((SIZE, 3), dtype=np.int64)),
    "scores of a column that are broadcast": replace(
        TYPES, columns=((Own("age"), AGE, np.zeros((1, 2), dtype=np.int64)),)
    ),
    "a type of no group": replace(TYPES, shape=(1,), size_scores=np.zeros((SIZE, 0), dtype=np.int64)),
    "a column of the parent": replace(TYPES, columns=((OfParent(OWNER, "rooms"), ROOMS, SCORES),)),  # type: ignore[arg-type]
    "a key": replace(TYPES, columns=((Own("home"), ROOMS, SCORES),)),
    "types along a key to another table": replace(TYPES, columns=((OwnType(OWNER, TYPES, 0), TYPE, SCORES[:3]),)),
}


@pytest.mark.parametrize("wrong", WRONG_TYPES)
def test_types_are_of_exact_types_and_shapes(wrong: str) -> None:
    session, _ = session_on(town(0))
    for table, feature in (("household", OwnType), ("person", OwnerType)):
        with pytest.raises(InternalError):
            session.view(ViewSpec(table, {"x": (feature(OWNER, WRONG_TYPES[wrong], 0), TYPE)}))
        with pytest.raises(InternalError, match="a code for each latent value"):
            session.view(ViewSpec(table, {"x": (feature(OWNER, TYPES, 0), ROOMS)}))
        with pytest.raises(InternalError, match=r"the types of privacy\.views"):
            session.view(ViewSpec(table, {"x": (feature(OWNER, TYPES, 1), TYPE)}))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(PLACE, order=np.arange(3)),
        replace(PLACE, order=np.arange(AGE.size) / 2),
        replace(PLACE, column="home"),
        replace(PLACE, most=3),
        replace(PLACE, most=True),
    ],
    ids=["an order of other codes", "no whole numbers", "a column of a key", "codes of other places", "no number"],
)
def test_places_are_by_released_orders_of_attributes(wrong: MemberPlace) -> None:
    session, _ = session_on(town(0))
    with pytest.raises(InternalError):
        session.view(ViewSpec("person", {"x": (wrong, TYPE)}))


@pytest.mark.parametrize(
    "wrong",
    [
        SiblingAgreement(OWNER, "home", AGE_OR_NULL),
        SiblingAgreement(OWNER, "age", type("MyCoder", (Discretizer,), {})(AGE_OR_NULL.codec)),
    ],
    ids=["a column of a key", "a subclass"],
)
def test_siblings_agree_in_attributes_by_known_discretizers(wrong: SiblingAgreement) -> None:
    session, _ = session_on(town(0))
    agreement = index_coder("agreement", AGREEMENTS)
    with pytest.raises(InternalError):
        session.view(ViewSpec("person", {"x": (wrong, agreement)}))
    with pytest.raises(InternalError, match="a code for each way to agree"):
        session.view(ViewSpec("person", {"x": (SiblingAgreement(OWNER, "age", AGE_OR_NULL), AGE)}))
    with pytest.raises(InternalError, match="may be NULL"):
        session.view(ViewSpec("person", {"x": (SiblingAgreement(OWNER, "age", AGE), agreement)}))
    session.view(ViewSpec("person", {"x": (SiblingAgreement(OWNER, "age", AGE_OR_NULL), agreement)}))


APART = Discretizer(codec_for(Column("apart", ColumnType.INTEGER, Range(-200, 200), nullable=True), table="person"))
WRONG_DIFFERENCES = {
    "a column of the key": (OwnerDifference(OWNER, "home", "rooms"), APART, "part of a key"),
    "a key of the owner": (OwnerDifference(OWNER, "age", "id"), APART, "part of a key"),
    "no code for none": (OwnerDifference(OWNER, "age", "rooms"), AGE, "without a difference"),
    "no point in time": (OwnerDifference(OWNER, "age", "colour"), APART, "one type"),
    "a key, since the row before": (SincePrevious(OWNER, "home"), APART, "part of a key"),
    "no code for the first row": (SincePrevious(OWNER, "age"), AGE, "without a difference"),
    "a key of the row": (OwnDifference("age", "id"), APART, "part of a key"),
    "no column of the row": (OwnDifference("age", "rooms"), APART, "part of a key"),
    "no code for none in the row": (OwnDifference("age", "age"), AGE, "without a difference"),
}


@pytest.mark.parametrize("wrong", WRONG_DIFFERENCES)
def test_differences_are_between_attributes_of_one_type(wrong: str) -> None:
    session, labels = session_on(town(0))
    feature, coder, why = WRONG_DIFFERENCES[wrong]
    with pytest.raises(InternalError, match=why):
        session.view(ViewSpec("person", {"x": (feature, coder)}))
    assert labels == []
    session.view(ViewSpec("person", {"x": (OwnerDifference(OWNER, "age", "rooms"), APART)}))
    session.view(ViewSpec("person", {"x": (OwnDifference("age", "age"), APART)}))
    session.view(ViewSpec("person", {"x": (SincePrevious(OWNER, "age"), APART)}))


VERDICT = index_coder("verdict", VERDICTS)


@dataclass(frozen=True)
class EveryRow(SameValue):
    """A constraint that nothing was proven of."""


WRONG_CONSTRAINTS = {
    "a key": (MissingTogether(("placed", "customer_id")), VERDICT, "part of a key"),
    "one column twice": (MissingTogether(("size", "size")), VERDICT, "each once"),
    "one column": (MissingTogether(("size",)), VERDICT, "each once"),
    "no columns": (MissingTogether(()), VERDICT, "each once"),
    "no value": (MissingWhere("size", "paid", (), True), VERDICT, "row_constraints"),
    "values that are no texts": (MissingWhere("size", "paid", (1,), True), VERDICT, "row_constraints"),
    "a value twice": (MissingWhere("size", "paid", ("1", "1"), True), VERDICT, "row_constraints"),
    "no list": (MissingWhere("size", "paid", ("1",), True), VERDICT, "of types"),
    "a list of names": (MissingTogether(["size", "paid"]), VERDICT, "row_constraints"),
    "two types": (SameValue("size", "paid"), VERDICT, "of types"),
    "an order of two types": (InOrder("size", "paid"), VERDICT, "of types"),
    "no date": (PartOfDate("paid", "size", DatePart.YEAR), VERDICT, "of types"),
    "no part": (PartOfDate("size", "paid", "year"), VERDICT, "row_constraints"),
    "no number": (Formula("size", ("paid",), False, 0.5), VERDICT, "of types"),
    "a part twice": (Formula("size", ("paid", "paid"), False, 0.5), VERDICT, "each once"),
    "too many parts": (Formula("size", ("paid", "a", "b", "c", "d"), True, 0.5), VERDICT, "row_constraints"),
    "no sum": (Formula("size", ("paid",), "sum", 0.5), VERDICT, "row_constraints"),
    "within no number": (Formula("size", ("paid",), False, float("nan")), VERDICT, "row_constraints"),
    "a subclass": (EveryRow("paid", "placed"), VERDICT, "row_constraints"),
    "too few codes": (SameValue("paid", "placed"), index_coder("verdict", 2), "a code for each verdict"),
}


@pytest.mark.parametrize("wrong", WRONG_CONSTRAINTS)
def test_constraints_are_of_known_kinds_between_attributes(wrong: str) -> None:
    constraint, coder, why = WRONG_CONSTRAINTS[wrong]
    session, labels = session_on(depot(0, relative=False))
    with pytest.raises(InternalError, match=why):
        session.view(ViewSpec("purchase", {"x": (Satisfies(constraint), coder)}))
    assert labels == []
    session.view(ViewSpec("purchase", {"x": (Satisfies(SameValue("paid", "placed")), VERDICT)}))


def test_constraints_are_not_of_differences() -> None:
    session, _ = session_on(depot(0))
    with pytest.raises(InternalError, match="not relative"):
        session.view(ViewSpec("purchase", {"x": (Satisfies(MissingTogether(("size", "placed"))), VERDICT)}))


def test_differences_are_between_columns_of_one_type_or_points_in_time() -> None:
    """All pairs of types: of one, floats and texts have none; of two, only years, days and times are comparable."""
    kinds = [each for each in ColumnType if each.ordered or each is ColumnType.TEXT]
    in_time = {ColumnType.INTEGER, ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}
    digits = {"precision": 9, "scale": 2}
    columns = [
        Column(f"{kind}{n}", kind, **(digits if kind is ColumnType.DECIMAL else {})) for kind in kinds for n in "ab"
    ]
    other = Column("tenths", ColumnType.DECIMAL, precision=9, scale=1)
    table = Table("row", (Column("id", ColumnType.INTEGER), *columns, other), ("id",))
    session, _ = session_on(database_from(Schema("types", (table,), "row"), {"row": []}))
    possible = {(a, b) for a in kinds for b in kinds if {a, b} <= in_time}
    possible |= {(kind, kind) for kind in kinds} - {(kind, kind) for kind in (ColumnType.FLOAT, ColumnType.TEXT)}
    admitted = set()
    for one, two in product(kinds, kinds):
        with suppress(InternalError):
            session.view(ViewSpec("row", {"x": (OwnDifference(f"{one}a", f"{two}b"), APART)}))
            admitted.add((one, two))
    assert admitted == possible
    assert len(possible) > len(in_time) ** 2
    with pytest.raises(InternalError, match="one type"):
        session.view(ViewSpec("row", {"x": (OwnDifference("decimala", "tenths"), APART)}))


def test_columns_as_they_stand_are_no_keys_and_have_a_code_for_null() -> None:
    database = depot(0)
    column = replace(database.schema.table("parcel").column("sent"), relative=None)
    coders = {
        nullable: Discretizer(equal_width_codec(replace(column, nullable=nullable), "2010-01-01", "2021-12-31", 12))
        for nullable in (True, False)
    }
    session, _ = session_on(database)
    for name, coder, why in (("purchase_id", APART, "part of a key"), ("sent", coders[False], "a code for NULL")):
        with pytest.raises(InternalError, match=why):
            session.view(ViewSpec("parcel", {"x": (AsStored(name), coder)}))
    session.view(ViewSpec("parcel", {"x": (AsStored("sent"), coders[True])}))


@pytest.mark.parametrize("feature", looking_along(OWNER))
@pytest.mark.parametrize("key", KEYS)
def test_views_look_along_the_keys_of_the_schema_only(key: str, feature: str) -> None:
    session, _ = session_on(town(0))
    table, wrong = looking_along(KEYS[key])[feature]
    with pytest.raises(InternalError, match="not a foreign key as the schema declares it"):
        session.view(ViewSpec(table, {"x": (wrong, ROOMS)}))


def test_a_key_that_the_schema_does_not_declare_could_move_more_than_claimed() -> None:
    """Why keys are compared: another unit's row is all that a hundred units see."""
    unit = Table(
        "unit", (Column("id", ColumnType.INTEGER), Column("friend", ColumnType.INTEGER, Range(0, 200))), ("id",)
    )
    database = Database(
        Schema("d", (unit,), "unit"),
        {"unit": pa.table({"id": pa.array(range(101)), "friend": pa.array([100] * 101)})},
    )
    friend = ForeignKey("unit", ("friend",), "unit", ("id",), optional=True)
    session, _ = session_on(database)
    present = Discretizer(codec_for(Column("x", ColumnType.INTEGER, Range(-1, 0))))
    with pytest.raises(InternalError, match="not a foreign key"):
        session.view(ViewSpec("unit", {"friend": (ParentRow(friend), present)}))


def deferred() -> Database:
    """Posts, of which others answer to one: their reference becomes NULL when its author goes."""
    integer = ColumnType.INTEGER
    author = ForeignKey("post", ("author",), "unit", ("id",), max_children=3, owner=True)
    answers = ForeignKey("post", ("answers",), "post", ("id",), max_children=100, optional=True)
    columns = (Column("id", integer), Column("author", integer), Column("answers", integer, Range(0, 9), nullable=True))
    post = Table("post", columns, ("id",), (author, answers))
    rows = {"id": pa.array(range(9)), "author": pa.array(range(9)), "answers": pa.array([None] + [0] * 8, pa.int64())}
    schema = Schema("d", (Table("unit", (Column("id", integer),), ("id",)), post), "unit")
    return Database(schema, {"unit": pa.table({"id": pa.array(range(9))}), "post": pa.table(rows)})


def test_columns_of_keys_are_not_looked_at() -> None:
    """The value of a deferred key's column changes when another unit's row goes, and the row stays."""
    database = deferred()
    author, answers = database.schema.table("post").foreign_keys
    discretizer = Discretizer(codec_for(Column("answers", ColumnType.INTEGER, Range(0, 9), nullable=True)))
    for feature in (Own("answers"), Own("id"), OfParent(answers, "answers"), CoMember(author, 1, "answers")):
        session, _ = session_on(database)
        with pytest.raises(InternalError, match="not part of a key"):
            session.view(ViewSpec("post", {"x": (feature, discretizer)}))
    session, labels = session_on(database)
    with pytest.raises(InternalError, match="not part of a key"):
        session.discover("post", "answers", replace(PRICE, delta=1e-4))
    assert labels == []


def test_discretizers_are_of_exact_types_down_to_their_parts() -> None:
    session, _ = session_on(town(0))
    grid = ROOMS.codec.grid  # type: ignore[attr-defined]
    other = type("MyGrid", (Grid,), {})(**{name: getattr(grid, name) for name in grid.__dataclass_fields__})
    short = Binning((0,) * (ROOMS.codec.size - 1), (1.0,) * (ROOMS.codec.size - 1))
    mine = type("MyBinning", (Binning,), {})((0,) * ROOMS.codec.size, (1.0,) * ROOMS.codec.size)
    for discretizer in (
        Discretizer(replace(ROOMS.codec, grid=other)),
        Discretizer(ROOMS.codec, short),
        Discretizer(ROOMS.codec, mine),
    ):  # type: ignore[type-var]
        with pytest.raises(InternalError):
            session.view(ViewSpec("household", {"rooms": (Own("rooms"), discretizer)}))
    unknown = type("MyOwn", (Own,), {})("rooms")
    with pytest.raises(InternalError, match=r"features of privacy\.views"):
        session.view(ViewSpec("household", {"rooms": (unknown, ROOMS)}))


def test_a_column_that_may_be_null_needs_a_code_for_it() -> None:
    """Else the run would stop where some row has none, and go on where no row has."""
    session, _ = session_on(town(0))
    income = SCHEMA.table("household").column("income")
    assert income.nullable
    without = Discretizer(codec_for(replace(income, domain=Range(0.0, 1.0), nullable=False)))
    for table, feature in (("household", Own("income")), ("person", OfParent(OWNER, "income"))):
        with pytest.raises(InternalError, match=r"household\.income may be NULL"):
            session.view(ViewSpec(table, {"x": (feature, without)}))


def test_lists_of_values_are_learned_where_there_are_lists() -> None:
    session, labels = session_on(town(0))
    with pytest.raises(InternalError, match="for categories, and codes"):
        session.discover("household", "rooms", replace(PRICE, delta=1e-4))
    assert labels == []


def test_named_values_are_plain_texts() -> None:
    session, labels = session_on(town(0))
    for named in (["red"], ("red", 1), (type("MyText", (str,), {})("red"),)):
        with pytest.raises(InternalError, match="tuple of texts"):
            session.discover("person", "job", replace(PRICE, delta=1e-4), named)  # type: ignore[arg-type]
        with pytest.raises(InternalError, match="tuple of texts"):
            session.unnamed("person", "job", named, 1)  # type: ignore[arg-type]
    assert labels == []
