"""Search for the best design: linearized experiments first, likelihoods for the finalists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from nestquad._checks import listed, number, numbers, shown, whole
from nestquad._notebook import pairs
from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.design._compare import (
    Criterion,
    DesignComparison,
    coordinates,
    label_of,
)
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import Gain, eig, variance_reduction
from nestquad.design._learned import Shared
from nestquad.design._linear import Linearized, exchange
from nestquad.errors import InputError, NumericalError
from nestquad.estimate import as_budget
from nestquad.gp import Correlation, PolynomialTrend, fit_gp
from nestquad.gp._dense import GP
from nestquad.points import Sobol, Stream
from nestquad.result import Estimate

_FAR = 100.0  # distance of designs without coordinates: no smoothing between them
_SCIPY = tuple(int(part) for part in scipy.__version__.split(".")[:2])  # COBYQA is new in 1.14


@dataclass(frozen=True)
class SearchSettings:
    """Sizes of a search, by judgment and by logistic problems of even seeds.

    The problems are those of ``python -m studies.design.search regret``.
    """

    screen: int = 48  # Sobol designs of the screen for each coordinate
    most_screened: int = 512  # Sobol designs, and designs at ends and middles, at most
    starts: int = 8  # local searches
    apart: float = 0.1  # least distance of their starts, and of finalists, in the unit cube
    coarse: int = 512  # simulations of the linearized experiment in the screen
    fine: int = 2048  # and in local searches
    step: float = 0.01  # distance in the unit cube below which designs are the same
    accuracy: float = 1e-4  # of local searches in the unit cube
    fewest: int = 320  # likelihoods of an estimate
    bounds: int = 8192  # simulations of a bound by a proposal with mixtures
    first: int = 6  # first estimates,
    more: int = 4  # more of them for each coordinate,
    turns: int = 6  # and at maxima of the corrected gain, for each coordinate
    variation: float = 1.0  # least standard deviation of corrections relative to their mean
    most_finalists: int = 8  # without a budget
    draws: int = 1024  # of gains given the estimates, for the limit of the regret
    same: float = 1e-4  # range of differences from predictions that needs no correction
    # Shares of the budget for the search and for the estimate at the end, whose error bar must not
    # be chosen by the search.
    shares: tuple[float, float] = (0.6, 0.4)


SEARCH = SearchSettings()


@dataclass(frozen=True)
class Levels:
    """Values of a discrete coordinate of a design: numbers or words.

    Examples
    --------
    >>> Levels(1, 2, 5).values
    (1, 2, 5)
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", tuple(values))


@dataclass(frozen=True, eq=False)
class Optimum:
    """Best design, its estimate from fresh random numbers, and the designs tried.

    Attributes
    ----------
    design, estimate
        The design, and its estimate.
    regret
        Upper 95 % limit of the gain that another design may have on it.
    finalists
        The comparison that the design was chosen from.
    trace
        Designs of the search and their linearized gains, from best to worst.
    """

    design: Any
    estimate: Estimate
    regret: float
    finalists: DesignComparison
    trace: tuple[tuple[Any, float], ...]

    @property
    def n_evaluations(self) -> int:
        return self.finalists.n_evaluations + self.estimate.n_evaluations

    def __str__(self) -> str:
        return (
            f"design {label_of(self.design)}: {self.estimate.summary} (95 %), "
            f"no other likely to gain more than {self.regret:.2g} on it; "
            f"{len(self.trace)} designs tried, {self.n_evaluations:,} likelihoods"
        )

    def _repr_html_(self) -> str:
        rows = {
            "design": label_of(self.design),
            "gain": f"{self.estimate.summary} (95 %)",
            "regret": f"no other design is likely to gain more than {self.regret:.2g} on it",
            "designs tried": str(len(self.trace)),
            "likelihoods": f"{self.n_evaluations:,}",
        }
        return pairs("Best design", rows)


