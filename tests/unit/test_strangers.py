"""The made-up company of `benchmarks.strangers_data` is the same each time, and its relations hold for every row."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from benchmarks.strangers_data import fill_company
from benchmarks.strangers_saas import company_tables

_MEMBER = "EXISTS (SELECT 1 FROM memberships m WHERE m.account_id = p.account_id AND m.user_id = {user})"
_OF_TICKET = "JOIN tickets t ON t.id = c.ticket_id JOIN projects p ON p.id = t.project_id"

RULES = {
    "an account's times follow each other": (
        "accounts",
        (
            "(first_login_at IS NULL) = (last_seen_at IS NULL) AND (churned_at IS NULL) = (status <> 'churned')"
            " AND coalesce(created_at <= first_login_at AND first_login_at <= last_seen_at, true)"
            " AND coalesce(last_seen_at <= churned_at, true)"
        ),
    ),
    "a country has a currency and a region": (
        "accounts a",
        (
            "NOT EXISTS (SELECT 1 FROM accounts b WHERE a.country = b.country"
            " AND (a.currency, a.region) <> (b.currency, b.region))"
        ),
    ),
    "a label is of the ticket's project": (
        "ticket_labels c JOIN tickets t ON t.id = c.ticket_id",
        "c.project_id = t.project_id",
    ),
    "who reports or is assigned is a member": (
        "tickets t JOIN projects p ON p.id = t.project_id",
        f"{_MEMBER.format(user='reporter_id')} AND (assignee_id IS NULL OR {_MEMBER.format(user='assignee_id')})",
    ),
    "a ticket's times and states agree": (
        "tickets t JOIN projects p ON p.id = t.project_id",
        (
            "(closed_at IS NULL) = (status <> 'closed') AND created_year = year(t.created_at)"
            " AND p.created_at <= t.created_at AND coalesce(t.created_at <= closed_at, true)"
            " AND coalesce(closed_at <= archived_at, true)"
        ),
    ),
    "who comments is a member, later": (
        f"comments c {_OF_TICKET}",
        f"{_MEMBER.format(user='author_id')} AND t.created_at <= c.created_at",
    ),
    "who uploads is a member, later": (
        f"attachments c {_OF_TICKET}",
        f"{_MEMBER.format(user='uploaded_by')} AND t.created_at <= uploaded_at",
    ),
    "who acts is a member, while the account lasts": (
        "events p JOIN accounts a ON a.id = p.account_id",
        f'{_MEMBER.format(user="user_id")} AND coalesce("at" <= churned_at, true)',
    ),
    "an amount is quantity times price": ("invoice_lines", "amount = quantity * unit_price"),
    "a total is the sum of its lines": (
        "invoices i",
        "total = (SELECT sum(amount) FROM invoice_lines WHERE invoice_id = i.id)",
    ),
    "an invoice agrees with its account": (
        "invoices i JOIN subscriptions s ON s.id = i.subscription_id JOIN accounts a ON a.id = i.account_id",
        "a.id = s.account_id AND a.currency = i.currency AND year = year(issued_on) AND due_on = issued_on + 30",
    ),
    "a price is the plan's": ("subscriptions s JOIN plans USING (plan)", "unit_price = price"),
}


@pytest.fixture(scope="module")
def company() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        fill_company(connection, company_tables(accounts=80))
        yield connection


def test_a_seed_gives_one_company() -> None:
    assert company_tables(accounts=20) == company_tables(accounts=20)
    assert company_tables(accounts=20) != company_tables(accounts=20, seed=8)


@pytest.mark.parametrize("rule", RULES)
def test_relations_hold_for_every_row(company: duckdb.DuckDBPyConnection, rule: str) -> None:
    rows, holds = RULES[rule]
    asked = f"SELECT count(*) > 20, count(*) FILTER (WHERE ({holds}) IS NOT TRUE) FROM {rows}"
    assert company.execute(asked).fetchall() == [(True, 0)]
