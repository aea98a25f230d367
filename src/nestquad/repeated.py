"""Repeated expectations: more than two levels, stated once for every method.

The law of all but the last level is one transport of the unit cube, the composition of the
conditional transports. So the innermost conditional mean is that of a `NestedExpectation`, and the
levels above average functions of it.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from nestquad._checks import numbers, shown
from nestquad._notebook import pairs
from nestquad._typing import Array
from nestquad.distributions import Law, as_law
from nestquad.errors import EvaluationError, InputError, OutsideDomainError
from nestquad.problem import NestedExpectation, described_law, described_signature

__all__ = ["RepeatedExpectation"]


@dataclass(frozen=True, eq=False)
class RepeatedExpectation:
    """The repeated expectation E[ f_0( E[ f_1( … E[ g | y_0 … y_{D−2} ] … ) | y_0 ] ) ].

    With three levels it is E[ f_0( E[ f_1( E[g(y_2, y_0, y_1) | y_0, y_1], y_0, y_1) | y_0], y_0)].

    Parameters
    ----------
    laws
        The law of y_0, then for each level a function of all earlier y, batched: y_i has shape
        (T, d_i), and the function returns one law, or T laws with parameters (T, d). A law that
        depends on no earlier y may be given itself. All are transports of uniforms.
    g
        Innermost integrand ``g(y_last, y_0, y_1, …)``; leading axes broadcast against each other
        as for `NestedExpectation`. Returns (…) or (…, p). None if values come from elsewhere.
    f
        One function for each level but the last, from the outermost: ``f_k(j)``, or
        ``f_k(j, y_0, …, y_k)`` with as many y as it takes. j is (T,) or (T, p), y_i (T, d_i); it
        returns (T,) or (T, q). None is the identity.
    exact
        The true value, where it is known.
    name
        For printing and plots.
    vectorized
        False for a g that takes one point at a time, with y_i of shape (d_i,).

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> problem = nq.RepeatedExpectation(
    ...     laws=[nq.Normal(), lambda y0: nq.Normal(y0, 1.0), lambda y0, y1: nq.Normal(y1, 1.0)],
    ...     g=lambda y2, y0, y1: y2[..., 0],
    ...     f=[lambda j: j**2, lambda j, y0, y1: j + y0[:, 0]],
    ...     exact=4.0,
    ... )
    >>> est = nq.estimate(problem, budget=1024, rng=0)
    >>> bool(abs(est.value - problem.exact) < 1e-3)
    True
    """

    laws: Sequence[Any]
    g: Callable[..., Any] | None = None
    f: Sequence[Callable[..., Any] | None] = ()
    exact: float | Sequence[float] | None = None
    name: str | None = None
    vectorized: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.laws, list | tuple) or len(self.laws) < 2:
            raise InputError("laws", shown(self.laws), "a list of at least two laws")
        expected = f"a list of {self.depth - 1} functions, one for each level but the last"
        if not isinstance(self.f, list | tuple):
            raise InputError("f", shown(self.f), expected)
        if len(self.f) != self.depth - 1:
            raise InputError("f", f"{len(self.f)} for {self.depth} laws", expected)
        for k, one in enumerate(self.f):
            if one is not None and not callable(one):
                raise InputError(f"f[{k}]", type(one).__name__, "a function, or None")
        self._check_g()
        _ = self.innermost  # laws are tried now, where the user can see which line made them

    def _check_g(self) -> None:
        names = [f"y{self.depth - 1}", *(f"y{k}" for k in range(self.depth - 1))]
        expected = f"a function g({', '.join(names)}), or None"
        if self.g is None:
            return
        if not callable(self.g):
            raise InputError("g", type(self.g).__name__, expected)
        try:
            inspect.signature(self.g).bind(*names)
        except TypeError as error:
            raise InputError("g", described_signature(self.g), expected) from error
        except ValueError:  # functions written in C
            return

    @property
    def depth(self) -> int:
        """D, the number of levels."""
        return len(self.laws)

    @property
    def label(self) -> str:
        return self.name or "repeated expectation"

    @cached_property
    def steps(self) -> tuple[NestedExpectation, ...]:
        """For each level but the first, the law of all earlier y and that of y given them."""
        first = as_law(self.laws[0], argument="laws[0]")
        _require_transport(0, first)
        if first.batch is not None:
            raise InputError("laws[0]", f"a batch of {first.batch} laws", "one law of y_0")
        outer, found, dims = first, list[NestedExpectation](), [_size(first)]
        for k, law in enumerate(self.laws[1:], start=1):
            given = law
            if callable(law) and not isinstance(law, Law):
                given = _OfEarlier(law, tuple(dims), k)
            step: NestedExpectation = _named(k, partial(NestedExpectation, outer, given))
            found.append(step)
            outer = Chain(step, k)
            dims.append(outer.last_dim)
        return tuple(found)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Number of coordinates of each y."""
        last = Chain(self.steps[-1], self.depth - 1).last_dim
        chains = [step.outer_law for step in self.steps[1:]]
        return (
            _size(self.steps[0].outer_law),
            *(one.last_dim for one in chains if isinstance(one, Chain)),
            last,
        )

    @cached_property
    def base_dims(self) -> tuple[int, ...]:
        """Number of uniforms behind each y."""
        totals = [*(step.outer_law.base_dim for step in self.steps)]
        totals.append(totals[-1] + self.steps[-1].inner_base_dim)
        return tuple(int(one) for one in np.diff([0, *totals]))

    @cached_property
    def innermost(self) -> NestedExpectation:
        """Two levels: θ = (y_0, …, y_{D−2}), x = y_{D−1}; f is that of all levels at medians of y.

        Its conditional mean is the innermost of the repeated expectation. Its own expectation is
        another number.
        """
        dims, step = self.dims[:-1], self.steps[-1]
        g = None if self.g is None else _OfParts(self.g, dims)
        median = step.outer_law.middle()
        f = _AtMedians(self, median)
        inner = step.inner
        if isinstance(inner, _OfEarlier):
            inner = replace(inner, base_dim=self.base_dims[-1])
        exact, name = self.exact, self.label
        return NestedExpectation(
            step.outer, inner, g, f, exact=exact, name=name, vectorized=self.vectorized
        )

    def split(self, theta: Array) -> list[Array]:
        """y_0, y_1, … from their coordinates (…, d) side by side."""
        return _split(theta, self.dims)

    def apply_f(self, k: int, j: Array, y: Sequence[Array], *, finite: bool = False) -> Array:
        """f_k at j (T,) or (T, p) and y_0 … y_k: (T,) or (T, q), checked.

        Values that are not finite raise where they have to be `finite`.
        """
        f = self.f[k]
        if f is None:
            return j
        taken = y[: min(self._n_taken[k], k + 1)]
        try:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                raw = f(np.array(j), *(np.array(one) for one in taken))
                # T answers for T rows: j + y0 instead of j + y0[:, 0], unless there are T of them.
                square = np.ndim(raw) == 2 and np.shape(raw)[1] == len(j) > 1
                if square and np.shape(f(j[:-1], *(one[:-1] for one in taken)))[1] == len(j) - 1:
                    raise _broadcast_error(k, np.shape(raw), j.shape)
        except EvaluationError:
            raise
        except Exception as error:
            last = traceback.format_exception_only(error)[-1].strip()
            raise EvaluationError(
                f"f[{k}] raised {last} for j of shape {j.shape}",
                advice=f"f[{k}] takes j of shape (T,) or (T, p), and then y0 to y{k} of shape "
                "(T, d).",
            ) from error
        values = numbers(f"f[{k}]", raw, "numbers", copy=False)
        if values.ndim not in (1, 2) or len(values) != len(j) or not values.size:
            raise _broadcast_error(k, values.shape, j.shape)
        if finite and not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values.reshape(len(j), -1)).all(axis=1)))
            raise OutsideDomainError(
                f"f[{k}] returned {values[row]} for J = {j[row]}",
                theta=np.concatenate([one[row] for one in y[: k + 1]]),
                advice="Use more evaluations, or an f that takes all values near J.",
            )
        return values

    @cached_property
    def _n_taken(self) -> tuple[int, ...]:
        """Number of y that each f takes in addition to j."""
        return tuple(_n_arguments(one, self.depth + 1) - 1 for one in self.f)

    def _repr_html_(self) -> str:
        rows = {}
        for k, law in enumerate(self.laws):
            fixed = isinstance(law, Law) or not callable(law)
            shown_law = described_law(as_law(law)) if fixed else described_signature(law)
            rows[f"y_{k}"] = f"{shown_law}, {self.dims[k]} coordinates"
        rows |= {
            f"f_{k}": "identity" if f is None else described_signature(f)
            for k, f in enumerate(self.f)
        }
        rows["g"] = described_signature(self.g)
        rows["exact"] = "" if self.exact is None else f"{np.asarray(self.exact)}"
        return pairs(f"{self.label}: {self.depth} levels", rows)


