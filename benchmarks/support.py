"""The table of what is supported, each line with the tests that prove it; ``python -m benchmarks.support`` writes it.

No line without a test: a test that is renamed or removed is an error here, and in `tests/unit/test_support_table.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby
from pathlib import Path

from privbench_core.errors import InternalError, PrivbenchError

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "support.md"
_INTRODUCTION = """\
# What is supported

Each line names the tests that prove it. `python -m benchmarks.support` writes this page, and refuses a line
whose test does not exist; a test keeps the page up to date.
*In part* says what is lost; *no* says what happens instead."""


class Support(Enum):
    """How far a feature goes."""

    YES = "yes"
    PART = "in part"
    NO = "no"


@dataclass(frozen=True)
class Feature:
    """A line of the table.

    Attributes:
        group: Section of the page.
        name: What people bring.
        support: How far it goes.
        answer: What is done with it, in a few words.
        tests: Where tests stand, as ``tests/file.py::function``.
    """

    group: str
    name: str
    support: Support
    answer: str
    tests: tuple[str, ...]


# Per feature a line "support | what people bring | what is done with it", and below it its tests, indented.
_LISTED = """\
## Reading a database
yes | PostgreSQL's catalogue | types, defaults, keys, checks, indexes, comments, enums; no row is read
    integration/test_roundtrip_postgres::test_what_the_catalogue_says_is_in_the_spec
yes | A DuckDB file | the same, as far as DuckDB has it
    unit/test_reflect::test_all_that_duckdb_knows_is_in_the_draft
in part | A folder of Parquet or CSV files | tables; types and keys are proposed from names, and the owner confirms them
    unit/test_reflect::test_a_folder_of_csv_files_gets_keys_and_types_from_names
    unit/test_reflect::test_a_folder_without_common_names_leaves_the_unit_to_the_owner
in part | A schema of a Spark catalogue | tables, types, comments; keys are proposed from names, to be confirmed
    integration/test_spark_catalogue::test_a_draft_has_the_types_of_the_catalogue
    integration/test_spark_catalogue::test_rows_are_those_of_files
yes | Identifying columns | recognised by their names
    unit/test_reflect::test_names_that_tell_who_somebody_is
yes | Public example data | domains are proposed from it
    unit/test_reflect::test_public_example_data_proposes_domains
yes | Another schema than the default one | `?schema=name`
    integration/test_roundtrip_postgres::test_another_schema_of_the_database
yes | Several schemas of PostgreSQL | all that have tables, or those that `--schemas` names; with the keys between them
    integration/test_schemas_postgres::test_a_draft_holds_all_schemas_and_the_keys_between_them
    integration/test_schemas_postgres::test_a_bundle_makes_the_schemas_again

## Types
yes | integer, decimal(p, s), float | exact within 64 bits; a larger decimal counts as outside its domain
    unit/test_codecs::test_values_have_these_cells
    unit/test_codecs::test_values_have_these_cells
yes | codes that are whole numbers | a list to learn, instead of a range: `{values: learn}`
    unit/test_stages_profile::test_a_learned_list_of_numbers_names_some_and_makes_others_up_with_as_many_digits
    unit/test_reflect::test_whole_numbers_that_are_codes_by_their_names_are_lists_to_learn
yes | date, timestamp with and without zone | a zone is read in UTC
    unit/test_codecs::test_values_have_these_cells
    unit/test_codecs::test_values_have_these_cells
in part | interval | a month counts 30 days
    unit/test_spec_sql::test_spans_of_time
    unit/test_codecs::test_values_have_these_cells
yes | boolean | true and false, with the same distribution
    unit/test_codecs::test_values_have_these_cells
yes | enum, text as category | values declared or learned
    unit/test_codecs::test_values_have_these_cells
yes | text by a public rule | regular expression or Faker provider; nearly unique text stays nearly unique
    unit/test_codecs_patterns::test_made_text_matches_in_full_and_follows_the_seed
    unit/test_codecs_patterns::test_near_unique_stays_near_unique_and_quick
in part | opaque text | lengths only
    unit/test_codecs::test_opaque_text_keeps_its_length_and_nothing_else
in part | bytea | lengths only
    unit/test_codecs::test_opaque_bytes_keep_their_length_and_nothing_else
yes | json, jsonb with domain: learn | keys, types and values that many units share
    unit/test_documents::test_keys_types_and_values_of_documents_are_kept
yes | arrays (text[], integer[]), lists | as JSON in Parquet, as arrays in databases
    integration/test_learned_bundle::test_a_bundle_of_learned_domains_loads_everywhere
    integration/test_postgres_source::test_arrays_are_read_as_json
in part | json, jsonb without a domain | an object of similar length
    unit/test_codecs::test_opaque_json_is_an_object_of_its_length
