"""How a plan of groups shares its budget: rows and lists to learn count beside the attributes of a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.options import GroupOptions, Prices, group_prices
from tests.helpers.planted import category, integer, owner_key

BUDGET = Budget(1.0, 1e-9)
WHOLE = BUDGET.total().amount * (1 - GroupOptions().validation)


def prices(*, learned: bool) -> tuple[Prices, Table]:
    """Users with badges, whose names are declared or learned."""
    name = replace(category("name", 4), domain=Learn()) if learned else category("name", 4)
    user = Table("user", (integer("id"), integer("level", 0, 6)), ("id",))
    columns = (integer("id"), integer("user_id"), integer("day", 0, 99), name)
    badge = Table("badge", columns, ("id",), (owner_key("badge", "user_id", "user", 9),))
    options = GroupOptions(members=1.5, links=0.5, profile=0.1)
    return group_prices("privpetal", Schema("site", (user, badge), "user"), BUDGET, options), badge


def test_a_list_to_learn_counts_as_an_attribute_for_the_profile() -> None:
    (declared, table), (learned, listed) = prices(learned=False), prices(learned=True)
    # Attributes and rows: 2 for users, 3 x 1.5 for badges, 2 x 0.5 for the link.
    assert declared.tables["badge"].amount / WHOLE == pytest.approx(4.5 / 7.5)
    assert declared.profile(table).amount / WHOLE == pytest.approx(4.5 / 7.5 * 1.2 / 3)
    assert learned.tables["badge"].amount / WHOLE == pytest.approx(6.0 / 9.0)
    assert learned.profile(listed).amount / WHOLE == pytest.approx(6.0 / 9.0 * 2.2 / 4)
    # All else keeps its proportions.
    assert learned.groups(listed).amount == pytest.approx(declared.groups(table).amount * 7.5 / 9.0)
    key = table.foreign_keys[0]
    assert learned.links[key].amount == pytest.approx(declared.links[key].amount * 7.5 / 9.0)
    assert learned.profile(listed).delta == BUDGET.threshold_delta / 2  # of two tables


@pytest.mark.parametrize("learned", [False, True])
def test_all_shares_add_up(learned: bool) -> None:
    shared, badge = prices(learned=learned)
    tables = sum(price.amount for price in shared.tables.values())
    assert tables + sum(price.amount for price in shared.links.values()) == pytest.approx(WHOLE)
    assert (shared.profile(badge) + shared.groups(badge)).amount == pytest.approx(shared.tables["badge"].amount)
