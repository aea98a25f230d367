"""Joint process: a Gaussian process in (θ, x) for few evaluations, points chosen by batches.

To first order the answer is F(J) ≈ F(Ĵ) + Σ_m a_m (J(θ_m) − Ĵ(θ_m)), a Gaussian variable. Its
variance falls by Cov(F, g(z))² / Var(g(z)) if g is evaluated at z, whatever the value will be, so
that batches are chosen point by point without values (Gaussian processes forget values: Krause and
others 2008, Near-optimal sensor placements in Gaussian processes; for integrals Briol and others
2015, Frank–Wolfe Bayesian quadrature).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri, roots_hermitenorm

from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.accuracy import propagated, takes
from nestquad.distributions import Empirical, Independent, Law, ScipyLaw
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.gp import IntegratedGP, ScoreKind, Shape
from nestquad.methods._method import Goal, Turn, require_transports
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._base import Fit, Learned, LearnedAnswer, LearnedMethod
from nestquad.methods.learned._evidence import Check, LearnedDesign
from nestquad.methods.learned._process_model import ProcessModel, fit_process_model
from nestquad.points import Given, Sobol, Stream
from nestquad.problem import NestedExpectation

__all__ = ["JointProcess"]


@dataclass(frozen=True)
class JointProcess(LearnedMethod[ProcessModel]):
    """Learn g in (θ, x) by a Gaussian process; choose points that narrow the answer.

    For a g that takes minutes. A Gaussian process on scores of (θ, x) with one lengthscale for
    each coordinate is fitted by restricted likelihood; x is integrated out in closed form, and
    f(Ĵ) is averaged over dense θ, free of g. The first points are scrambled Sobol' points. Each
    further batch has the points of the largest expected fall of the variance of the answer, and
    among them a share of Sobol' points, for errors that the process does not claim.

    Parameters
    ----------
    n_outer
        Number of points; where None, the budget or the tolerance decides.
    first
        Points of the first batch; None takes 1.5 for each coordinate, and at least 16.
    batch
        Points of each further batch, such as the number of workers; None takes three batches a
        doubling, up to 16, 20, 25, 32, 40, 51, 64, … points, and one where seconds count.
    active
        Share of points that are chosen; the others are Sobol' points.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.health()
    >>> est = nq.estimate(problem, method=nq.JointProcess(), budget=64, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.1 * problem.exact)
    True
    """

    name: ClassVar[str] = "process"
    fewest: ClassVar[int] = 8
    most: ClassVar[int] = 1024
    """Most points: a fit costs the cube of their number."""
    n_inner: ClassVar[int] = 1
    few: ClassVar[int] = 256
    """Largest budget that `auto` gives to this method; ``python -m studies few`` goes to 128."""
    most_dim: ClassVar[int] = 64
    """Most coordinates of (θ, x) for `auto`: lengthscales of more are not learned from few."""

    n_outer: int | None = None
    first: int | None = None
    batch: int | None = None
    active: float = 0.75

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", self.fewest), ("first", self.fewest), ("batch", 1)):
            if (size := getattr(self, argument)) is not None:
                expected = f"an integer from {least} to {self.most}, or None"
                whole(argument, size, expected, least=least, below=self.most + 1)
        if not (isinstance(self.active, int | float) and 0.0 <= self.active <= 1.0):
            raise InputError("active", repr(self.active), "a share from 0 to 1")

    @classmethod
    def suits(cls, problem: NestedExpectation, budget: int) -> bool:
        """Whether `auto` takes this method for a problem and a budget."""
        dim = problem.outer_law.base_dim + problem.inner_base_dim
        small = cls.fewest <= budget <= cls.few and dim <= cls.most_dim
        return small and not any(is_discrete(law) for _, law in _laws(problem))

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        last: Turn[Learned[ProcessModel]] | None = None,
    ) -> Design | None:
        require_transports(problem, self.name)
        for argument, law in _laws(problem):
            if is_discrete(law):
                raise InputError(
                    argument,
                    "a discrete law",
                    f"a continuous law, along which method {self.name!r} interpolates g",
                    "Use method='nqmc', or 'ckq' for a discrete inner law.",
                )
        if goal.budget is not None and goal.budget < self.fewest:
            raise InputError(
                "budget",
                f"{goal.budget} evaluations",
                f"at least {self.fewest} for method {self.name!r}",
            )
        if last is not None and goal.adaptive and last.final:
            return None
        n = 0 if last is None else last.design.n_evaluations
        step = self._step(problem, n, 1 if goal.hurried else 3)
        design = self.sized(problem, goal, n + step, last)
        return None if design is None else LearnedDesign.of(design, ())

    def _step(self, problem: NestedExpectation, n: int, batches: int) -> int:
        """Number of points of the next batch after n, with so many batches a doubling."""
        if n == 0:
            dim = problem.outer_law.base_dim + problem.inner_base_dim
            return self.first or max(16, int(1.5 * dim))
        if self.batch is not None:
            return self.batch
        powers = np.arange(4 * batches, batches * self.most.bit_length()) / batches
        sizes = np.round(2.0**powers).astype(int)
        return int(sizes[np.searchsorted(sizes, n, "right")]) - n

    def sized(
        self,
        problem: NestedExpectation,
        goal: Goal,
        n: int,
        last: Turn[Learned[ProcessModel]] | None,
    ) -> Design | None:
        most = min(self.n_outer or self.most, goal.budget or self.most)
        if last is None:
            first = Grid(min(n, most), 1, Sobol(), Sobol(), None, goal.stream, joint=True)
            return Design((first,))
        grids = last.design.grids
        present = sum(grid.n_outer for grid in grids)
        size = min(n, most) - present
        if size < 1:
            return None
        uniform = self._chosen(problem, last, size, present)
        points = Given(uniform)
        level = len(grids)
        grid = Grid(size, 1, points, points, None, grids[0].stream, level=level, joint=True)
        return Design((*grids, grid))

    def _chosen(
        self, problem: NestedExpectation, last: Turn[Learned[ProcessModel]], n: int, present: int
    ) -> Array:
        """Uniforms (n, d) of the next batch: chosen points, and the next Sobol' points."""
        model, stream = last.state.model, last.design.grids[0].stream
        level, dim = len(last.design.grids), model.uniform.shape[1]
        n_active = round(self.active * (present + n)) - round(self.active * present)
        average = DenseAverage(problem, last.state.scalar, stream.child(8, level))
        parts = []
        if n_active:
            parts.append(choose_points(average, model, n_active, stream.child(9, level)))
        if n > n_active:
            start = present  # of the sequence of the first batch; points between were not used
            rest = Sobol().uniforms(
                last.design.grids[0].outer_stream, dim, (0, 1), (start, start + n - n_active)
            )[0]
            parts.append(rest)
        return np.concatenate(parts)

    def fit(
        self, evaluations: Evaluations, last: Turn[Learned[ProcessModel]] | None
    ) -> Fit[ProcessModel]:
        problem, grids = evaluations.problem, evaluations.design.grids
        outer = problem.outer_law
        dim = outer.base_dim + problem.inner_base_dim
        points, values = [], []
        scalar = True
        for level, grid in enumerate(grids):
            raw = evaluations.values(grid.n_outer, level)
            scalar = raw.ndim == 2
            rows = len(raw)
            points.append(grid.outer_points.uniforms(grid.outer_stream, dim, (0, 1), (0, rows))[0])
            values.append(raw[:, 0].reshape(rows, -1))
        uniform, y = np.concatenate(points), np.concatenate(values)
        if len(y) < self.fewest:  # time may have ended before all rows were there
            raise OutOfTimeError(
                f"time ran out after {len(y)} evaluations", advice="Raise max_seconds."
            )
        before = None if last is None else last.state.model
        # f of zero is asked for only where a mean of g must be positive.
        positive = bool(y.min() >= 0) and not takes(problem, np.zeros((1, *raw.shape[2:])))
        model = fit_process_model(
            _kinds(problem),
            uniform,
            y,
            outer.base_dim,
            positive=positive,
            noisy=problem.noisy,
            last=before,
        )
        if last is not None and before is not None:
            model = replace(model, history=(*before.history, _claim(last)))
        return Fit(model, scalar, len(y), 1)

    def answer(
        self,
        problem: NestedExpectation,
        fit: Fit[ProcessModel],
        check: Check | None,
        stream: Stream,
        log2_more: int,
    ) -> LearnedAnswer[ProcessModel]:
        """The answer, wider where its changes from turn to turn exceed the claims of the turns."""
        found = super().answer(problem, fit, check, stream, log2_more)
        factor = fit.model.excess(found.value, found.draws.std(axis=0))
        return replace(found, draws=found.value + factor * (found.draws - found.value))


