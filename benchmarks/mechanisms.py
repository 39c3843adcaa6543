"""Mechanisms of the plans by name, each with what leaves it out of a process, and what it was made for.

`leave_out` changes the running code, so it is for processes that end with the run. Each change leaves a plan that works
within its budget: what the mechanism would have paid goes to what is left.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from pkgutil import resolve_name, walk_packages
from typing import Any

from benchmarks.paired import Case
from privbench_core.errors import PrivbenchError

_PACKAGES = ("measure", "models", "estimate", "columns", "sampling", "synthesizers")
_NEEDS_OTHERS = "relational.mst"  # imports packages that may not be there


@dataclass(frozen=True)
class Mechanism:
    """Something that could be left out.

    Attributes:
        what: In a few words.
        leave_out: Takes it out of this process.
        cases: What it was made for.
    """

    what: str
    leave_out: Callable[[], None]
    cases: tuple[Case, ...]

    @property
    def fingerprint(self) -> str:
        """Of the code that leaves it out."""
        return blake2b(inspect.getsource(self.leave_out).encode(), digest_size=4).hexdigest()


def leave_out(names: Iterable[str]) -> None:
    """Leave mechanisms out of all that this process does from now on.

    Raises:
        PrivbenchError: There is no such mechanism, or the code no longer has what it consists of.
    """
    for name in names:
        named(name).leave_out()


def named(name: str) -> Mechanism:
    """Return the mechanism of a name; PrivbenchError, with all names, if there is none."""
    if name not in MECHANISMS:
        raise PrivbenchError(f"{name}: there is no such mechanism; there are {', '.join(sorted(MECHANISMS))}")
    return MECHANISMS[name]


def _replace(place: str, value: Any) -> None:
    """Put ``value`` for ``module.name``, wherever it has been imported by that name, or for ``module.Class.name``.

    Raises:
        PrivbenchError: There is no such name.
    """
    _import_all()
    _, _, name = place.rpartition(".")
    try:
        owner = resolve_name(f"privbench_core.{place.removesuffix(f'.{name}')}")
        old = getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise PrivbenchError(f"privbench_core.{place} is gone; benchmarks/mechanisms.py still leaves it out") from error
    setattr(owner, name, value)
    for user in tuple(sys.modules.values()):
        if getattr(user, "__name__", "").startswith("privbench_core") and vars(user).get(name) is old:
            setattr(user, name, value)


def _import_all() -> None:
    """Import all modules that may use a mechanism, so that `_replace` finds them."""
    for package in _PACKAGES:
        found = import_module(f"privbench_core.{package}")
        for module in walk_packages(found.__path__, f"{found.__name__}."):
            if _NEEDS_OTHERS not in module.name:
                import_module(module.name)


def _nearest_copula() -> None:
    _replace("estimate.nearest_copula.nearest_copula", lambda *_: None)


def _record_swapping() -> None:
    _replace("models.calibration.swap_to_fit", lambda *_: None)


def _within_bins() -> None:
    def plain(codes: Any, coders: Any, rng: Any) -> Any:
        return {name: coder.cells(codes[name], rng) for name, coder in coders.items()}

    _replace("sampling.within_bins.allocate_within_bins", plain)


def _row_shares() -> None:
    # Whatever it is constructed with.
    _replace("measure.fanout_fit.FanoutFit.row_share", property(lambda _: 0.0, lambda _, __: None))


def _implied_pairs() -> None:
    _replace("estimate.implied_pairs.implied_pairs", lambda *_: {})


def _second_look() -> None:
    # In this module alone: `implied_pairs` asks the same graph, and is a mechanism of its own.
    joints = import_module("privbench_core.estimate.joints")
    alone = type("JointGraph", (joints.JointGraph,), {"common_neighbours": lambda *_: []})
    joints.JointGraph = alone


def _signs() -> None:
    _replace("measure.signs.share_for_signs", lambda *_: 0.0)
    _replace("measure.signs.gain_of_signs", lambda *given: (0.0, given[-1]))


def _glance() -> None:
    _replace("measure.profile.can_be_held", lambda *_: False)


def _siblings() -> None:
    _replace("measure.siblings.agreements_tell", lambda *_: False)


def _clipping() -> None:
    def again(looks: Any, session: Any, table: str, columns: Any, price: Any) -> Any:
        best = looks.best_counted(session, table, price)
        return looks._again(session, table, columns, best, price, clipped=False)

    _replace("measure.clipped.Clipping.of", classmethod(lambda *_: None))
    _replace("measure.by_size.RowLooks.again", again)
    _replace("measure.popularity._WELL_KNOWN", math.inf)  # how well, so that nothing is clipped for it


def _haar_shrinkage() -> None:
    _replace("estimate.haar_shrinkage.shrink_haar", lambda found, *_: found)


def _lags() -> None:
    _replace("measure.lags.lag_features", lambda *_: ())
    _replace("measure.lags.own_lag_share", lambda *_: 0.0)


def _triples() -> None:
    _replace("measure.triples.candidate_triples", lambda *_: [])


def _adaptive_bins() -> None:
    _replace("measure.adaptive_bins.share_of", lambda *_: 0.0)


MECHANISMS: dict[str, Mechanism] = {
    "nearest_copula": Mechanism(
        "a normal copula as the base of joints of two ordered columns",
        _nearest_copula,
        (Case("joined", "chain"), Case("further", "chain"), Case("joined", "seasons"), Case("pairs", "dense")),
    ),
    "record_swapping": Mechanism(
        "drawn rows swap values until tables fit",
        _record_swapping,
        (Case("pairs", "adult"), Case("pairs", "san_diego"), Case("joined", "chain")),
    ),
    "within_bins": Mechanism(
        "pairs of fine cells balanced within codes",
        _within_bins,
        (Case("pairs", "seasons"), Case("pairs", "adult")),
    ),
    "row_shares": Mechanism(
        "joints of numbers of children fitted to shares of the children",
        _row_shares,
        (Case("joined", "chain"), Case("further", "chain"), Case("joined", "optional_keys")),
    ),
    "implied_pairs": Mechanism(
        "targets for pairs that were not measured, from those that were",
        _implied_pairs,
        (Case("pairs", "adult"), Case("triples", "adult"), Case("pairs", "san_diego")),
    ),
    "second_look": Mechanism(
        "joints estimated again with what other joints imply",
        _second_look,
        (Case("pairs", "adult"), Case("pairs", "san_diego")),
    ),
    "signs": Mechanism(
        "correlations of all ordered columns in one release",
        _signs,
        (Case("pairs", "dense"), Case("pairs", "adult")),
    ),
    "glance": Mechanism(
        "a look at all pairs, and marginals measured in two parts, in pure privacy",
        _glance,
        (Case("pairs", "adult"), Case("columns", "adult"), Case("columns", "xor")),
    ),
    "siblings": Mechanism(
        "rows exchanged between owners until siblings are as similar as released",
        _siblings,
        (Case("siblings", "chain"), Case("siblings", "hospital"), Case("siblings", "stats_every_key")),
    ),
    "clipping": Mechanism(
        "units clipped in L2 norm",
        _clipping,
        (Case("columns", "stats_every_key"), Case("pairs", "stats_every_key"), Case("columns", "chain")),
    ),
    "haar_shrinkage": Mechanism(
        "noisy shares drawn to expected ones, scale by scale",
        _haar_shrinkage,
        (Case("joined", "chain"), Case("further", "chain"), Case("joined", "web_shop")),
    ),
    "lags": Mechanism(
        "how long dates are after others",
        _lags,
        (Case("joined", "web_shop"), Case("joined", "stats_every_key"), Case("pairs", "tpch_skew")),
    ),
    "triples": Mechanism("three columns that no pair explains", _triples, (Case("triples", "xor"),)),
    "adaptive_bins": Mechanism(
        "heavy cells of wide ranges cut further",
        _adaptive_bins,
        (Case("means", "stats_every_key"), Case("columns", "san_diego"), Case("q_median", "stats_every_key")),
    ),
}
"""By name. `compare --without A+B` leaves several out together."""
