"""Search for the best design: a Gaussian process over designs, and common random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.design._compare import Criterion, DesignComparison, label_of
from nestquad.design._experiment import Experiment
from nestquad.design._gain import eig
from nestquad.errors import InputError
from nestquad.gp import SurrogateKind, fit_surrogate, trends
from nestquad.points import Sobol, Stream
from nestquad.result import Estimate

# Share of the budget for the search; the rest is for the estimate at its end, whose error bar must
# not be chosen by the search.
_SEARCH = 0.6
_FEWEST = 256  # likelihoods for a design of the search: 14 data with 16 draws each
_MOST_DESIGNS = 60  # a process of more takes longer than most likelihoods
_POOL = 2048  # points at which the process is looked at


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best design found, its estimate from fresh random numbers, and the designs tried."""

    design: Any
    estimate: Estimate
    trace: DesignComparison
    n_evaluations: int

    def __str__(self) -> str:
        return (
            f"design {label_of(self.design)}: {self.estimate.summary} (95 %), "
            f"{len(self.trace.designs)} designs tried, {self.n_evaluations:,} likelihoods"
        )


def optimize(
    experiment: Experiment,
    bounds: Sequence[Sequence[float]] | None = None,
    *,
    candidates: Sequence[Any] | None = None,
    budget: int,
    simulations: int | None = None,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    progress: ProgressLike = False,
) -> Optimum:
    """Find the design with the largest expected gain.

    Parameters
    ----------
    experiment
        Its functions take a design of shape (k,).
    bounds
        (low, high) for each of the k coordinates of a design in a box.
    candidates
        Instead of a box, the designs to choose from, such as those with integer or categorical
        coordinates: rows of numbers, or anything if there are few.
    budget
        The most evaluations of `log_prob`: 60 % for the search, the others at its end.
    simulations
        The most simulations for each design of the search.
    criterion, rng, progress
        As in `compare`.
    """
    if (bounds is None) == (candidates is None):
        raise InputError("bounds", "both or neither of bounds and candidates", "one of them")
    if budget < 8 * _FEWEST:
        raise InputError("budget", f"{budget} likelihoods", f"at least {8 * _FEWEST} for a search")
    stream, show = Stream.from_rng(rng), as_progress(progress)
    pool, points = _box(bounds, stream.child(1)) if bounds is not None else _listed(candidates)
    n = int(np.clip(_SEARCH * budget // _FEWEST, 4, min(_MOST_DESIGNS, len(pool))))
    first = n if points is None else min(n, max(4, min(n // 2, 6 * points.shape[1])))
    tried: list[int] = []
    found: list[Estimate] = []
    # Always the same random numbers: differences between designs are better known than values.
    same = {"budget": int(_SEARCH * budget) // n, "rng": stream.child(2)}
    for i in range(n):
        show(i, n, "designs")
        tried.append(i if points is None or i < first else _next(points, tried, found))
        found.append(criterion(experiment, pool[tried[-1]], simulations=simulations, **same))
    show(n, n, "designs")
    values = np.array([float(est.value) for est in found])
    if points is not None:  # the mean of the process averages noise
        values = _process(points, tried, found)[0][tried]
    best = pool[tried[int(np.argmax(values))]]
    left = budget - sum(est.n_evaluations for est in found)
    final = criterion(experiment, best, budget=left, simulations=simulations, rng=stream.child(3))
    trace = DesignComparison.of([pool[i] for i in tried], found)
    return Optimum(best, final, trace, trace.n_evaluations + final.n_evaluations)


def _box(bounds: Sequence[Sequence[float]], stream: Stream) -> tuple[Array, Array]:
    """Sobol points in a box, and in the unit cube; the first of them are the first designs."""
    ends = np.atleast_2d(np.asarray(bounds, dtype=float))
    if ends.shape[-1] != 2 or not (np.isfinite(ends).all() and (ends[:, 0] < ends[:, 1]).all()):
        raise InputError(
            "bounds", repr(bounds), "finite (low, high) for each coordinate, low < high"
        )
    points = Sobol().uniforms(stream, len(ends), (0, 1), (0, _POOL))[0]
    return ends[:, 0] + np.ptp(ends, axis=1) * points, points


def _listed(candidates: Sequence[Any] | None) -> tuple[Sequence[Any], Array | None]:
    """Candidates, and coordinates (n, k) in the unit cube if they are numbers, else None."""
    designs = list(candidates or ())
    if len(designs) < 2:
        raise InputError("candidates", f"{len(designs)} designs", "at least two")
    try:
        rows = np.asarray(designs, dtype=float).reshape(len(designs), -1)
    except (TypeError, ValueError):
        if len(designs) > _MOST_DESIGNS:
            raise InputError(
                "candidates",
                f"{len(designs)} designs that are not rows of numbers",
                f"rows of numbers, or at most {_MOST_DESIGNS} designs",
            ) from None
        return designs, None
    order = np.random.default_rng(0).permutation(len(rows))  # the first are spread out
    span = np.ptp(rows, axis=0)
    points = (rows - rows.min(axis=0)) / np.where(span > 0, span, 1.0)
    return [designs[i] for i in order], points[order]


def _next(points: Array, tried: list[int], found: list[Estimate]) -> int:
    """The untried design with the largest expected improvement."""
    mean, sd = _process(points, tried, found)
    above = (mean - mean[tried].max()) / sd
    gain = sd * (above * ndtr(above) + np.exp(-0.5 * above**2) / np.sqrt(2 * np.pi))
    gain[tried] = -np.inf
    return int(np.argmax(gain))


def _process(points: Array, tried: list[int], found: list[Estimate]) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of a Gaussian process over all designs."""
    z = np.sqrt(12.0) * (points - 0.5)
    values = np.array([[float(est.value)] for est in found])
    # Half of the variance: errors from common random numbers move all designs together.
    variance = 0.5 * np.array([[float(est.std_error)] for est in found]) ** 2
    kind = SurrogateKind("matern52", trends(z.shape[1], len(tried))[0])
    model = fit_surrogate(kind, z[tried], values, np.sqrt(variance), variance=variance)
    if model is None:  # values that no process fits: any other design is as good
        return np.full(len(z), values.mean()), np.ones(len(z))
    return model.mean(z)[:, 0], np.maximum(model.sd(z)[:, 0], 1e-12)