def _claim(turn: Turn[Learned[ProcessModel]]) -> tuple[int, Array, Array]:
    """Number of points, answers (k,), and standard deviations (k,) that the model claimed."""
    value, sd = np.atleast_1d(turn.estimate.value), np.atleast_1d(turn.estimate.std_error)
    return turn.design.n_evaluations, value, sd / turn.state.model.excess(value, sd)


def is_discrete(law: Law) -> bool:
    """Whether a coordinate of a law has atoms, so that no score drives it smoothly."""
    if isinstance(law, Independent):
        return any(is_discrete(part) for part in law.laws)
    return isinstance(law, Empirical) or (isinstance(law, ScipyLaw) and hasattr(law.frozen, "pmf"))


def _laws(problem: NestedExpectation) -> tuple[tuple[str, Law], ...]:
    """Laws of θ, and of x at the median of θ, with their names."""
    outer = problem.outer_law
    inner = problem.inner_law(outer.middle())
    return ("outer", outer), ("inner", inner)


def _kinds(problem: NestedExpectation) -> tuple[ScoreKind, ...]:
    """Kinds of scores and correlations to choose from, by likelihood."""
    written: tuple[bool, ...] = ()
    for _, law in _laws(problem):
        written += (law.base == "normal",) * law.base_dim
    scores = {(True,) * len(written), written}
    shapes: tuple[Shape, ...] = ("gaussian", "matern52")
    logs = (False, True)
    return tuple(ScoreKind(s, n, log) for s in shapes for n in sorted(scores) for log in logs)


