"""Whose rows a draft protects: no guess where one person may have several rows, and a warning where columns say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.draft.draft import Decisions, Survey, reflect
from privbench_core.draft.units import guess_unit, most_cover, propose_roles, repeated_persons, why_unit
from privbench_core.errors import SpecError
from privbench_core.schema.columns import ColumnType
from privbench_core.spec.load import load_spec
from tests.helpers.drafts import call, catalogue_of, duckdb_file, sqlite_file

VISITS = "CREATE TABLE visits (id INTEGER PRIMARY KEY, email TEXT, seen_at TIMESTAMP, dur INTEGER);"
IDENTIFYING = [
    "email", "e_mail", "EMailAddress", "user_email", "customer_email", "mail", "phone", "phone_number", "home_phone",
    "mobile", "mobileNo", "cell", "telephone", "fax", "msisdn", "imei", "imsi", "device_id", "advertising_id",
    "cookie_id", "ssn", "social_security_number", "national_id", "national_insurance_number", "nino", "tax_id",
    "taxpayer_number", "passport", "passport_no", "PassportNumber", "drivers_license", "driving_licence_no",
    "license_plate", "iban", "bank_account", "account_number", "card_number", "credit_card", "mrn", "nhs_number",
    "medical_record_number", "health_card_number", "insurance_no", "policy_number", "patient_id", "patientNo",
    "subject_id", "participant_code", "respondent_id", "student_number", "matriculation_no", "employee_id", "emp_no",
    "badge_number", "member_id", "membership_no", "loyalty_card_no", "subscriber_id", "customer_id", "custno",
    "client_ref", "user_id", "userid", "uid", "pid", "person_key", "voter_id", "citizen_id", "visitor_id", "guest_name",
    "username", "user_name", "login", "nickname", "screen_name", "handle", "twitter", "first_name", "FirstName",
    "surname", "last_name", "full_name", "customer_name", "maiden_name", "name", "initials", "ip", "ip_address",
    "mac_address", "address", "home_address", "street", "zip", "postcode", "fingerprint", "photo",
]  # fmt: skip
PLAIN = [
    "kind",
    "status",
    "dur",
    "amount",
    "seen_on",
    "email_opt_in",
    "phone_type",
    "street_number",
    "country",
    "score",
]


def table_of(name: str, *columns: str, kind: ColumnType = ColumnType.CATEGORY) -> FoundTable:
    key = FoundColumn("id", ColumnType.INTEGER, "INTEGER", nullable=False)
    return FoundTable(name, (key, *(FoundColumn(column, kind, "text", nullable=True) for column in columns)), ("id",))


def test_the_only_table_is_no_unit_unless_it_is_called_after_persons(tmp_path: Path) -> None:
    """It was ``unit: visits``, with nothing left to fill in."""
    source, out = sqlite_file(tmp_path, VISITS), tmp_path / "spec.yaml"
    told = call("init", source, "-o", out)
    warning = "email seems to identify a person and may recur in visits: one person may have several rows."
    assert warning in told.stdout
    assert "privacy.unit" in told.stdout
    draft = out.read_text(encoding="utf-8")
    assert f"  # {warning} Then each row would be protected, but not the person." in draft
    assert (
        "  unit: CHOOSE # decide: write visits if each person has at most one row there, because each row is" in draft
    )
    with pytest.raises(SpecError) as caught:
        load_spec(out)
    assert [line.partition(";")[0] for line in caught.value.problems] == ["privacy: unit is not decided yet"]
    out.write_text(draft.replace("unit: CHOOSE", "unit: visits"), encoding="utf-8")
    assert load_spec(out).schema.unit == "visits", "nothing else is left to fill in"
    for name, unit in (("visits", None), ("adult_clean", None), ("orders", None), ("patients", "patients")):
        assert guess_unit(Catalogue("d", (table_of(name),))) == unit


def test_the_interview_takes_no_enter_for_the_unit_of_such_a_table(tmp_path: Path) -> None:
    source, out = sqlite_file(tmp_path, VISITS), tmp_path / "spec.yaml"
    result = call("init", source, "--interactive", "-o", out, answers="\n" * 8)
    assert result.exit_code != 0
    assert not out.exists()
    asked = call("init", source, "--interactive", "-o", out, answers="\nvisits\n\n\n\nn\n")
    assert asked.exit_code == 0, asked.output
    assert "site: 1 table. Press Enter" in asked.stdout
    assert asked.stdout.index("one person may have several rows") < asked.stdout.index("1. Whose rows are protected?")
    assert load_spec(out).schema.unit == "visits"


@pytest.mark.parametrize("kind", [ColumnType.CATEGORY, ColumnType.INTEGER])
def test_a_column_that_identifies_persons_and_may_recur_is_a_warning(kind: ColumnType) -> None:
    assert len(IDENTIFYING) >= 60
    silent = [
        name
        for name in IDENTIFYING
        if Survey(Catalogue("d", (table_of("visits", name, kind=kind),)), None).warning("visits") is None
    ]
    assert silent == []
    loud = [name for name in PLAIN if repeated_persons(table_of("visits", name, kind=kind))]
    assert loud == []


def test_a_column_that_is_unique_is_no_warning_and_several_are_named_together(tmp_path: Path) -> None:
    source = sqlite_file(
        tmp_path,
        "CREATE TABLE visits (user_id INTEGER PRIMARY KEY, email TEXT UNIQUE, phone TEXT, login TEXT, kind TEXT,"
        " UNIQUE (login, kind));",
    )
    assert "# phone, login seem to identify a person and may recur in visits" in reflect(source)


def test_in_a_table_of_persons_names_and_addresses_may_be_those_of_others() -> None:
    """Two patients have one name, and each has a doctor; an e-mail address that may recur is a reason to look."""
    found = repeated_persons(table_of("patients", "name", "last_name", "address", "zip", "email", "mrn"))
    assert found == ("email", "mrn")


COMPANY = """
CREATE TABLE {unit} (id INTEGER PRIMARY KEY);
CREATE TABLE users (id INTEGER PRIMARY KEY, {unit}_id INTEGER NOT NULL REFERENCES {unit} (id));
CREATE TABLE projects (id INTEGER PRIMARY KEY, {unit}_id INTEGER NOT NULL REFERENCES {unit} (id));
CREATE TABLE labels (project_id INTEGER NOT NULL REFERENCES projects (id), name TEXT, PRIMARY KEY (project_id, name));
CREATE TABLE tickets (id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL REFERENCES projects (id),
    reporter_id INTEGER NOT NULL REFERENCES users (id), parent_id INTEGER REFERENCES tickets (id));
