"""Membership inference on whole units, beside synthesizers that leak by degrees; anonymeter's attacks on one table.

A game tosses a coin for each *target*: the synthesizer gets the rows of the targets whose coin says so, and those of
units that are always in. The attacker knows all of these rows, others of the population (the reference), the plan, and
sees synthetic rows. Games are repeated with coins and noise of their own, so each target is a member in half of them.
Attackers that learn do so in half of the games (*shadow runs*) and guess in the other half, and the other way round.

- **half of the units**: 2,000 targets at random and nothing else, as MT-MIA and most attacks on synthetic data have it.
- **worst cases**: the 20 units with the most rows and the 20 most unusual ones, beside 1,000 units that are always in.
  This is the attacker of the guarantee: all is known but the coin.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from benchmarks.attack_features import Floats, Ints, Observer
from benchmarks.compare_databases import sources
from benchmarks.compare_maker import sample_tables
from benchmarks.measure import run_child
from benchmarks.peers import python_of_peers
from benchmarks.report import Row, machine, markdown
from privbench_core.backends.registry import open_source
from privbench_core.errors import SourceError
from privbench_core.evaluation.attacks import TARGETS, Rehearsal, attribute_risks, epsilon_bound, restrict_to_units
from privbench_core.privacy.budget import Budget, Measure
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec

DATABASES = ("chain", "san_diego", "adult")
_CLASSIFIER, _ANONYMETER = (Path(__file__).with_name(f"{name}_child.py") for name in ("classifier", "anonymeter"))
_UNITS, _WORST, _CANDIDATES = 1000, 20, 10_000
_WRONG = 0.01  # probability that a bound on ε in one line of the tables is wrong
_RISKS = ("copies", "ε = 10", "ε = 1")  # synthesizers that anonymeter attacks

Tables = Mapping[str, pa.Table]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Game:
    """Units with their roles, as rows of the unit's table in ``rows``.

    Attributes:
        targets: Units whose coins are tossed.
        always: Units that are always in.
        known: The reference.
        strangers: As many units as are in, and never are themselves: what is made of them says nothing about targets.
    """

    spec: Spec
    rows: Tables
    targets: Ints
    always: Ints
    known: Ints
    strangers: Ints

    def of(self, units: Ints) -> Tables:
        """Return the database of some units."""
        return restrict_to_units(self.spec.schema, self.rows, units)


@dataclass(frozen=True)
class Synthesizer:
    """Makes rows of a game's members by a seed; ``budget`` is what it claims, and ``games`` how often it plays."""

    make: Callable[[Game, Ints, int], Tables]
    budget: Budget | None = None
    games: tuple[int, int] = (8, 40)


def _privbench(epsilon: float, delta: float, *, games: tuple[int, int] = (8, 40), claims: bool = True) -> Synthesizer:
    def make(game: Game, members: Ints, seed: int) -> Tables:
        return sample_tables(game.spec, game.of(members), epsilon, delta, seed, "privbench")

    return Synthesizer(make, Budget(epsilon, delta) if claims else None, games)


def _keeps(share: float, game: Game, members: Ints, seed: int) -> Tables:
    """Keep a share of the units whole; all columns of the other rows are shuffled, each for itself."""
    rng = np.random.default_rng([seed, 2])
    whole = rng.permutation(members)[: round(share * len(members))]
    kept, others = game.of(whole), game.of(np.setdiff1d(members, whole))
    shuffled = _shuffled(game.spec.schema, others, lambda _, rows: np.arange(rows), rng)
    return {name: pa.concat_tables([kept[name], shuffled[name]]) for name in kept}


def _swaps(share: float, game: Game, members: Ints, seed: int) -> Tables:
    """Copy, with a share of the values of each column swapped between rows, keys excepted."""
    rng = np.random.default_rng([seed, 3])
    schema = game.spec.schema

    def moved(is_key: bool, rows: int) -> Ints:
        return np.flatnonzero(rng.random(rows) < share * (not is_key))

    return _shuffled(schema, game.of(members), moved, rng)


