"""Replicates with errors against the exact value, and fair timings."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

import nestquad as nq
from nestquad.reproduce._workers import THREAD_VARIABLES


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


def environment() -> dict[str, Any]:
    """What a reader needs to know of the machine, and no more."""
    return {
        "cpus": os.cpu_count(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
