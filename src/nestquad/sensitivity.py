"""Sensitivities: a nested expectation and its gradient in parameters of the problem.

A derivative of a nested expectation is a nested expectation. With J' = E[dg/dφ | θ] at fixed
driving variables of θ and x, dI/dφ = E[f'(J) J' + ∂f/∂φ]. So one problem with the outputs
(g, dg/dφ_1, …) has value and gradient as its answers, with their covariance, by any method.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._checks import choice, numbers, shown
from nestquad._notebook import grid
from nestquad._progress import ProgressLike
from nestquad._typing import Array, Indices, RNGLike
from nestquad.accuracy import is_discontinuous, takes
from nestquad.errors import (
    EvaluationError,
    InputError,
    NestquadError,
    NumericalError,
    UnsupportedError,
    optional_module,
)
from nestquad.estimate import check_limits, estimate
from nestquad.evaluate import Derivative, Driving, Parametrized, Pilot, TangentG, Tangents
from nestquad.methods import Method
from nestquad.pages import figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, axes_or_new, series_styles, short, title
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample, plain

__all__ = ["Sensitivities", "SensitivitySettings", "sensitivity", "slope_rules", "with_tangents"]


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
    bandwidth, nodes
        For an f with jumps: half-width of the window in standard deviations of J, and its nodes to
        either side. The slope of a cubic through the nodes (Savitzky and Golay 1964, Smoothing and
        differentiation of data) has a bias of .002 bandwidth⁴ p⁗/p relative to the density p of J:
        .04 % at the center of a normal law, .4 % at three standard deviations.
    learning
        Share of a budget that learns the spread of J for this window, and its fewest evaluations.
    rank_error
        Relative error of the slopes of each parameter at the points of the pilot up to which
        combinations of few of them stand for all.
    """

    fewest_points: int = 32
    n_segments: int = 4096
    f_step: float = 6e-6
    f_floor: float = 1e-3
    bandwidth: float = 0.5
    nodes: int = 4
    learning: tuple[float, int] = (0.1, 512)
    rank_error: float = 1e-6


