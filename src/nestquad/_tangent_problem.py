"""Problem of value and derivatives: f and combine of a problem with their slopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nestquad._checks import choice, numbers, shown
from nestquad._typing import Array
from nestquad.accuracy import is_discontinuous, takes
from nestquad.errors import (
    DiscontinuityError,
    InputError,
    NestquadError,
    NumericalError,
    UnsupportedError,
)
from nestquad.estimate import estimate
from nestquad.evaluate import (
    Derivative,
    Parametrized,
    Pilot,
    TangentG,
    Tangents,
    call_f,
    driving_law,
)
from nestquad.methods import Method
from nestquad.problem import NestedExpectation
from nestquad.result import OuterSample

__all__ = ["DEFAULT", "SensitivitySettings", "TangentProblem", "slope_rules", "with_tangents"]


@dataclass(frozen=True)
class SensitivitySettings:
    """Tuning numbers of sensitivities.

    Attributes
    ----------
    fewest_points
        Fewest points that a budget has to leave after the pilot.
    n_segments
        Values of J at which dependence of f on a parameter is looked for.
    f_step, f_floor
        Step of central differences of f relative to |J|, ε^(1/3), with this share of the spread
        of g as the smallest |J| that counts.
    reach
        Spreads of g at the pilot within which jumps of f are looked for.
    rough
        Share of the size of slopes of f beyond which two steps disagree.
    bandwidth, nodes
        For an f with jumps: half-width of the window in standard deviations of J, and its nodes to
        either side. The slope of a cubic through the nodes (Savitzky and Golay 1964, Smoothing and
        differentiation of data) has a bias of .002 bandwidth⁴ p⁗/p relative to the density p of J:
        .04 % at the center of a normal law, .4 % at three standard deviations.
    atom
        Width in standard deviations of J, and the probability of such an interval from which on J
        has an atom there: a normal law has .008.
    learning
        Share of a budget that learns the spread of J for this window, and its fewest evaluations.
    rank_error
        Relative error of the slopes of each parameter at the points of the pilot up to which
        combinations of few of them stand for all; it is part of the interval. 100 options on one
        price have 10 combinations at 1e-4, 15 at 1e-6, and 5 at 1e-2 (`python -m studies
        sensitivities` has the book).
    """

    fewest_points: int = 32
    n_segments: int = 4096
    f_step: float = 6e-6
    f_floor: float = 1e-3
    reach: float = 8.0
    rough: float = 1e-3
    bandwidth: float = 0.5
    nodes: int = 4
    atom: tuple[float, float] = (0.02, 0.1)
    learning: tuple[float, int] = (0.1, 512)
    rank_error: float = 1e-4


DEFAULT = SensitivitySettings()


def with_tangents(
    make_problem: Callable[..., NestedExpectation],
    parameters: Mapping[str, Any],
    *,
    budget: int | None,
    derivative: Derivative = "difference",
    gradient: Callable[..., Mapping[str, Any]] | None = None,
) -> TangentProblem:
    """The joint problem of value and derivatives, after a pilot that chooses steps and checks g."""
    choice("derivative", derivative, ("difference", "jax", "torch"))
    if not callable(make_problem):
        given = type(make_problem).__name__
        advice = "Write it as a function of its parameters." if given == "NestedExpectation" else ""
        raise InputError("make_problem", given, "a function that returns a problem", advice)
    if gradient is not None and (not callable(gradient) or derivative != "difference"):
        given = type(gradient).__name__ if not callable(gradient) else f"with {derivative!r}"
        raise InputError("gradient", given, "a function, without derivative='jax' or 'torch'")
    if not isinstance(parameters, Mapping) or not parameters:
        raise InputError("parameters", shown(parameters), "values by name, such as {'vol': 0.2}")
    values = {
        str(name): numbers(f"parameters[{name!r}]", value) for name, value in parameters.items()
    }
    for name, value in values.items():
        if not value.size or not np.isfinite(value).all():
            given = f"{name!r} with {shown(value)}"
            raise InputError("parameters", given, "finite numbers, or arrays of them")
    shapes = tuple(value.shape for value in values.values())
    family = Parametrized(make_problem, tuple(values), shapes, derivative == "torch")
    phi = np.concatenate([value.ravel() for value in values.values()])
    # A component of size 0 has the scale of the largest of its array, or 1.
    sizes = [np.abs(value.ravel()) for value in values.values()]
    scale = np.concatenate([np.where(s > 0, s, s.max() or 1.0) for s in sizes])
    step = Pilot.settings.steps[3]
    tangents = Tangents(
        family, tuple(phi.tolist()), tuple(scale.tolist()), step, derivative, gradient
    )
    _check_laws(tangents, gradient is not None)
    pilot = Pilot(tangents, budget)
    return TangentProblem(pilot, SlopeF.of(pilot), pilot.n_spent)


def _check_laws(tangents: Tangents, given: bool) -> None:
    problem = tangents.problem
    if problem.g is None:
        raise InputError("make_problem", "a problem without g", "one whose g can be called")
    if problem.noisy and not given:
        raise UnsupportedError(
            "A noisy g has no differences: two calls at the same point differ. Give gradient=, or "
            "fix the noise, as a coordinate of x."
        )
    for name in ("outer", "inner"):
        law = problem.outer_law if name == "outer" else tangents.inner_law
        if not law.has_transport:
            raise UnsupportedError(
                f"The {name} law, {law!r}, can only be sampled: its draws do not move with the "
                "parameters. Write it as a nestquad.Transport of its noise."
            )


@dataclass(frozen=True, eq=False)
class TangentProblem:
    """A problem whose answers are value and scaled derivatives.

    Attributes
    ----------
    pilot
        Points at which derivatives of g were checked.
    f
        f and its derivatives.
    n_spent
        Evaluations of g so far.
    """

    pilot: Pilot = field(repr=False)
    f: SlopeF
    n_spent: int

    @property
    def tangents(self) -> Tangents:
        return self.pilot.tangents

    @property
    def base(self) -> NestedExpectation:
        """The problem at the given parameters."""
        return self.tangents.problem

    def with_window(self, budget: int | None, method: str | Method[Any]) -> TangentProblem:
        """For an f with jumps, a window that fits the spread of J, learned from evaluations."""
        base = self.base
        values = self.pilot.values
        center = values.mean(axis=0)
        reached = (center + reach * (values - center) for reach in (1.0, DEFAULT.reach))
        if base.f is None or not any(is_discontinuous(base, self.f.argument(j)) for j in reached):
            return self
        share, fewest = DEFAULT.learning
        n = max(fewest, int(share * (budget or 0)))
        without_f = replace(base, f=None, combine=None, exact=None)
        j = estimate(without_f, budget=n, method=method, rng=0)
        assert j.sample is not None
        f = self.f.with_window(j.sample)
        return replace(self, f=f, n_spent=self.n_spent + j.n_evaluations)

    def compressed(self) -> TangentProblem:
        """With combinations of slopes as outputs, where few of them stand for all parameters."""
        slopes = self.pilot.slopes[..., self.tangents.active]
        slopes = slopes.reshape(slopes.shape[0] * slopes.shape[1], -1)
        size = np.linalg.norm(slopes, axis=0)
        if not size.all() or size.size < 2:
            return self
        _, singular, rows = np.linalg.svd(slopes / size, full_matrices=False)
        # Error of each parameter's unit slopes by the first r combinations, r = 0, 1, …
        left = np.sqrt(np.cumsum((singular[:, None] * rows)[::-1] ** 2, axis=0)[::-1]).max(axis=1)
        rank = int(np.sum(left > DEFAULT.rank_error))
        # Two points for each combination, so that they are no accident of the pilot.
        if 2 * rank > min(slopes.shape):
            return self
        return replace(self, f=replace(self.f, basis=rows[:rank] * size))

    def problem(self) -> NestedExpectation:
        """Problem on driving variables with the outputs (g, dg/dφ)."""
        base, inner = self.base, driving_law(self.tangents.inner_law)
        return NestedExpectation(
            outer=driving_law(base.outer_law),
            inner=inner if base.inner_is_shared else _Always(inner),
            g=TangentG(self.tangents, self.f.outputs),
            f=self.f,
            combine=None if base.combine is None else SlopeCombine(self.f),
            name=base.label,
            noisy=base.noisy,
        )

    def bias(self, slopes: Array, by_others: Array, sample: OuterSample | None) -> Array:
        """Errors of scaled derivatives: steps of differences, combinations, the window of f."""
        by_steps = self.pilot.disagreement if self.tangents.by_differences() else 0.0
        by_rank = 0.0 if self.f.outputs is None else DEFAULT.rank_error
        by_f = 0.0 if sample is None else self.f.step_error(sample)
        relative = np.linalg.norm([by_steps, by_rank, by_f])
        bias = np.full(slopes.size, relative * np.abs(slopes).max())
        if self.f.window is None:
            return bias
        away = np.abs(slopes - by_others.reshape(-1, slopes.size)).max(axis=0)
        return np.asarray(np.hypot(bias, away))

    def sample(self, sample: OuterSample | None) -> OuterSample | None:
        if sample is None:
            return None
        q, law = self.f.n_answers, self.base.outer_law
        j = sample.j.reshape(len(sample.j), -1)[:, : self.f.n_outputs]
        theta = law.from_normal if law.base == "normal" else law.from_uniform
        return OuterSample(
            theta(sample.theta), self.f.argument(j), sample.f[:, :q], sample.weights[:, :q]
        )

    def notes(self) -> Iterator[str]:
        tangents, pilot = self.tangents, self.pilot
        if n := len(tangents.by_differences()):
            yield (
                f"central differences of g in {n} components with a relative step of "
                f"{tangents.step:.1g}: {tangents.cost} evaluations at each point; slopes at two "
                f"steps differ by {pilot.disagreement:.1g} of their size"
            )
        if tangents.derivative != "difference":
            yield f"one reverse pass of {tangents.derivative} through g for all parameters"
        if tangents.gradient is not None:
            yield "derivatives of g by the given gradient"
        if self.f.outputs is not None:
            yield f"{len(self.f.basis)} combinations of slopes stand for all parameters"
        yield (
            f"g jumps nowhere on {pilot.n_lines} lines through theta and x where a jump would move "
            f"with the parameters ({self.n_spent:,} evaluations with all checks); a jump that "
            "these lines miss would bias derivatives"
        )
        if self.f.window is not None:
            yield (
                "f jumps: derivatives have the density of J at the jump, by a window of "
                f"{DEFAULT.bandwidth:g} standard deviations of J"
            )


@dataclass(frozen=True)
class _Always:
    """A law that ignores θ, as a function of θ."""

    law: Any

    def __call__(self, theta: Array) -> Any:
        return self.law


@dataclass(frozen=True, eq=False)
class SlopeF:
    """f and its derivatives: answers (q,), then s_k d f/dφ_k (q K).

    With a window they come once for each of `slope_rules`.

    Attributes
    ----------
    tangents
        Problems at neighboring parameters.
    n_outputs, n_answers, scalar
        Outputs p of g, answers q of f, and whether f takes J of shape (T,).
    floor
        Smallest size of each output that counts for a step; 0 where f needs J > 0.
    basis
        Combinations (r, A) of the slopes of active components; their means are outputs of J.
    explicit
        Components on which f itself depends.
    window
        Half-widths for an f with jumps: in each output, and in each explicit component; else None.
    """

    tangents: Tangents
    n_outputs: int
    n_answers: int
    scalar: bool
    floor: tuple[float, ...]
    basis: Array
    explicit: tuple[int, ...] = ()
    window: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @classmethod
    def of(cls, pilot: Pilot) -> SlopeF:
        """For values of g at a pilot, after a search for parameters without effect."""
        tangents, j = pilot.tangents, pilot.values
        problem, p = tangents.problem, j.shape[1]
        scalar = p == 1 and tangents.is_scalar(problem, pilot.w[:1], pilot.v[:1])
        spread = DEFAULT.f_floor * np.maximum(j.std(axis=0), 1e-8 * np.abs(j).max(axis=0))
        f = cls(tangents, p, 1, scalar, tuple(spread.tolist()), np.eye(len(tangents.active)))
        if problem.f is not None and not takes(problem, -np.abs(f.argument(j))):
            f = replace(f, floor=(0.0,) * p)
        # On segments between values of g, within which J is.
        value = f.at(problem, _segments(j, 0.0))
        mean, unused = f.at(problem, j).mean(axis=0), set(tangents.family.names)
        explicit = [k for k in range(len(tangents.phi)) if f._depends_on(k, pilot)]
        for k, name in enumerate(tangents.family.owners()):
            in_combine = problem.combine is not None and any(
                not np.array_equal(side.finish(mean), problem.finish(mean))
                for side in tangents.sides(k)
            )
            if k in tangents.active or k in explicit or in_combine:
                unused.discard(name)
        if unused:
            raise InputError(
                "parameters",
                f"{min(unused)!r}, on which neither laws nor g, f or combine depend at {len(j)} "
                "points",
                "parameters that change the problem",
                "Leave it out, or raise the budget if its effect is rare.",
            )
        return replace(f, n_answers=value.shape[1], explicit=tuple(explicit))

    def _depends_on(self, k: int, pilot: Pilot) -> bool:
        """Whether f itself changes with component k, at or beyond values of g of the pilot."""
        problem = self.tangents.problem
        if problem.f is None:
            return False
        for step in (self.tangents.step, 0.05, 0.2):
            for reach in (0.0, 1.0):
                j = _segments(pilot.values, reach)
                try:
                    value = self.at(problem, j)
                    sides = [self.at(side, j) for side in self.tangents.sides(k, step)]
                except NestquadError:  # beyond the domain of f, or of a parameter
                    continue
                if not all(np.array_equal(side, value, equal_nan=True) for side in sides):
                    return True
        return False

    @property
    def outputs(self) -> Array | None:
        """Matrix (A, r) that makes combinations of the slopes; None where all are outputs."""
        r, a = self.basis.shape
        return None if r == a else np.asarray(np.linalg.pinv(self.basis), dtype=float)

    @property
    def n_rules(self) -> int:
        """How often derivatives come."""
        return len(slope_rules(1 if self.window is None else DEFAULT.nodes)) - 1

    def argument(self, j: Array) -> Array:
        """J (T, p) as f takes it."""
        return j[:, 0] if self.scalar else j

    def at(self, problem: NestedExpectation, j: Array) -> Array:
        """Values (T, q) of the f of a problem at J (T, p)."""
        return call_f(problem, self.argument(j), j, require_finite=False)

    def with_window(self, sample: OuterSample) -> SlopeF:
        """The window for J of a sample: a share of its spread, and steps of φ of like effect."""
        j = sample.j.reshape(len(sample.j), -1)
        weights = sample.weights.mean(axis=1)
        weights = weights / weights.sum()
        widths = []
        for column in j.T:
            order = np.argsort(column)
            low, high = np.interp([0.25, 0.75], np.cumsum(weights[order]), column[order])
            sd = float(np.sqrt(weights @ (column - weights @ column) ** 2))
            robust = (high - low) / 1.349  # of a normal law
            widths.append(DEFAULT.bandwidth * (min(sd, robust) if robust > 0 else sd))
            self._refuse_atom(j[order], weights[order], len(widths) - 1, sd)
        if not all(width > 0 for width in widths):
            raise NumericalError(
                "J does not vary over theta, so that it has no density at a jump of f."
            )
        # Beyond J as well, where a jump may be that it does not reach.
        problem, j = self.tangents.problem, _segments(j, 2.0)

        def effect(up: Array, down: Array) -> float:
            return float(np.nan_to_num(np.abs(up - down)).mean(axis=0).max())

        wanted = max(
            effect(self.at(problem, j + side), self.at(problem, j - side))
            for side in np.diag(widths)
        )
        steps = []
        for k in self.explicit:
            effects = {}
            for step in (0.5 * 2.0 ** -np.arange(20.0)).tolist():
                try:
                    effects[step] = effect(*(self.at(s, j) for s in self.tangents.sides(k, step)))
                except NestquadError:  # such as a probability beyond 1
                    continue
            steps.append(min(effects, key=lambda step: abs(effects[step] - wanted)))
        return replace(self, window=(tuple(widths), tuple(steps)))

    def _refuse_atom(self, j: Array, weights: Array, c: int, sd: float) -> None:
        """Raise if f jumps where many of J (T, p), in the order of output c, have one value."""
        problem, (width, least) = self.tangents.problem, DEFAULT.atom
        column, cumulative = j[:, c], np.append(0.0, np.cumsum(weights))
        mass = cumulative[np.searchsorted(column, column + width * sd, "right")] - cumulative[:-1]
        at = int(np.argmax(mass))
        if mass[at] < least or not sd > 0:
            return
        ends = np.repeat(j[[at]], 2, axis=0)
        ends[:, c] += width * sd * np.array([-1.0, 2.0])
        if is_discontinuous(problem, self.argument(np.repeat(ends, 8, axis=0))):
            raise DiscontinuityError(
                f"f jumps near J = {column[at]:.4g}, where J has an atom: {mass[at]:.0%} of theta "
                "have that value. Such a probability jumps as parameters change, and has no "
                "derivative there; move the jump of f away from the atom."
            )

    def step_error(self, sample: OuterSample) -> float:
        """Relative error of slopes of f by steps that are not small against the spread of J.

        Where θ moves J by little against |J| or the noise of g, J has both sides of a kink within a
        step. Slopes by a hundredth of the spread then differ in their mean, or along J.
        """
        problem, p = self.tangents.problem, self.n_outputs
        j = sample.j.reshape(len(sample.j), -1)[:, :p]
        weights = sample.weights.mean(axis=1) / sample.weights.mean(axis=1).sum()
        away = j - weights @ j
        spread = np.sqrt(weights @ away**2)
        if problem.f is None or self.window is not None:
            return 0.0
        worst = 0.0
        for c in np.flatnonzero(spread > 1e-13 * np.abs(j).max(axis=0)):
            size = DEFAULT.f_step * np.maximum(np.abs(j[:, c]), self.floor[c])
            fine = np.full(len(j), 0.01 * spread[c])
            if (size <= fine).all():
                continue
            slopes = []
            for step in (size, fine):
                side = step[:, None] * (np.arange(p) == c)
                change = self.at(problem, j + side) - self.at(problem, j - side)
                slopes.append(change / (2.0 * step[:, None]))
            factors = np.stack([np.ones(len(j)), away[:, c] / spread[c]])
            coarse, exact = (np.abs((factors * weights) @ slope) for slope in slopes)
            gap, total = np.abs(exact - coarse), weights @ np.abs(slopes[1]) + 1e-300
            # Relative to the slope that was taken, where it is not zero by symmetry.
            size = np.where(gap > DEFAULT.rough * total, coarse + 1e-300, total)
            worst = max(worst, float((gap / size).max()))
        return worst

    def __call__(self, joint: Array) -> Array:
        p, active, k = self.n_outputs, self.tangents.active, len(self.tangents.phi)
        j, rows, problem = joint[:, :p], len(joint), self.tangents.problem
        slopes = joint[:, p:].reshape(rows, p, len(self.basis)) @ self.basis
        value = self.at(problem, j)
        nodes, *rules = slope_rules(1 if self.window is None else DEFAULT.nodes)
        totals = np.zeros((len(rules), rows, value.shape[1], k))
        if problem.f is None:
            totals[..., active] = slopes
        for c in range(p if problem.f is not None else 0):
            size = np.maximum(DEFAULT.f_step * np.maximum(np.abs(j[:, c]), self.floor[c]), 1e-300)
            if self.window is not None:
                size = np.full(rows, self.window[0][c])
            away = size[:, None] * (np.arange(p) == c)
            changes = [self.at(problem, j + s * away) - value for s in nodes]
            changes += [value - self.at(problem, j - s * away) for s in nodes]
            partial = np.tensordot(rules, changes, 1) / size[:, None]
            totals[..., active] += partial[..., None] * slopes[:, None, c]
        for i, component in enumerate(self.explicit):
            step = self.tangents.step if self.window is None else self.window[1][i]
            problems = [self.tangents.sides(component, float(s * step)) for s in nodes]
            changes = [self.at(up, j) - value for up, _ in problems]
            changes += [value - self.at(down, j) for _, down in problems]
            totals[..., component] += np.tensordot(rules, changes, 1) / step
        return np.concatenate([value, *totals.reshape(len(rules), rows, -1)], axis=1)


def _segments(values: Array, reach: float) -> Array:
    """Points (n, p) on segments between values (m, p), and beyond by `reach` of their lengths."""
    rng, n = np.random.default_rng(2), DEFAULT.n_segments
    ends = values[rng.integers(len(values), size=(2, n))]
    place = rng.uniform(-reach, 1.0 + reach, (n, 1))
    return np.asarray(ends[0] + place * (ends[1] - ends[0]))


def slope_rules(n: int) -> Sequence[Array]:
    """Nodes (n,) of a unit window, and weights (2 n,) of changes for the slope of F at 0.

    Changes are F(s) − F(0) and then F(0) − F(−s). The first rule is that of a cubic, least squares
    (Savitzky and Golay 1964), or of a line for one node. Others bound its bias: a quintic, and a
    cubic on each side, which tell a slope that jumps within the window.
    """
    nodes = np.arange(1.0, n + 1.0) / n
    powers = np.arange(1.0, 6.0)
    up = nodes[:, None] ** powers
    down = -((-1.0) ** powers) * up
    both, none = np.concatenate([up, down]), np.zeros(n)
    if n == 1:
        return nodes, np.array([0.5, 0.5])
    sides = [np.linalg.pinv(one[:, :3])[0] for one in (up, down)]
    return (
        nodes,
        np.linalg.pinv(both[:, :3])[0],
        np.linalg.pinv(both)[0],
        np.concatenate([sides[0], none]),
        np.concatenate([none, sides[1]]),
    )


@dataclass(frozen=True)
class SlopeCombine:
    """combine and its derivatives: final answers (n,), then s_k d/dφ_k (n K), by the chain rule."""

    f: SlopeF

    def __call__(self, answers: Array) -> Array:
        tangents, q = self.f.tangents, self.f.n_answers
        k, step = len(tangents.phi), tangents.step
        parts = [np.atleast_1d(tangents.problem.finish(answers[:q]))]
        for slopes in answers[q:].reshape(-1, q, k):
            columns = []
            for i in range(k):
                up, down = tangents.sides(i)
                high = up.finish(answers[:q] + step * slopes[:, i])
                low = down.finish(answers[:q] - step * slopes[:, i])
                columns.append(np.atleast_1d(high - low) / (2.0 * step))
            parts.append(np.stack(columns, axis=1).ravel())
        return np.concatenate(parts)