def _shuffled(schema: Schema, tables: Tables, moved: Callable[[bool, int], Ints], rng: np.random.Generator) -> Tables:
    """Permute some rows of each column but the primary keys; ``moved`` gets whether it refers, and the rows."""
    found = {}
    for name, rows in tables.items():
        table = schema.table(name)
        keys = {column for key in table.foreign_keys for column in key.columns}
        columns = {}
        for column in rows.column_names:
            places = np.arange(rows.num_rows)
            if column not in table.primary_key:
                some = moved(column in keys, rows.num_rows)
                places[some] = rng.permutation(some)
            columns[column] = rows[column].take(pa.array(places))
        found[name] = pa.table(columns)
    return found


SYNTHESIZERS = {
    "copies other units": Synthesizer(lambda game, _members, _seed: game.of(game.strangers)),
    "copies": Synthesizer(lambda game, members, _seed: game.of(members)),
    "swaps 30% of the values": Synthesizer(partial(_swaps, 0.3)),
    "keeps 10% of the units whole": Synthesizer(partial(_keeps, 0.1)),
    "privbench without noise (ε = 10⁶)": _privbench(1e6, 1e-9, claims=False),
    "ε = 10": _privbench(10.0, 1e-9, games=(12, 60)),
    "ε = 1": _privbench(1.0, 1e-9, games=(24, 160)),
    "ε = 1, δ = 0": _privbench(1.0, 0.0, games=(24, 120)),
}
_PROTOCOL = """\
Can an attacker tell whether a unit (a user with all of their rows) was in the database? Each game tosses a coin per
*target*; the synthesizer gets the targets whose coin says so. The attacker knows their rows, 1,000 other units of the
population and the plan, and sees synthetic rows. **Half of the units**: 2,000 targets at random, half of them in (24
games at ε = 1, 12 at ε = 10, 8 for controls). **Worst cases**: the 20 units with the most rows and the 20 most unusual
ones (one table: 40 unusual ones), beside 1,000 units that are always in and known (160 games at ε = 1, 120 at δ = 0, 60
at ε = 10, 40 for controls). Data: `chain` is generated (users, orders and items, Zipf's sizes: `tests/helpers`),
`san_diego` is the example, and `adult` is in the data folder.

Cells: AUC ± standard error over games (true positives at 1% false ones). AUC is .5 for guesses by chance. Neighbours
add or remove a unit; δ = 1e-9 unless said. *Proven ε* is the lower bound that the surest 500 guesses of the best attack
prove at 99% (Steinke et al. 2023, δ neglected), beside the ε that is *claimed*; *AUC allowed* is the largest that the
guarantee permits the best attacker. Noise (NumPy's, of the plan's scale) and coins are seeded by the game, and
independent between games.

- *nearest unit (MT-MIA)*: distance of a user's embedding to the nearest synthetic user's (arXiv 2602.07126). Published:
  learned by a graph network; here the features that it learns to reconstruct, a user's row and the sums of its other
  rows. Their repository's figures for generators without privacy are AUC .69, .80, .66 (ClavaDDPM), .64, .62, .49
  (RelDiff) and .52, .58, .51 (REaLTabFormer) on California, Airbnb and Airlines, which are other data.
- *marginals of a unit*: log ratios of synthetic and reference frequencies of its cells (DOMIAS, in marginals).
- *shadow runs*: classifiers (linear and boosted trees) that learn members from all features in other games; *per
  target* centers features on what they are for this target in those games (a likelihood ratio attack).
- *one row*: the same of one row of the largest table; *FERMI* (arXiv 2605.11527, its black-box setting as the paper's
  abstract describes it): a mapper learns in shadow runs what the user's other rows reveal, and guesses from that row
  alone. The paper attacks diffusion models by losses of the model, which a bundle does not have.

*copies other units* shows what chance looks like. The next lines leak by degrees, and attacks must break them. Many
units of `chain` have few rows and equal others, so that there not even copies give all members away."""
_UNSEEN = """\
## What these attacks cannot see

A low AUC proves nothing; the guarantee does not rest on it. Attackers here see synthetic rows alone. A bundle's other
files are computed from the same released numbers and may show more; `python -m benchmarks tightness` measures what the
released numbers themselves reveal, and `tests/property` replays plans on neighbours. Values below the resolution of the
features (texts, single values in a bin), triples of columns, and releases at several ε together are not attacked. An
AUC within two standard errors of .5 is not zero leakage. MT-MIA's graph network could find what sums of features do not
show; its authors' code has no licence, so it was not run."""
_LEFT = (
    "There an attack proves nothing about privbench either (AUC within three standard errors of .5, risk below .05)."
)
_CONTROLS = ("copies", "swaps 30% of the values", "keeps 10% of the units whole")