DEFAULT = SensitivitySettings()
_HEAD = ("parameter", "at", "derivative", "95 % interval", "scaled")


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
        How the derivatives were computed and checked.
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
            columns = (slope.value, slope.std_error, *slope.interval())
            cells = np.stack([np.asarray(one, dtype=float).reshape(n, -1) for one in columns])
            for a in range(n):
                for k, at in enumerate(np.ndindex(*phi.shape)):
                    value, error, low, high = cells[:, a, k].tolist()
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
        cells = [_HEAD, *self._cells()]
        first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
        rows = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], widths)]) for row in cells]
        head = (
            f"{self.problem}: {self.value.summary} (95 %), {self.n_evaluations:,} evaluations, "
            f"{self.value.method}, {self.status}, {self.seconds:.2g} s"
        )
        return "\n".join([head, *rows, "", *self.notes])

    def _repr_html_(self) -> str:
        return grid(f"{self.problem}: {self.value.summary} (95 %)", _HEAD, self._cells())

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
            f'<p class="answer">{escape(self.value.summary)}</p>',
            table(rows.items()),
            figure(
                self.plot, "Change of the answer for a change of each parameter, with 95 % bars"
            ),
            page_grid(_HEAD, self._cells(), "Derivatives with 95 % intervals"),
            "<h2>Computation and checks</h2>",
            paragraphs(self.notes),
            footer(command),
        ]
        return write_page(path, head, sections)


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
    joint = joint.with_window(budget, method).compressed()
    left = None
    if budget is not None:
        cost = joint.tangents.cost
        left = (budget - joint.n_spent) // cost
        if left < DEFAULT.fewest_points:
            raise InputError(
                "budget",
                f"{budget} evaluations",
                f"at least {joint.n_spent + DEFAULT.fewest_points * cost}: {cost} at each point, "
                "and a pilot",
                "Automatic differentiation takes one at each point.",
            )
    elapsed = clock.now() - started
    answers = estimate(
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
    return joint.sensitivities(answers, clock.now() - started)


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
        if base.f is None or not is_discontinuous(base, self.f.argument(self.pilot.values)):
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
        slopes = self.pilot.slopes[..., self.tangents.active].reshape(-1, self.f.basis.shape[1])
        size = np.linalg.norm(slopes, axis=0)
        unit = np.where(size > 0, size, 1.0)
        _, singular, rows = np.linalg.svd(slopes / unit, full_matrices=False)
        # Error of each parameter's unit slopes by the first r combinations, r = 0, 1, …
        left = np.sqrt(np.cumsum((singular[:, None] * rows)[::-1] ** 2, axis=0)[::-1]).max(axis=1)
        rank = int(np.sum(left > DEFAULT.rank_error))
        # Four points for each combination, so that they are no accident of the pilot.
        if 2 * rank > slopes.shape[1] or 4 * rank > len(slopes) or not size.all():
            return self
        return replace(self, f=replace(self.f, basis=rows[:rank] * unit))

    def problem(self) -> NestedExpectation:
        """Problem on driving variables with the outputs (g, dg/dφ)."""
        base, inner = self.base, Driving(self.tangents.inner_law)
        return NestedExpectation(
            outer=Driving(base.outer_law),
            inner=inner if base.inner_is_shared else _Always(inner),
            g=TangentG(self.tangents, self.f.outputs),
            f=self.f,
            combine=None if base.combine is None else SlopeCombine(self.f),
            name=base.label,
            noisy=base.noisy,
        )

    def sensitivities(self, joint: Estimate, seconds: float) -> Sensitivities:
        """Value and derivatives from the answers of the joint problem."""
        tangents, f = self.tangents, self.f
        k, values = len(tangents.phi), np.atleast_1d(np.asarray(joint.value, dtype=float))
        n = values.size // (1 + (1 if f.window is None else 2) * k)
        m = n * (1 + k)
        unit = np.concatenate([np.ones(n), np.tile(1.0 / np.array(tangents.scale), n)])
        bias = np.concatenate([np.zeros(n), self._bias(values[n:m], values[m:])])
        errors = np.ravel(joint.std_error)[:m]
        covariance = np.diag(errors**2)
        if joint.covariance is not None:
            covariance = joint.covariance[:m, :m]
        covariance = (covariance + np.diag(bias**2)) * unit * unit[:, None]
        errors, values, draws = unit * np.hypot(errors, bias), unit * values[:m], None
        if joint.draws is not None:
            drawn = joint.draws.reshape(len(joint.draws), -1)[:, :m]
            draws = unit * (drawn + bias * np.random.default_rng(0).standard_normal(drawn.shape))
        notes = tuple(self._notes())
        common = replace(
            joint,
            n_evaluations=self.n_spent + tangents.cost * joint.n_evaluations,
            seconds=seconds,
            diagnostics={"notes": [*notes, *joint.diagnostics.get("notes", ())]},
            exact=None,
            sample=None,
            trace=(),
            candidates={},
        )

        def part(which: Indices, shape: tuple[int, ...]) -> Estimate:
            picked = which.ravel()
            return replace(
                common,
                value=values[picked].reshape(shape) if shape else float(values[picked[0]]),
                std_error=errors[picked].reshape(shape) if shape else float(errors[picked[0]]),
                covariance=covariance[np.ix_(picked, picked)] if shape else None,
                draws=None if draws is None else draws[:, picked].reshape(-1, *shape),
            )

        base, family = self.base, tangents.family
        # Several answers, or a combine that returns an array of one.
        several = n > 1 or (
            base.combine is not None and np.ndim(base.finish(np.zeros(f.n_answers))) > 0
        )
        answers: tuple[int, ...] = (n,) if several else ()
        value = replace(
            part(np.arange(n), answers), exact=base.exact, sample=self._sample(joint.sample)
        )
        places = n + np.arange(n * k).reshape(n, k)
        columns = np.split(places, np.cumsum(family.sizes)[:-1], axis=1)
        slopes = {
            name: part(which, (*answers, *shape))
            for name, shape, which in zip(family.names, family.shapes, columns, strict=True)
        }
        named = family.named(np.array(tangents.phi))
        parameters = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
        return Sensitivities(joint.problem, value, slopes, parameters, covariance, draws, notes)

    def _bias(self, slopes: Array, by_line: Array) -> Array:
        """Errors of scaled derivatives by the step of differences and by the window of f."""
        bias = np.zeros(slopes.size)
        if self.tangents.by_differences():  # rounding and curvature
            bias += self.pilot.disagreement * np.abs(slopes).max()
        if self.f.window is None:
            return bias
        # A series of even powers of the window: the next term is about the square of the last.
        change = np.abs(slopes - by_line)
        return np.hypot(bias, change * np.minimum(1.0, change / np.maximum(np.abs(slopes), 1e-300)))

    def _sample(self, sample: OuterSample | None) -> OuterSample | None:
        if sample is None:
            return None
        q, law = self.f.n_answers, self.base.outer_law
        j = sample.j.reshape(len(sample.j), -1)[:, : self.f.n_outputs]
        theta = law.from_normal if law.base == "normal" else law.from_uniform
        return OuterSample(
            theta(sample.theta), self.f.argument(j), sample.f[:, :q], sample.weights[:, :q]
        )

    def _notes(self) -> Iterator[str]:
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
            f"a pilot of {len(pilot.values)} points met no jump of g within "
            f"{pilot.settings.wide:.0%} of the parameters ({self.n_spent:,} evaluations with all "
            "checks)"
        )
        if self.f.window is not None:
            yield (
                "f jumps: derivatives have the density of J at the jump, by a window of "
                f"{DEFAULT.bandwidth:g} standard deviations of J"
            )


