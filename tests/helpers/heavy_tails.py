"""Heavy-tailed databases: a chain, a diamond, a junction and optional keys, each with something to lose in every join.

Group sizes are Zipf-like, and columns follow the size of the group, as in real databases: active users write other
posts than those who came once. So whatever is right about the average *parent* alone is wrong about rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

Database = tuple[Schema, dict[str, pa.Table]]
Ints = NDArray[np.int64]
Rng = np.random.Generator


def zipf_sizes(rng: Rng, groups: int, *, most: int, power: float, none: float | NDArray[np.float64] = 0.0) -> Ints:
    """Group sizes with P(s) ∝ s^-power for 1 ≤ s ≤ most, 0 with probability ``none`` (a number, or one per group)."""
    sizes = np.arange(1, most + 1)
    weights = sizes**-power
    drawn = rng.choice(sizes, groups, p=weights / weights.sum())
    return np.where(rng.random(groups) < none, 0, drawn)


def zipf_shares(items: int, power: float) -> NDArray[np.float64]:
    """Popularity of ``items`` things by rank: shares ∝ rank^-power that sum to 1."""
    weights = np.arange(1, items + 1) ** -power
    return np.asarray(weights / weights.sum())


def following(rng: Rng, drive: NDArray[np.number], codes: int, spread: float = 0.8) -> Ints:
    """Codes below ``codes`` around ``drive``: each row's own number, blurred and clipped."""
    return np.clip(np.rint(drive + rng.normal(0.0, spread, len(drive))), 0, codes - 1).astype(np.int64)


def magnitudes(sizes: Ints) -> NDArray[np.float64]:
    """log2 of sizes, 0 for empty groups."""
    return np.log2(np.maximum(sizes, 1))


def chain(users: int = 4000, seed: int = 0) -> Database:
    """User → order → item: sizes of both steps follow Zipf's law and each other, and every column follows some size."""
    rng = np.random.default_rng(seed)
    orders = zipf_sizes(rng, users, most=100, power=2.0, none=0.3)
    of_order = np.repeat(np.arange(users), orders)
    kind = following(rng, magnitudes(orders)[of_order], 7)
    items = zipf_sizes(rng, len(of_order), most=50, power=2.2, none=0.1 + 0.05 * kind)
    of_item = np.repeat(np.arange(len(of_order)), items)
    user = Table("user", (integer("id"), category("region", 4), integer("level", 0, 6)), ("id",))
    order = Table(
        "order",
        (integer("id"), integer("user_id"), category("kind", 7), integer("hour", 0, 7)),
        ("id",),
        (owner_key("order", "user_id", "user", 100),),
    )
    item = Table(
        "item",
        (integer("id"), integer("order_id"), category("sort", 6), integer("price", 0, 9)),
        ("id",),
        (owner_key("item", "order_id", "order", 50),),
    )
    region = rng.choice(4, users, p=[0.4, 0.3, 0.2, 0.1])
    size = magnitudes(items)[of_item]
    tables = {
        "user": rows_of(user, id=np.arange(users), region=texts(region), level=following(rng, magnitudes(orders), 7)),
        "order": rows_of(
            order,
            id=np.arange(len(of_order)),
            user_id=of_order,
            kind=texts(kind),
            hour=following(rng, 2 * region[of_order], 8),
        ),
        "item": rows_of(
            item,
            id=np.arange(len(of_item)),
            order_id=of_item,
            sort=texts(following(rng, size, 6)),
            price=following(rng, size + kind[of_item] / 2, 10),
        ),
    }
    return Schema("chain", (user, order, item), "user"), tables