def run(
    data: Path | None = None, databases: Collection[str] = DATABASES, *, progress: Callable[[str], None] = print
) -> str | None:
    """Play both games on each database with each synthesizer, and return Markdown; None without the classifiers."""
    try:
        python_of_peers("attacks")  # before hours of games
    except SourceError as error:
        progress(str(error))
        return None
    found: list[str] = []
    at_one: list[str] = []
    unbroken: list[str] = []
    risks: list[Row] = []
    for source in (source for source in sources(data) if source.name in databases):
        with TemporaryDirectory() as folder:
            try:
                spec = source.spec(Path(folder))
                reader = open_source(spec, b"")
                rows = {table.name: reader.read(table) for table in spec.schema.tables}
            except SourceError as error:
                found.append(f"`{source.name}` is left out: {error}")
                continue
        for place, (title, game) in enumerate(games_of(spec, rows)):
            observer = Observer(spec.schema, game.rows, game.targets, game.known)
            lines: list[Row] = []
            for name, synthesizer in SYNTHESIZERS.items():
                scores, coins, last = _play(game, observer, synthesizer, synthesizer.games[place])
                judged = {attack: judge(score, coins) for attack, score in scores.items()}
                lines.append(_line(name, synthesizer.budget, judged))
                if name in _CONTROLS:
                    unbroken += [
                        f"{attack} on `{source.name}` ({title}) if it {name}: {each}"
                        for attack, each in judged.items()
                        if each.auc - 3 * each.error <= 0.5
                    ]
                if synthesizer.budget and synthesizer.budget.epsilon == 1:
                    attack, most = max(judged.items(), key=lambda each: each[1].auc)
                    at_one.append(f"`{source.name}`, {title}, {name}: {most} by *{attack}*, {most.beside_target}")
                progress(f"attacks: {source.name}, {title}\n{markdown(lines[-1:])}")
                if not place and name in _RISKS:
                    risks += _risks(source.name, name, game, coins[-1], last)
            found.append(f"## {source.name}, {title}\n\n{markdown(lines)}")
    unbroken += [
        f"anonymeter's {line['attack']} on `{line['database']}` if it copies: risk {line['risk ']:.3f}"
        for line in risks
        if line["synthesizer"] == "copies" and float(line["risk "]) < 0.05
    ]
    head = [_PROTOCOL, f"Measured {machine(1).partition(', ')[2]}", f"## Largest AUC at ε = 1\n\n{_listed(at_one)}"]
    weak = f"## Controls that an attack does not break\n\n{_LEFT}\n\n{_listed(unbroken) if unbroken else 'None.'}"
    return "\n\n".join([*head, *found, weak, f"## anonymeter\n\n{markdown(risks)}", _UNSEEN])


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def games_of(spec: Spec, rows: Tables) -> Iterator[tuple[str, Game]]:
    """Yield the games of a database: half of the units, and worst cases."""
    mixed = np.random.default_rng(0).permutation(rows[spec.schema.unit].num_rows)[:_CANDIDATES]
    rows = restrict_to_units(spec.schema, rows, mixed)
    known, strangers, others = np.split(np.random.default_rng(1).permutation(len(mixed)), [_UNITS, 2 * _UNITS])
    none = others[:0]
    yield "half of the units", Game(spec, rows, others[: 2 * _UNITS], none, known, strangers)
    observer = Observer(spec.schema, rows, others, known)
    unusual = np.argsort(-observer.outlying())
    largest = np.argsort(-observer.rows, kind="stable")[: _WORST if np.ptp(observer.rows) else 0]
    worst = np.concatenate([largest, unusual[~np.isin(unusual, largest)][: 2 * _WORST - len(largest)]])
    always = np.delete(others, worst)[:_UNITS]
    yield "worst cases", Game(spec, rows, others[worst], always, known, strangers)


