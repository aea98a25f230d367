"""Sensitivities: a nested expectation and its gradient in parameters of the problem.

A derivative of a nested expectation is a nested expectation. With J' = E[dg/dφ | θ] at fixed
driving variables of θ and x, dI/dφ = E[f'(J) J' + ∂f/∂φ]. So one problem with the outputs
(g, dg/dφ_1, …) has value and gradient as its answers, with their covariance, by any method.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._checks import choice, is_number, numbers, shown
from nestquad._notebook import grid
from nestquad._progress import ProgressLike
from nestquad._typing import Array, Indices, RNGLike
from nestquad.accuracy import is_discontinuous, takes
from nestquad.errors import (
    DiscontinuityError,
    EvaluationError,
    InputError,
    NestquadError,
    NumericalError,
    UnsupportedError,
    optional_module,
)
from nestquad.estimate import check_limits, estimate
from nestquad.evaluate import Derivative, Driving, Parametrized, TangentG, Tangents
from nestquad.methods import Method
from nestquad.pages import figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, axes_or_new, series_styles, short, title
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample, plain, summary

__all__ = ["Sensitivities", "SensitivitySettings", "sensitivity", "slope_rules", "with_tangents"]


@dataclass(frozen=True)
class SensitivitySettings:
    """Tuning numbers of sensitivities.

    Attributes
    ----------
    steps
        Candidate steps of central differences, relative to the scale of a parameter: those at which
        neighbors agree best balance rounding ε/h and curvature h². ε^(1/3) = 6e-6 is the optimum
        for an analytic g in double precision (Press and others 2007, Numerical recipes, section
        5.7); a solver with errors of 1e-8 needs 2e-3.
    agreement, disagreement
        Relative difference of slopes at two steps that is small beside any error of sampling, and
        one beyond which g is refused as too rough.
    n_ladder
        Points at which steps are compared.
    share, fewest, most
        Share of a budget for the pilot, and limits of its number of points. A jump that one point
        in a hundred meets is missed by 256 points with probability e^-2.6 = 7 %.
    fewest_points
        Fewest points that a budget has to leave after the pilot.
    wide
        Relative step that looks for jumps of g: 5 % of a strike or a volatility carries several
        percent of the points across the jump of a digital option.
    n_segments
        Values of J at which dependence of f on a parameter is looked for.
    candidates, halvings
        Points at which a jump is confirmed by bisection, and its depth: a continuous g has changed
        by 2^-16 of the step's change on the last interval if it is linear.
    f_step, f_floor
        Step of central differences of f relative to |J|, ε^(1/3), with this share of the spread
        of g as the smallest |J| that counts.
    bandwidth, nodes
        For an f with jumps: half-width of the window in standard deviations of J, and its nodes to
        either side. The slope of a cubic through the nodes (Savitzky and Golay 1964, Smoothing and
        differentiation of data) has a bias of .002 bandwidth⁴ p⁗/p relative to the density p of J:
        .04 % at the center of a normal law, .4 % at three standard deviations.
    learning
        Share of a budget that learns the spread of J for this window, and its fewest evaluations.
    """

    steps: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    agreement: float = 1e-8
    disagreement: float = 0.02
    n_ladder: int = 32
    share: float = 0.1
    fewest: int = 8
    most: int = 256
    fewest_points: int = 32
    wide: float = 0.05
    n_segments: int = 4096
    candidates: int = 6
    halvings: int = 16
    f_step: float = 6e-6
    f_floor: float = 1e-3
    bandwidth: float = 0.5
    nodes: int = 4
    learning: tuple[float, int] = (0.1, 512)


DEFAULT = SensitivitySettings()


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """A nested expectation I and its derivatives dI/dφ.

    ``s.value`` is the estimate of I, ``s["vol"]`` that of dI/dvol, of the shape of the parameter.

    Attributes
    ----------
    problem
        Its name.
    value
        The estimate of I.
    gradient
        Estimates of dI/dφ by name.
    parameters
        Values of the parameters by name.
    covariance
        Covariance (m, m) of the errors of I and then of all components of the gradient.
    draws
        Posterior draws (n, m) of these; None where a method has none.
    notes
        How the derivatives were found.
    """

    problem: str
    value: Estimate
    gradient: Mapping[str, Estimate]
    parameters: Mapping[str, float | Array]
    covariance: Array = field(repr=False)
    draws: Array | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.gradient:
            raise InputError("name", repr(name), f"one of {', '.join(map(repr, self.gradient))}")
        return self.gradient[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.gradient)

    @property
    def n_evaluations(self) -> int:
        """Evaluations of g, at all values of the parameters."""
        return self.value.n_evaluations

    @property
    def status(self) -> str:
        return self.value.status

    @property
    def seconds(self) -> float:
        return self.value.seconds

    def rows(self) -> list[dict[str, Any]]:
        """One for each answer and component of a parameter.

        ``scaled`` is |φ| dI/dφ, the derivative in the logarithm of the parameter (dI/dφ itself
        where φ = 0), with its interval.
        """
        rows, n = [], np.size(self.value.value)
        for name, slope in self.gradient.items():
            phi = np.asarray(self.parameters[name], dtype=float)
            each = [np.asarray(one, dtype=float).reshape(n, -1) for one in _ends(slope)]
            for a in range(n):
                for k, at in enumerate(np.ndindex(*phi.shape)):
                    value, error, low, high = (float(one[a, k]) for one in each)
                    scale = abs(float(phi[at])) or 1.0
                    rows.append(
                        {
                            "parameter": name + (f"[{', '.join(map(str, at))}]" if at else ""),
                            **({"answer": a} if n > 1 else {}),
                            "at": float(phi[at]),
                            "value": value,
                            "std_error": error,
                            "low": low,
                            "high": high,
                            "scaled": scale * value,
                            "scaled_low": scale * low,
                            "scaled_high": scale * high,
                        }
                    )
        return rows

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; needs the extra ``frames``."""
        return optional_module("pandas", "Sensitivities.to_frame", "frames").DataFrame(self.rows())

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row["parameter"] + (f", answer {row['answer']}" if "answer" in row else ""),
                f"{row['at']:.6g}",
                f"{row['value']:.5g}",
                f"{row['low']:.5g} … {row['high']:.5g}",
                f"{row['scaled']:.4g}",
            )
            for row in self.rows()
        ]

    def __str__(self) -> str:
        value = summary(self.value.value, self.value.std_error)
        lines = [
            f"{self.problem}: {value} (95 %), {self.n_evaluations:,} evaluations, "
            f"{self.value.method}, {self.status}, {self.seconds:.2g} s"
        ]
        cells = [_HEAD, *self._cells()]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
        for row in cells:
            rest = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append("  ".join([f"{row[0]:<{widths[0]}}", *rest]))
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        head = f"{self.problem}: {summary(self.value.value, self.value.std_error)} (95 %)"
        return grid(head, _HEAD, self._cells())

    def plot(self, ax: Any = None, most: int = 12) -> Any:
        """Draw a tornado: scaled sensitivities with 95 % intervals, the largest on top.

        Needs the extra ``plot``. Returns the axes.
        """
        ax = axes_or_new(ax)
        rows = sorted(self.rows(), key=lambda row: -abs(row["scaled"]))[:most]
        up, down = (look.color for look in series_styles(2))
        for y, row in enumerate(rows):
            value = row["scaled"]
            ax.barh(y, value, height=0.62, color=up if value >= 0 else down, alpha=0.75)
            ends = [[max(value - row["scaled_low"], 0.0)], [max(row["scaled_high"] - value, 0.0)]]
            ax.errorbar(value, y, xerr=ends, color=INK, capsize=3, linewidth=1.0)
        names = [
            f"{row['parameter']} = {row['at']:.4g}"
            + (f", answer {row['answer']}" if "answer" in row else "")
            for row in rows
        ]
        ax.set_yticks(range(len(rows)), [short(name, 28) for name in names])
        ax.invert_yaxis()
        ax.grid(False, axis="y")
        ax.axvline(0.0, color=INK, linewidth=0.8)
        ax.set_xlabel("change of the answer per 100 % change of the parameter, at its present rate")
        title(ax, self.problem, f"{self.n_evaluations:,} evaluations")
        return ax

    def to_dict(self) -> dict[str, Any]:
        """All but the draws, as plain Python objects."""
        return {
            "problem": self.problem,
            "value": self.value.to_dict(),
            "gradient": plain(self.rows()),
            "parameters": plain(dict(self.parameters)),
            "covariance": plain(self.covariance),
            "n_evaluations": self.n_evaluations,
            "status": self.status,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | Path, *, command: str | None = None) -> Path:
        """Write a self-contained HTML page; returns the file."""
        head = f"Sensitivities: {self.problem}"
        rows = {
            "95 % interval": " … ".join(f"{end}" for end in self.value.interval()),
            "evaluations of g": f"{self.n_evaluations:,}",
            "status": f"{self.status}: {self.value.status_text}",
            "seconds": f"{self.seconds:.3g}",
        }
        sections = [
            f"<h1>{escape(head)}</h1>",
            f'<p class="answer">{escape(summary(self.value.value, self.value.std_error))}</p>',
            table(rows.items()),
            figure(
                self.plot, "Change of the answer for a change of each parameter, with 95 % bars"
            ),
            page_grid(_HEAD, self._cells(), "Derivatives with 95 % intervals"),
            "<h2>How it was found</h2>",
            paragraphs(self.notes),
            footer(command),
        ]
        return write_page(path, head, sections)


