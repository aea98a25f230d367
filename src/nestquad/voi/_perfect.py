"""EVPI of a model by replicated Sobol points, until a tolerance or a budget is met."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri, stdtrit

from nestquad._typing import Array, RNGLike
from nestquad.distributions import Law
from nestquad.errors import InputError
from nestquad.estimate import as_budget
from nestquad.points import IID, Sobol, Stream
from nestquad.result import Estimate, Step

__all__ = ["perfect_by_sobol"]

_REPLICATES, _FIRST = 16, 16
_LIMIT = 10_000_000


def perfect_by_sobol(
    law: Law,
    benefits: Callable[[Array], Array],
    tol: float | None,
    budget: int | None,
    rng: RNGLike,
) -> Estimate:
    """E max − max E of net benefits (n, D) of draws (n, d)."""
    if tol is None and budget is None:
        raise InputError(
            "budget", "neither a budget nor a tolerance", "one of them", "For instance tol=1.0."
        )
    started = time.perf_counter()
    limit = _LIMIT if budget is None else as_budget(budget)
    stream = Stream.from_rng(rng)
    sequence = Sobol() if law.has_transport else IID()
    generator = stream.generator()
    sums: Array = np.zeros(())
    done, trace = 0, []
    while True:
        size = done or max(min(_FIRST, limit // _REPLICATES), 1)
        if law.has_transport:
            u = sequence.uniforms(stream, law.base_dim, (0, _REPLICATES), (done, done + size))
            draws = law.from_uniform(u.reshape(-1, law.base_dim))
        else:
            draws = law.sample(_REPLICATES * size, generator)
        table = benefits(draws).reshape(_REPLICATES, size, -1)
        best = np.concatenate((table.max(axis=-1, keepdims=True), table), axis=-1)
        sums = sums + best.sum(axis=1)
        done += size
        means = sums / done
        value, se = _summary(means)
        trace.append(Step(_REPLICATES * done, value, se))
        met = tol is not None and float(ndtri(0.975)) * se <= tol
        if met or 2 * done * _REPLICATES > limit:
            break
    status = "done" if tol is None else "converged" if met else "budget"
    return Estimate(
        value=value,
        std_error=se,
        n_evaluations=_REPLICATES * done,
        n_outer=_REPLICATES * done,
        n_inner=1,
        method="sobol",
        status=status,
        seconds=time.perf_counter() - started,
        diagnostics={"notes": [f"{_REPLICATES} independent sets of {done:,} points"]},
        trace=tuple(trace),
    )


def _summary(means: Array) -> tuple[float, float]:
    """Value and standard error, from the mean best and the mean of each option by replicate."""
    overall = means.mean(axis=0)
    default = 1 + int(overall[1:].argmax())
    gains = means[:, 0] - means[:, default]
    count = len(gains)
    # Few replicates: widened so that ± 1.96 of it is the interval of Student's t.
    factor = float(stdtrit(count - 1, 0.975) / ndtri(0.975))
    return float(gains.mean()), factor * float(gains.std(ddof=1)) / np.sqrt(count)