def _play(
    game: Game, observer: Observer, synthesizer: Synthesizer, games: int
) -> tuple[dict[str, Floats], Bits, Tables]:
    """Return scores by attack and coins, of shape (games, targets), and the synthetic rows of the last game."""
    coins = np.array([np.random.default_rng([seed, 1]).random(len(game.targets)) < 0.5 for seed in range(games)])
    made: Tables = {}
    seen = []
    for seed in range(games):
        made = synthesizer.make(game, np.concatenate([game.always, game.targets[coins[seed]]]), seed)
        seen.append(observer.look(made))
    units, items = np.array([unit for unit, _ in seen]), np.array([item for _, item in seen])
    scores = {"nearest unit (MT-MIA)": units[:, :, 0], "marginals of a unit": observer.density(units)}
    return scores | _classified(units, items, coins, observer.item >= 0), coins, made


def _classified(units: Floats, items: Floats, coins: Bits, has_row: Bits) -> dict[str, Floats]:
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "in.npz", units=units, rows=items, coins=coins, has_row=has_row)
        run_child([str(python_of_peers("attacks")), str(_CLASSIFIER), folder])
        with np.load(Path(folder) / "out.npz") as out:
            return dict(out)


@dataclass(frozen=True)
class Found:
    """What an attack found: area under the ROC curve with its standard error, true positives at 1% false ones, ε."""

    auc: float
    error: float
    caught: float
    proven: float

    def __str__(self) -> str:
        return f"{self.auc:.3f} ± {self.error:.3f} ({self.caught:.1%})"

    @property
    def beside_target(self) -> str:
        """Return on which side of .52 the 95% interval of the AUC lies."""
        far = (self.auc - 0.52) / self.error
        return "above .52" if far > 1.96 else "below .52" if far < -1.96 else "not told from .52"


def judge(scores: Floats, coins: Bits) -> Found:
    """Judge the scores of one attack; shapes (games, targets). NaN is no guess.

    Scores are compared within the even and the odd games, as different classifiers guess in them. The standard error
    takes games as independent, and nothing within a game. The ε is that of the surest guesses in either half, by
    `epsilon_bound`, at 99% confidence for all attacks of a line.
    """
    parts = [_halves(scores[start::2], coins[start::2]) for start in (0, 1)]
    influence = np.concatenate([part[1] for part in parts]) / 2
    return Found(
        auc=float(np.mean([part[0] for part in parts])),
        error=float(np.sqrt((influence**2).sum())),
        caught=float(np.mean([part[2] for part in parts])),
        proven=max(part[3] for part in parts),
    )