_HEAD = ("parameter", "at", "derivative", "95 % interval", "scaled")


def _ends(slope: Estimate) -> tuple[Any, Any, Any, Any]:
    return slope.value, slope.std_error, *slope.interval()


def sensitivity(
    make_problem: Callable[..., NestedExpectation],
    parameters: Mapping[str, Any],
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    max_seconds: float | None = None,
    method: str | Method[Any] = "auto",
    rng: RNGLike = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: ProgressLike = False,
    derivative: Derivative = "difference",
    gradient: Callable[..., Mapping[str, Any]] | None = None,
) -> Sensitivities:
    """Estimate a nested expectation and its derivatives in parameters of the problem.

    Parameters
    ----------
    make_problem
        A function of named parameters that returns a `NestedExpectation`. Laws, g, f and `combine`
        may depend on them; the number of coordinates may not.
    parameters
        Values by name: numbers, or arrays, whose gradients have their shape.
    budget
        The most evaluations of g. Central differences in K parameters take 1 + 2 K of them at each
        point; automatic differentiation and `gradient` take one.
    tol, rtol
        As in :func:`nestquad.estimate`, for the value and each scaled derivative |φ| dI/dφ.
    max_seconds, method, rng, executor, store, progress
        As in :func:`nestquad.estimate`.
    derivative
        Derivatives of g: ``"difference"``, or ``"jax"`` or ``"torch"`` for a g that is written with
        its functions: one reverse pass for all parameters. Transports of laws are differenced in
        any case, which takes no evaluation of g.
    gradient
        ``gradient(x, theta, **parameters)``, which returns ∂g/∂φ at fixed x and θ by name, of the
        shape of g and then that of the parameter. Parameters of laws take two more evaluations of
        g at each point.

    Returns
    -------
    Sensitivities
        Value and derivatives, each an `Estimate`, with their covariance.

    Raises
    ------
    DiscontinuityError
        If g jumps in a parameter: the derivative of J is then not the mean of that of g.

    Notes
    -----
    Pathwise derivatives at fixed driving variables: Glasserman (2003), Monte Carlo methods in
    financial engineering, section 7.2. Where f jumps, dE f(J)/dφ has the density of J at the jump,
    dP(J > c)/dφ = p_J(c) E[J' | J = c] (Hong 2009, Estimating quantile sensitivities), by a window
    of half a standard deviation of J to either side.

    Examples
    --------
    >>> import nestquad as nq
    >>> def put(vol, strike):
    ...     return nq.NestedExpectation(
    ...         outer=nq.Normal(0.0, vol),
    ...         inner=lambda theta: nq.Normal(theta, vol),
    ...         g=lambda x, theta: strike - x[..., 0],
    ...         f=lambda j: j**2,
    ...     )
    >>> s = nq.sensitivity(put, {"vol": 0.2, "strike": 1.0}, budget=4000, rng=0)
    >>> round(s.value.value, 3), round(s["vol"].value, 3), round(s["strike"].value, 3)
    (1.04, 0.4, 2.0)
    """
    started = clock.now()
    budget = check_limits(budget, tol, rtol, max_seconds)
    if all(limit is None for limit in (budget, tol, rtol, max_seconds)):
        raise InputError(
            "budget",
            "neither a budget nor a tolerance nor a time",
            "one of them",
            "For instance budget=10_000, rtol=0.02, or max_seconds=30.",
        )
    joint = with_tangents(
        make_problem, parameters, budget=budget, derivative=derivative, gradient=gradient
    )
    joint = joint.with_window(budget, method)
    left = None
    if budget is not None:
        left = (budget - joint.n_spent) // joint.tangents.cost
        if left < DEFAULT.fewest_points:
            least = joint.n_spent + DEFAULT.fewest_points * joint.tangents.cost
            raise InputError(
                "budget",
                f"{budget} evaluations",
                f"at least {least}: {joint.tangents.cost} at each point, and a pilot",
                "Automatic differentiation takes one at each point.",
            )
    elapsed = clock.now() - started
    found = estimate(
        joint.problem(),
        budget=left,
        tol=tol,
        rtol=rtol,
        method=method,
        rng=rng,
        executor=executor,
        store=store,
        progress=progress,
        max_seconds=None if max_seconds is None else max(max_seconds - elapsed, 1e-3),
    )
    return joint.sensitivities(found, clock.now() - started)


