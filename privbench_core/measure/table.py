"""Learning a table for one price: a profile step that measures all of it, and a model step that hands the model on.

What is best spent on one-way marginals and what on joints depends on what has been released on the way: how many rows
there are, and whether any columns depend on each other. So both are measured in one step, for one price that is known
beforehand. Where noise would hide every joint, the cells of all columns get what is left, as if nothing else had been
looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from privbench_core.columns.discretizer import ordered_codes
from privbench_core.measure.by_size import MarginalsOverRows, RowLooks, best_counted
from privbench_core.measure.lags import Array, Pair, lag_joints, measure_own_lags, own_lag_share
from privbench_core.measure.learned import learn_domains
from privbench_core.measure.one_way import Marginals, MarginalsOfView
from privbench_core.measure.profile import Cells, first_share, measure_cells, over_rows, own_columns, with_looks
from privbench_core.measure.row_count import measure_row_count
from privbench_core.models.measured import Measured, MeasuredLeaf
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


class Network(Protocol):
    """What models the attributes of a table."""

    def has_power(self, curator: Curator, columns: int, total: float, price: Price) -> bool:
        """Return whether dependences of so many columns would show for ``price``."""
        ...

    def find(
        self, curator: Curator, marginals: Marginals, price: Price, by_lags: Mapping[Pair, Array]
    ) -> Measured | Price:
        """A model for at most ``price``, or what is left of it if the columns by themselves are all there is.

        ``by_lags`` has counts of pairs of dates that follow from how far they are apart.
        """
        ...


def learn_table(
    session: PrivateSession,
    table: Table,
    bound: int,
    price: Price,
    first: float,
    network: Callable[[Mapping[str, int]], Network],
) -> tuple[Cells, Profile, Measured]:
    """Measure a table's attributes, as many of their joints as the price supports; a unit has at most ``bound`` rows.

    Under pure privacy two looks at a marginal are worth less than one for the price of both (Laplace noise does not
    average as prices add up), so the number of rows comes first: it tells whether to look for anything else.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise, δ-approximate where a list of values is
    learned, at the price given, for adding or removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1,
    2, 4, 6, 7, 8 and 9, and *Learning a table*.
    """
    for_lags = price.share(own_lag_share(table))
    size, rest = measure_row_count(session, table.name, bound, Price(price.measure, price.amount - for_lags.amount))
    learned = learn_domains(session, table, size, rest, price.delta)
    sizes, rest = [codec.size for codec in learned.codecs.values() if codec.size > 1], learned.rest
    share = first if len(sizes) > 1 else 1.0
    if share < 1 and price.measure is Measure.PURE:
        view = session.view(ViewSpec(table.name, {}, (1 if size is None else size.rows_per_unit,)), "size")
        if size is None:
            rows = float(view.measure("rows", [Marginal(())], rest.share(TUNING.number_share)).values[0])
            rest = rest.share(1 - TUNING.number_share)
        else:
            rows = size.rows
        rows = max(1.0, rows)  # of few rows noise may leave none, or less
        share = share if network({}).has_power(view, len(sizes), rows, rest.share(1 - share)) else 1.0
    early = first_share(size)
    cells = measure_cells(session, table, learned, size, rest.share(share * early))
    cells, profile, looks = over_rows(session, table, cells, rest.share(share * (1 - early)))
    lags = measure_own_lags(session, table, profile, for_lags)
    profile = lags.of(profile)
    if share == 1:
        return cells, profile, MeasuredLeaf(profile.one_way, lags=lag_joints(profile))
    found = _modelled(session, table, profile, looks, rest, share, network)
    if not isinstance(found, Price):
        return cells, profile, found
    if looks is not None:
        looks = looks.again(session, table.name, own_columns(profile, looks.drifts), found)
        profile = lags.of(with_looks(profile, looks))
    else:
        cells = cells.again(session, table, found)
        profile = lags.of(cells.profile())
    return cells, profile, MeasuredLeaf(profile.one_way, lags=lag_joints(profile))


def _view(session: PrivateSession, table: Table, profile: Profile, most: int) -> Curator:
    features = {name: (Own(name), discretizer) for name, discretizer in profile.discretizers.items()}
    return session.view(ViewSpec(table.name, dict(features), (most,)), "spn")


def _modelled(
    session: PrivateSession,
    table: Table,
    profile: Profile,
    looks: RowLooks | None,
    price: Price,
    share: float,
    network: Callable[[Mapping[str, int]], Network],
) -> Measured | Price:
    """A model for what a first look has left of the price, or what is left then."""
    most = profile.size.rows_per_unit
    if looks is not None and price.measure is not Measure.PURE:
        of_units = session.view(ViewSpec(table.name, {}), "by size")
        most = best_counted(of_units, looks, price.share(1 - share), clipped=True).rows_per_unit
    view = _view(session, table, profile, most)
    chosen = network(ordered_codes(profile.discretizers))
    by_lags, left = lag_joints(profile), price.share(1 - share)
    if looks is None:
        return chosen.find(view, MarginalsOfView(view, profile.one_way), left, by_lags)
    columns = own_columns(profile, looks.drifts)
    others = profile.one_way.only(name for name in profile.discretizers if name not in looks.drifts)
    return chosen.find(view, MarginalsOverRows(session, table.name, columns, looks, others, most), left, by_lags)
