"""No draft publishes by default: what it says of tables that may be public, and what happens to those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from privbench_core.draft.draft import Decisions, Survey, reflect, survey
from privbench_core.draft.publishing import Candidate
from privbench_core.errors import SpecError
from privbench_core.spec.load import load_spec
from tests.helpers.drafts import call, sqlite_file

HOSPITAL = """
CREATE TABLE victims (id INTEGER PRIMARY KEY, born DATE, sex TEXT, injury TEXT, residence TEXT);
CREATE TABLE genomes (id INTEGER PRIMARY KEY, bases TEXT, reference_id INTEGER UNIQUE REFERENCES builds (id));
CREATE TABLE builds (id INTEGER PRIMARY KEY, label TEXT);
CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT);
CREATE TABLE addresses (id INTEGER PRIMARY KEY, street TEXT, city_id INTEGER REFERENCES cities (id));
CREATE TABLE cities (id INTEGER PRIMARY KEY, label TEXT);
CREATE TABLE wards (id INTEGER PRIMARY KEY, floor INTEGER);
CREATE TABLE patients (id INTEGER PRIMARY KEY, genome_id INTEGER UNIQUE REFERENCES genomes (id),
    address_id INTEGER REFERENCES addresses (id));
CREATE TABLE claims (id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (id),
    victim_id INTEGER REFERENCES victims (id), amount NUMERIC(8, 2));
CREATE TABLE visits (id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (id),
    note_id INTEGER REFERENCES notes (id), ward_id INTEGER REFERENCES wards (id));
