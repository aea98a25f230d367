"""Search for the best design: a Gaussian process over designs, and common random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from nestquad._checks import listed, numbers, shown
from nestquad._notebook import pairs
from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.design._compare import Criterion, DesignComparison, compare, coordinates, label_of
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import eig
from nestquad.errors import InputError
from nestquad.estimate import as_budget
from nestquad.gp import SurrogateKind, fit_surrogate, trends
from nestquad.points import Sobol, Stream
from nestquad.result import Estimate

# Shares of the budget: a search that is not free, its finalists, and the estimate at the end, whose
# error bar must not be chosen by the search.
_SEARCH, _FINALISTS, _FRESH = 0.3, 0.6, 0.4
_FEWEST = 256  # likelihoods for a design of the search: 14 data with 16 draws each
_MOST_FINALISTS = 8
_FIRST, _MORE, _MOST_DESIGNS = 8, 12, 60  # designs of a search, more for each coordinate, at most
_SCREEN = 4096  # simulations for a design of the search: it has to rank designs, no more
_POOL = 2048  # points at which the process is looked at
ONE_SIDED_95 = 1.6448536269514722


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best design found, its estimate from fresh random numbers, and the designs tried.

    Attributes
    ----------
    design, estimate
        The design, and its estimate.
    regret
        No other design is likely (95 %) to gain more than this on it: as far as a Gaussian process
        over the designs knows, or among those that were tried if they are not numbers.
    finalists
        The comparison that the design was chosen from.
    trace
        All designs of the search, in its order: lower bounds from simulations alone if the
        criterion is `eig`.
    """

    design: Any
    estimate: Estimate
    regret: float
    finalists: DesignComparison
    trace: DesignComparison

    @property
    def n_evaluations(self) -> int:
        spent = self.finalists.n_evaluations + self.trace.n_evaluations
        return spent + self.estimate.n_evaluations

    def __str__(self) -> str:
        return (
            f"design {label_of(self.design)}: {self.estimate.summary} (95 %), "
            f"no other likely to gain more than {self.regret:.2g} on it; "
            f"{len(self.trace.designs)} designs tried, {self.n_evaluations:,} likelihoods"
        )

    def _repr_html_(self) -> str:
        rows = {
            "design": label_of(self.design),
            "gain": f"{self.estimate.summary} (95 %)",
            "regret": f"no other design is likely to gain more than {self.regret:.2g} on it",
            "designs tried": str(len(self.trace.designs)),
            "likelihoods": f"{self.n_evaluations:,}",
        }
        return pairs("Best design", rows)