@dataclass(frozen=True)
class AcquisitionSettings:
    """Tuning numbers of the choice, chosen on few even seeds of the families.

    Attributes
    ----------
    n_candidates
        Candidates (θ, x), scrambled Sobol' points.
    inflation
        Factor of the normal scores of every other candidate: points beyond the bulk of the law
        bound the process in the tails.
    n_nodes
        Nodes of the Gauss–Hermite rule of the derivative of f.
    """

    n_candidates: int = 1024
    inflation: float = 1.3
    n_nodes: int = 6


DEFAULT = AcquisitionSettings()


def linearized(average: DenseAverage, model: ProcessModel, n_nodes: int = 6) -> Array:
    """Derivatives (k, M, p) of the final answers in J at the θ of the sketch.

    Of E f(Ĵ + s ξ), ξ standard normal and s the posterior standard deviation of J, which is
    E[f(Ĵ + s ξ) ξ] / s (Stein's lemma): kinks and jumps of f count where J may reach them.
    """
    base = model.sketch
    spread = np.maximum(base.j.std(axis=0), np.finfo(float).tiny)
    sd = np.maximum(model.sd(base.uniform), 1e-6 * spread)
    weights = base.weights / base.weights.sum()
    nodes, masses = roots_hermitenorm(n_nodes)
    masses = masses / masses.sum()
    answers = weights @ np.nan_to_num(average.f(base.j))
    slopes = []
    for c in range(base.j.shape[1]):
        total = 0.0
        for node, mass in zip(nodes, masses, strict=True):
            moved = base.j + node * sd * (np.arange(base.j.shape[1]) == c)
            f = average.f(model.bounded(moved, base.uniform))
            total = total + mass * node * np.nan_to_num(f)
        slope = weights[:, None] * total / sd[:, c : c + 1]
        slopes.append(_final(average, answers, slope))
    return np.stack(slopes, axis=-1).swapaxes(0, 1)