@dataclass(frozen=True, eq=False)
class TangentProblem:
    """A problem whose answers are value and scaled derivatives.

    Attributes
    ----------
    tangents
        Derivatives of g.
    n_outputs, scalar
        Outputs of g, and whether it has no axis of them.
    n_spent, n_pilot
        Evaluations of g so far, and points of the pilot.
    f
        f and its derivatives.
    disagreement
        Relative difference of slopes at two steps.
    """

    tangents: Tangents
    f: SlopeF
    n_spent: int
    n_pilot: int
    disagreement: float
    pilot: tuple[Array, Array] = field(repr=False)

    @property
    def base(self) -> NestedExpectation:
        """The problem at the given parameters."""
        return self.tangents.problem

    def with_window(self, budget: int | None, method: str | Method[Any]) -> TangentProblem:
        """For an f with jumps, a window that fits the spread of J, learned from evaluations."""
        base, values = self.base, self.pilot[0][:, 0]
        argument = values[:, 0] if self.f.scalar else values
        if base.f is None or not is_discontinuous(base, argument):
            return self
        share, fewest = DEFAULT.learning
        n = max(fewest, int(share * (budget or 0)))
        plain_problem = replace(base, f=None, combine=None, exact=None)
        j = estimate(plain_problem, budget=n, method=method, rng=0)
        assert j.sample is not None
        f = self.f.with_window(j.sample)
        return replace(self, f=f, n_spent=self.n_spent + j.n_evaluations)

    def problem(self) -> NestedExpectation:
        """Problem on driving variables with the outputs (g, dg/dφ)."""
        base = self.base
        outer, inner = Driving(base.outer_law), Driving(_inner(base))
        combine = None if base.combine is None else SlopeCombine(self.f)
        return NestedExpectation(
            outer=outer,
            inner=inner if base.inner_is_shared else _Always(inner),
            g=TangentG(self.tangents),
            f=self.f,
            combine=combine,
            name=base.label,
            noisy=base.noisy,
        )

    def sensitivities(self, found: Estimate, seconds: float) -> Sensitivities:
        """Value and derivatives from the answers of the joint problem."""
        tangents, f = self.tangents, self.f
        k, n_spent = len(tangents.phi), self.n_spent + tangents.cost * found.n_evaluations
        values = np.atleast_1d(np.asarray(found.value, dtype=float))
        sides = 2 if f.window is not None else 1
        n = values.size // (1 + sides * k)
        unit = np.concatenate([np.ones(n), np.tile(1.0 / np.array(tangents.scale), n)])
        m = n * (1 + k)
        errors = np.ravel(found.std_error)[:m]
        covariance = np.atleast_2d(
            np.diag(errors**2) if found.covariance is None else found.covariance
        )[:m, :m]
        draws = None if found.draws is None else found.draws.reshape(len(found.draws), -1)[:, :m]
        bias = np.zeros(m)
        if tangents.by_differences():  # rounding and curvature
            bias[n:] = self.disagreement * np.abs(values[n:m]).max()
        if f.window is not None:
            # A series of even powers of the window: the next term is about the square of the last.
            change = np.abs(values[n:m] - values[m:])
            known = np.maximum(np.abs(values[n:m]), 1e-300)
            bias[n:] = np.hypot(bias[n:], change * np.minimum(1.0, change / known))
        covariance = covariance + np.diag(bias**2)
        errors = np.hypot(errors, bias)
        if draws is not None:
            draws = draws + bias * np.random.default_rng(0).standard_normal(draws.shape)
        covariance = covariance * unit * unit[:, None]
        notes = tuple(self._notes())
        common: dict[str, Any] = {
            "n_evaluations": n_spent,
            "n_outer": found.n_outer,
            "n_inner": found.n_inner,
            "method": found.method,
            "status": found.status,
            "seconds": seconds,
            "problem": found.problem,
            "warnings": found.warnings,
            "dof": found.dof,
            "diagnostics": {"notes": [*notes, *found.diagnostics.get("notes", ())]},
        }
        values, errors = values[:m] * unit, errors * unit
        draws = None if draws is None else draws * unit

        def part(which: Indices, shape: tuple[int, ...], **more: Any) -> Estimate:
            picked = which.ravel()
            single = not shape
            return Estimate(
                value=float(values[picked[0]]) if single else values[picked].reshape(shape),
                std_error=float(errors[picked[0]]) if single else errors[picked].reshape(shape),
                covariance=None if single else covariance[np.ix_(picked, picked)],
                draws=None if draws is None else draws[:, picked].reshape(-1, *shape),
                **common,
                **more,
            )

        exact = self.base.exact
        answers: tuple[int, ...] = () if self._is_single(n) else (n,)
        value = part(
            np.arange(n),
            answers,
            sample=self._sample(found.sample),
            exact=exact if exact is None or is_number(exact) else np.asarray(exact, dtype=float),
        )
        slopes, start = {}, 0
        table = n + np.arange(n * k).reshape(n, k)
        family = tangents.family
        for name, shape, size in zip(family.names, family.shapes, family.sizes, strict=True):
            slopes[name] = part(table[:, start : start + size], (*answers, *shape))
            start += size
        named = family.named(np.array(tangents.phi))
        parameters = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
        return Sensitivities(found.problem, value, slopes, parameters, covariance, draws, notes)

    def _is_single(self, n: int) -> bool:
        """Whether the problem alone would have a number as its answer."""
        if n > 1 or self.base.combine is None:
            return n == 1
        return np.ndim(self.base.finish(np.zeros(self.f.n_answers))) == 0

    def _sample(self, sample: OuterSample | None) -> OuterSample | None:
        if sample is None:
            return None
        base = self.base
        j = sample.j.reshape(len(sample.j), -1)[:, : self.f.n_outputs]
        q = self.f.n_answers
        law = base.outer_law
        theta = law.from_normal(sample.theta) if law.base == "normal" else None
        return OuterSample(
            law.from_uniform(sample.theta) if theta is None else theta,
            j[:, 0] if self.f.scalar else j,
            sample.f[:, :q],
            sample.weights[:, :q],
        )

    def _notes(self) -> Iterator[str]:
        tangents = self.tangents
        n = len(tangents.by_differences())
        if n:
            yield (
                f"central differences of g in {n} components with a relative step of "
                f"{tangents.step:.1g}: {tangents.cost} evaluations at each point; slopes at two "
                f"steps differ by {self.disagreement:.1g} of their size"
            )
        if tangents.derivative != "difference":
            yield f"one reverse pass of {tangents.derivative} through g for all parameters"
        if tangents.gradient is not None:
            yield "derivatives of g by the given gradient"
        yield (
            f"a pilot of {self.n_pilot} points found no jump of g within "
            f"{DEFAULT.wide:.0%} of the parameters ({self.n_spent:,} evaluations with all checks)"
        )
        if self.f.window is not None:
            yield (
                "f jumps: derivatives have the density of J at the jump, by a window of "
                f"{DEFAULT.bandwidth:g} standard deviations of J"
            )