@dataclass(frozen=True)
class _Always:
    """A law whatever θ, as a function of it."""

    law: Any

    def __call__(self, theta: Array) -> Any:
        return self.law


@dataclass(frozen=True, eq=False)
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
        """For values of g at a pilot, after a search for parameters that nothing depends on."""
        tangents, j = pilot.tangents, pilot.values
        problem, p = tangents.problem, j.shape[1]
        scalar = p == 1 and tangents.is_scalar(problem, pilot.w[:1], pilot.v[:1])
        spread = DEFAULT.f_floor * np.maximum(j.std(axis=0), 1e-8 * np.abs(j).max(axis=0))
        f = cls(tangents, p, 1, scalar, tuple(spread.tolist()), np.eye(len(tangents.active)))
        if problem.f is not None and not takes(problem, -np.abs(f.argument(j))):
            f = replace(f, floor=(0.0,) * p)
        # On segments between values of g, within which J is.
        rng = np.random.default_rng(2)
        ends = j[rng.integers(len(j), size=(2, DEFAULT.n_segments))]
        between = ends[0] + rng.random((DEFAULT.n_segments, 1)) * (ends[1] - ends[0])
        try:
            value = f.at(problem, between)
        except Exception as error:
            raise EvaluationError(
                f"f raised {type(error).__name__}: {error} for j of shape {between.shape}",
                advice="f takes j of shape (T,), or (T, p) when g has p outputs.",
            ) from error
        mean, explicit, unused = f.at(problem, j).mean(axis=0), [], set(tangents.family.names)
        for k, name in enumerate(tangents.family.owners()):
            sides = (*tangents.sides(k), *tangents.sides(k, pilot.settings.wide))
            if problem.f is not None and any(
                not np.array_equal(f.at(side, between), value, equal_nan=True) for side in sides
            ):
                explicit.append(k)
            in_combine = problem.combine is not None and any(
                not np.array_equal(side.finish(mean), problem.finish(mean)) for side in sides[:2]
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

    @property
    def outputs(self) -> Array | None:
        """Matrix (A, r) that makes combinations of the slopes; None where all are outputs."""
        r, a = self.basis.shape
        return None if r == a else np.linalg.pinv(self.basis)

    def argument(self, j: Array) -> Array:
        """J (T, p) as f takes it."""
        return j[:, 0] if self.scalar else j

    def at(self, problem: NestedExpectation, j: Array) -> Array:
        """Values (T, q) of the f of a problem at J (T, p)."""
        with np.errstate(all="ignore"):
            return np.asarray(problem.apply_f(self.argument(j)), dtype=float)

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
        if not all(width > 0 for width in widths):
            raise NumericalError(
                "J does not vary over theta, so that it has no density at a jump of f."
            )
        problem = self.tangents.problem

        def effect(up: Array, down: Array) -> float:
            return float((weights @ np.abs(up - down)).max())

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

    def __call__(self, joint: Array) -> Array:
        p, active, k = self.n_outputs, self.tangents.active, len(self.tangents.phi)
        j, rows, problem = joint[:, :p], len(joint), self.tangents.problem
        slopes = joint[:, p:].reshape(rows, p, len(self.basis)) @ self.basis
        value = self.at(problem, j)
        nodes, *rules = slope_rules(1 if self.window is None else DEFAULT.nodes)
        totals = [np.zeros((rows, value.shape[1], k)) for _ in rules]
        if problem.f is None:
            for total in totals:
                total[:, :, active] = slopes
            return np.concatenate([value, *(one.reshape(rows, -1) for one in totals)], axis=1)
        for c in range(p):
            if self.window is None:
                size = DEFAULT.f_step * np.maximum(np.abs(j[:, c]), self.floor[c])
            else:
                size = np.full(rows, self.window[0][c])
            size = np.where(size > 0, size, 1e-300)[:, None]
            away = size * (np.arange(p) == c)
            changes = [
                self.at(problem, j + s * away) - self.at(problem, j - s * away) for s in nodes
            ]
            for total, rule in zip(totals, rules, strict=True):
                partial = np.tensordot(rule, changes, 1) / size
                total[:, :, active] += partial[:, :, None] * slopes[:, None, c]
        for i, component in enumerate(self.explicit):
            step = self.tangents.step if self.window is None else self.window[1][i]
            sides = [self.tangents.sides(component, float(s * step)) for s in nodes]
            changes = [self.at(up, j) - self.at(down, j) for up, down in sides]
            for total, rule in zip(totals, rules, strict=True):
                total[:, :, component] += np.tensordot(rule, changes, 1) / step
        return np.concatenate([value, *(one.reshape(rows, -1) for one in totals)], axis=1)


def slope_rules(n: int) -> Sequence[Array]:
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