@dataclass(frozen=True, eq=False)
class Space:
    """Box of designs, with intervals and discrete levels as coordinates, and constraints.

    Points of the unit cube (k,) are mapped to designs.
    """

    axes: tuple[tuple[float, float] | Levels, ...]
    slack: Callable[[Any], Array]

    @classmethod
    def of(cls, bounds: Any, constraints: Sequence[Any]) -> Space:
        expected = "finite (low, high) with low < high, a range or Levels for each coordinate"
        axes: list[tuple[float, float] | Levels] = []
        for axis in listed("bounds", bounds, expected):
            if isinstance(axis, range):
                axis = Levels(*axis)
            if not isinstance(axis, Levels):
                ends = numbers("bounds", axis, expected)
                if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] >= ends[1]:
                    raise InputError("bounds", shown(bounds), expected)
                axis = (float(ends[0]), float(ends[1]))
            axes.append(axis)
        tests = [_constraint(entry) for entry in constraints]
        return cls(
            tuple(axes), lambda d: np.concatenate([np.zeros(0), *(test(d) for test in tests)])
        )

    @cached_property
    def free(self) -> Any:
        """Indices of the continuous coordinates."""
        return np.flatnonzero([not isinstance(axis, Levels) for axis in self.axes])

    @cached_property
    def widths(self) -> Array:
        """Widths of the intervals; 1 for levels."""
        return np.array([1.0 if isinstance(a, Levels) else a[1] - a[0] for a in self.axes])

    @property
    def constrained(self) -> bool:
        return len(self.slack(self.design(np.full(len(self.axes), 0.5)))) > 0

    def design(self, u: Array) -> Any:
        values: list[Any] = []
        for x, axis in zip(u, self.axes, strict=True):
            if isinstance(axis, Levels):
                values.append(axis.values[min(int(x * len(axis.values)), len(axis.values) - 1)])
            else:
                values.append(axis[0] + (axis[1] - axis[0]) * float(x))
        try:
            return np.array(values, dtype=float)
        except ValueError:
            return tuple(values)

    def feasible(self, u: Array) -> bool:
        return bool((self.slack(self.design(u)) >= -1e-9).all())

    def screen(self, stream: Stream) -> list[Array]:
        """Ends and middles of all coordinates, and Sobol points; feasible ones only."""
        marks = [
            (np.arange(len(axis.values)) + 0.5) / len(axis.values)
            if isinstance(axis, Levels)
            else np.array([0.0, 0.5, 1.0])
            for axis in self.axes
        ]
        k, grid = len(self.axes), np.zeros((0, len(self.axes)))
        if np.prod([float(len(mark)) for mark in marks]) <= SEARCH.most_screened:
            grid = np.array(list(itertools.product(*marks)))
        n = min(SEARCH.most_screened, SEARCH.screen * k)
        sobol = Sobol().uniforms(stream, k, (0, 1), (0, 8 * n))[0]
        points = [u for u in grid if self.feasible(u)]
        points += list(itertools.islice((u for u in sobol if self.feasible(u)), n))
        if not points:
            raise InputError("constraints", "no feasible design among thousands", "a larger set")
        return points


