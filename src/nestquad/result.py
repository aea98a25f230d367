"""Estimate: value, error bar and diagnostics; printable, plottable, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._notebook import pairs
from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.problem import NestedExpectation

__all__ = ["NORMAL_95", "Estimate", "OuterSample", "Step", "plain", "sizes", "summary"]

NORMAL_95 = 1.959963984540054  # half-width of a 95 % interval in standard errors

_STATUS_TEXT = {
    "done": "the sizes or the budget asked for were used",
    "converged": "the tolerance was met",
    "budget": "the budget ended before the tolerance was met",
    "limit": "the method cannot come closer to the tolerance",
    "unreliable": "the error bar is as wide as f(J) varies: the value says little",
    "time": "max_seconds ended before the rest",
    "interrupted": "interrupted by the user",
    "open": "the method would ask for more points: plan.next(values)",
    "failed": "an evaluation failed after this",
}


@dataclass(frozen=True)
class Step:
    """One turn of plan → evaluate → analyse."""

    n_evaluations: int
    value: float | Array
    std_error: float | Array

    @property
    def half_width(self) -> float | Array:
        """Half-width of the 95 % interval."""
        return NORMAL_95 * self.std_error


@dataclass(frozen=True)
class OuterSample:
    """Data of the outer stage: θ (T, d_θ), J(θ) (T[, p]) and f(J(θ)) (T, q)."""

    theta: Array
    j: Array
    f: Array
    weights: Array

    @property
    def spread(self) -> float:
        """The standard deviation of f(J) over θ, the largest of several."""
        weights, unit = self.weights / self.weights.sum(axis=0), scale_of(self.f)
        f = self.f / unit
        variance = (weights * (f - (weights * f).sum(axis=0)) ** 2).sum(axis=0)
        return float((unit * np.sqrt(np.nan_to_num(np.maximum(variance, 0.0)))).max())


@dataclass(frozen=True)
class Estimate:
    """An estimate of a nested expectation with its error bar.

    Attributes
    ----------
    value
        The answer: a float, or an array if there are several.
    std_error
        One standard error, of the same shape. It covers inner bias and outer error, and is
        calibrated so that ``value ± 1.96 std_error`` holds the truth in about 95 of 100 runs.
    n_evaluations, n_outer, n_inner
        Evaluations of g in all; outer and inner sizes of the last design. Fresh draws that check
        a model, and pilots of other methods, come on top of their product.
    method
        The name of the method.
    status
        ``"done"``, ``"converged"``, ``"budget"``, ``"limit"``, ``"time"``, ``"unreliable"`` or
        ``"interrupted"``.
    seconds
        Wall time of the whole call, g included.
    diagnostics
        Choices, regularization and measurements; ``diagnostics["notes"]`` in sentences.
    covariance
        Covariance of the errors of several answers; None for one.
    problem, exact
        The problem's name, and its true value where known.
    trace
        The value after each turn of plan → evaluate → analyse.
    candidates
        Estimates of the candidates of ``"auto"``, by name; empty for other methods.
    sample
        θ, J and f(J) of the last turn (thinned to at most 4,096 rows), for plots.
    warnings
        Reasons not to trust the answer, which `estimate` also raises as warnings.
    dof
        Degrees of freedom of the error: the shape of its law, Student's t, at levels other than
        95 %.
    draws
        Posterior draws of the answer, (K,) or (K, q), whose quantiles are intervals; None where a
        method has none.
    certified
        With ``certify=True``, a second answer from fresh independent draws, whose interval does not
        rely on the model; otherwise None.
    bounds
        Range of f where it has one, such as (0, 1) for a probability: intervals end there.
    """

    value: float | Array
    std_error: float | Array
    n_evaluations: int
    n_outer: int
    n_inner: int
    method: str
    status: str = "done"
    seconds: float = 0.0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    covariance: Array | None = None
    problem: str = ""
    exact: float | Array | None = None
    trace: tuple[Step, ...] = ()
    candidates: Mapping[str, Estimate] = field(default_factory=dict, repr=False)
    sample: OuterSample | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    dof: float = np.inf
    certified: Estimate | None = None
    draws: Array | None = field(default=None, repr=False)
    bounds: tuple[Any, Any] = field(default=(-np.inf, np.inf), repr=False)

    @classmethod
    def from_directions(
        cls,
        value: Any,
        directions: Array,
        *,
        problem: NestedExpectation | str = "",
        **fields: Any,
    ) -> Estimate:
        """The estimate whose error is a sum of independent directions (k, m), one a column.

        Squares of directions add up to variances, products to covariances. A direction that could
        not be computed (NaN) counts as an error of the size of the value. The problem, or its
        name, gives the label and the exact value; `fields` are other fields of the class.
        """
        value = np.asarray(value, dtype=float)
        errors = np.where(np.isnan(directions), np.abs(value).max(), directions)
        std_error = np.sqrt((errors**2).sum(axis=1)).reshape(value.shape)
        covariance = None
        if value.ndim:
            with np.errstate(invalid="ignore"):  # infinite errors have no correlation
                covariance = np.nan_to_num(errors @ errors.T, nan=0.0, posinf=np.inf)
        return cls._of(problem, value, std_error, covariance=covariance, **fields)

    @classmethod
    def from_draws(
        cls,
        value: Any,
        draws: Array | None,
        *,
        problem: NestedExpectation | str = "",
        **fields: Any,
    ) -> Estimate:
        """The estimate whose error has draws (K, k) of the answers; None for an infinite error.

        A standard error is half the length of the 95 % interval over 1.96.
        """
        value = np.asarray(value, dtype=float)
        std_error, covariance = np.full(value.shape, np.inf), None
        if draws is not None:
            low, high = np.quantile(draws, [0.025, 0.975], axis=0)
            std_error = ((high - low) / (2.0 * NORMAL_95)).reshape(value.shape)
            draws = draws.reshape(len(draws), *value.shape)
        if value.ndim:
            covariance = np.diag(std_error.ravel() ** 2)
            if draws is not None:
                away = (draws - draws.mean(axis=0)).reshape(len(draws), -1)
                spread = away.std(axis=0)
                unit = std_error.ravel() / np.where(spread > 0, spread, np.inf)
                covariance = (away * unit).T @ (away * unit) / len(draws)
        return cls._of(problem, value, std_error, covariance=covariance, draws=draws, **fields)

    @classmethod
    def _of(
        cls, problem: NestedExpectation | str, value: Array, std_error: Array, **fields: Any
    ) -> Estimate:
        """The estimate of a problem, or of a name, with its exact value where it is known."""
        if isinstance(problem, NestedExpectation):
            fields = {"exact": _given(problem.exact), **fields}
            problem = problem.label
        return cls(_given(value), _given(std_error), problem=problem, **fields)

    def widened(self, std_error: float, note: str) -> Estimate:
        """The estimate with a further independent error, and a note on its cause."""
        before = np.asarray(self.std_error)
        after = np.hypot(before, std_error)
        draws = self.draws
        if draws is not None:
            factor = after / np.where(before > 0, before, 1.0)
            draws = np.asarray(self.value) + factor * (draws - np.asarray(self.value))
        notes = [*self.diagnostics.get("notes", []), note]
        return replace(
            self,
            std_error=_given(after),
            draws=draws,
            diagnostics={**self.diagnostics, "notes": notes},
        )

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Lower and upper end of an interval that holds the truth with probability `level`.

        Quantiles of the draws where there are any. Otherwise it is value ± 1.96 standard errors at
        95 %, and other levels scale with Student's t with `dof` degrees of freedom.

        Examples
        --------
        >>> Estimate(1.0, 0.1, 100, 10, 10, "nmc").interval(0.95)
        (0.804..., 1.195...)
        """
        if not 0 < level < 1:
            raise InputError("level", repr(level), "a probability strictly between 0 and 1")
        if self.draws is not None:
            low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        else:
            scale = stdtrit(self.dof, 0.5 + level / 2) / stdtrit(self.dof, 0.975)
            half = float(scale) * np.asarray(self.half_width)
            low, high = np.asarray(self.value) - half, np.asarray(self.value) + half
        low, high = (np.clip(end, *self.bounds) for end in (low, high))
        return (float(low), float(high)) if low.ndim == 0 else (low, high)

    @property
    def half_width(self) -> float | Array:
        """Half-width of the 95 % interval, of the shape of the value."""
        return NORMAL_95 * self.std_error

    @property
    def informative(self) -> bool:
        """Whether the 95 % interval is narrower than f(J) varies, or than a tenth of the value.

        If not, the value says no more than f(J) at a single θ would.
        """
        half, value = np.max(self.half_width), np.max(np.abs(self.value))
        if not np.isfinite(half):
            return False
        if self.sample is None:
            return True
        rounding = 1e-14 * float(np.abs(self.sample.j).max())
        return bool(half <= max(self.sample.spread, 0.1 * value, rounding))

    @property
    def status_text(self) -> str:
        return _STATUS_TEXT.get(self.status, self.status)

    @property
    def summary(self) -> str:
        """Value ± half-width of the 95 % interval, with the digits that mean something."""
        return summary(self.value, self.std_error)

    def __str__(self) -> str:
        name = f"{self.problem}: " if self.problem else ""
        size = sizes(self.n_evaluations, self.n_outer, self.n_inner)
        return (
            f"{name}{self.summary} (95 %), {self.n_evaluations:,} evaluations"
            f"{size}, {self.method}, {self.status}, {self.seconds:.2g} s"
            + ("" if self.certified is None else f"; certified {self.certified.summary}")
        )

    def _repr_html_(self) -> str:
        size = sizes(self.n_evaluations, self.n_outer, self.n_inner)
        rows = {
            "value": _cell(self.value),
            "95 % interval": _ends(self),
            "certified 95 % interval": "" if self.certified is None else _ends(self.certified),
            "exact": "" if self.exact is None else _cell(self.exact),
            "evaluations of g": f"{self.n_evaluations:,}{size}",
            "method": self.method,
            "status": f"{self.status}: {self.status_text}",
            "seconds": f"{self.seconds:.3g}",
            "beware": " ".join(self.warnings),
        }
        return pairs(self.problem or "Nested expectation", rows)

    def plot(self, ax: Any = None) -> Any:
        """Draw f(J(θ)) and J(θ); needs the extra ``plot``. Returns the axes."""
        from nestquad.plots import plot_estimate

        return plot_estimate(self, ax)

    def to_xarray(self) -> Any:
        """Labeled ``xarray.Dataset``; needs the extra ``labels``.

        Variables: value, std_error and interval95 (with dimension ``answer`` if there are
        several), exact, covariance, draws (``draw``), and theta, j, f at the points of `sample`.
        """
        from nestquad._labels import labeled_estimate

        return labeled_estimate(self)

    def to_inference_data(self) -> Any:
        """ArviZ ``InferenceData`` of the posterior draws (group ``posterior``, one chain).

        Needs the extra ``labels``. Raises `UnsupportedError` for an estimate without draws.
        """
        from nestquad._labels import inference_data

        return inference_data(self)

    def to_dict(self) -> dict[str, Any]:
        """All but the sample and the draws, as plain Python objects."""

        def fields_of(answer: Estimate | Step, *names: str) -> dict[str, Any]:
            return {name: plain(getattr(answer, name)) for name in names}

        short = ("n_evaluations", "value", "std_error")
        return {
            **fields_of(self, "problem", "value", "std_error"),
            "interval95": plain(self.interval()),
            "dof": plain(self.dof),
            "certified": None if self.certified is None else self.certified.to_dict(),
            **fields_of(self, "exact", "n_evaluations", "n_outer", "n_inner", "method", "status"),
            **fields_of(self, "seconds", "covariance", "diagnostics"),
            "trace": [fields_of(step, *short) for step in self.trace],
            "candidates": {k: fields_of(other, *short) for k, other in self.candidates.items()},
        }

    def to_json(self, indent: int | None = None) -> str:
        """JSON text of `to_dict`; numbers that JSON lacks (NaN, inf) become null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def _given(value: Any) -> Any:
    """A number or an array as returned to users; None stays."""
    if value is None:
        return None
    array = np.asarray(value, dtype=float)
    return float(array) if array.ndim == 0 else array


def summary(value: float | Array, std_error: float | Array) -> str:
    """Value ± half-width of the 95 % interval, with the digits that mean something."""
    half = NORMAL_95 * np.ravel(np.asarray(std_error))
    values = np.ravel(np.asarray(value))
    return ", ".join(f"{_digits(v, h)} ± {h:.2g}" for v, h in zip(values, half, strict=True))


def sizes(n_evaluations: int, n_outer: int, n_inner: int) -> str:
    """T × N of a result, and the evaluations on top: fresh draws of a check, pilots of others.

    Empty where T and N are no factors of the evaluations, as with levels.

    Examples
    --------
    >>> sizes(128, 96, 1)
    ' (96 × 1 + 32)'
    """
    more = n_evaluations - n_outer * n_inner
    rest = f" + {more:,}" if more else ""
    return "" if more < 0 else f" ({n_outer:,} × {n_inner:,}{rest})"


def plain(value: Any) -> Any:
    """Arrays, numpy scalars, tuples and mappings as plain objects for JSON."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _digits(value: float, half_width: float) -> str:
    """The value to one digit beyond its error."""
    if not (np.isfinite(half_width) and half_width > 0) or value == 0:
        return f"{value:.10g}"
    digits = int(np.floor(np.log10(abs(value))) - np.floor(np.log10(half_width))) + 2
    return f"{value:.{min(max(digits, 2), 15)}g}"


def _cell(value: Any) -> str:
    return ", ".join(f"{v:.8g}" for v in np.ravel(np.asarray(value, dtype=float)))


def _ends(estimate: Estimate) -> str:
    return " … ".join(map(_cell, estimate.interval()))
