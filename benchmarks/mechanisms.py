"""Mechanisms of the plans by name, each with what leaves it out of a process, and what it was made for.

`leave_out` changes the running code, so it is for processes that end with the run. Each change leaves a plan that works
within its budget: what the mechanism would have paid goes to what is left.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pkgutil import resolve_name, walk_packages
from typing import Any

import numpy as np

from benchmarks.paired import Case
from privbench_core.errors import PrivbenchError
from privbench_core.tuning import TUNING

_PACKAGES = ("estimators", "marginals", "units", "profiles", "links", "groups", "columns", "sampling", "synthesizers")
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
        code = self.what if isinstance(self.leave_out, partial) else inspect.getsource(self.leave_out)
        return blake2b(code.encode(), digest_size=4).hexdigest()


def leave_out(names: Iterable[str]) -> None:
    """Leave mechanisms out of all that this process does from now on.

    Raises:
        PrivbenchError: There is no such mechanism, or the code no longer has what it consists of.
    """
    for name in names:
        named(name).leave_out()


def named(name: str) -> Mechanism:
    """Return the mechanism of a name, or ``FIELD*FACTOR``: a field of `Tuning` that is multiplied by a number.

    Raises:
        PrivbenchError: There is none; the message has all names.
    """
    field, times, factor = name.partition("*")
    if times and hasattr(TUNING, field) and factor.replace(".", "", 1).isdigit():
        return Mechanism(f"the field {name} of Tuning", partial(_multiply, field, float(factor)), ())
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


def _multiply(field: str, factor: float) -> None:
    """Multiply a field of `Tuning`, and the constants of modules that are called after it."""
    _import_all()
    old = getattr(TUNING, field)
    new = tuple(factor * part for part in old) if isinstance(old, tuple) else type(old)(factor * old)
    object.__setattr__(TUNING, field, new)
    for module in tuple(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("privbench_core"):
            for name in re.findall(rf"^([A-Z_]+) = TUNING\.{field}$", inspect.getsource(module), re.MULTILINE):
                _replace(f"{module.__name__.removeprefix('privbench_core.')}.{name}", new)


def _import_all() -> None:
    """Import all modules that may use a mechanism, so that `_replace` finds them."""
    for package in _PACKAGES:
        found = import_module(f"privbench_core.{package}")
        for module in walk_packages(found.__path__, f"{found.__name__}."):
            if _NEEDS_OTHERS not in module.name:
                import_module(module.name)


def _nearest_copula() -> None:
    _replace("estimators.copula.nearest_copula", lambda *_: None)


def _record_swapping() -> None:
    _replace("marginals.spn.swap_to_fit", lambda *_: None)


def _within_bins() -> None:
    def plain(codes: Any, coders: Any, rng: Any) -> Any:
        return {name: coder.cells(codes[name], rng) for name, coder in coders.items()}

    _replace("sampling.attributes.allocate_within_bins", plain)


def _row_shares() -> None:
    _replace("links.measure_fanout._fitted_to_rows", lambda *_: {})


def _signs() -> None:
    _replace("marginals.measure_pairs.measure_signs", lambda _curator, _clean, _ordered, price: (None, price))


def _siblings() -> None:
    _replace("links.measure_agreements.agreement_columns", lambda *_: [])


def _clipping() -> None:
    _replace("units.measure_by_size.SizeStratifiedMarginals._is_clipped", lambda *_: False)


def _clipped_joints() -> None:
    _replace("units.measure_by_size.SizeStratifiedMarginals.collisions", lambda *_: 1.0)


def _size_drift() -> None:
    def none(classes: int) -> tuple[Any, Any]:
        return np.zeros(1), np.ones((1, 1, classes, classes))

    _replace("units.random_walk._priors", none)


def _size_shapes() -> None:
    # Noisy counts are taken as they are, and what is beyond T is what they say of it.
    def plain(_: Any, __: Any, noisy: Any, sigma: Any, ___: float) -> tuple[Any, Any]:
        return noisy, np.broadcast_to(sigma, noisy.shape)

    _replace("estimators.size_shapes.shrink_to_shapes", plain)
    _replace("estimators.size_shapes.Shapes.deviation", lambda *_: 0.0)


def _haar_shrinkage() -> None:
    _replace("estimators.denoising.shrink_haar", lambda found, *_: found)


def _lags() -> None:
    _replace("profiles.measure_lags.lag_features", lambda *_: {})
    _replace("profiles.measure_lags.own_lag_share", lambda *_: 0.0)


def _triples() -> None:
    _replace("marginals.measure_pairs.candidate_triples", lambda *_: [])


def _adaptive_bins() -> None:
    _replace("profiles.measure_bins.share_of", lambda *_: 0.0)


def _counted() -> None:
    _replace("synthesizers.steps.link.counted_along", lambda *_: ())


def _public_attributes() -> None:
    _replace("links.measure_popularity.ParentReferences.with_attributes", lambda references, *_: references)


def _exchanged_references() -> None:
    _replace("links.linked_lookup._differing", lambda assigned, *_: assigned)


def _parts_of_whole() -> None:
    _replace("groups.measure_groups.reconciled", lambda looks, _: looks)


def _trios() -> None:
    _replace("groups.measure_groups.GroupFit._useful", lambda *_: [])


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
    "signs": Mechanism(
        "correlations of all ordered columns in one release",
        _signs,
        (Case("pairs", "dense"), Case("pairs", "adult")),
    ),
    "siblings": Mechanism(
        "rows exchanged between owners until siblings are as similar as released",
        _siblings,
        (Case("siblings", "chain"), Case("siblings", "hospital"), Case("siblings", "stats_every_key")),
    ),
    "clipping": Mechanism(
        "columns over rows counted with units clipped in L2 norm",
        _clipping,
        (Case("columns", "chain"), Case("columns", "seasons"), Case("columns", "stats_every_key")),
    ),
    "clipped_joints": Mechanism(
        "pairs of a table's columns counted with units clipped in L2 norm",
        _clipped_joints,
        (Case("pairs", "households"), Case("pairs", "san_diego")),
    ),
    "size_drift": Mechanism(
        "distributions of columns by class of the number of rows of a unit, which differ from class to class",
        _size_drift,
        (Case("columns", "chain"), Case("joined", "chain"), Case("columns", "seasons")),
    ),
    "size_shapes": Mechanism(
        "noisy numbers of units by size drawn to smooth distributions of sizes",
        _size_shapes,
        (Case("rows", "chain"), Case("fanout", "chain"), Case("columns", "chain")),
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
    "counted": Mechanism(
        "links look at how many other children an owner has",
        _counted,
        (Case("q_95th", "hospital"), Case("q_95th", "stats_every_key"), Case("popularity", "diamond")),
    ),
    "public_attributes": Mechanism(
        "references to public rows fitted to references to their attributes",
        _public_attributes,
        (Case("joined", "many_to_many"), Case("further", "many_to_many")),
    ),
    "exchanged_references": Mechanism(
        "rows of a junction that repeat a pair exchange what they refer to",
        _exchanged_references,
        (Case("popularity", "many_to_many"), Case("further", "many_to_many")),
    ),
    "parts_of_whole": Mechanism(
        "marginals of classes of group sizes agree with those of all rows",
        _parts_of_whole,
        (Case("columns", "chain"), Case("joined", "households")),
    ),
    "trios": Mechanism(
        "columns of three members of a group, where pairs do not explain them",
        _trios,
        (Case("siblings", "households"),),
    ),
}
"""By name. `compare --without A+B` leaves several out together."""
