"""Measurements: one estimate against the exact value, replicates, and fair timings."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.methods import METHODS
from studies.runner.ledger import Outcome

# `auto` with the interval of fresh draws alone.
CERTIFIED = "certified"
# `auto`, then what it is compared with.
ALL_METHODS = ("auto", *(name for name in METHODS if name != "auto"))
# Errors below this part of the exact value are rounding.
ROUNDING = 1e-12


def measure(
    problem: nq.NestedExpectation,
    method: Any,
    seed: int,
    *,
    slack: float = 0.0,
    **limits: float | None,
) -> Outcome:
    """One estimate, with its error against the exact value and the time that g did not take.

    An interval covers if it holds the exact value, whose own error is `slack`.

    The method ``certified`` is `auto` with ``certify=True``: error and interval are those of
    ``est.certified``, evaluations and time those of the whole call.
    """
    clock = _Clock(problem.g)
    start = time.process_time()
    certify = method == CERTIFIED
    try:
        found = nq.estimate(
            replace(problem, g=clock),
            method="auto" if certify else method,
            rng=seed,
            certify=certify,
            **limits,
        )
        if certify and found.certified is None:
            raise nq.NumericalError("no certificate")
    except nq.NestquadError as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        nan, spent = float("nan"), _short(time.process_time() - start - clock.seconds)
        return Outcome(
            nan, 0, covered=0.0, seconds=spent, g_seconds=_short(clock.seconds),
            status="failed", chosen=reason[:200],
        )  # fmt: skip
    seconds = time.process_time() - start - clock.seconds
    judged = found.certified if certify else found
    exact = np.ravel(np.asarray(problem.exact, dtype=float))
    errors = np.abs(np.ravel(judged.value) - exact)
    low, high = (np.ravel(end) for end in judged.interval(0.95))
    inside = (low - slack <= exact) & (exact <= high + slack)
    covered = inside | (errors <= ROUNDING * np.abs(exact))
    return Outcome(
        value=float(np.ravel(judged.value)[0]),
        error=_short(errors.max()),
        half_width=_short((high - low).max() / 2),
        covered=float(covered.mean()),
        evaluations=found.n_evaluations,
        seconds=_short(max(seconds, 0.0)),
        g_seconds=_short(clock.seconds),
        status=found.status,
        chosen=chosen_by(found),
    )


def _short(value: float) -> float:
    """Two digits more than anybody reads, which keeps ledgers small."""
    return float(f"{value:.4g}")


def chosen_by(found: nq.Estimate) -> str:
    """What the method chose, in a word or a few; its name where it chose nothing."""
    chosen = found.diagnostics.get("chosen", found.method)
    if isinstance(chosen, Mapping):
        chosen = chosen.get("method", found.method)
    return str(chosen)[:60]


class _Clock:
    """g, and the CPU time spent in it."""

    def __init__(self, g: Callable[..., Any]) -> None:
        self.g, self.seconds = g, 0.0

    def __call__(self, x: np.ndarray, theta: np.ndarray) -> Any:
        start = time.process_time()
        try:
            return self.g(x, theta)
        finally:
            self.seconds += time.process_time() - start


def warm_up() -> None:
    """The first estimates of a process pay for imports inside SciPy."""
    problem = nq.problems.finance()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ALL_METHODS:
            with suppress(nq.NestquadError):
                nq.estimate(problem, method=method, budget=500, rng=0)


@dataclass(frozen=True)
class Replicates:
    """Independent runs of one method on one problem, seeds 0, 1, 2, …

    `errors` are absolute, against the exact value; `half_widths` those of the 95 % interval.
    """

    errors: np.ndarray
    half_widths: np.ndarray
    seconds: np.ndarray
    n_evaluations: int

    @property
    def mean_error(self) -> float:
        return float(self.errors.mean())

    @property
    def mean_error_se(self) -> float:
        """Standard error of `mean_error`: what another set of seeds may change."""
        return float(self.errors.std(ddof=1) / np.sqrt(self.errors.size))

    @property
    def coverage(self) -> float:
        return float((self.errors <= self.half_widths).mean())

    def row(self) -> dict[str, Any]:
        return {
            "seeds": self.errors.size,
            "evaluations": self.n_evaluations,
            "error": self.mean_error,
            "error_se": self.mean_error_se,
            "largest": float(self.errors.max()),
            "coverage": self.coverage,
            "sharpness": float(np.median(self.half_widths)) / self.mean_error,
            "seconds": float(np.median(self.seconds)),
        }


def replicate(
    problem: nq.NestedExpectation, method: Any, seeds: int, budget: int | None = None
) -> Replicates:
    # Once unmeasured: the first run of a process pays for imports inside SciPy.
    nq.estimate(problem, method=method, budget=budget, rng=seeds)
    runs = [nq.estimate(problem, method=method, budget=budget, rng=seed) for seed in range(seeds)]
    return Replicates(
        np.array([abs(run.value - problem.exact) for run in runs]),
        np.array([1.959964 * run.std_error for run in runs]),
        np.array([run.seconds for run in runs]),
        runs[0].n_evaluations,
    )


@dataclass(frozen=True)
class Timings:
    """Seconds of each repeat: on the wall, and of this process alone, which other load spares."""

    wall: np.ndarray
    cpu: np.ndarray

    @property
    def median(self) -> float:
        return float(np.median(self.wall))

    def over(self, other: Timings) -> float:
        """Median over repeats of the ratio of wall times."""
        return float(np.median(self.wall / other.wall))

    def cpu_over(self, other: Timings) -> float:
        return float(np.median(self.cpu / other.cpu))


def interleaved(
    tasks: Mapping[str, Callable[[int], Any]], repeats: int, *, warm_up: bool = True
) -> dict[str, Timings]:
    """Time tasks in turns.

    The tasks of one repeat run one after the other, so that whatever else the machine does in the
    meantime hits all of them; compare within a repeat and take the median of that. A task gets
    the number of the repeat, to seed with: the same seed again would find its weights in a cache.
    A round that is not counted comes first, unless `warm_up` says no.
    """
    wall: dict[str, list[float]] = {name: [] for name in tasks}
    cpu: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(0 if warm_up else 1, repeats + 1):
        for name, task in tasks.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            task(repeat)
            elapsed, elapsed_cpu = time.perf_counter() - start, time.process_time() - start_cpu
            if repeat > 0:  # the first round warms up
                wall[name].append(elapsed)
                cpu[name].append(elapsed_cpu)
    return {name: Timings(np.array(wall[name]), np.array(cpu[name])) for name in tasks}
