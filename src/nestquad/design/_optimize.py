"""Search for the best design: linearized experiments first, likelihoods for the finalists."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
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
from nestquad.design._compare import Criterion, DesignComparison, coordinates, label_of
from nestquad.design._exact import OutcomeTable
from nestquad.design._experiment import Experiment, Setup, check_experiment
from nestquad.design._gain import ROUNDING, SETTINGS, Gain, eig, half_width, variance_reduction
from nestquad.design._learned import Shared, amortized_bounds
from nestquad.design._linear import Linearized, exchange
from nestquad.errors import InputError, NestquadError
from nestquad.estimate import as_budget
from nestquad.points import Sobol, Stream
from nestquad.result import NORMAL_95, Estimate

_FAR = 100.0  # distance of designs without coordinates
_SCIPY = tuple(int(part) for part in scipy.__version__.split(".")[:2])  # COBYQA is new in 1.14


@dataclass(frozen=True)
class SearchSettings:
    """Sizes of a search, by judgment and by logistic problems of even seeds.

    Problems of ``python -m studies.design.search regret``.
    """

    screen: int = 48  # Sobol designs of the screen for each coordinate
    most_screened: int = 512  # Sobol designs, and designs at ends and middles, at most
    starts: int = 8  # local searches of the linearized gain
    apart: float = 0.1  # least distance of their starts, and of finalists, in the unit cube
    coarse: int = 512  # simulations of the linearized experiment in the screen
    fine: int = 2048  # and in local searches
    step: float = 0.01  # distance in the unit cube below which designs are the same
    accuracy: float = 1e-4  # of local searches of the linearized gain, in the unit cube,
    rough: float = 3e-3  # and of those of bounds
    bounds: int = 32768  # simulations of a bound
    first: int = 6  # first bounds,
    more: int = 4  # more of them for each coordinate,
    polished: int = 2  # local searches of bounds
    each: int = 8  # with these bounds, and these for each coordinate
    same: float = 1e-4  # range of differences from linearized gains that needs no local search
    amortized: int = 64  # candidates for which one proposal is learned
    finalists: int = 4
    fewest: int = 320  # likelihoods of an estimate
    exact: float = 1e-3  # error in nats, smooth in the design, of sums over outcomes
    summed: int = 12  # such sums for each coordinate, and once more, that the budget affords
    sums: int = 40  # of them at most in a local search, for each coordinate and once more
    draws: int = 4096  # of differences of finalists, for the limit of the regret
    # Shares of the budget for the finalists and for the estimate at the end, whose error bar must
    # not be chosen by the search. A criterion without bounds takes half of the first.
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
    searched
        Likelihoods of the search, before the finalists.
    """

    design: Any
    estimate: Estimate
    regret: float
    finalists: DesignComparison
    trace: tuple[tuple[Any, float], ...]
    searched: int = 0

    @property
    def n_evaluations(self) -> int:
        return self.searched + self.finalists.n_evaluations + self.estimate.n_evaluations

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


class _SpentError(NestquadError):
    """The budget of a search affords no further sum over outcomes."""


class Tried(NamedTuple):
    """Design, its gain for each unit of cost, its place (k,) among designs, and its estimate.

    Places are in the unit cube. Places of designs without coordinates are far from each other.
    """

    design: Any
    value: float
    place: Array
    estimate: Estimate | None = None