def _final(average: DenseAverage, answers: Array, slope: Array) -> Array:
    """Derivatives (M, q) of the expectations as those (M, k) of the final answers."""
    if average.problem.combine is None:
        return slope
    # The Jacobian of `combine` by steps of the size of the changes.
    step = np.maximum(np.abs(slope).sum(axis=0), 1e-9 * np.abs(answers) + 1e-300)
    jacobian = propagated(average.problem, answers, np.diag(step)) / step[:, None]
    return np.asarray(slope @ np.nan_to_num(jacobian))


@dataclass(frozen=True, eq=False)
class _Reduction:
    """Covariances of one output: of candidates with the answers, and with each other."""

    process: IntegratedGP
    z: Array
    white: Array
    extra: Array
    covariance: Array
    variance: Array

    @classmethod
    def of(cls, process: IntegratedGP, slopes: Array, theta: Array, z: Array) -> _Reduction:
        """For derivatives (k, M) of the answers in J at scores theta (M, d_θ); candidates z."""
        gp = process.gp
        white, extra = process.whitened(gp._cross(z), gp._trend(z))
        of_answers = process.whitened(slopes @ process.cross(theta), slopes @ process.trend(theta))
        covariance = slopes @ process.cross(theta, z)
        covariance += of_answers[1].T @ extra - of_answers[0].T @ white
        p = gp.parameters
        variance = p.signal * (1.0 + 1e-10) - (white**2).sum(axis=0) + (extra**2).sum(axis=0)
        return cls(process, z, white, extra, covariance, np.maximum(variance, 0.0) + p.noise)

    def column(self, i: int) -> Array:
        """Posterior covariance (C,) of g at all candidates with g at candidate i."""
        prior = (
            self.process.gp.parameters.signal
            * self.process.gp._correlate(self.z, self.z[i : i + 1])[:, 0]
        )
        return np.asarray(prior - self.white.T @ self.white[:, i] + self.extra.T @ self.extra[:, i])


def choose_points(
    average: DenseAverage,
    model: ProcessModel,
    n: int,
    stream: Stream,
    settings: AcquisitionSettings = DEFAULT,
) -> Array:
    """n uniforms (n, d) of (θ, x), each with the largest expected fall given those before.

    Cost
    ----
    O(C (n_points² + M + n n_points)) for C candidates and M θ of the sketch, for each output.
    """
    dim = model.uniform.shape[1]
    uniform = Sobol().uniforms(stream, dim, (0, 1), (0, settings.n_candidates))[0]
    uniform[1::2] = ndtr(settings.inflation * ndtri(uniform[1::2]))
    uniform = np.clip(uniform, 1e-9, 1.0 - 1e-9)
    slopes = linearized(average, model, settings.n_nodes)
    parts = []
    for c, process in enumerate(model.processes):
        theta = process.kind.scores(model.sketch.uniform)
        unit = process.variance_unit**0.5
        parts.append(
            _Reduction.of(process, unit * slopes[:, :, c], theta, process.kind.scores(uniform))
        )
    total = sum((part.covariance**2 / part.variance).sum(axis=1) for part in parts)
    scale = np.maximum(np.asarray(total), np.finfo(float).tiny)
    used: list[list[Array]] = [[] for _ in parts]
    chosen: list[int] = []
    free = np.ones(len(uniform), dtype=bool)
    for _ in range(n):
        falls = sum(((part.covariance**2).T / scale).sum(axis=1) / part.variance for part in parts)
        i = int(np.argmax(np.where(free, falls, -np.inf)))
        chosen.append(i)
        free[i] = False
        for part, before in zip(parts, used, strict=True):
            column = part.column(i) - sum(u * u[i] for u in before)
            direction = column / np.sqrt(part.variance[i])
            before.append(direction)
            part.covariance[:] -= np.outer(
                part.covariance[:, i] / np.sqrt(part.variance[i]), direction
            )
            noise = part.process.gp.parameters.noise
            part.variance[:] = np.maximum(part.variance - direction**2, noise + 1e-12)
    return np.asarray(uniform[chosen])
