"""Shares of a table's budget, learned from the tables of `dense` together and checked on tables left out.

The constants of the default leaf, and the share of its first look, are compared with others around them. For each table
the best of these on all *other* tables is chosen, and its error on the table itself compared with that of the constants
as released: only what helps there would help a table that nobody has seen. Constants are worth changing if the mean of
these ratios is clearly below 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import dense, subject
from benchmarks.measure import Runs
from benchmarks.report import Row, machine, markdown
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.privacy.budget import Budget, Price
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.privbench import SharedOptions, conditional_link, network_plan
from privbench_core.synthesizers.steps.profile import learn_steps

RUNS = Runs(2, (0.2, 0.8, 3.2), (1e-5, 0.0))


@dataclass(frozen=True)
class Setting:
    """PrivBench with other constants; a synthesizer.

    Attributes:
        label: For the report.
        profile: Share of a table's price for the first look.
        leaf: How leaves spend what is left.
    """

    name = subject.DEFAULT

    label: str
    profile: float = SharedOptions().profile

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = SharedOptions.parse(options)

        def learn(table: Table, price: Price) -> list[Step]:
            return learn_steps(schema, table, price, self.profile, partial(PairwiseSPN, beta=chosen.beta))

        return network_plan(self.name, schema, budget, chosen, learn, conditional_link)


AS_RELEASED = Setting("as released")
SETTINGS = (
    AS_RELEASED,
    Setting("first look 0.35", profile=0.35),
    Setting("first look 0.65", profile=0.65),
)


def run(runs: Runs = RUNS, data: Path | None = None, *, only: Sequence[str] = ()) -> str:
    """Measure and return Markdown text.

    Args:
        runs: What is run.
        data: The data folder; see `data.data_folder`.
        only: Which of `dense.tables`; none for all.
    """
    made = dense.tables(data)
    errors: dict[str, dict[Setting, list[float]]] = {}
    for short in only or made:
        table = made[short]()
        errors[table.name] = {setting: _errors(runs, table, setting) for setting in SETTINGS}
    ratios = {
        name: {setting: _ratio(of[setting], of[AS_RELEASED]) for setting in SETTINGS} for name, of in errors.items()
    }
    rows: list[Row] = []
    for name, own in ratios.items():
        others = [found for other, found in ratios.items() if other != name]
        best = best_of(others)
        cells: dict[str, str | float] = {
            "left out": name,
            "best on the others": best.label,
            "its ratio here": own[best],
        }
        rows.append(cells | {setting.label: own[setting] for setting in SETTINGS if setting is not AS_RELEASED})
    held_out = geometric_mean(float(row["its ratio here"]) for row in rows)
    together = best_of(list(ratios.values()))
    last: dict[str, str | float] = {"left out": "**none; mean**", "best on the others": together.label}
    means = {s.label: _mean(ratios.values(), s) for s in SETTINGS if s is not AS_RELEASED}
    rows.append({**last, "its ratio here": held_out, **means})
    return f"{machine(runs.seeds).replace('Medians', 'Means')}\n\n{markdown(rows)}"


def best_of(ratios: Sequence[Mapping[Setting, float]]) -> Setting:
    """Return the setting with the smallest geometric mean of its ratios."""
    return min(SETTINGS, key=lambda setting: _mean(ratios, setting))


def _mean(ratios: Any, setting: Setting) -> float:
    return geometric_mean(found[setting] for found in ratios)


def _ratio(errors: Sequence[float], of_released: Sequence[float]) -> float:
    """Geometric mean over the budgets."""
    return geometric_mean(own / released for own, released in zip(errors, of_released, strict=True))


def _errors(runs: Runs, table: dense.Dense, setting: Setting) -> list[float]:
    """Of each budget, mean over the seeds."""
    found = []
    for delta, epsilon in runs.budgets:
        runs.progress(f"shares: {table.name}, {setting.label}, epsilon {epsilon:g}, delta {delta:g}")
        given = (table.codes, list(table.sizes), list(table.ordered), epsilon, delta)
        drawn = [subject.fit_sample(*given, seed, setting)[0] for seed in range(runs.seeds)]
        found.append(sum(map(table.error, drawn)) / runs.seeds)
        runs.progress(f"    {found[-1]:.4f}")
    return found