def optimize(
    experiment: Experiment,
    bounds: Sequence[Any] | None = None,
    *,
    candidates: Sequence[Any] | None = None,
    points: int | None = None,
    constraints: Any = (),
    cost: Callable[[Any], float] | None = None,
    money: float | None = None,
    budget: int | None = None,
    simulations: int | None = None,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    progress: ProgressLike = False,
) -> Optimum:
    """Find the design with the largest expected gain.

    The search maximizes the gain of the linearized experiment from several starts, with common
    random numbers; it needs no likelihoods, and follows gradients if `simulate` is written for
    PyTorch or JAX. Likelihoods are for the finalists, and for the estimate at the end.

    Parameters
    ----------
    experiment
        Its functions take a design of shape (k,), or a tuple if a coordinate has words.
    bounds
        For each coordinate (low, high), a ``range`` of whole numbers, or `Levels`.
    candidates
        Instead of a box, the designs to choose from; anything that the experiment takes.
    points
        With candidates: choose designs of this number of candidate points by the exchange
        algorithm. The experiment takes arrays (points, …).
    constraints
        SciPy's ``LinearConstraint`` or ``NonlinearConstraint`` on a design, or a function whose
        values are not negative where the design is allowed; or a list of them.
    cost, money
        Cost of a design. Without `money`, the gain for each unit of cost is maximized; with it,
        the gain of designs that cost at most this.
    budget
        The most evaluations of `log_prob`: 60 % for the finalists, the others at the end. None
        without `log_prob`.
    simulations
        The most simulations for each estimate.
    criterion, rng, progress
        As in `compare`.
    """
    check_experiment(experiment)
    if (bounds is None) == (candidates is None):
        raise InputError("bounds", "both or neither of bounds and candidates", "one of them")
    if money is not None and cost is None:
        raise InputError("cost", "None with money", "a function of the design")
    if cost is not None and not callable(cost):
        raise InputError("cost", shown(cost), "a function of the design, or None")
    if money is not None:
        number("money", money, "a positive number, or None")
    if points is not None:
        whole("points", points)
    least = f"at least {4 * SEARCH.fewest} likelihoods for a search"
    if experiment.log_prob is None:
        budget = None
    elif budget is None:
        raise InputError("budget", "None", least)
    elif (budget := as_budget(budget)) < 4 * SEARCH.fewest:
        raise InputError("budget", f"{budget} likelihoods", least)
    if not callable(criterion):
        raise InputError("criterion", shown(criterion), "a function such as design.eig")
    search = _Search(
        experiment,
        criterion,
        cost if money is None else None,
        Stream.from_rng(rng),
        budget,
        simulations,
    )
    rules = _as_list(constraints)
    if cost is not None and money is not None:
        price, limit = cost, float(money)
        rules.append(lambda d: limit - float(price(d)))
    show = as_progress(progress)
    show(0, 3, "linearized designs")
    if bounds is not None:
        tried = search.screen(Space.of(bounds, rules))
    else:
        tried = search.rank_candidates(candidates, points, rules)
    show(1, 3, "finalists")
    optimum = search.finish(tried)
    show(3, 3, "designs")
    return optimum


class Tried(NamedTuple):
    """Design, its predicted gain for each unit of cost, and its place (k,) among designs.

    Places are in the unit cube. Places of designs without coordinates are far from each other.
    """

    design: Any
    value: float
    place: Array


