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
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._frames import frame_of
from nestquad._notebook import grid, text_rows
from nestquad._progress import ProgressLike
from nestquad._tangent_problem import DEFAULT, TangentProblem, with_tangents
from nestquad._typing import Array, Indices, RNGLike
from nestquad.accuracy import range_of
from nestquad.errors import InputError
from nestquad.estimate import check_limits, estimate
from nestquad.evaluate import Derivative
from nestquad.methods import Method
from nestquad.pages import figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, axes_or_new, series_styles, short, title
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, plain

__all__ = ["Sensitivities", "sensitivity"]


# Distance of slopes in windows on either side, relative to the slope, beyond which a note says so.
_ROUGH = 0.2
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

    @classmethod
    def of(cls, tangent: TangentProblem, joint: Estimate, seconds: float) -> Sensitivities:
        """Value and derivatives from the answers of the joint problem."""
        tangents, f = tangent.tangents, tangent.f
        k, values = len(tangents.phi), np.atleast_1d(np.asarray(joint.value, dtype=float))
        n = values.size // (1 + f.n_rules * k)
        m = n * (1 + k)
        unit = np.concatenate([np.ones(n), np.tile(1.0 / np.array(tangents.scale), n)])
        bias = np.concatenate([np.zeros(n), tangent.bias(values[n:m], values[m:], joint.sample)])
        errors = np.ravel(joint.std_error)[:m]
        covariance = np.diag(errors**2)
        if joint.covariance is not None:
            covariance = joint.covariance[:m, :m]
        covariance = (covariance + np.diag(bias**2)) * unit * unit[:, None]
        errors, values, draws = unit * np.hypot(errors, bias), unit * values[:m], None
        if joint.draws is not None:
            drawn = joint.draws.reshape(len(joint.draws), -1)[:, :m]
            draws = unit * (drawn + bias * np.random.default_rng(0).standard_normal(drawn.shape))
        notes = tuple(tangent.notes())
        if f.window is not None and (bias[n:] > _ROUGH * np.abs(values[n:m])).any():
            notes += (
                "windows to the left and to the right of a jump of f disagree: the density of J "
                "may jump there, and intervals are as wide as these differ",
            )
        common = replace(
            joint,
            n_evaluations=tangent.n_spent + tangents.cost * joint.n_evaluations,
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

        base, family = tangent.base, tangents.family
        # Several answers, or a combine that returns an array of one.
        several = n > 1 or (
            base.combine is not None and np.ndim(base.finish(np.zeros(f.n_answers))) > 0
        )
        answers: tuple[int, ...] = (n,) if several else ()
        sample = tangent.sample(joint.sample)
        value = replace(part(np.arange(n), answers), sample=sample)
        if sample is not None:
            value = replace(value, bounds=range_of(base, sample.j))
        if base.exact is not None:
            exact = np.asarray(base.exact, dtype=float)
            value = replace(value, exact=exact if exact.ndim else float(exact))
        places = n + np.arange(n * k).reshape(n, k)
        columns = np.split(places, np.cumsum(family.sizes)[:-1], axis=1)
        slopes = {
            name: part(which, (*answers, *shape))
            for name, shape, which in zip(family.names, family.shapes, columns, strict=True)
        }
        named = family.named(np.array(tangents.phi))
        parameters = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
        return cls(joint.problem, value, slopes, parameters, covariance, draws, notes)

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

    def to_frame(self, library: str = "pandas") -> Any:
        """The rows as a data frame of pandas, polars or another; needs the extra ``frames``."""
        return frame_of(self.rows(), library)

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
        head = (
            f"{self.problem}: {self.value.summary} (95 %), {self.n_evaluations:,} evaluations, "
            f"{self.value.method}, {self.status}, {self.seconds:.2g} s"
        )
        return "\n".join([head, *text_rows(cells), "", *self.notes])

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
        ax.set_xlabel("change of the answer per 100 % of the parameter")
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
    return Sensitivities.of(joint, answers, clock.now() - started)