@dataclass(eq=False)
class _Search:
    """Search of one experiment: linearized gains, bounds where they differ, and finalists."""

    experiment: Experiment
    criterion: Criterion
    cost: Callable[[Any], float] | None
    stream: Stream
    budget: int | None
    simulations: int | None
    space: Space | None = None

    def __post_init__(self) -> None:
        self.shared, self.measured = Shared(), dict[bytes, Tried]()
        self.coarse, self.fine = (
            Linearized.of(self.experiment, n, self.stream.child(2))
            for n in (SEARCH.coarse, SEARCH.fine)
        )
        self.bounded = self.criterion is eig
        share = SEARCH.shares[0] * (1.0 if self.bounded else 0.5)
        self.for_finalists = None if self.budget is None else int(share * self.budget)
        self.searched, self.largest = 0, 0.0
        few = self.bounded and self.experiment.targets is None
        self.summed = few and self.experiment.prior_law.base_dim <= 2

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
        screened = _ranked(
            Tried(space.design(u), self.score(self.coarse, space.design(u)), u) for u in points
        )
        ends = _ranked(
            self._climb(start, self._linear, SEARCH.accuracy)
            for start in _apart(screened, SEARCH.apart, SEARCH.starts)
        )
        rows = [entry._replace(value=self.score(self.fine, entry.design)) for entry in screened]
        return _apart(ends, SEARCH.step, len(ends)) + _ranked(rows)

    def _linear(self, place: Array) -> Tried:
        assert self.space is not None
        d = self.space.design(place)
        return Tried(d, self.score(self.fine, d), place)

    def _climb(
        self, start: Tried, value: Callable[[Array], Tried], accuracy: float, most: int = 1000
    ) -> Tried:
        """Local maximum over places: L-BFGS-B with a gradient, else COBYQA.

        COBYLA before SciPy 1.14.
        """
        space, best = self.space, value(start.place)
        assert space is not None
        free, bounds = space.free, [(0.0, 1.0)] * len(space.free)

        def at(x: Array) -> Array:
            point = best.place.copy()
            point[free] = np.clip(x, 0.0, 1.0)
            return point

        def slope(x: Array) -> Array | None:
            d = space.design(at(x))
            known = value == self._linear and self.cost is None and self.bounded
            if not known or not isinstance(d, np.ndarray) or len(free) < len(space.axes):
                return None
            gradient = self.fine.gradient(d)
            return None if gradient is None else -gradient * space.widths

        options: dict[str, Any] = {"rhobeg": 0.1, "tol": accuracy, "maxiter": most}
        if _SCIPY >= (1, 14):
            options = {"initial_tr_radius": 0.1, "final_tr_radius": accuracy, "maxfev": most}
        how: dict[str, Any] = {"method": "COBYQA" if _SCIPY >= (1, 14) else "COBYLA"}
        if space.constrained:
            slack = lambda x: space.slack(space.design(at(x)))  # noqa: E731
            how["constraints"] = [NonlinearConstraint(slack, 0.0, np.inf)]
        elif slope(best.place[free]) is not None:
            how, options = {"method": "L-BFGS-B", "jac": slope}, {}
        for _ in range(2):
            if len(free):
                loss = lambda x: -value(at(x)).value  # noqa: E731
                end = value(
                    at(minimize(loss, best.place[free], bounds=bounds, options=options, **how).x)
                )
                better = end.value >= best.value and space.feasible(end.place)
                best = end if better else best
            changed = self._exchanged(space, best, value)
            if changed is best:
                break
            best = changed
        return best

    def _exchanged(self, space: Space, best: Tried, value: Callable[[Array], Tried]) -> Tried:
        """Best level of each discrete coordinate in turn, and ends of the others.

        Coordinate exchange; Meyer and Nachtsheim (1995), The coordinate-exchange algorithm.
        """
        for i, axis in enumerate(space.axes):
            n = len(axis.values) if isinstance(axis, Levels) else 0
            for x in (np.arange(n) + 0.5) / n if n else (0.0, 1.0):
                place = best.place.copy()
                place[i] = x
                if not space.feasible(place):
                    continue
                other = value(place)
                best = other if other.value > best.value + 1e-12 else best
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
        values, places = np.array([self.score(model, d) for d in allowed]), _places(allowed)
        bounds = None
        if self.bounded and len(allowed) >= SEARCH.amortized and coordinates(allowed) is not None:
            bounds = amortized_bounds(self.experiment, allowed, places, self.stream.child(7))
        if bounds is not None:  # both are lower bounds of the gain
            values = np.maximum(values, bounds / [self.price(d) for d in allowed])
        return _ranked(map(Tried, allowed, values.tolist(), places))

    def _measured(self, place: Array) -> Tried:
        assert self.space is not None
        return self.measure(self.space.design(place), place)

    def measure(self, d: Any, place: Array) -> Tried:
        """Lower bound by a proposal with mixtures, without likelihoods; or the criterion itself.

        All designs have the same random numbers, and fits that start from the first one, so that
        the errors are smooth in the design (sample average approximation; Kleywegt, Shapiro and
        Homem-de-Mello, 2002).
        """
        key = place.tobytes()
        if key not in self.measured:
            settings: dict[str, Any] = {"rng": self.stream.child(6), "like": self.shared}
            if (exact := self._summed(d)) is not None:
                est: Estimate = exact
            elif self.bounded:
                experiment = replace(self.experiment, log_prob=None)
                est = eig(experiment, d, simulations=SEARCH.bounds, **settings)
            else:
                est = self._estimate(d, budget=SEARCH.fewest, rng=self.stream.child(6))
            self.measured[key] = Tried(d, float(est.value) / self.price(d), place, est)
        return self.measured[key]

    def _summed(self, d: Any) -> Gain | None:
        """Gain of finite data by sums over outcomes, if the budget affords a search by sums.

        A share of the budget may be spent on the first sum, and the rest of it on later ones.
        """
        if not self.summed or self.for_finalists is None:
            return None
        setup, room = Setup(self.experiment, d), float(self.for_finalists - self.searched)
        k, known = 0 if self.space is None else len(self.space.axes), self.searched > 0
        if known and room < self.searched / len(self.measured):
            raise _SpentError
        room = room if known else room / (SEARCH.summed * (1 + k))
        table = OutcomeTable.of(setup, SEARCH.bounds, room, self.stream.child(6), self.largest)
        n, value, error = len(table.rows), 0.0, np.inf
        if n:
            value, error = table.quadrature(room - setup.n_likelihoods, SEARCH.exact)
        self.searched += setup.n_likelihoods
        if not n:
            self.summed = known
            return None
        if error > SEARCH.exact:
            if known:
                raise _SpentError
            self.summed = False
            return None
        self.largest = max(self.largest, float(table.rows.max()))
        return Gain.of(
            np.full(SETTINGS.replicates, value),
            std_error=error / NORMAL_95,
            n_evaluations=0,  # those of the search are counted by `searched`
            n_outer=n,
            n_inner=setup.n_likelihoods // n,
            method="enumeration",
        )

    def _estimate(self, d: Any, **settings: Any) -> Estimate:
        settings |= {"simulations": self.simulations}
        return self.criterion(self.experiment, d, **settings)

    def refine(self, tried: list[Tried]) -> list[Tried]:
        """Measured designs, the best first: good and distant ones, then local searches."""
        with contextlib.suppress(_SpentError):
            self._search(tried)
        return self._allowed()

    def _search(self, tried: list[Tried]) -> None:
        k = len(tried[0].place)
        n_best, n_others, each = SEARCH.first, SEARCH.more * k, SEARCH.each * (1 + k)
        accuracy, most = SEARCH.rough, n_best + n_others + SEARCH.polished * each
        if not self.bounded and self.for_finalists is not None:
            most = max(2, self.for_finalists // SEARCH.fewest)
        sums = _is_sum(self.measure(tried[0].design, tried[0].place))
        if sums:  # the budget is for local searches
            n_best, n_others, accuracy = SEARCH.polished + k, k, SEARCH.accuracy
        n_best = min(n_best, -(-most // 2))
        chosen = _apart(tried, SEARCH.apart, n_best)
        others = [entry for entry in tried if _distance(entry, chosen) >= SEARCH.apart]
        n_others = min(n_others, max(most // 2 - n_best, 0))
        chosen += others[:: max(len(others) // max(n_others, 1), 1)][:n_others]
        gaps = [self.measure(entry.design, entry.place).value - entry.value for entry in chosen]
        if np.ptp(gaps) <= SEARCH.same:
            return
        if sums and self.for_finalists is not None:
            left = (self.for_finalists - self.searched) / self.searched
            each = min(int(left * len(self.measured)) // SEARCH.polished, SEARCH.sums * (1 + k))
            most = len(self.measured) + SEARCH.polished * each
        for start in _apart(self._allowed(), SEARCH.apart, SEARCH.polished):
            left = min(each, most - len(self.measured))
            if self.space is None:
                self._spread(tried, left)
            elif left >= 2 * k + 3:
                self._climb(start, self._measured, accuracy, left)

    def _spread(self, tried: list[Tried], most: int) -> None:
        """Measure candidates nearer to the best one than to others, the farthest ones first."""
        for _ in range(most):
            known = self._allowed()
            apart = np.array([_distance(entry, known) for entry in tried])
            cell = apart >= [_distance(entry, [known[0]]) for entry in tried]
            if not (apart * cell).max() > 0.0:
                break
            far = tried[int(np.argmax(apart * cell))]
            self.measure(far.design, far.place)

    def _allowed(self) -> list[Tried]:
        """Measured designs, the best first; local searches also leave the constraints."""
        known, space = self.measured.values(), self.space
        return _ranked(e for e in known if space is None or space.feasible(e.place))

    def finish(self, tried: list[Tried]) -> Optimum:
        """Compare the finalists by likelihoods, and estimate the best design anew."""
        ranked = self.refine(tried)
        n = SEARCH.finalists
        if self.for_finalists is not None:
            n = max(2, min(n, self.for_finalists // SEARCH.fewest))
        known = _apart(ranked, SEARCH.apart, n)
        each = None if self.for_finalists is None else self.for_finalists // len(known)
        answers = [entry.estimate for entry in known if entry.estimate and _is_sum(entry)]
        if len(answers) < len(known):
            seeded = {"budget": each, "rng": self.stream.child(3)}
            answers = [self._estimate(entry.design, **seeded) for entry in known]
        finalists = DesignComparison.of([entry.design for entry in known], answers)
        prices = np.array([self.price(entry.design) for entry in known])
        values, c, apart = _combined(known, finalists, prices)
        best = int(np.argmax(values))
        fresh = None if self.budget is None else int(SEARCH.shares[1] * self.budget)
        final = self._estimate(known[best].design, budget=fresh, rng=self.stream.child(4))
        trace = tuple((entry.design, entry.value) for entry in [*ranked, *tried])
        error = float(final.std_error) / prices[best]
        slope = c[:, best] / max(c[best, best] + error**2, 1e-300)
        values = values + slope * (float(final.value) / prices[best] - values[best])
        c = c - np.outer(slope, c[best])
        regret = self._regret(known, best, values, c, apart, ranked)
        return Optimum(known[best].design, final, regret, finalists, trace, self.searched)

    def _regret(
        self,
        known: list[Tried],
        best: int,
        values: Array,
        c: Array,
        apart: float,
        ranked: list[Tried],
    ) -> float:
        """Upper 95 % limit of the gain of measured designs on the best finalist.

        Finalists have values (n,) with covariance c, and `apart` is the spread of the differences
        between estimates and measurements. A measured design gains on its nearest finalist by the
        difference of their measurements: its largest value in each replicate is too high in
        expectation, which bounds what better designs gain (Mak, Morton and Wood, 1999, Monte Carlo
        bounding techniques for determining solution quality in stochastic programs).
        """
        roots, vectors = np.linalg.eigh(c)
        rng = np.random.default_rng(0)  # the same numbers give the same limit
        normals = rng.standard_normal((2, SEARCH.draws, len(known)))
        draws = values + normals[0] @ (vectors * np.sqrt(np.maximum(roots, 0.0))).T
        draws -= draws[:, best, None]
        for i, entry in enumerate(known):
            near = [e for e in ranked if _distance(e, known) == _distance(e, [entry])]
            ahead = np.max([_replicates(e) / self.price(e.design) for e in near], axis=0)
            ahead = ahead - _replicates(entry) / self.price(entry.design)
            error = half_width(ahead) / NORMAL_95 if len(ahead) > 1 else 0.0
            moved = len(near) > 1
            draws[:, i] += ahead.mean() + moved * np.hypot(error, apart) * normals[1][:, i]
        limit = max(float(np.quantile(draws.max(axis=1), 0.95)), ROUNDING)
        if _is_sum(known[best]):  # what the last steps of the local search have gained
            around = [e.value for e in ranked if _distance(e, [known[best]]) < SEARCH.apart]
            limit += around[0] - around[min(len(known[best].place) + 1, len(around) - 1)]
        return limit


def _combined(
    known: list[Tried], finalists: DesignComparison, prices: Array
) -> tuple[Array, Array, float]:
    """Values (n,) of finalists with their covariance, and the spread of what measurements miss.

    Measurements miss gains by amounts that are alike for all designs. Estimates are drawn towards
    that by the noise in them (Efron and Morris, 1973, Stein's estimation rule and its competitors).
    """
    noise = finalists.covariance / np.outer(prices, prices)
    measured = np.array([entry.value for entry in known])
    missed = finalists.values / prices - measured
    weight = 1.0 / np.maximum(np.diag(noise), 1e-300)
    center, spread = float(weight @ missed / weight.sum()), float(np.var(missed))
    gain = spread * np.linalg.inv(noise + (spread + 1e-20) * np.eye(len(known)))
    return measured + center + gain @ (missed - center), gain @ noise, float(np.sqrt(spread))


def _is_sum(entry: Tried) -> bool:
    """Whether the gain of a design is known as a sum over outcomes."""
    return entry.estimate is not None and entry.estimate.method == "enumeration"


def _replicates(entry: Tried) -> Array:
    """Measurements (R,) of one design; a single one where replicates are not known."""
    est = entry.estimate
    known = est.replicates if isinstance(est, Gain) else None
    return np.array([entry.value]) if known is None else known


def _ranked(tried: Iterable[Tried]) -> list[Tried]:
    """Designs from the largest value to the least."""
    return sorted(tried, key=attrgetter("value"), reverse=True)


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