@dataclass(eq=False)
class _Search:
    """Search of one experiment: linearized gains, corrections to them, and finalists."""

    experiment: Experiment
    criterion: Criterion
    cost: Callable[[Any], float] | None
    stream: Stream
    budget: int | None
    simulations: int | None
    space: Space | None = None

    def __post_init__(self) -> None:
        self.corrections: list[Correction] = []
        self.shared = Shared()
        self.coarse, self.fine = (
            Linearized.of(self.experiment, n, self.stream.child(2))
            for n in (SEARCH.coarse, SEARCH.fine)
        )

    def price(self, d: Any) -> float:
        return 1.0 if self.cost is None else float(self.cost(d))

    def score(self, model: Linearized, d: Any) -> float:
        """Linearized utility for each unit of cost."""
        value = model.reduction(d) if self.criterion is variance_reduction else model.gain(d)
        return value / self.price(d)

    def screen(self, space: Space) -> list[Tried]:
        """Local optima of the linearized gain, and the screened designs, the best first."""
        self.space = space
        points = space.screen(self.stream.child(1))
        screened = [
            Tried(space.design(u), self.score(self.coarse, space.design(u)), u) for u in points
        ]
        screened.sort(key=attrgetter("value"), reverse=True)
        ends = [self._climb(start) for start in _apart(screened, SEARCH.apart, SEARCH.starts)]
        ends.sort(key=attrgetter("value"), reverse=True)
        rows = [entry._replace(value=self.score(self.fine, entry.design)) for entry in screened]
        return _apart(ends, SEARCH.step, len(ends)) + sorted(
            rows, key=attrgetter("value"), reverse=True
        )

    def _climb(self, start: Tried) -> Tried:
        """Local maximum of the predicted gain: L-BFGS-B with a gradient, else COBYQA.

        COBYLA before SciPy 1.14.
        """
        space, best = self.space, start.place.copy()
        assert space is not None
        free, bounds = space.free, [(0.0, 1.0)] * len(space.free)

        def at(x: Array) -> Array:
            point = best.copy()
            point[free] = np.clip(x, 0.0, 1.0)
            return point

        def score(point: Array) -> float:
            d = space.design(point)
            return float(self.gains([Tried(d, self.score(self.fine, d), point)], None)[0])

        def slope(x: Array) -> Array | None:
            d = space.design(at(x))
            known = not self.corrections and self.cost is None and self.criterion is eig
            if not known or not isinstance(d, np.ndarray) or len(free) < len(space.axes):
                return None
            gradient = self.fine.gradient(d)
            return None if gradient is None else -gradient * space.widths

        options: dict[str, Any] = {"rhobeg": 0.1, "tol": SEARCH.accuracy}
        if _SCIPY >= (1, 14):
            options = {"initial_tr_radius": 0.1, "final_tr_radius": SEARCH.accuracy}
        how: dict[str, Any] = {"method": "COBYQA" if _SCIPY >= (1, 14) else "COBYLA"}
        if space.constrained:
            slack = lambda x: space.slack(space.design(at(x)))  # noqa: E731
            how["constraints"] = [NonlinearConstraint(slack, 0.0, np.inf)]
        elif slope(best[free]) is not None:
            how, options = {"method": "L-BFGS-B", "jac": slope}, {}
        for _ in range(2):
            if len(free):
                loss = lambda x: -score(at(x))  # noqa: E731
                end = at(minimize(loss, best[free], bounds=bounds, options=options, **how).x)
                best = end if score(end) >= score(best) and space.feasible(end) else best
            changed = self._exchanged(space, best, score)
            if np.array_equal(changed, best):
                break
            best = changed
        return Tried(space.design(best), self.score(self.fine, space.design(best)), best)

    def _exchanged(self, space: Space, u: Array, score: Callable[[Array], float]) -> Array:
        """Best level of each discrete coordinate in turn, and ends of the others.

        Coordinate exchange; Meyer and Nachtsheim (1995), The coordinate-exchange algorithm.
        """
        best, value = u, score(u)
        for i, axis in enumerate(space.axes):
            n = len(axis.values) if isinstance(axis, Levels) else 0
            for x in (np.arange(n) + 0.5) / n if n else (0.0, 1.0):
                other = best.copy()
                other[i] = x
                if not space.feasible(other):
                    continue
                if (new := score(other)) > value + 1e-12:
                    best, value = other, new
        return best

    def rank_candidates(
        self, candidates: Any, points: int | None, constraints: Sequence[Any]
    ) -> list[Tried]:
        """Candidates, or exchanged designs of them, by their linearized gain."""
        designs = listed("candidates", candidates, "a sequence of designs")
        if len(designs) < 2:
            raise InputError("candidates", f"{len(designs)} designs", "at least two")
        if (rows := coordinates(designs)) is not None and not np.isfinite(rows).all():
            raise InputError("candidates", shown(candidates), "designs of finite numbers")
        if points is not None:
            table = np.asarray(designs, dtype=float)
            designs = exchange(self.experiment, table, int(points), stream=self.stream.child(5))
        tests = [_constraint(entry) for entry in constraints]
        allowed = [d for d in designs if all((test(d) >= -1e-9).all() for test in tests)]
        if not allowed:
            raise InputError("constraints", "no feasible candidate", "at least one")
        model = self.fine if len(allowed) <= SEARCH.most_screened else self.coarse
        tried = [
            Tried(d, self.score(model, d), place)
            for d, place in zip(allowed, _places(allowed), strict=True)
        ]
        return sorted(tried, key=attrgetter("value"), reverse=True)

    def bound(self, d: Any, turn: int) -> Gain:
        """Lower bound of the gain by a proposal with mixtures, without likelihoods."""
        simulator, stream = replace(self.experiment, log_prob=None), self.stream.child(6, turn)
        return eig(simulator, d, simulations=SEARCH.bounds, rng=stream, like=self.shared)

    def correct(
        self,
        tried: list[Tried],
        estimate: Callable[[Any, int], Estimate],
        n_best: int,
        n_others: int,
        n: int,
    ) -> tuple[list[Tried], list[Tried], list[Estimate]]:
        """Correct predicted gains by at most n estimates; all designs, and estimated ones.

        The difference of estimate and prediction is a Gaussian process over designs (Jones,
        Schonlau and Welch, 1998, Efficient global optimization). Estimates share their random
        numbers: of the best designs and of others, then at maxima of the corrected gain, or of its
        upper limit where that is known (Srinivas et al., 2010, Gaussian process optimization in
        the bandit setting). A design that is estimated again has new random numbers.
        """
        before = self.corrections
        known = _apart(self.predicted(tried, before), SEARCH.apart, n_best)
        others = [entry for entry in tried if _distance(entry, known) >= SEARCH.apart]
        known += others[:: max(len(others) // max(n_others, 1), 1)][:n_others]
        answers = [estimate(entry.design, 0) for entry in known]
        while self._fit(before, known, answers) > SEARCH.same and len(known) < n:
            top = self.predicted(tried)[0]
            top = top if self.space is None else self._climb(top)
            if _distance(top, known) < SEARCH.step:
                top = tried[int(np.argmax(np.quantile(self.ahead(top, tried), 0.95, axis=0)))]
            turn = sum(_distance(top, [entry]) < SEARCH.step for entry in known)
            tried, known = [top, *tried], [*known, top]
            answers.append(estimate(top.design, turn))
        return tried, known, answers

    def _fit(
        self, before: list[Correction], known: Sequence[Tried], answers: Sequence[Estimate]
    ) -> float:
        """Fit the correction of predictions by estimates; range of their differences."""
        prices = np.array([self.price(entry.design) for entry in known])
        values = np.array([float(est.value) for est in answers])
        gaps = values / prices - self.gains(known, before)
        errors = np.array([float(est.std_error) for est in answers]) / prices
        self.corrections = [*before, Correction.of(known, gaps, float((errors**2).mean()))]
        return float(np.ptp(gaps))

    def ahead(self, best: Tried, tried: Sequence[Tried]) -> Array:
        """Draws (m, n) of the gains of designs on the best, given all estimates."""
        rows = [best, *tried]
        gains = self.gains(rows, None)
        covariance = sum(correction.covariance(rows) for correction in self.corrections)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normals = np.random.default_rng(0).standard_normal((SEARCH.draws, len(rows)))
        draws = gains + normals @ root.T
        return np.asarray(draws[:, 1:] - draws[:, :1])

    def gains(self, tried: Sequence[Tried], corrections: Sequence[Correction] | None) -> Array:
        """Corrected gains (n,)."""
        places = np.array([entry.place for entry in tried])
        total = np.array([entry.value for entry in tried])
        for correction in self.corrections if corrections is None else corrections:
            total = total + correction.mean(places)
        return total

    def predicted(
        self, tried: Sequence[Tried], corrections: Sequence[Correction] | None = None
    ) -> list[Tried]:
        """Designs from the largest corrected gain to the least."""
        return [tried[i] for i in np.argsort(-self.gains(tried, corrections), kind="stable")]

    def finish(self, tried: list[Tried]) -> Optimum:
        """Correct linearized gains by bounds, then by likelihoods; estimate the best design anew.

        Bounds know curved posteriors, and cost no likelihoods.
        """
        k, budget, n = len(tried[0].place), self.budget, SEARCH.most_finalists
        most = SEARCH.first + (SEARCH.more + SEARCH.turns) * k
        if self.criterion is eig:
            tried, *_ = self.correct(tried, self.bound, SEARCH.first, SEARCH.more * k, most)
        settings: dict[str, Any] = {"simulations": self.simulations}
        fresh = settings | {"rng": self.stream.child(4)}
        if budget is not None:
            n = max(2, min(most, int(SEARCH.shares[0] * budget) // SEARCH.fewest))
            settings["budget"] = int(SEARCH.shares[0] * budget) // n
            fresh["budget"] = int(SEARCH.shares[1] * budget)
        before = self.corrections
        tried, known, answers = self.correct(
            tried,
            lambda d, turn: self.criterion(
                self.experiment, d, rng=self.stream.child(3, turn), **settings
            ),
            max(2, n // 2),
            0,
            n,
        )
        ranked = self.predicted(tried)
        best = ranked[0] if self.space is None else self._climb(ranked[0])
        final = self.criterion(self.experiment, best.design, **fresh)
        finalists = DesignComparison.of([entry.design for entry in known], answers)
        trace = tuple(zip((e.design for e in ranked), self.gains(ranked, None), strict=True))
        # Of many noisy estimates the largest is too high: the fresh one corrects it.
        self._fit(before, [*known, best], [*answers, final])
        largest = self.ahead(best, ranked).max(axis=1)
        regret = max(float(np.quantile(largest, 0.95)), 0.0)
        return Optimum(best.design, final, regret, finalists, trace)


@dataclass(frozen=True, eq=False)
class Correction:
    """Gaussian process over the places of designs."""

    model: GP

    @classmethod
    def of(cls, tried: Sequence[Tried], values: Array, noise: float) -> Correction:
        places = _scaled([entry.place for entry in tried])
        kernel, trend = Correlation("gaussian"), PolynomialTrend(0)
        model = fit_gp(kernel, trend, places, values, noise_guess=noise)
        if model is None:
            raise NumericalError("The gains of designs have no likely smooth correction.")
        # A few noisy values may look constant: corrections vary by the order of their mean.
        known, least = model.parameters, (SEARCH.variation * float(values.mean())) ** 2
        if least > known.signal * (variance := float(values.var())) > 0.0:
            model = replace(model, parameters=replace(known, signal=least / variance))
        return cls(model)

    def mean(self, places: Array) -> Array:
        return self.model.mean(_scaled(places))

    def covariance(self, tried: Sequence[Tried]) -> Array:
        return self.model.covariance(_scaled([entry.place for entry in tried]))


def _scaled(places: Any) -> Array:
    """Places in the unit cube as coordinates of a Gaussian process, with lengthscales about one."""
    return 1.0 + 4.0 * np.asarray(places)


def _distance(entry: Tried, others: Sequence[Tried]) -> float:
    """Distance to the nearest of other designs."""
    return min((float(np.abs(entry.place - o.place).max()) for o in others), default=np.inf)


def _apart(tried: Sequence[Tried], distance: float, most: int) -> list[Tried]:
    """First designs of a list that are apart from each other."""
    kept: list[Tried] = []
    for entry in tried:
        if len(kept) < most and _distance(entry, kept) >= distance:
            kept.append(entry)
    return kept


def _places(designs: Sequence[Any]) -> Array:
    """Places (n, k) of designs in the unit cube, or far apart if they are no vectors."""
    rows = [coordinates(d) for d in designs]
    if any(row is None for row in rows) or len({row.size for row in rows if row is not None}) > 1:
        return _FAR * np.arange(float(len(designs)))[:, None]
    table = np.array(rows)
    return np.asarray((table - table.min(axis=0)) / np.maximum(np.ptp(table, axis=0), 1e-300))


def _as_list(constraints: Any) -> list[Any]:
    if callable(constraints) or isinstance(constraints, LinearConstraint | NonlinearConstraint):
        return [constraints]
    return list(listed("constraints", constraints, "a constraint, or a list of them"))


def _constraint(entry: Any) -> Callable[[Any], Array]:
    """Slack (m,) of a constraint at a design, not negative where it holds."""
    if isinstance(entry, LinearConstraint | NonlinearConstraint):
        ends = [np.asarray(end, dtype=float) for end in (entry.lb, entry.ub)]

        def both(d: Any) -> Array:
            value = entry.A @ d if isinstance(entry, LinearConstraint) else np.asarray(entry.fun(d))
            value, low, high = np.broadcast_arrays(np.atleast_1d(value), *ends)
            slack = np.concatenate([value - low, high - value])
            return np.asarray(slack[np.isfinite(slack)], dtype=float)

        return both
    if not callable(entry):
        raise InputError("constraints", shown(entry), "a constraint of SciPy, or a function")
    return lambda d: np.atleast_1d(np.asarray(entry(d), dtype=float)).ravel()