yes | uuid | new random values
    unit/test_codecs::test_uuids_are_made_anew
in part | infinity, NaN, values outside a domain | NaN becomes NULL, other values are clamped
    integration/test_bad_input::test_infinities_nan_and_extremes_are_clamped_and_counted
in part | computed column | computed by PostgreSQL; neither read nor sampled, so in no Parquet file
    integration/test_roundtrip_ddl::test_the_result_is_the_database_of_a_dba
in part | domain (CREATE DOMAIN) | its type, default and checks, without its name
    integration/test_roundtrip_ddl::test_the_draft_holds_what_the_ddl_needs
no | time of day | left out of a draft; can be read as interval or text
    unit/test_reflect::test_all_that_duckdb_knows_is_in_the_draft
    unit/test_source_types::test_a_time_of_day_is_an_interval_or_text
no | map, array without domain: learn | left out of a draft, refused when read
    unit/test_reflect::test_all_that_duckdb_knows_is_in_the_draft
    unit/test_source_types::test_arrays_and_nested_types_are_refused_and_it_says_what_to_do

## Keys
yes | Composite primary and foreign keys | end to end
    unit/test_spec::test_composite_keys_follow_the_order_of_the_parents_key
    integration/test_key_graphs::test_all_keys_resolve_at_every_epsilon_and_the_bundle_is_published
yes | Overlapping keys, which share a column | both keys have the same value in it
    integration/test_key_graphs::test_an_overlapping_key_stays_inside_its_owner_and_follows_attributes
    integration/test_key_graphs::test_two_required_keys_that_share_a_column_agree_on_it
yes | Primary key that is a foreign key | one to one
    integration/test_key_graphs::test_one_to_one_tables_have_the_parents_keys
yes | Self-reference | at an optional key
    integration/test_key_graphs::test_a_self_reference_follows_attributes_and_has_no_circles
yes | Cycle of tables | opened at an optional key, which is filled in last
    unit/test_spec_keys::test_a_cycle_opens_at_an_optional_key_off_the_ownership_path
    integration/test_key_graphs::test_a_cycle_of_tables_is_closed_by_attributes
in part | Several parents, private and public | other keys that cascade rely on their declared bound
    unit/test_spec::test_several_paths_need_a_marked_owner
    property/test_privacy_references::test_a_unit_with_more_rows_than_its_bound_moves_no_more_of_the_others
yes | Key off the ownership path that stays within a unit | enforced, and costs nothing (`same_unit: true`)
    unit/test_sampling_units::test_references_are_drawn_inside_of_the_unit
    property/test_privacy_same_unit::test_a_unit_moves_its_own_rows_alone
yes | Optional key off the ownership path | becomes NULL with a removed parent; costs what is measured along it
    unit/test_spec_keys::test_optional_keys_let_go_unless_they_are_said_to_cascade
    property/test_privacy_references::test_where_references_become_null_no_other_row_or_weight_moves
    property/test_record_replay::test_references_that_become_null_have_to_be_paid_for
yes | Key column with a meaning | modelled where a composite primary key's column has a domain
    integration/test_meaningful_keys::test_a_key_column_with_a_domain_keeps_its_distribution_and_its_ties
    integration/test_meaningful_keys::test_keys_are_unique_and_no_row_is_lost_for_it
yes | Many-to-many through a junction table | no pair occurs twice
    unit/test_sampling_table::test_a_junction_table_has_no_pair_twice_and_keeps_most_rows
yes | Optional key | with its share of NULL
    integration/test_key_graphs::test_sizes_and_null_rates_are_those_of_the_source
yes | Row without an owner | a unit of its own
    property/test_privacy_references::test_a_row_without_an_owner_is_a_unit
    integration/test_key_graphs::test_rows_without_an_owner_keep_their_own_distribution
yes | Unique reference, reference to a unique set | every parent is used at most once
    unit/test_spec_keys::test_keys_may_refer_to_any_unique_set
    integration/test_key_graphs::test_unique_references_use_every_parent_at_most_once_even_when_all_are_taken
yes | Orphans in the source | refused, or dropped with `on_orphan: drop`
    integration/test_key_graphs::test_orphans_that_are_dropped_take_their_dependants_and_empty_deferred_references
no | Cycle of required keys | refused
    integration/test_bad_input::test_a_cycle_of_required_keys_is_refused
no | Optional key that shares a column with the primary key | refused before anything is spent
    integration/test_key_graphs::test_keys_that_cannot_be_left_empty_are_refused_before_anything_is_spent