def diamond(customers: int = 3000, seed: int = 0) -> Database:
    """Customer → account and card, and payments of an account by a card of the same customer."""
    rng = np.random.default_rng(seed)
    accounts = zipf_sizes(rng, customers, most=20, power=2.5)
    cards = zipf_sizes(rng, customers, most=6, power=2.5)
    of_account, of_card = (np.repeat(np.arange(customers), sizes) for sizes in (accounts, cards))
    payments = zipf_sizes(rng, len(of_account), most=60, power=1.9, none=0.2)
    of_payment = np.repeat(np.arange(len(of_account)), payments)
    payer = of_account[of_payment]
    # The first card of a customer is used most.
    rank = np.minimum((rng.random(len(payer)) ** 2 * cards[payer]).astype(np.int64), cards[payer] - 1)
    card = (np.cumsum(cards) - cards)[payer] + rank
    segment = following(rng, magnitudes(accounts), 5)
    brand, currency = following(rng, segment[of_card] / 1.2, 4), following(rng, 1.5 * magnitudes(payments), 6)
    same_unit = ForeignKey("payment", ("card_id",), "card", ("id",), same_unit=True)
    of_customer = Table("customer", (integer("id"), category("segment", 5)), ("id",))
    account = Table(
        "account",
        (integer("id"), integer("customer_id"), category("currency", 6)),
        ("id",),
        (owner_key("account", "customer_id", "customer", 20),),
    )
    of_cards = Table(
        "card",
        (integer("id"), integer("customer_id"), category("brand", 4)),
        ("id",),
        (owner_key("card", "customer_id", "customer", 6),),
    )
    payment = Table(
        "payment",
        (integer("id"), integer("account_id"), integer("card_id"), category("channel", 4), integer("amount", 0, 9)),
        ("id",),
        (owner_key("payment", "account_id", "account", 60), same_unit),
    )
    tables = {
        "customer": rows_of(of_customer, id=np.arange(customers), segment=texts(segment)),
        "account": rows_of(account, id=np.arange(len(of_account)), customer_id=of_account, currency=texts(currency)),
        "card": rows_of(of_cards, id=np.arange(len(of_card)), customer_id=of_card, brand=texts(brand)),
        "payment": rows_of(
            payment,
            id=np.arange(len(payer)),
            account_id=of_payment,
            card_id=card,
            channel=texts(following(rng, brand[card], 4, 0.5)),
            amount=following(rng, 1.4 * magnitudes(payments)[of_payment], 10),
        ),
    }
    return Schema("diamond", (of_customer, account, of_cards, payment), "customer"), tables