def _inner(problem: NestedExpectation) -> Any:
    middle = np.full((1, problem.outer_law.base_dim), 0.5)
    return problem.inner_law(problem.outer_law.from_uniform(middle))


@dataclass(frozen=True)
class _Always:
    """A law whatever θ, as a function of it."""

    law: Any

    def __call__(self, theta: Array) -> Any:
        return self.law


@dataclass(frozen=True)
class SlopeF:
    """f and its derivatives: answers (q,), then s_k d f/dφ_k (q K).

    With a window they come twice: by a cubic through the nodes, and by a line.

    Attributes
    ----------
    tangents
        Problems beside the given parameters.
    n_outputs, n_answers, scalar
        Outputs p of g, answers q of f, and whether f takes J of shape (T,).
    floor
        Smallest size of each output that counts for a step; 0 where f needs J > 0.
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
    explicit: tuple[int, ...] = ()
    window: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def with_window(self, sample: OuterSample) -> SlopeF:
        """The window for J of a sample: a share of its spread, and steps of φ of like effect."""
        j = sample.j.reshape(len(sample.j), -1)
        weights = sample.weights.mean(axis=1)
        weights = weights / weights.sum()
        widths = []
        for column in j.T:
            order = np.argsort(column)
            ranks = np.cumsum(weights[order])
            low, high = np.interp([0.25, 0.75], ranks, column[order])
            sd = float(np.sqrt(weights @ (column - weights @ column) ** 2))
            robust = (high - low) / 1.349  # of a normal law
            widths.append(DEFAULT.bandwidth * (min(sd, robust) if robust > 0 else sd))
        if not all(width > 0 for width in widths):
            raise NumericalError(
                "J does not vary over theta, so that it has no density at a jump of f."
            )
        problem = self.tangents.problem
        moved = [
            np.abs(self._f(problem, j + side) - self._f(problem, j - side))
            for side in np.diag(widths)
        ]
        wanted = max(float((weights @ one).max()) for one in moved)
        steps = []
        for k in self.explicit:
            effects = {}
            for step in (0.5 * 2.0 ** -np.arange(20.0)).tolist():
                try:
                    up, down = (self._f(side, j) for side in self.tangents.sides(k, step))
                except NestquadError:  # such as a probability beyond 1
                    continue
                effects[step] = float((weights @ np.abs(up - down)).max())
            steps.append(min(effects, key=lambda step: abs(effects[step] - wanted)))
        return replace(self, window=(tuple(widths), tuple(steps)))

    def _f(self, problem: NestedExpectation, j: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(problem.apply_f(j[:, 0] if self.scalar else j), dtype=float)

    def __call__(self, joint: Array) -> Array:
        p, active, k = self.n_outputs, self.tangents.active, len(self.tangents.phi)
        j, rows = joint[:, :p], len(joint)
        slopes = joint[:, p:].reshape(rows, p, len(active))
        problem = self.tangents.problem
        value = self._f(problem, j)
        rules = slope_rules(1 if self.window is None else DEFAULT.nodes)
        nodes, rules = rules[0], rules[1:]
        found = [np.zeros((rows, value.shape[1], k)) for _ in rules]
        if problem.f is None:
            for out in found:
                out[:, :, active] = slopes
        else:
            for c in range(p):
                if self.window is None:
                    size = DEFAULT.f_step * np.maximum(np.abs(j[:, c]), self.floor[c])
                else:
                    size = np.full(rows, self.window[0][c])
                size = np.where(size > 0, size, 1e-300)
                away = np.zeros_like(j)
                away[:, c] = size
                changes = [
                    self._f(problem, j + s * away) - self._f(problem, j - s * away) for s in nodes
                ]
                for out, rule in zip(found, rules, strict=True):
                    partial = sum(r * one for r, one in zip(rule, changes, strict=True))
                    out[:, :, active] += (partial / size[:, None])[:, :, None] * slopes[:, None, c]
        for i, component in enumerate(self.explicit):
            step = self.tangents.step if self.window is None else self.window[1][i]
            changes = [
                self._f(up, j) - self._f(down, j)
                for up, down in (self.tangents.sides(component, float(s * step)) for s in nodes)
            ]
            for out, rule in zip(found, rules, strict=True):
                out[:, :, component] += sum(
                    r * one / step for r, one in zip(rule, changes, strict=True)
                )
        return np.concatenate([value, *(out.reshape(rows, -1) for out in found)], axis=1)


def slope_rules(n: int) -> tuple[Array, ...]:
    """Nodes (n,) of a unit window, and weights of F(s) − F(−s) for the slope of F at 0.

    By a cubic and by a line, least squares; for one node by the line alone.
    """
    nodes = np.arange(1.0, n + 1.0) / n
    powers = 2.0 * np.stack([nodes, nodes**3], axis=1)
    line = np.linalg.pinv(powers[:, :1])[0]
    return (nodes, line) if n == 1 else (nodes, np.linalg.pinv(powers)[0], line)


@dataclass(frozen=True)
class SlopeCombine:
    """combine and its derivatives: final answers (n,), then s_k d/dφ_k (n K), by the chain rule."""

    f: SlopeF

    def __call__(self, answers: Array) -> Array:
        tangents, q = self.f.tangents, self.f.n_answers
        k, step = len(tangents.phi), tangents.step
        value = np.atleast_1d(tangents.problem.finish(answers[:q]))
        out = [value]
        for slopes in answers[q:].reshape(-1, q, k):
            columns = []
            for i in range(k):
                up, down = tangents.sides(i)
                high = up.finish(answers[:q] + step * slopes[:, i])
                low = down.finish(answers[:q] - step * slopes[:, i])
                columns.append(np.atleast_1d(high - low) / (2.0 * step))
            out.append(np.stack(columns, axis=1).ravel())
        return np.concatenate(out)


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
    scale = np.concatenate([_scales(value) for value in values.values()])
    tangents = Tangents(
        family,
        tuple(phi.tolist()),
        tuple(scale.tolist()),
        DEFAULT.steps[3],
        derivative,
        gradient,
    )
    _check_problem(tangents.problem, gradient is not None)
    return _Pilot.of(tangents, budget).joint()


def _relative_gap(a: Array, b: Array) -> float:
    """Mean difference of slopes (n, p) relative to their mean size, the largest over outputs."""
    size = 0.5 * (np.abs(a) + np.abs(b)).mean(axis=0)
    return float((np.abs(a - b).mean(axis=0) / np.where(size > 0, size, 1.0)).max())


def _scales(value: Array) -> Array:
    """Scales of a parameter's components: their size; where it is 0, the largest, or 1."""
    size = np.abs(value.ravel())
    return np.where(size > 0, size, size.max() if size.max() > 0 else 1.0)