CREATE TABLE marks (ticket_id INTEGER REFERENCES tickets (id), project_id INTEGER, label TEXT,
    PRIMARY KEY (ticket_id, project_id, label),
    FOREIGN KEY (project_id, label) REFERENCES labels (project_id, name));
CREATE TABLE follows (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id),
    followed_id INTEGER NOT NULL REFERENCES users (id));
"""


@pytest.mark.parametrize(("unit", "reporter"), [("account", True), ("store", False)])
def test_references_stay_within_the_unit_where_names_on_the_way_or_a_group_of_persons_say_it(
    tmp_path: Path, unit: str, *, reporter: bool
) -> None:
    """Who reports a ticket is of its account; whom a user follows may be of another one."""
    draft = reflect(duckdb_file(tmp_path, COMPANY.format(unit=unit)), decisions=Decisions(unit))
    lines = [line for line in draft.splitlines() if "references:" in line]
    staying = {line.partition("columns: ")[2].partition(", references")[0] for line in lines if "same_unit" in line}
    assert staying == {"[project_id, label]", *(["reporter_id"] if reporter else [])}


CRM = """
    organisations: *id name
    contacts: *id organisation_id>organisations email
    deals: *id organisation_id>organisations contact_id?>contacts
    notes: *id author_id>contacts deal_id>deals
    tags: *id organisation_id>organisations name
    deal_tags: *tag_id>tags *deal_id>deals
    seats: *contact_id>contacts *organisation_id>organisations
