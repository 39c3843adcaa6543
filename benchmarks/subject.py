"""privbench on one coded table: the single place where the benchmarks call the project for it."""

from __future__ import annotations

from benchmarks.measure import Codes, Fit, fit_target_in_child


def fit_sample_single(
    codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> Fit:
    """Fit PrivSPN and sample as many rows as it counts, in a process of its own."""
    parameters = {"epsilon": epsilon, "delta": delta, "seed": seed}
    return fit_target_in_child("benchmarks.subject:fit_sample", codes, sizes, ordered, parameters)


def fit_sample(
    codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> tuple[Codes, float, float]:
    """The project's own call: synthetic codes, seconds to learn, seconds to sample."""
    from privbench_core.synthesizers import bench_api  # noqa: PLC0415  (only the child process pays for it)

    return bench_api.fit_sample(codes, sizes, ordered, epsilon, delta, seed)