class Chain(Law):
    """Law of (θ, x) side by side for a law of θ and one of x given θ: a composed transport."""

    dim: int

    def __init__(self, step: NestedExpectation, level: int) -> None:
        self._step, self._level = step, level
        outer = step.outer_law
        middle = outer.middle()
        law = _named(level, lambda: step.inner_law(middle))
        _require_transport(level, law)
        x = law.from_uniform(np.full((1, 1, law.base_dim), 0.5))
        self.last_dim = int(x.shape[-1])
        self._last_base = law.base_dim
        self.dim = middle.shape[1] + self.last_dim
        self.base_dim = outer.base_dim + law.base_dim
        self.base = "normal" if outer.base == law.base == "normal" else "uniform"

    def _from_uniform(self, u: Array) -> Array:
        return self._mapped(u, "from_uniform")

    def _from_normal(self, z: Array) -> Array:
        return self._mapped(z, "from_normal")

    def _mapped(self, points: Array, how: str) -> Array:
        outer = self._step.outer_law
        flat = points.reshape(-1, self.base_dim)
        theta = getattr(outer, how)(flat[:, : outer.base_dim])
        law = _named(self._level, lambda: self._step.inner_law(theta))
        _require_size(self._level, "driving variables", law.base_dim, self._last_base)
        x = getattr(law, how)(flat[:, None, outer.base_dim :])[:, 0]
        _require_size(self._level, "coordinates", x.shape[-1], self.last_dim)
        return np.concatenate([theta, x], axis=1).reshape(*points.shape[:-1], self.dim)