def optimize(
    experiment: Experiment,
    bounds: Sequence[Sequence[float]] | None = None,
    *,
    candidates: Sequence[Any] | None = None,
    budget: int | None = None,
    simulations: int | None = None,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    progress: ProgressLike = False,
) -> Optimum:
    """Find the design with the largest expected gain.

    The search compares lower bounds from simulations alone, with common random numbers. Likelihoods
    are for its finalists, and for the estimate at the end.

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
        The most evaluations of `log_prob`: 60 % for the finalists, the others at the end. With a
        criterion other than `eig` the search needs likelihoods too. None without `log_prob`.
    simulations
        The most simulations for each estimate; by default 4,096 for those of the search.
    criterion, rng, progress
        As in `compare`.
    """
    check_experiment(experiment)
    if (bounds is None) == (candidates is None):
        raise InputError("bounds", "both or neither of bounds and candidates", "one of them")
    least = f"at least {4 * _FEWEST} likelihoods for a search"
    if experiment.log_prob is None:
        budget = None
    elif budget is None:
        raise InputError("budget", "None", least)
    elif (budget := as_budget(budget)) < 4 * _FEWEST:
        raise InputError("budget", f"{budget} likelihoods", least)
    if not callable(criterion):
        raise InputError("criterion", shown(criterion), "a function such as design.eig")
    stream, show = Stream.from_rng(rng), as_progress(progress)
    pool, points = _box(bounds, stream.child(1)) if bounds is not None else _listed(candidates)
    most = min(_MOST_DESIGNS, len(pool))
    if points is not None:
        most = min(most, _FIRST + _MORE * points.shape[1])
    # Always the same random numbers: differences between designs are better known than values.
    search: dict[str, Any] = {"rng": stream.child(2), "simulations": simulations or _SCREEN}
    screened, left = experiment, budget
    if criterion is eig:
        screened = replace(experiment, log_prob=None)
    elif budget is not None:
        most = max(2, min(most, int(_SEARCH * budget) // _FEWEST))
        search["budget"], left = int(_SEARCH * budget) // most, budget - int(_SEARCH * budget)
    first = most if points is None else min(most, max(4, most // 2))
    tried: list[int] = []
    found: list[Estimate] = []
    for i in range(most):
        show(i, most, "designs")
        tried.append(i if points is None or i < first else _next(points, tried, found))
        found.append(criterion(screened, pool[tried[-1]], **search))
    show(most, most, "designs")
    trace = DesignComparison.of([pool[i] for i in tried], found)
    n = _MOST_FINALISTS
    if left is not None:
        n = max(2, min(n, int(_FINALISTS * left) // (2 * _FEWEST)))
    order = np.argsort(-trace.values, kind="stable")[:n].tolist()
    finalists = compare(
        experiment,
        [trace.designs[i] for i in order],
        budget=None if left is None else int(_FINALISTS * left),
        simulations=simulations,
        criterion=criterion,
        rng=stream.child(3),
    )
    final = criterion(
        experiment,
        finalists.designs[finalists.best],
        simulations=simulations,
        rng=stream.child(4),
        **({} if left is None else {"budget": int(_FRESH * left)}),
    )
    regret = _regret(points, tried, found, order, finalists)
    return Optimum(finalists.designs[finalists.best], final, regret, finalists, trace)


def _regret(
    points: Array | None,
    tried: list[int],
    found: list[Estimate],
    order: Sequence[int],
    finalists: DesignComparison,
) -> float:
    """By how much another design may be better than the chosen one, at 95 %."""
    behind = [finalists.difference(i, finalists.best) for i in range(len(order))]
    others = [gap + ONE_SIDED_95 * error for gap, error in behind]
    # The search was about bounds: finalists show how far those are from values.
    gaps = finalists.values - np.array([float(found[i].value) for i in order])
    best = float(finalists.values[finalists.best])
    if points is not None:
        mean, sd = _process(points, tried, found)
    else:
        mean, sd = (
            np.array([float(x) for x in row])
            for row in zip(*((est.value, est.std_error) for est in found), strict=True)
        )
    spread = np.sqrt(sd**2 + gaps.var(ddof=1))
    return max(0.0, *others, float((mean + gaps.mean() + ONE_SIDED_95 * spread).max()) - best)


def _box(bounds: Sequence[Sequence[float]], stream: Stream) -> tuple[Array, Array]:
    """Sobol points in a box, and in the unit cube; the first of them are the first designs."""
    expected = "finite (low, high) for each coordinate, low < high"
    ends = np.atleast_2d(numbers("bounds", bounds, expected))
    if ends.shape[1:] != (2,) or not (np.isfinite(ends).all() and (ends[:, 0] < ends[:, 1]).all()):
        raise InputError("bounds", shown(bounds), expected)
    points = Sobol().uniforms(stream, len(ends), (0, 1), (0, _POOL))[0]
    return ends[:, 0] + np.ptp(ends, axis=1) * points, points


def _listed(candidates: Sequence[Any] | None) -> tuple[Sequence[Any], Array | None]:
    """Candidates, and coordinates (n, k) in the unit cube if they are numbers, else None."""
    designs = listed("candidates", candidates, "a sequence of designs")
    if len(designs) < 2:
        raise InputError("candidates", f"{len(designs)} designs", "at least two")
    found = coordinates(designs)
    if found is None:
        if len(designs) > _MOST_DESIGNS:
            raise InputError(
                "candidates",
                f"{len(designs)} designs that are not rows of numbers",
                f"rows of numbers, or at most {_MOST_DESIGNS} designs",
            )
        return designs, None
    rows = found.reshape(len(designs), -1)
    if not rows.size or not np.isfinite(rows).all():
        raise InputError("candidates", shown(candidates), "designs of finite numbers")
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