def _check_problem(problem: NestedExpectation, given: bool) -> None:
    if problem.g is None:
        raise InputError("make_problem", "a problem without g", "one whose g can be called")
    if problem.noisy and not given:
        raise UnsupportedError(
            "A noisy g has no differences: two calls at the same point differ. Give gradient=, or "
            "fix the noise, as a coordinate of x."
        )
    laws = (
        {"outer": problem.outer_law, "inner": _inner(problem)}
        if (problem.outer_law.has_transport)
        else {"outer": problem.outer_law}
    )
    for name, law in laws.items():
        if not law.has_transport:
            raise UnsupportedError(
                f"The {name} law, {law!r}, can only be sampled: its draws do not move with the "
                "parameters. Write it as a nestquad.Transport of its noise."
            )


@dataclass(frozen=True, eq=False)
class _Pilot:
    """Points at which steps are chosen and derivatives of g are checked.

    Attributes
    ----------
    tangents
        Derivatives with a provisional step.
    w, v
        Driving variables (n, 1, ·) of x and θ.
    """

    tangents: Tangents
    w: Array
    v: Array

    @classmethod
    def of(cls, tangents: Tangents, budget: int | None) -> _Pilot:
        k = len(tangents.phi)
        each = 7 + (2 * k if tangents.derivative == "difference" else 0)
        n = DEFAULT.most if budget is None else int(DEFAULT.share * budget / each)
        n = int(np.clip(n, DEFAULT.fewest, DEFAULT.most))
        problem, rng = tangents.problem, np.random.default_rng(0)
        laws = Driving(_inner(problem)), Driving(problem.outer_law)
        w, v = (
            law.from_uniform(rng.uniform(1e-9, 1.0 - 1e-9, (n, 1, law.base_dim))) for law in laws
        )
        return cls(tangents, w, v)

    def joint(self) -> TangentProblem:
        k, rng, spent = len(self.tangents.phi), np.random.default_rng(1), 0
        n = len(self.w)
        signs = rng.choice([-1.0, 1.0], size=(2, k))
        step, gap, used = self._step(signs[0])
        spent += used
        laws = frozenset(i for i in range(k) if self._moves_points(i, step))
        tangents = replace(self.tangents, step=step, in_laws=laws, active=tuple(range(k)))
        values, slopes = tangents(self.w, self.v)
        spent += n * tangents.cost
        pilot = replace(self, tangents=tangents)
        for direction in signs:
            spent += pilot._check(values, slopes, direction)
        scalar = values.shape[-1] == 1 and self._is_scalar()
        f = self._f(tangents, values, scalar)
        active = []
        unused = dict.fromkeys(tangents.family.names, True)
        for i, name in enumerate(tangents.family.owners()):
            acts = bool(slopes[..., i].any())
            if not acts:
                spent += 2 * n
                acts = pilot._matters(values, i)
            if acts:
                active.append(i)
            if acts or i in f.explicit or self._in_combine(tangents, f, values, i):
                unused[name] = False
        for name in (name for name, is_unused in unused.items() if is_unused):
            raise InputError(
                "parameters",
                f"{name!r}, on which neither laws nor g, f or combine depend at {n} points",
                "parameters that change the problem",
                "Leave it out, or raise the budget if its effect is rare.",
            )
        tangents = replace(tangents, active=tuple(active))
        return TangentProblem(
            tangents, replace(f, tangents=tangents), spent, n, gap, (values, slopes)
        )

    def _is_scalar(self) -> bool:
        problem, w, v = self.tangents.problem, self.w[:1], self.v[:1]
        return self.tangents.is_scalar(problem, w, v)

    def _f(self, tangents: Tangents, values: Array, scalar: bool) -> SlopeF:
        problem, j = tangents.problem, values[:, 0]
        positive = problem.f is not None and not takes(problem, -np.abs(j[:, 0] if scalar else j))
        spread = DEFAULT.f_floor * np.maximum(j.std(axis=0), 1e-8 * np.abs(j).max(axis=0))
        floor = (0.0,) * j.shape[1] if positive else tuple(spread.tolist())
        f = SlopeF(tangents, j.shape[1], 1, scalar, floor)
        try:
            value = f._f(problem, j)
        except Exception as error:
            raise EvaluationError(
                f"f raised {type(error).__name__}: {error} for j of shape {j.shape}",
                advice="f takes j of shape (T,), or (T, p) when g has p outputs.",
            ) from error
        # On segments between values of g, within which J is.
        rng = np.random.default_rng(2)
        ends = j[rng.integers(len(j), size=(2, DEFAULT.n_segments))]
        j = ends[0] + rng.random((DEFAULT.n_segments, 1)) * (ends[1] - ends[0])
        value = f._f(problem, j)
        explicit = []
        for k in range(len(tangents.phi)):
            if problem.f is None:
                break
            sides = (*tangents.sides(k), *tangents.sides(k, DEFAULT.wide))
            if any(not np.array_equal(f._f(side, j), value, equal_nan=True) for side in sides):
                explicit.append(k)
        return replace(f, n_answers=value.shape[1], explicit=tuple(explicit))

    def _in_combine(self, tangents: Tangents, f: SlopeF, values: Array, k: int) -> bool:
        problem = tangents.problem
        if problem.combine is None:
            return False
        answers = f._f(problem, values[:, 0]).mean(axis=0)
        return any(
            not np.array_equal(side.finish(answers), problem.finish(answers))
            for side in tangents.sides(k)
        )

    def _moves_points(self, k: int, step: float) -> bool:
        problem = self.tangents.problem
        here = self.tangents.points(problem, self.w, self.v)
        for side in self.tangents.sides(k, step):
            there = self.tangents.points(side, self.w, self.v)
            if not all(map(np.array_equal, here, there)):
                return True
        return False

    def _step(self, signs: Array) -> tuple[float, float, int]:
        """Step at which differences agree with those of its neighbor, and their difference."""
        w, v = self.w[: DEFAULT.n_ladder], self.v[: DEFAULT.n_ladder]
        slopes: dict[float, Array] = {}
        failure: NestquadError | None = None
        for step in DEFAULT.steps:
            try:
                up, down = (
                    self.tangents.values(self.tangents.moved(side * step * signs), w, v)
                    for side in (1.0, -1.0)
                )
            except NestquadError as error:
                failure = error
                continue
            slopes[step] = (up - down)[:, 0] / (2.0 * step)
        if len(slopes) < 2:
            assert failure is not None
            raise failure
        steps = list(slopes)
        gaps = [_relative_gap(slopes[a], slopes[b]) for a, b in pairwise(steps)]
        # The smallest step that is accurate enough: the fewest points straddle a kink of g.
        enough = max(min(gaps), DEFAULT.agreement)
        best = max(i for i, gap in enumerate(gaps) if gap <= enough)
        used = 2 * len(w) * len(steps)
        if self.tangents.derivative == "difference" and gaps[best] > DEFAULT.disagreement:
            raise NumericalError(
                f"Differences of g at steps of {steps[best]:g} and {steps[best + 1]:g} of the "
                f"parameters differ by {gaps[best]:.0%} of their size, and at other steps by more: "
                "g is random, or too rough in the parameters. Fix its noise, or give gradient=."
            )
        return float(np.sqrt(steps[best] * steps[best + 1])), gaps[best], used

    def _check(self, values: Array, slopes: Array, signs: Array) -> int:
        """Compare slopes with differences of g along a direction, small and wide; used evaluations.

        A wide step that disagrees with the slope at a point may have met a jump of g, a kink or
        curvature. Bisection tells: the change of g across a jump does not shrink.
        """
        n, used = len(self.w), 0
        along = slopes @ signs  # (n, 1, p)
        if self.tangents.derivative != "difference" or self.tangents.gradient is not None:
            used += self._check_slopes(along, signs)
        mean = np.abs(along).mean(axis=0)
        for side in (1.0, -1.0):
            step, there = DEFAULT.wide, None
            while there is None and step > DEFAULT.wide / 40.0:
                try:
                    there = self.tangents.values(
                        self.tangents.moved(side * step * signs), self.w, self.v
                    )
                except NestquadError:  # such as a correlation beyond 1
                    step /= 2.0
            if there is None:
                continue
            used += n
            rest = np.abs(there - values - side * step * along)
            limit = 2.0 * step * (np.abs(along) + mean) + 1e-9 * np.abs(values).max()
            ratio = (rest / np.maximum(limit, 1e-300))[:, 0].max(axis=-1)
            for at in np.argsort(-ratio)[: DEFAULT.candidates]:
                if ratio[at] <= 1.0:
                    break
                used += DEFAULT.halvings
                c = int(np.argmax(rest[at, 0] / np.maximum(limit[at, 0], 1e-300)))
                self._bisect(int(at), c, side * step * signs)
        return used

    def _check_slopes(self, along: Array, signs: Array) -> int:
        """Refuse derivatives of others that disagree with differences of g."""
        step = self.tangents.step
        up, down = (
            self.tangents.values(self.tangents.moved(side * step * signs), self.w, self.v)
            for side in (1.0, -1.0)
        )
        differences = (up - down) / (2.0 * step)
        size = np.maximum(np.abs(differences), np.abs(differences).mean(axis=0))
        wrong = np.abs(along - differences) > 0.01 * size + 1e-6 * np.abs(up).max() / 1.0
        # A few points may lie at a kink.
        if wrong.mean() > 0.05:
            at = int(np.argmax(wrong[:, 0].any(axis=-1)))
            by = "gradient" if self.tangents.gradient is not None else "derivative"
            raise InputError(
                by,
                f"a slope of {along[at, 0, 0]:.6g} along all parameters, where differences of g "
                f"have {differences[at, 0, 0]:.6g}",
                "derivatives that agree with g",
                "math.sqrt, float() and the like cut a parameter off from automatic "
                "differentiation."
                if by == "derivative"
                else "Check its formula, and the order of its axes.",
            )
        return 2 * len(self.w)

    def _bisect(self, at: int, c: int, reach: Array) -> None:
        """Raise if g, at one point, jumps between φ and φ + s · reach."""
        w, v = self.w[at : at + 1], self.v[at : at + 1]

        def g(share: float) -> float:
            return float(self.tangents.values(self.tangents.moved(share * reach), w, v)[0, 0, c])

        low, high = 0.0, 1.0
        g_low, g_high = g(low), g(high)
        first = abs(g_high - g_low)
        for _ in range(DEFAULT.halvings):
            middle = 0.5 * (low + high)
            g_middle = g(middle)
            if abs(g_middle - g_low) > abs(g_high - g_middle):
                high, g_high = middle, g_middle
            else:
                low, g_low = middle, g_middle
        jump = abs(g_high - g_low)
        if not first or jump < 0.5 * first:
            return
        x, theta = self.tangents.points(self.tangents.moved(low * reach), w, v)
        names = self._crossing(at, c, low * reach, reach, g_low, jump)
        verb = "move" if "," in names else "moves"
        raise DiscontinuityError(
            f"g jumps by {jump:.4g} where {names} {verb} by {low * np.abs(reach).max():.2%}, at "
            f"theta = {theta[0].tolist()}, x = {x[0, 0].tolist()}: the derivative of J is not the "
            "mean of that of g. Replace the jump by its mean over a part of x (for a digital "
            "option, its probability given the step before), or by a steep ramp; or difference "
            "two estimates with the same seed."
        )

    def _crossing(
        self, at: int, c: int, base: Array, reach: Array, before: float, jump: float
    ) -> str:
        """Names of parameters that cross the jump alone."""
        w, v = self.w[at : at + 1], self.v[at : at + 1]
        found = []
        for k, label in enumerate(self.tangents.family.labels()):
            moved = np.array(base)
            moved[k] += 2.0**-6 * reach[k]
            there = self.tangents.values(self.tangents.moved(moved), w, v)[0, 0, c]
            if abs(float(there) - before) > 0.5 * jump:
                found.append(label)
        return ", ".join(found or self.tangents.family.names)

    def _matters(self, values: Array, k: int) -> bool:
        """Whether g changes at a point if a component moves by a wide step."""
        for side in self.tangents.sides(k, DEFAULT.wide):
            try:
                there = self.tangents.values(side, self.w, self.v)
            except NestquadError:
                continue
            if not np.array_equal(there, values):
                return True
        return False