@dataclass(frozen=True)
class _OfEarlier:
    """A law as a function of all earlier y side by side."""

    law: Callable[..., Any]
    dims: tuple[int, ...]
    level: int
    base_dim: int | None = None

    def __call__(self, theta: Array) -> Any:
        found = self.law(*_split(theta, self.dims))
        if self.base_dim is not None:
            law = as_law(found, batch=len(theta), argument=f"laws[{self.level}]")
            _require_size(self.level, "driving variables", law.base_dim, self.base_dim)
        return found


@dataclass(frozen=True)
class _OfParts:
    """g as a function of x and of all earlier y side by side."""

    g: Callable[..., Any]
    dims: tuple[int, ...]

    def __call__(self, x: Array, theta: Array) -> Any:
        return self.g(x, *_split(theta, self.dims))


@dataclass(frozen=True, eq=False)
class _AtMedians:
    """All f one after the other at medians of y: the answer without variation."""

    levels: RepeatedExpectation
    median: Array

    def __call__(self, j: Array) -> Array:
        y = self.levels.split(np.repeat(self.median, len(j), axis=0))
        for k in reversed(range(len(self.levels.f))):
            j = self.levels.apply_f(k, j, y)
        return j


def _broadcast_error(k: int, given: tuple[int, ...], j: tuple[int, ...]) -> EvaluationError:
    return EvaluationError(
        f"f[{k}] returned an array of shape {given} for j of shape {j}; expected ({j[0]},) or "
        f"({j[0]}, q)",
        advice="Use y0[:, 0] for a y of one coordinate, and reduce over the last axis.",
    )


def _split(theta: Array, dims: Sequence[int]) -> list[Array]:
    ends = np.cumsum(dims)
    return [
        theta[..., end - dim : end]
        for end, dim in zip(ends, dims, strict=True)
        if end <= theta.shape[-1]
    ]


def _size(law: Law) -> int:
    """Number of coordinates of a draw."""
    return int(law.middle().shape[-1])


def _require_size(k: int, unit: str, given: int, expected: int) -> None:
    if given != expected:
        raise InputError(
            f"laws[{k}]",
            f"a law of {given} {unit} for some earlier y and of {expected} for others",
            "laws of the same dimension for all earlier y",
            "Let unused coordinates be constant.",
        )


def _require_transport(k: int, law: Law) -> None:
    if not law.has_transport:
        raise InputError(
            f"laws[{k}]",
            "a law that can only be sampled",
            "a transport of uniforms, in which each level is learned",
            "Describe the simulator by nq.Transport.",
        )


def _named(k: int, make: Callable[[], Any]) -> Any:
    """The result of a function, whose errors speak of the law of level k."""
    try:
        return make()
    except InputError as error:
        given, expected, advice = (
            text.replace("theta", "the earlier y").replace("inner", f"laws[{k}]")
            for text in (error.given, error.expected, error.advice)
        )
        raise InputError(f"laws[{k}]", given, expected, advice) from error
    except EvaluationError as error:
        raise EvaluationError(
            error.problem.replace("inner raised", f"laws[{k}] raised").replace(
                "for theta", "for all earlier y side by side"
            ),
            advice=f"laws[{k}] takes {', '.join(f'y{i}' for i in range(k))} of shape (T, d) and "
            "returns a law.",
        ) from error


def _n_arguments(function: Callable[..., Any] | None, most: int) -> int:
    """Number of positional arguments that a function takes."""
    if function is None:
        return 1
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C, such as ufuncs of NumPy
        return 1
    if any(one.kind is one.VAR_POSITIONAL for one in given):
        return most
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one for one in given if one.kind in kinds and one.default is one.empty]
    return len(required)