"""
CHAT = """
    workspaces: *id name
    members: *id workspace_id>workspaces
    channels: *id workspace_id>workspaces
    channel_members: *member_id>members *channel_id>channels
    messages: *id member_id>members channel_id>channels
    invoices: *id workspace_id>workspaces
"""
FORUM = """
    users: *id name
    posts: *id user_id>users
    comments: *id user_id>users post_id>posts
    likes: *user_id>users *post_id>posts
"""
BANK = """
    customers: *id name
    accounts: *id customer_id>customers
    transfers: *id to_account_id?>accounts from_account_id>accounts
"""
CLINIC = """
    doctors: *id name
    patients: *id doctor_id?>doctors
    visits: *id doctor_id>doctors patient_id>patients
    prescriptions: *id patient_id>patients visit_id>visits
"""
SHOP = """
    kunde: *id name
    bestellung: *id kunde_id>kunde
    artikel: *id name
    position: *id bestellung_id>bestellung artikel_id>artikel
"""


@pytest.mark.parametrize(
    ("text", "unit", "owners", "inside", "asked"),
    [
        (
            CRM, "organisations",
            {"deals.organisation_id", "notes.deal_id", "deal_tags.deal_id", "seats.organisation_id"},
            {"deals.contact_id", "notes.author_id", "deal_tags.tag_id", "seats.contact_id"}, set(),
        ),
        (
            CHAT, "workspaces", {"channel_members.channel_id", "messages.channel_id"},
            {"channel_members.member_id", "messages.member_id"}, set(),
        ),
        (FORUM, "users", {"comments.post_id", "likes.user_id"}, set(), {"comments.user_id", "likes.post_id"}),
        (BANK, "customers", {"transfers.from_account_id"}, set(), {"transfers.to_account_id"}),
        (CLINIC, "patients", {"prescriptions.visit_id"}, {"prescriptions.patient_id"}, set()),
        (SHOP, None, set(), set(), set()),
    ],
)  # fmt: skip
def test_units_and_owners_are_ranked_by_what_they_cost(
    text: str, unit: str | None, owners: set[str], inside: set[str], asked: set[str]
) -> None:
    """Seats were the contact's, tags had deals, comments were dropped unless they were on posts of one's own."""
    catalogue = catalogue_of(text)
    assert guess_unit(catalogue) == unit
    if unit is None:
        assert most_cover(catalogue) == "kunde (2 of 3), bestellung (1 of 3), artikel (1 of 3)"
        return
    roles = {f"{table}.{columns[0]}": role for (table, columns, _), role in propose_roles(catalogue, unit).items()}
    assert {name for name, role in roles.items() if role.why} == owners
    assert {name for name, role in roles.items() if role.same_unit} == inside
    assert {name for name, role in roles.items() if role.undecided} == asked


def test_a_draft_says_why_it_takes_a_unit_and_an_owner_and_what_a_promise_costs(tmp_path: Path) -> None:
    crm = catalogue_of(CRM)
    assert why_unit(crm, "organisations") == (
        "guessed: each of contacts belongs to one; with the unit contacts, 1 more table would belong to no unit"
    )
    sport = catalogue_of("""
        tournaments: *id
        players: *id
        matches: *id player_id>players tournament_id>tournaments
    """)
    assert most_cover(sport) == "players (1 of 2), tournaments (1 of 2)"
    draft = reflect(duckdb_file(tmp_path, COMPANY.format(unit="store")), decisions=Decisions("store"))
    assert "ignored; owner, because marks is named" not in draft
    assert "; owner, because projects is a thing, not a person who deals with it" in draft
    assert "with 1,000, noise is 2,001 times as large" in draft