"""
OUTSIDE = ["addresses", "builds", "cities", "genomes", "notes", "victims", "wards"]
# Nouns for persons. Most are on no list of words, and none has to be.
NOUNS = ["abonnent", "bearer", "crew", "deceased", "ward_of", "witness"]


def candidates(source: str, unit: str = "patients") -> dict[str, Candidate]:
    return {each.table: each for each in survey(source).candidates(unit)}


def published(text: str) -> list[str]:
    """Return what a draft publishes: the names under ``public``, and the tables with ``public: true``."""
    content = yaml.safe_load(text)
    listed = content["privacy"].get("public") or []
    named = [name for name in ([listed] if isinstance(listed, str) else listed) if name != "CHOOSE"]
    return named + [name for name, table in content["tables"].items() if table.get("public")]


def test_a_draft_publishes_nothing_and_is_refused_until_its_owner_has_decided(tmp_path: Path) -> None:
    source, out = sqlite_file(tmp_path, HOSPITAL), tmp_path / "spec.yaml"
    told = call("init", source, "-o", out)
    assert f"privacy.public: {', '.join(OUTSIDE)}" in told.stdout
    draft = out.read_text(encoding="utf-8")
    assert published(draft) == []
    assert list(candidates(source)) == OUTSIDE
    with pytest.raises(SpecError) as caught:
        load_spec(out)
    assert caught.value.problems[0].startswith(
        "privacy: public is not decided yet; list a table if anyone may see its rows"
    )
    # A line of the list loses its #, but somebody has forgotten the others.
    some = draft.replace("    # - wards", "    - wards")
    out.write_text(some, encoding="utf-8")
    with pytest.raises(SpecError, match="privacy: public is not decided yet"):
        load_spec(out)
    without_mark = "".join(line for line in some.splitlines(keepends=True) if "- CHOOSE" not in line)
    out.write_text(without_mark, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(out)
    (refused,) = caught.value.problems
    waiting = "addresses, builds, cities, genomes, notes, victims"
    assert refused.startswith(
        f"privacy: public is not decided for {waiting}: no foreign key leads from there to patients;"
    )
    out.write_text(without_mark.replace("    # - ", "    - "), encoding="utf-8")
    assert sorted(table.name for table in load_spec(out).schema.tables if table.public) == OUTSIDE


def test_enter_at_every_question_publishes_nothing(tmp_path: Path) -> None:
    """It was ``public: [victims]``, without a word."""
    source, out = sqlite_file(tmp_path, HOSPITAL), tmp_path / "spec.yaml"
    result = call("init", source, "--interactive", "-o", out, answers="\n" * 8)
    assert result.exit_code == 0, result.output
    assert published(out.read_text(encoding="utf-8")) == []
    assert "To fill in, 1" in result.stdout
    for name, each in candidates(source).items():
        assert f"   {name}: {each.sentence}" in result.stdout
    with pytest.raises(SpecError, match="privacy: public is not decided yet"):
        load_spec(out)


def test_a_draft_says_why_a_table_may_be_public_and_why_that_is_in_doubt(tmp_path: Path) -> None:
    source = sqlite_file(tmp_path, HOSPITAL)
    found = candidates(source)
    why = "{} refers to it, and no foreign key leads from it to patients"
    assert found["victims"].reason == why.format("claims")
    assert found["victims"].doubts == (
        "its name suggests rows of persons",
        "it has a birth or death date (born) and columns that describe a person (sex, injury, residence)",
    )
    unique = "{} is unique, so each of its rows belongs to at most one row of {}"
    assert found["genomes"].doubts == (unique.format("patients.genome_id", "patients"),)
    assert found["builds"].doubts == (unique.format("genomes.reference_id", "genomes"),), "one for each patient, too"
    assert found["notes"].doubts == ("its name suggests free text", "it has free text (body)")
    assert found["addresses"].doubts == (
        "patients itself refers to it, so each of its rows may be about one row of patients",
        "its name suggests addresses",
        "it has identifying columns (street)",
    )
    assert found["cities"].doubts == found["wards"].doubts == ()
    draft = reflect(source)
    lines = draft.splitlines()
    start = lines.index("  public:") + 1
    assert lines[start] in (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    assert lines[start + 1 : start + 8] == [f"    # - {name} # {each.sentence}" for name, each in found.items()]


@pytest.mark.parametrize("noun", NOUNS)
def test_no_noun_for_persons_is_published_by_default_and_each_is_in_doubt(tmp_path: Path, noun: str) -> None:
    source = sqlite_file(
        tmp_path,
        f"CREATE TABLE {noun} (id INTEGER PRIMARY KEY, born DATE, wage INTEGER);"
        "CREATE TABLE customer (id INTEGER PRIMARY KEY);"
        "CREATE TABLE contract (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (id),"
        f" other_id INTEGER REFERENCES {noun} (id));",
    )
    assert published(reflect(source, decisions=Decisions("customer"))) == []
    assert "it has a birth or death date (born) and a wage or an income (wage)" in str(candidates(source, "customer"))
    out = tmp_path / "asked.yaml"
    asked = call("init", source, "--interactive", "--unit", "customer", "-o", out, answers="\n" * 8)
    assert asked.exit_code == 0, asked.output
    assert published(out.read_text(encoding="utf-8")) == []


def test_tables_are_left_out_with_the_columns_that_refer_to_them(tmp_path: Path) -> None:
    source, out = sqlite_file(tmp_path, HOSPITAL), tmp_path / "spec.yaml"
    gone = "victims,genomes,builds,notes,addresses"
    assert call("init", source, "-o", out, "--public", "wards, cities", "--leave-out", gone).exit_code == 0
    text = out.read_text(encoding="utf-8")
    assert "# left out: the foreign key on (victim_id), because victims is left out" in text
    assert "# left out: victim_id (INTEGER) refers to victims, which is left out" in text
    assert "# left out: the table victims, as you decided" in text
    schema = load_spec(out).schema
    assert {table.name for table in schema.tables} == {"cities", "claims", "patients", "visits", "wards"}
    assert [column.name for column in schema.table("visits").columns] == ["id", "patient_id", "ward_id"]
    asked = tmp_path / "asked.yaml"
    result = call("init", source, "--interactive", "-o", asked, answers="\nwards, moon\nwards,cities\ny\n\n\n\nn\n")
    assert result.exit_code == 0, result.output
    assert "Not among these tables: moon" in result.stdout
    assert load_spec(asked).schema == schema


def test_a_column_that_is_also_part_of_another_key_stays(tmp_path: Path) -> None:
    source = sqlite_file(
        tmp_path,
        "CREATE TABLE person (id INTEGER PRIMARY KEY); CREATE TABLE tag (id INTEGER PRIMARY KEY);"
        "CREATE TABLE tagged (person_id INTEGER NOT NULL REFERENCES person (id), tag_id INTEGER REFERENCES tag (id),"
        " PRIMARY KEY (person_id, tag_id));",
    )
    (tmp_path / "spec.yaml").write_text(reflect(source, decisions=Decisions(left_out=("tag",))), encoding="utf-8")
    tagged = load_spec(tmp_path / "spec.yaml").schema.table("tagged")
    assert tagged.primary_key == ("person_id", "tag_id")
    assert [key.parent for key in tagged.foreign_keys] == ["person"]


@pytest.mark.parametrize(
    ("decisions", "refused"),
    [
        (Decisions(left_out=("vitcims",)), "vitcims: the source has no such table; did you mean 'victims'"),
        (
            Decisions(public=("notes",), left_out=("notes",)),
            "notes: is named both as public and as left out; choose one",
        ),
        (Decisions(left_out=("patients",)), "patients: its rows are the privacy units, so it cannot be left out"),
    ],
)
def test_decisions_that_make_no_sense_are_refused(tmp_path: Path, decisions: Decisions, refused: str) -> None:
    with pytest.raises(SpecError, match=refused):
        reflect(sqlite_file(tmp_path, HOSPITAL), decisions=decisions)


def test_decided_tables_stand_beside_those_that_wait(tmp_path: Path) -> None:
    source, out = sqlite_file(tmp_path, HOSPITAL), tmp_path / "spec.yaml"
    draft = reflect(source, decisions=Decisions(public=("wards",)))
    assert published(draft) == ["wards"]
    assert "    - wards # published as it is\n    - CHOOSE # decide about each " in draft
    assert "no table below is public yet" in draft
    assert f"privacy.public: {', '.join(name for name in OUTSIDE if name != 'wards')}\n" in draft
    out.write_text(draft, encoding="utf-8")
    with pytest.raises(SpecError, match="privacy: public is not decided yet"):
        load_spec(out)


def test_data_of_units_is_not_published_on_request_either(tmp_path: Path) -> None:
    out = tmp_path / "spec.yaml"
    assert (
        call("init", sqlite_file(tmp_path, HOSPITAL), "-o", out, "--public", "visits," + ",".join(OUTSIDE)).exit_code
        == 0
    )
    with pytest.raises(SpecError, match=r"visits\.patient_id: a public table refers to the private table patients"):
        load_spec(out)


def test_many_tables_that_refer_to_one_are_counted(tmp_path: Path) -> None:
    tables = "".join(
        f"CREATE TABLE t{i} (id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL REFERENCES person (id),"
        " kind_id INTEGER REFERENCES kind (id));"
        for i in range(5)
    )
    source = sqlite_file(
        tmp_path, f"CREATE TABLE kind (id INTEGER PRIMARY KEY); CREATE TABLE person (id INTEGER PRIMARY KEY);{tables}"
    )
    reason = "t0, t1, t2 and 2 more tables refer to it, and no foreign key leads from it to person"
    assert candidates(source, "person")["kind"] == Candidate("kind", reason, ())


def test_a_table_with_one_row_for_each_unit_speaks_for_its_unit(tmp_path: Path) -> None:
    source = sqlite_file(
        tmp_path,
        "CREATE TABLE person (id INTEGER PRIMARY KEY); CREATE TABLE flat (id INTEGER PRIMARY KEY);"
        "CREATE TABLE details (person_id INTEGER PRIMARY KEY REFERENCES person (id),"
        " flat_id INTEGER REFERENCES flat (id));",
    )
    (doubt,) = candidates(source, "person")["flat"].doubts
    assert doubt == "details itself refers to it, so each of its rows may be about one row of person"


def test_a_survey_without_a_table_keeps_its_unit(tmp_path: Path) -> None:
    found: Survey = survey(sqlite_file(tmp_path, HOSPITAL))
    assert found.without(["notes"]).unit == "patients"
    assert "notes" not in [each.table for each in found.without(["notes"]).candidates("patients")]