def many_to_many(students: int = 4000, courses: int = 150, seed: int = 0) -> Database:
    """Students and public courses that meet in enrolments; courses follow Zipf's law, by their level and their rank."""
    rng = np.random.default_rng(seed)
    taken = zipf_sizes(rng, students, most=min(40, courses), power=1.7, none=0.1)
    of_student = np.repeat(np.arange(students), taken)
    rank = rng.permutation(courses)
    level = np.minimum(rank * 5 // courses, 4)
    shares = zipf_shares(courses, 0.8)
    # The most popular of a student's courses have the smallest of these keys: draws without replacement.
    clock = rng.exponential(size=(students, courses)) / shares[rank]
    order = np.argsort(clock, axis=1)
    course = order[of_student, _ranks(taken)]
    year = following(rng, magnitudes(taken), 6)
    student = Table("student", (integer("id"), integer("year", 0, 5), category("origin", 4)), ("id",))
    offered = Table("course", (integer("id"), integer("level", 0, 4), category("faculty", 5)), ("id",), public=True)
    enrolment = Table(
        "enrolment",
        (integer("student_id"), integer("course_id"), integer("grade", 0, 9), category("mode", 3)),
        ("student_id", "course_id"),
        (
            owner_key("enrolment", "student_id", "student", 40),
            ForeignKey("enrolment", ("course_id",), "course", ("id",)),
        ),
    )
    tables = {
        "student": rows_of(
            student, id=np.arange(students), year=year, origin=texts(rng.choice(4, students, p=[0.5, 0.3, 0.15, 0.05]))
        ),
        "course": rows_of(offered, id=np.arange(courses), level=level, faculty=texts(rng.integers(0, 5, courses))),
        "enrolment": rows_of(
            enrolment,
            student_id=of_student,
            course_id=course,
            grade=following(rng, level[course] + year[of_student] / 1.5, 10),
            mode=texts(following(rng, magnitudes(taken)[of_student] / 2, 3, 0.5)),
        ),
    }
    return Schema("many_to_many", (student, offered, enrolment), "student"), tables


def _ranks(sizes: Ints) -> Ints:
    """0, 1, 2, … within each group."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def optional_keys(users: int = 3000, seed: int = 0) -> Database:
    """User → post → vote, with an optional editor of each post and an optional voter: other users, few of whom do most.

    A unit is a user with their posts and the votes on those; editors and voters belong to other units.
    """
    rng = np.random.default_rng(seed)
    posts = zipf_sizes(rng, users, most=60, power=2.0, none=0.3)
    of_post = np.repeat(np.arange(users), posts)
    votes = zipf_sizes(rng, len(of_post), most=40, power=2.0, none=0.4)
    of_vote = np.repeat(np.arange(len(of_post)), votes)
    reputation = following(rng, magnitudes(posts), 6)
    score = following(rng, 1.5 * magnitudes(votes), 8)
    editor, edited = _some_users(rng, reputation, len(of_post), 0.4)
    voter, voted = _some_users(rng, reputation, len(of_vote), 0.7)
    user = Table("user", (integer("id"), integer("reputation", 0, 5), category("country", 4)), ("id",))
    post = Table(
        "post",
        (
            integer("id"),
            integer("user_id"),
            integer("editor_id", nullable=True),
            integer("score", 0, 7),
            category("tag", 5),
        ),
        ("id",),
        (
            owner_key("post", "user_id", "user", 60),
            ForeignKey("post", ("editor_id",), "user", ("id",), max_children=200, optional=True),
        ),
    )
    vote = Table(
        "vote",
        (integer("id"), integer("post_id"), integer("voter_id", nullable=True), category("kind", 4)),
        ("id",),
        (
            owner_key("vote", "post_id", "post", 40),
            ForeignKey("vote", ("voter_id",), "user", ("id",), max_children=600, optional=True),
        ),
    )
    kind = np.where(voted, np.minimum(reputation[voter] // 2, 2), 3)
    tables = {
        "user": rows_of(
            user,
            id=np.arange(users),
            reputation=reputation,
            country=texts(rng.choice(4, users, p=[0.5, 0.3, 0.15, 0.05])),
        ),
        "post": rows_of(
            post,
            id=np.arange(len(of_post)),
            user_id=of_post,
            editor_id=pa.array(editor, mask=~edited),
            score=score,
            tag=texts(np.where(edited, following(rng, reputation[editor] / 1.5, 5), 0)),
        ),
        "vote": rows_of(
            vote,
            id=np.arange(len(of_vote)),
            post_id=of_vote,
            voter_id=pa.array(voter, mask=~voted),
            kind=texts(np.where(rng.random(len(of_vote)) < 0.9, kind, rng.integers(0, 4, len(of_vote)))),
        ),
    }
    return Schema("optional_keys", (user, post, vote), "user"), tables


def _some_users(rng: Rng, reputation: Ints, rows: int, share: float) -> tuple[Ints, NDArray[np.bool_]]:
    """References to users by Zipf's law, users of reputation first, and where there is one."""
    ranked = np.argsort(-reputation - rng.random(len(reputation)))
    return ranked[rng.choice(len(ranked), rows, p=zipf_shares(len(ranked), 0.9))], rng.random(rows) < share


CONVERGING: dict[str, Callable[[], Database]] = {
    "chain": chain,
    "diamond": diamond,
    "many_to_many": many_to_many,
    "optional_keys": optional_keys,
}
"""The databases on which every synthesizer converges to the source."""
