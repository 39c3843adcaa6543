"""A made-up company that sells software: sixteen tables whose columns and rows obey exact relations.

All of it is drawn from a seed. What holds without exception: a country has one currency and one region; a project's
tickets and its labels agree; who reports, is assigned, comments or uploads is a member of the account; times of an
account follow each other and end when it leaves; states and the times they need go together; amounts are quantity times
price, totals are sums, and years are years of times.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_START, _END = 1_546_300_800, 1_751_241_600  # 2019 to the middle of 2025, in seconds
_DAY = 86_400
_COUNTRIES = (
    ("US", "USD", "Americas", 0.34),
    ("CA", "CAD", "Americas", 0.08),
    ("BR", "BRL", "Americas", 0.06),
    ("GB", "GBP", "EMEA", 0.14),
    ("DE", "EUR", "EMEA", 0.12),
    ("FR", "EUR", "EMEA", 0.08),
    ("NL", "EUR", "EMEA", 0.05),
    ("ZA", "ZAR", "EMEA", 0.02),
    ("IN", "INR", "APAC", 0.06),
    ("AU", "AUD", "APAC", 0.03),
    ("JP", "JPY", "APAC", 0.02),
)
_PLANS = (("free", 0, 3), ("starter", 900, 10), ("team", 1900, 50), ("business", 3900, 250), ("enterprise", 7900, 5000))
_FIRST = ["Ada", "Ben", "Chloe", "Dmitri", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Liam"]
_LAST = ["Abe", "Brandt", "Costa", "Evans", "Fischer", "Garcia", "Haddad", "Ito", "Jensen", "Kowalski", "Novak"]
_LABELS = (
    ("bug", "#d73a4a"),
    ("feature", "#a2eeef"),
    ("question", "#d876e3"),
    ("urgent", "#b60205"),
    ("docs", "#0075ca"),
)
_TAGS = np.array(["web", "mobile", "api", "beta", "internal", "import"])
_FILES = (
    ("png", "image/png", 11.5),
    ("pdf", "application/pdf", 13.0),
    ("log", "text/plain", 9.0),
    ("csv", "text/csv", 10.5),
)
_EVENTS = np.array(["page_view", "search", "export", "invite", "upgrade_click"])
_ACTIONS = np.array(["login", "logout", "create", "update", "delete", "export"])
_ITEMS = np.array(["Seats", "Storage", "Support", "Training"])


@dataclass(frozen=True)
class _Accounts:
    """What other tables need of accounts, and who is a member of which, sorted by account."""

    created: Ints
    login: Ints
    ends: Ints
    size: Ints
    used: Ints
    plan: Ints
    currency: NDArray[np.str_]
    first: Ints
    members: Ints
    joined: Ints

    def member(self, accounts: Ints, rng: np.random.Generator) -> Ints:
        """Positions among memberships of a member of each account; the first ones do more."""
        share = rng.beta(1, 2, len(accounts))
        return self.first[accounts] + (share * (self.first[accounts + 1] - self.first[accounts])).astype(np.int64)


def company_tables(accounts: int = 1000, seed: int = 7) -> dict[str, pa.Table]:
    """Draw all tables by name; money is in cents, and columns that SQL can compute are left to it."""
    rng = np.random.default_rng(seed)
    tables, known = _people(accounts, rng)
    tables["plans"] = _table(
        plan=[p for p, _, _ in _PLANS], price=[c for _, c, _ in _PLANS], seats=[s for *_, s in _PLANS]
    )
    tables |= _work(known, rng) | _money(known, rng) | _traces(known, rng)
    return tables


def _people(number: int, rng: np.random.Generator) -> tuple[dict[str, pa.Table], _Accounts]:
    """Accounts, users and memberships."""
    country = rng.choice(len(_COUNTRIES), number, p=[share for *_, share in _COUNTRIES])
    created = np.sort(_START + ((_END - _DAY - _START) * rng.beta(1.6, 1.0, number)).astype(np.int64))
    size = np.minimum(1 + rng.negative_binomial(0.7, 0.15, number), 120).astype(np.int64)
    plan = np.clip(np.searchsorted([2, 6, 20, 60], size, side="right") + rng.integers(-1, 2, number), 0, 4)
    left = rng.random(number) < np.array([0.45, 0.3, 0.2, 0.12, 0.05])[plan]
    ends = np.where(left, _between(created, np.full(number, _END), 1.5, 2.0, rng), _END)
    login = _between(created, ends, 0.6, 30.0, rng)
    never = (size == 1) & (plan == 0) & (rng.random(number) < 0.4)
    seen = _between(login, ends, 4.0, 0.5, rng)
    status = np.where(left, "churned", np.where((plan == 0) & (rng.random(number) < 0.5), "trial", "active"))
    settings = [
        json.dumps({"theme": theme, "seats": int(s), "beta": bool(b), "locale": _COUNTRIES[c][0].lower()})
        for theme, s, b, c in zip(
            rng.choice(["light", "dark", "system"], number, p=[0.5, 0.2, 0.3]),
            np.array([p[2] for p in _PLANS])[plan],
            rng.random(number) < 0.15,
            country,
            strict=True,
        )
    ]
    home = np.repeat(np.arange(number), size)
    users = len(home)
    born = _between(created[home], ends[home], 0.8, 2.5, rng)
    born[np.searchsorted(home, np.arange(number))] = created  # the first user opens the account
    guests = np.flatnonzero(rng.random(users) < 0.05)
    hosts = rng.integers(0, number, len(guests))
    fits = (hosts != home[guests]) & (ends[hosts] > np.maximum(created[hosts], born[guests]))
    guests, hosts = guests[fits], hosts[fits]
    member, where = np.concatenate([np.arange(users), guests]), np.concatenate([home, hosts])
    joined = np.concatenate([born, _between(np.maximum(created[hosts], born[guests]), ends[hosts], 1.0, 1.0, rng)])
    order = np.lexsort((joined, where))
    member, where, joined = member[order], where[order], joined[order]
    first = np.searchsorted(where, np.arange(number + 1))
    role = np.where(
        np.isin(np.arange(len(where)), first), "owner", rng.choice(["admin", "member"], len(where), p=[0.15, 0.85])
    )
    role[home[member] != where] = "guest"
    given, family = rng.choice(_FIRST, users), rng.choice(_LAST, users)
    active = rng.random(users) < 0.85
    codes = np.array([code for code, *_ in _COUNTRIES])[country]
    tables = {
        "accounts": _table(
            id=np.arange(1, number + 1),
            name=[
                f"{family} {kind}"
                for family, kind in zip(
                    rng.choice(_LAST, number), rng.choice(["Ltd", "Labs", "& Co", "Studio"], number), strict=True
                )
            ],
            country=codes,
            currency=np.array([c for _, c, *_ in _COUNTRIES])[country],
            region=np.array([r for _, _, r, _ in _COUNTRIES])[country],
            status=status,
            created_at=_times(created),
            first_login_at=_times(login, ~never),
            last_seen_at=_times(seen, ~never),
            churned_at=_times(ends, left),
            settings=settings,
        ),
        "users": _table(
            id=np.arange(1, users + 1),
            account_id=home + 1,
            name=[f"{a} {b}" for a, b in zip(given, family, strict=True)],
            email=[
                f"{a.lower()}.{b.lower()}{n}@example.com" for n, (a, b) in enumerate(zip(given, family, strict=True), 1)
            ],
            created_at=_times(born),
            last_login_at=_times(_between(born, ends[home], 3.0, 1.0, rng), active),
            two_factor=rng.random(users) < np.where(plan[home] > 2, 0.8, 0.2),
        ),
        "memberships": _table(user_id=member + 1, account_id=where + 1, role=role, joined_at=_times(joined)),
    }
    currency = np.array([c for _, c, *_ in _COUNTRIES])[country]
    used = np.where(never, 0, size)
    return tables, _Accounts(created, login, ends, size, used, plan, currency, first, member, joined)


def _work(known: _Accounts, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Projects, tickets, labels, comments and attachments."""
    account = np.repeat(np.arange(len(known.size)), np.minimum(rng.poisson(0.8 * np.sqrt(known.used)), 30))
    projects = len(account)
    opened = _between(known.login[account], known.ends[account], 1.0, 2.5, rng)
    archived = rng.random(projects) < 0.25
    closes = np.where(archived, _between(opened, known.ends[account], 2.0, 1.0, rng), known.ends[account])
    count = np.minimum(rng.negative_binomial(0.8, 0.12, projects), 200)
    project = np.repeat(np.arange(projects), count)
    tickets = len(project)
    reporter = known.member(account[project], rng)
    fits = np.maximum(opened[project], known.joined[reporter])
    late = fits >= closes[project]
    reporter[late] = known.first[account[project]][late]  # the owner of the account was there from the beginning
    made = _between(np.where(late, opened[project], fits), closes[project], 1.0, 1.2, rng)
    order = np.lexsort((made, project))
    made, reporter = made[order], reporter[order]
    urgency = rng.choice(4, tickets, p=[0.2, 0.5, 0.22, 0.08])
    solved = made + (_DAY * rng.lognormal(np.array([3.0, 2.2, 1.2, 0.0])[urgency], 1.0)).astype(np.int64)
    closed = (solved < closes[project]) & (rng.random(tickets) < 0.9)
    assigned = closed | (rng.random(tickets) < 0.55)
    kinds = np.array(["low", "normal", "high", "critical"])
    waiting = np.where(assigned, rng.choice(["in_progress", "blocked"], tickets, p=[0.8, 0.2]), "open")
    assignee = known.members[known.member(account[project], rng)]
    named = [np.flatnonzero(rng.random(projects) < share) for share in (0.95, 0.8, 0.4, 0.5, 0.3)]
    has = np.zeros((projects, len(_LABELS)), bool)
    for label, rows in enumerate(named):
        has[rows, label] = True
    labelled = has[project] & (rng.random((tickets, len(_LABELS))) < np.array([0.4, 0.25, 0.1, 0.05, 0.08]))
    labelled[:, 3] |= has[project, 3] & (urgency == 3)
    of_ticket, label = np.nonzero(labelled)
    owner, kind = np.nonzero(has)
    names, colours = (np.array(each) for each in zip(*_LABELS, strict=True))
    until = np.where(closed, solved, closes[project])
    said = np.repeat(np.arange(tickets), rng.poisson(np.where(closed, 1.3, 0.7)))
    spoken = _between(made[said], until[said], 1.0, 2.0, rng)
    speaker = known.members[known.member(account[project[said]], rng)]
    put = rng.choice(tickets, tickets // 5)
    kept = rng.choice(len(_FILES), len(put), p=[0.5, 0.2, 0.2, 0.1])
    volume = rng.lognormal(np.array([m for *_, m in _FILES])[kept], 1.2).astype(np.int64)
    return {
        "projects": _table(
            id=np.arange(1, projects + 1),
            account_id=account + 1,
            name=[
                f"{a} {b}"
                for a, b in zip(
                    rng.choice(["Apollo", "Basil", "Cedar", "Delta", "Ember"], projects),
                    rng.choice(["web", "app", "ops", "2.0"], projects),
                    strict=True,
                )
            ],
            visibility=rng.choice(["private", "team", "public"], projects, p=[0.3, 0.6, 0.1]),
            created_at=_times(opened),
            archived_at=_times(closes, archived),
            budget=pa.array(np.round(rng.lognormal(9, 1, projects), -2), mask=rng.random(projects) < 0.3),
        ),
        "tickets": _table(
            id=np.arange(1, tickets + 1),
            project_id=project + 1,
            number=np.arange(tickets) - np.searchsorted(project, project) + 1,
            reporter_id=known.members[reporter] + 1,
            assignee_id=pa.array(assignee + 1, mask=~assigned),
            status=np.where(closed, "closed", waiting),
            priority=kinds[urgency],
            created_at=_times(made),
            closed_at=_times(solved, closed),
            estimate_hours=pa.array(rng.integers(1, 17, tickets) / 2, mask=rng.random(tickets) < 0.4),
        ),
        "labels": _table(project_id=owner + 1, name=names[kind], color=colours[kind]),
        "ticket_labels": _table(ticket_id=of_ticket + 1, project_id=project[of_ticket] + 1, label=names[label]),
        "comments": _table(
            id=np.arange(1, len(said) + 1),
            ticket_id=said + 1,
            author_id=speaker + 1,
            created_at=_times(spoken),
            body=[
                f"{a} {b}."
                for a, b in zip(
                    rng.choice(
                        ["Looked into it", "Fixed", "See the log", "Waiting for a reply", "Cannot reproduce"], len(said)
                    ),
                    rng.integers(1, 10**6, len(said)),
                    strict=True,
                )
            ],
            edited=rng.random(len(said)) < 0.1,
        ),
        "attachments": _table(
            id=np.arange(1, len(put) + 1),
            ticket_id=put + 1,
            uploaded_by=known.members[known.member(account[project[put]], rng)] + 1,
            file_name=[f"file-{n}.{_FILES[k][0]}" for n, k in zip(rng.integers(1, 10**5, len(put)), kept, strict=True)],
            content_type=np.array([mime for _, mime, _ in _FILES])[kept],
            bytes=volume,
            uploaded_at=_times(_between(made[put], until[put], 0.8, 3.0, rng)),
        ),
    }


def _money(known: _Accounts, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Subscriptions that follow each other, invoices by the quarter, and their lines."""
    account = np.repeat(np.arange(len(known.size)), 1 + rng.poisson(0.5, len(known.size)))
    place = np.arange(len(account)) - np.searchsorted(account, account)
    share = (place + np.where(place, rng.random(len(account)), 0)) / np.bincount(account)[account]
    start, end = known.created[account], known.ends[account]
    begun = start + ((end - start) * share).astype(np.int64)
    last = np.append(account[1:] != account[:-1], True)
    stops = np.where(last, end, np.append(begun[1:], 0))
    plan = np.clip(known.plan[account] - (np.bincount(account)[account] - 1 - place), 0, 4)
    price = np.array([cents for _, cents, _ in _PLANS])[plan]
    seats = np.maximum(1, known.size[account] + rng.integers(0, 3, len(account)))
    bills = np.where(price > 0, (stops - begun) // (_DAY * 182), 0)
    of = np.repeat(np.arange(len(account)), bills)
    issued = begun[of] + _DAY * 182 * (1 + np.arange(len(of)) - np.searchsorted(of, of))
    paid = issued + (_DAY * rng.gamma(2.0, 8.0, len(of))).astype(np.int64)
    settled = (rng.random(len(of)) < 0.94) & (paid < _END)
    lines = 1 + rng.choice(4, len(of), p=[0.5, 0.3, 0.15, 0.05])
    bill = np.repeat(np.arange(len(of)), lines)
    line = np.arange(len(bill)) - np.searchsorted(bill, bill)
    item = np.where(line == 0, 0, rng.integers(1, 4, len(bill)))
    cost = np.where(item == 0, price[of[bill]] * 6, np.array([0, 500, 2500, 12000])[item])
    quantity = np.where(item == 0, seats[of[bill]], rng.geometric(0.4, len(bill)))
    total = np.bincount(bill, cost * quantity, len(of)).astype(np.int64)
    ended = stops < _END
    return {
        "subscriptions": _table(
            id=np.arange(1, len(account) + 1),
            account_id=account + 1,
            plan=np.array([name for name, *_ in _PLANS])[plan],
            seats=seats,
            unit_price=price,
            started_on=_times(begun),
            ended_on=_times(stops, ended),
        ),
        "invoices": _table(
            id=np.arange(1, len(of) + 1),
            subscription_id=of + 1,
            account_id=account[of] + 1,
            number=[f"INV-{n:06d}" for n in range(1, len(of) + 1)],
            currency=known.currency[account[of]],
            issued_on=_times(issued),
            due_on=_times(issued + 30 * _DAY),
            paid_on=_times(paid, settled),
            total=total,
        ),
        "invoice_lines": _table(
            invoice_id=bill + 1, line=line + 1, description=_ITEMS[item], quantity=quantity, unit_price=cost
        ),
    }


def _traces(known: _Accounts, rng: np.random.Generator) -> dict[str, pa.Table]:
    """API keys, the audit log, and events."""
    owner = np.repeat(np.arange(len(known.size)), rng.poisson(np.where((known.used > 0) & (known.plan > 1), 1.2, 0.2)))
    minted = _between(known.created[owner], known.ends[owner], 1.0, 1.5, rng)
    revoked = rng.random(len(owner)) < 0.3
    scopes = [["read"] + ["write"] * bool(w) + ["admin"] * bool(w and a) for w, a in rng.random((len(owner), 2)) < 0.4]

    def visits(rate: float) -> tuple[Ints, Ints, Ints]:
        account = np.repeat(np.arange(len(known.size)), rng.poisson(rate * np.sqrt(known.used)))
        who = known.member(account, rng)
        at = _between(np.maximum(known.joined[who], known.login[account]), known.ends[account], 1.0, 1.0, rng)
        order = np.argsort(at, kind="stable")
        return account[order], known.members[who][order], at[order]

    actor_account, actor, acted = visits(3.5)
    visitor_account, visitor, visited = visits(4.5)
    name = rng.choice(len(_EVENTS), len(visited), p=[0.6, 0.2, 0.1, 0.06, 0.04])
    payload = [
        json.dumps({"path": path, "ms": int(ms), "mobile": bool(mobile), "plan": _PLANS[plan][0]})
        for path, ms, mobile, plan in zip(
            rng.choice(["/home", "/tickets", "/projects", "/billing"], len(visited), p=[0.35, 0.4, 0.2, 0.05]),
            rng.lognormal(5.5, 0.8, len(visited)),
            rng.random(len(visited)) < 0.25,
            known.plan[visitor_account],
            strict=True,
        )
    ]
    tags = [
        _TAGS[chosen].tolist() for chosen in rng.random((len(visited), len(_TAGS))) < [0.6, 0.25, 0.15, 0.1, 0.05, 0.02]
    ]
    return {
        "api_keys": _table(
            id=[str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in owner],
            account_id=owner + 1,
            scopes=pa.array(scopes, pa.list_(pa.string())),
            created_at=_times(minted),
            revoked_at=_times(_between(minted, known.ends[owner], 1.0, 1.0, rng), revoked),
        ),
        "audit_log": _table(
            id=np.arange(1, len(acted) + 1),
            at=_times(acted),
            account_id=actor_account + 1,
            user_id=actor + 1,
            action=_ACTIONS[rng.choice(len(_ACTIONS), len(acted), p=[0.4, 0.25, 0.15, 0.14, 0.04, 0.02])],
        ),
        "events": _table(
            id=np.arange(1, len(visited) + 1),
            account_id=visitor_account + 1,
            user_id=visitor + 1,
            name=_EVENTS[name],
            at=_times(visited),
            payload=payload,
            tags=pa.array(tags, pa.list_(pa.string())),
        ),
    }


def _between(low: Ints, high: Ints, a: float, b: float, rng: np.random.Generator) -> Ints:
    """Draw seconds from ``low`` to ``high``, by a beta distribution of the share that has passed."""
    return low + ((high - low) * rng.beta(a, b, len(low))).astype(np.int64)


def _times(seconds: Ints, known: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(seconds, mask=None if known is None else ~known).cast(pa.timestamp("s"))


def _table(**columns: object) -> pa.Table:
    return pa.table(columns)