in part | Two foreign keys on the same columns | if one follows from the other (a subtype's table), else refused
    unit/test_spec_ddl::test_a_key_that_follows_from_another_is_for_the_ddl_alone
    unit/test_spec_ddl::test_each_mistake_is_explained
no | Key of type float, json, interval or enum | refused
    unit/test_spec::test_each_mistake_is_explained
    unit/test_spec_sql::test_each_mistake_is_explained

## Constraints
yes | UNIQUE, on one or several columns | drawn again before rows are dropped
    unit/test_constraints::test_unique_values_are_drawn_again_before_rows_are_dropped
    unit/test_sampling_table::test_declared_unique_columns_hold_and_nulls_do_not_clash
yes | NOT NULL | proven by validation
    unit/test_expectations::test_a_planted_fault_is_found_and_counted
yes | CHECK over one row | honoured while sampling
    unit/test_constraints::test_simple_conditions_are_understood
    unit/test_constraints::test_checks_hold_where_noise_is_all_there_is
yes | A column relative to another one of its row or of its owner | their difference is modelled (`relative_to`)
    unit/test_relative_columns::test_distances_are_kept_and_every_check_holds
    unit/test_owner_relative_columns::test_distances_are_kept_along_a_chain_of_owners
yes | Rows numbered and stored in the order of a column | declared (`row_order`)
    integration/test_row_order::test_rows_are_numbered_and_published_in_the_order_of_their_column
in part | Order of dates in a row | lags are measured; `relative_to` declares an order that always holds
    integration/test_dated_children::test_two_days_of_a_row_are_as_far_apart_as_they_should
in part | Formulas, equal columns, joint NULLs, orders in a row | found as far as noise allows, or declared by checks
    unit/test_row_constraints::test_sums_products_and_orders_are_found_and_kept
    unit/test_row_constraints::test_drawn_rows_keep_what_was_found
    unit/test_row_constraints::test_declared_formulas_are_computed_and_not_paid_for
in part | Rows dated after their owner | lags are measured; a few rows in a hundred may come before the owner
    integration/test_dated_children::test_children_come_after_their_owners
in part | Similarity of sibling rows | how often two siblings agree in a column is measured
    integration/test_alike_siblings::test_siblings_are_as_alike_as_in_the_source
in part | CHECK that privbench cannot interpret | kept in the DDL, and marked as not enforced while sampling
    unit/test_constraints::test_anything_else_is_kept_in_the_ddl_only
    unit/test_spec_sql::test_checks_that_are_not_understood_are_kept_and_told
yes | Functional dependency | declared in the spec
    unit/test_constraints::test_functional_dependencies_hold_in_chains_at_every_epsilon
no | Functional dependency on a column of a key | refused
    unit/test_constraints::test_dependencies_on_keys_that_are_made_anew_are_refused

## Publishing
yes | PostgreSQL | reflecting the result gives the same spec
    integration/test_roundtrip_postgres::test_reflecting_the_result_gives_the_same_spec
    integration/test_roundtrip_postgres::test_rows_arrive_as_they_were
yes | Keys, checks, indexes, sequences, statistics | sequences continue after the rows
    integration/test_roundtrip_postgres::test_the_database_keeps_its_rules
    integration/test_publish_postgres::test_rows_keys_indexes_and_statistics_arrive
yes | `schema.sql` alone | a script for PostgreSQL
    integration/test_roundtrip_postgres::test_the_schema_alone_is_a_script
in part | Statistics without rows | PostgreSQL 18: what ANALYZE would find; sizes of files where the login may set them
    integration/test_statistics_postgres::test_statistics_are_those_of_analyze
    integration/test_statistics_postgres::test_plans_are_the_same
    integration/test_statistics_postgres::test_a_login_without_the_right_gets_statistics_and_is_told_what_plans_lack
yes | A target that is not empty | refused unless `--replace`
    integration/test_roundtrip_postgres::test_a_target_with_other_tables_is_not_empty
    integration/test_roundtrip_postgres::test_publishing_again_replaces_enums_too
yes | All or nothing | one transaction
    integration/test_publish_postgres::test_a_failing_load_leaves_nothing_behind
in part | DuckDB | `publish` lists what DuckDB cannot hold
    integration/test_roundtrip_postgres::test_duckdb_takes_what_it_can_and_the_rest_is_told
yes | Names of constraints, ON DELETE, ON UPDATE, DEFERRABLE | as in the source
    integration/test_roundtrip_ddl::test_the_result_is_the_database_of_a_dba
yes | Index of any method, partial, on an expression, ordered, with INCLUDE | as in the source
    integration/test_roundtrip_ddl::test_reflecting_the_result_gives_the_same_draft
yes | Identity ALWAYS or BY DEFAULT, names and steps of sequences | as in the source
    integration/test_roundtrip_ddl::test_the_result_is_the_database_of_a_dba
no | Unique index that is partial or on an expression | left out, and named in the draft
    integration/test_roundtrip_ddl::test_what_is_lost_is_named_with_its_reason
yes | Declared partitions | one table, with its partitions in the DDL
    integration/test_schemas_postgres::test_partitions_and_heirs_are_one_table_whose_rows_are_read_once
    integration/test_schemas_postgres::test_a_bundle_has_the_partitions_and_a_place_for_every_row
in part | Tables that inherit from another one | one table; in PostgreSQL in those whose CHECKs decide
    integration/test_schemas_postgres::test_partitions_and_heirs_are_one_table_whose_rows_are_read_once
    integration/test_heirs_postgres::test_heirs_whose_checks_decide_are_kept_and_the_others_are_merged_and_named
    integration/test_heirs_postgres::test_rows_go_to_the_first_heir_whose_checks_they_satisfy
yes | Views, also materialised | comments in the draft; part of the DDL if the owner keeps them
    integration/test_schemas_postgres::test_views_are_comments_until_their_owner_keeps_them
no | Triggers, functions, extensions, collations, exclusion constraints, row security | left out, and named in the draft
    integration/test_roundtrip_ddl::test_what_is_lost_is_named_with_its_reason
no | What needs a user-defined function, operator or type, or a type read as text | left out, and named in the draft
    integration/test_roundtrip_ddl::test_what_is_lost_is_named_with_its_reason

## Bad input: one clear message each
yes | Foreign key to a missing table or a column that is not unique | refused
    unit/test_spec::test_each_mistake_is_explained
    integration/test_bad_schema::test_a_key_that_leads_nowhere_is_refused
yes | Types that differ along a key | refused
    unit/test_spec_keys::test_what_no_key_can_be_is_refused_in_one_line
    integration/test_bad_schema::test_a_key_that_leads_nowhere_is_refused
yes | Several mistakes | all reported at once
    unit/test_spec::test_seven_mistakes_are_seven_problems
yes | Reserved, mixed-case, unicode and 63-character names | kept
    unit/test_spec_sql::test_names_of_every_kind_are_welcome
    integration/test_roundtrip_postgres::test_reflecting_the_result_gives_the_same_spec
yes | Names that PostgreSQL would truncate to the same name | refused
    unit/test_spec_sql::test_names_that_postgres_would_cut_to_the_same_are_refused
yes | 500 columns | a spec like any other
    unit/test_spec_sql::test_five_hundred_columns
    integration/test_bad_schema::test_a_table_of_five_hundred_columns
yes | A login that may read only some tables | other tables are left out, and named
    integration/test_roundtrip_postgres::test_a_database_that_may_only_be_read_in_part
    integration/test_bad_schema::test_a_database_that_may_be_read_in_part
yes | Rows that break the spec | refused before anything is spent
    integration/test_bad_input::test_rows_that_break_the_spec_are_refused_before_anything_is_spent
yes | Empty tables | become tables with the same columns
    integration/test_bad_input::test_tables_of_no_row_or_one_work
"""


def features() -> Iterator[Feature]:
    """All lines, in the order of the page."""
    group = ""
    for block in re.split(r"\n+(?=\S)", _LISTED.strip()):
        if block.startswith("## "):
            group = block.removeprefix("## ")
            continue
        head, *tests = block.splitlines()
        support, name, answer = (part.strip() for part in head.split("|"))
        names = (test.strip().replace("::", ".py::") for test in tests)
        yield Feature(group, name, Support(support), answer, tuple(f"tests/{name}" for name in names))


def missing_tests() -> list[str]:
    """Tests that are named but do not exist."""
    return sorted({test for feature in features() for test in feature.tests if not _exists(test)})


def page() -> str:
    """The page as Markdown.

    Raises:
        InternalError: A line names a test that does not exist.
    """
    if missing := missing_tests():
        raise InternalError(f"benchmarks/support.py: no such tests: {', '.join(missing)}; name those that prove it now")
    parts = [_INTRODUCTION]
    for group, lines in groupby(features(), key=lambda feature: feature.group):
        rows = [f"| {f.name} | {f.support.value} | {f.answer} | {_links(f)} |" for f in lines]
        parts.append("\n".join([f"## {group}", "", "| what | | how | proven by |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _links(feature: Feature) -> str:
    found = (test.split("::") for test in feature.tests)
    return "<br>".join(f"[{function}](../{file})" for file, function in found)


def _exists(test: str) -> bool:
    file, function = test.split("::")
    return function in _functions(PROJECT / file)


@cache
def _functions(file: Path) -> frozenset[str]:
    """Names of a module's test functions; none if there is no such file."""
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


if __name__ == "__main__":
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except PrivbenchError as error:
        sys.exit(str(error))
