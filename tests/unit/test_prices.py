"""How a plan of groups shares its budget."""

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


@pytest.mark.parametrize("learned", [False, True])
def test_all_shares_add_up(learned: bool) -> None:
    shared, badge = prices(learned=learned)
    tables = sum(price.amount for price in shared.tables.values())
    assert tables + sum(price.amount for price in shared.links.values()) == pytest.approx(WHOLE)
    assert (shared.profile(badge) + shared.groups(badge)).amount == pytest.approx(shared.tables["badge"].amount)