def _halves(scores: Floats, coins: Bits) -> tuple[float, Floats, float, float]:
    """Return AUC, what each game adds to its error, the true positives at 1% false ones, and the ε that is proven."""
    game, target = np.nonzero(np.isfinite(scores))
    score, member = scores[game, target], coins[game, target]
    ranks = scipy.stats.rankdata(score)
    above = np.empty(len(score))  # the share of the other side that each beats
    for side in (True, False):
        mine = member == side
        beaten = (ranks[mine] - scipy.stats.rankdata(score[mine])) / max(1, (~mine).sum())
        above[mine] = beaten if side else 1 - beaten
    auc = float(above[member].mean())
    share = (above - auc) / np.where(member, member.sum(), (~member).sum())
    influence = np.bincount(game, share, len(scores))
    bar = np.quantile(score[~member], 0.99)
    order = np.lexsort((np.random.default_rng(0).random(len(score)), score))
    half = min(TARGETS, len(score)) // 2
    right = int((~member[order[:half]]).sum() + member[order[-half:]].sum())
    proven = epsilon_bound(right, 2 * half, _WRONG / (2 * 6))  # halves and attacks
    return (
        auc,
        influence * math.sqrt(len(scores) / max(1, len(scores) - 1)),
        float((score[member] > bar).mean()),
        proven,
    )


def most_auc(budget: Budget) -> float:
    """Return the largest area under an ROC curve that a guarantee allows: e^ε/(1 + e^ε) in pure DP, else Φ(μ/√2).

    The latter is exact for Gaussian DP (Dong, Roth and Su 2022, Definition 4), without the δ of thresholds.
    """
    if budget.measure is Measure.PURE:
        return float(scipy.special.expit(budget.epsilon))
    return float(scipy.special.ndtr(math.sqrt(budget.total().rho)))  # ρ = μ²/2


def _line(name: str, budget: Budget | None, judged: Mapping[str, Found]) -> dict[str, str | float]:
    line: dict[str, str | float] = {"synthesizer": name}
    for attack, found in judged.items():
        line[attack] = str(found)
    proven = max(found.proven for found in judged.values())
    claimed = "" if budget is None else f"{budget.epsilon:g}"
    return line | {"proven ε": f"{proven:.2f}", "claimed": claimed, "AUC allowed": most_auc(budget) if budget else ""}


def _risks(database: str, name: str, game: Game, member: Bits, made: Tables) -> Iterator[Row]:
    """Yield the three risks of the largest table, by our form of anonymeter's attacks and by its own."""
    rehearsal = Rehearsal(game.spec.schema, game.rows, made, game.targets, member, game.known)
    table = max(rehearsal.codes[0], key=lambda each: len(rehearsal.codes[0][each].codes))
    if len(rehearsal.codes[0][table].names) < 3:  # what anonymeter's predicates take
        return
    theirs = _anonymeter(rehearsal, table)
    for ours in (risk for risk in attribute_risks(rehearsal, np.random.default_rng(0)) if risk["table"] == table):
        line: dict[str, str | float] = {"database": f"{database}, {table}", "synthesizer": name, "attack": ours["name"]}
        line |= {figure: ours[figure] for figure in ("members", "others", "risk")} | {"± (95%)": ours["error"]}
        line |= dict(zip(("anonymeter: members", "others ", "risk "), theirs[ours["name"]], strict=True))
        yield line


def _anonymeter(rehearsal: Rehearsal, table: str) -> dict[str, tuple[float, float, float]]:
    """Success on members and on others, and anonymeter's risk, by attack; rows are codes."""
    true, made = (codes[table] for codes in rehearsal.codes)
    of = rehearsal.units[table]
    sides = rehearsal.pool[rehearsal.member], rehearsal.pool[~rehearsal.member]
    members, others = (true.codes[np.isin(of, units)] for units in sides)
    size = min(len(members), len(others))
    with TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "in.npz", members=members[:size], others=others[:size], synthetic=made.codes)
        parameters: dict[str, Any] = {"ordered": list(true.ordered), "targets": TARGETS}
        (folder / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
        run_child([str(python_of_peers("anonymeter")), str(_ANONYMETER), str(folder)])
        found = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    shares = {name: np.mean(rates, axis=0).tolist() for name, rates in found.items()}  # of inference, over columns
    return {name: (m, o, max(0.0, (m - o) / (1 - o)) if o < 1 else 0.0) for name, (m, o) in shares.items()}
