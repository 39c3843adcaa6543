"""A database whose keys are of every kind that ranges know: within the unit, to own rows, in a cycle, to few places."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

BRANCHES, CLUBS, BOXES = 12, 300, 40
MOST_MEMBERS, MOST_ADVISED, MOST_HELD = 30, 60, 700
KINDS = ("a", "b", "c")


def _optional(name: str, columns: tuple[str, ...], parent: str, referred: tuple[str, ...], **how: object) -> ForeignKey:
    return ForeignKey(name, columns, parent, referred, optional=True, **how)  # type: ignore[arg-type]


def bank(clients: int = 2400) -> tuple[Schema, dict[str, pa.Table]]:
    """Clients with accounts and orders; nearly all keys follow the kinds of both ends.

    ``client.best`` and ``client_order.account`` stay within the client, ``client_order.(client_id, number)`` shares its
    owner with a card, ``client.adviser`` refers to clients, and ``client.club_id`` closes a cycle. Few accounts can
    refer to a branch along ``account.branch_id``, and one to a box.
    """
    rng = np.random.default_rng(0)
    branch = Table("branch", (integer("id"), category("kind", 3)), ("id",), public=True)
    box = Table("box", (integer("id"),), ("id",), public=True)
    client = Table(
        "client",
        (integer("id"), category("kind", 3), *(integer(n, nullable=True) for n in ("adviser", "best", "club_id"))),
        ("id",),
        (
            _optional("client", ("adviser",), "client", ("id",), max_children=MOST_ADVISED),
            _optional("client", ("best",), "account", ("id",), same_unit=True),
            _optional("client", ("club_id",), "club", ("id",), max_children=MOST_MEMBERS),
        ),
    )
    founder = owner_key("club", "founder", "client", 2)
    club = Table("club", (integer("id"), integer("founder"), category("kind", 3)), ("id",), (founder,))
    account = Table(
        "account",
        (
            *(integer("id"), integer("client_id"), category("kind", 3)),
            *(integer("branch_id"), integer("box", nullable=True)),
        ),
        ("id",),
        (
            owner_key("account", "client_id", "client", 4),
            ForeignKey("account", ("branch_id",), "branch", ("id",), max_children=MOST_HELD),
            _optional("account", ("box",), "box", ("id",)),
        ),
        unique=(("box",),),
    )
    card = Table(
        "card",
        (integer("client_id"), integer("number"), category("kind", 3)),
        ("client_id", "number"),
        (owner_key("card", "client_id", "client", 4),),
    )
    order = Table(
        "client_order",
        (integer("id"), integer("client_id"), integer("number"), integer("account"), category("kind", 3)),
        ("id",),
        (
            owner_key("client_order", "client_id", "client", 12),
            ForeignKey("client_order", ("client_id", "number"), "card", ("client_id", "number"), max_children=30),
            ForeignKey("client_order", ("account",), "account", ("id",), same_unit=True),
        ),
    )
    kind = rng.integers(0, 3, clients)
    owner = np.repeat(np.arange(clients), rng.integers(1, 4, clients))
    accounts, first = len(owner), np.searchsorted(owner, np.arange(clients))
    account_kind, number = rng.integers(0, 3, accounts), np.arange(accounts) - first[owner]
    club_kind = np.arange(CLUBS) % 3

    def some(of: np.ndarray, wanted: np.ndarray, power: float) -> np.ndarray:
        found = np.empty(len(wanted), dtype=np.int64)
        for each in range(3):
            members, asking = np.flatnonzero(of == each), np.flatnonzero(wanted == each)
            weights = np.arange(1, len(members) + 1) ** -power
            found[asking] = rng.choice(members, len(asking), p=weights / weights.sum())
        return found

    adviser = some(kind, np.where(rng.random(clients) < 0.8, kind, rng.integers(0, 3, clients)), 0.8)
    adviser = np.where(adviser < np.arange(clients), adviser, -1)  # a forest
    adviser[rng.random(clients) < 0.2] = -1
    club_id = some(club_kind, kind, 0.4)
    club_id[rng.random(clients) < 0.3] = -1
    club_id[_beyond(club_id, MOST_MEMBERS)] = -1
    buyer = rng.integers(0, clients, 3 * clients)
    among = first[buyer] + rng.integers(0, np.bincount(owner)[buyer])
    other = first[buyer] + rng.integers(0, np.bincount(owner)[buyer])
    order_kind = np.where(rng.random(len(buyer)) < 0.8, account_kind[among], rng.integers(0, 3, len(buyer)))
    branch_id = np.minimum((BRANCHES * rng.random(accounts) ** 1.5).astype(np.int64), BRANCHES - 1)
    branch_id[_beyond(branch_id, MOST_HELD)] = BRANCHES - 1
    boxes = rng.permutation(np.append(np.arange(BOXES - 4), np.full(accounts - BOXES + 4, -1)))

    def nullable(places: np.ndarray) -> pa.Array:
        return pa.array(places, mask=places < 0)

    tables = {
        "branch": rows_of(branch, id=np.arange(BRANCHES), kind=texts(np.arange(BRANCHES) % 3)),
        "box": rows_of(box, id=np.arange(BOXES)),
        "client": rows_of(
            client,
            id=np.arange(clients),
            kind=texts(kind),
            adviser=nullable(adviser),
            best=nullable(np.where(rng.random(clients) < 0.75, first, -1)),
            club_id=nullable(club_id),
        ),
        "club": rows_of(club, id=np.arange(CLUBS), founder=rng.permutation(clients)[:CLUBS], kind=texts(club_kind)),
        "account": rows_of(
            account,
            id=np.arange(accounts),
            client_id=owner,
            kind=texts(account_kind),
            branch_id=branch_id,
            box=nullable(boxes),
        ),
        "card": rows_of(card, client_id=owner, number=number, kind=texts(account_kind)),
        "client_order": rows_of(
            order,
            id=np.arange(len(buyer)),
            client_id=buyer,
            number=number[among],
            account=other,
            kind=texts(order_kind),
        ),
    }
    return Schema("bank", (branch, box, client, club, account, card, order), "client"), tables


def _beyond(places: np.ndarray, most: int) -> np.ndarray:
    """Which rows refer to a parent that has ``most`` before them."""
    order = np.argsort(places, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(places[order], places[order])
    found = np.zeros(len(order), dtype=bool)
    found[order] = (rank >= most) & (places[order] >= 0)
    return found
