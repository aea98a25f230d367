"""Calls of g, f and h on blocks of points: checks, retries, and the point where g failed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from nestquad._threads import blas_threads_of_the_user
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.distributions import read_only
from nestquad.errors import (
    EvaluationError,
    InputError,
    OutsideDomainError,
    calling,
    last_line,
    optional_module,
)
from nestquad.problem import NestedExpectation

_G: TypeAlias = Callable[[Any, Any], Any]


def call_in_library(library: str, g: _G, x: Array, theta: Array) -> Any:
    """g at points that are handed over as arrays of a library: ``"numpy"``, ``"jax"``, ``"torch"``.

    On a CPU the memory is shared. JAX copies arrays that are not aligned as it needs them, and g
    runs with 64-bit numbers enabled: kernel weights amplify the rounding of single precision.
    """
    if library == "numpy":
        return g(x, theta)
    return _CALLS[library](g, x, theta)


def _call_jax(g: _G, x: Array, theta: Array) -> Any:
    jax, enabled = jax_in_64_bits("A g that takes JAX arrays")
    with enabled:
        return g(jax.device_put(x, may_alias=True), jax.device_put(theta, may_alias=True))


def jax_in_64_bits(feature: str) -> tuple[Any, AbstractContextManager[Any]]:
    """The module jax, and a context with 64-bit numbers, which a `feature` needs."""
    jax = optional_module("jax", feature, "jax")
    # A function of jax itself since 0.8.
    home = (
        jax if hasattr(jax, "enable_x64") else optional_module("jax.experimental", feature, "jax")
    )
    return jax, home.enable_x64(True)


def _call_torch(g: _G, x: Array, theta: Array) -> Any:
    torch = optional_module("torch", "A g that takes PyTorch tensors", "torch")
    points = tuple(torch.from_dlpack(array) for array in (x, theta))
    values = g(*points)
    # Rules work on the same memory afterwards; NumPy refuses to write to it, PyTorch does not.
    if any(tensor._version for tensor in points):
        raise EvaluationError(
            "g wrote to its arguments",
            advice="Points are shared: use out-of-place operations, or clone the tensor first.",
        )
    return values


_CALLS: dict[str, Callable[[_G, Array, Array], Any]] = {"jax": _call_jax, "torch": _call_torch}


class CountedG:
    """The g of a problem with a count of its points, repeated calls included."""

    def __init__(self, problem: NestedExpectation) -> None:
        self._g, self._library, self.n_points = problem.g, problem.arrays, 0

    def __call__(self, x: Array, theta: Array) -> Any:
        self.n_points += 1 if x.ndim == 1 else max(len(x), len(theta)) * x.shape[1]
        assert self._g is not None
        return call_in_library(self._library, self._g, x, theta)


@blas_threads_of_the_user()
def call_g(
    problem: NestedExpectation, g: CountedG, x: Array, theta: Array, retries: int = 0
) -> Array:
    """g on a block, checked, as (T, N), or (T, N, p) if g has an axis of outputs.

    Shapes
    ------
    x (T or 1, N, d_x), theta (T, d_θ).
    """
    if problem.g is None:
        advice = "For a simulator that runs elsewhere, use nq.plan and nq.analyze."
        raise InputError("g", "None", "a function that can be called", advice)
    # Rules work on the same points afterwards: a g that writes to its arguments has to be told.
    x, theta = read_only(x), read_only(theta[:, None, :])
    if not problem.vectorized:
        return _point_by_point(g, x, theta, retries)
    shape = (theta.shape[0], x.shape[1])
    values = _evaluate_block(g, x, theta, retries)
    if values.shape[:2] != shape:
        if problem.noisy:
            raise EvaluationError(
                f"g returned an array of shape {values.shape}; expected {shape} or {(*shape, 'p')}",
                advice="With noisy=True every point has noise of its own, so g has to return a "
                "value for each, also where it ignores x or theta.",
            )
        _refuse_lost_axes(g, x, theta, values)
        values = np.broadcast_to(values, shape + values.shape[2:])
    if not np.isfinite(values).all():
        values = _retry_points(g, x, theta, values, retries)
    # One memory layout: numpy adds numbers up in an order that depends on it, and the same seed
    # has to give the same bits however the work was cut.
    return np.ascontiguousarray(values)


def call_f(
    problem: NestedExpectation, j: Array, theta: Array, *, require_finite: bool = True
) -> Array:
    """f at J (T,) or (T, p), checked, as (T, q)."""
    tick()
    takes = "f takes j of shape (T,), or (T, p) when g has p outputs."
    # Values outside the domain of f become NaN and are reported below with their θ.
    ignored = np.errstate(invalid="ignore", divide="ignore", over="ignore")
    with ignored, calling("f", f" for j of shape {j.shape}", takes):
        # A copy, since f may write to it. Outputs one after the other: maxima over few options
        # take a hundredth of the time that they take row by row.
        raw = problem.apply_f(np.array(j, order="F"))
    values = _as_real("f", raw)
    if values.ndim != 2 or values.shape[0] != j.shape[0] or not values.size:
        raise EvaluationError(
            f"f returned an array of shape {np.shape(raw)} for j of shape {j.shape}; expected "
            f"({j.shape[0]},) or ({j.shape[0]}, q)",
            advice="f acts on each row of j: reduce over the last axis, as in j.max(axis=-1).",
        )
    if problem.n_answers not in (None, values.shape[1]):
        raise EvaluationError(
            f"f returned {values.shape[1]} answers after {problem.n_answers}",
            advice="The number of answers has to be the same for all j.",
        )
    if require_finite and not np.isfinite(values).all():
        t = int(np.argmax(~np.isfinite(values).all(axis=-1)))
        raise OutsideDomainError(
            f"f returned {values[t] if values.shape[1] > 1 else values[t, 0]} for "
            f"J = {problem.natural_j(j)[t]}",
            theta=theta[t],
            advice="If f needs J > 0 (a logarithm), use more inner points or a method whose "
            "weights are positive, such as 'nqmc'.",
        )
    return values


def f_or_nan(problem: NestedExpectation, j: Array) -> Array:
    """f at J (T,) or (T, p) as (T, q), NaN where it is not defined; (T, 1) if it raises."""
    try:
        return call_f(problem, j, j, require_finite=False)
    except EvaluationError:  # f refuses values that J never has
        return np.full((len(j), 1), np.nan)


@blas_threads_of_the_user()
def call_h(h: Callable[[Array], Any], x: Array) -> Array:
    """h at x (N, d), checked, as (N,) or (N, p)."""
    with calling("h", f" for x of shape {x.shape}"):
        raw = h(np.array(x))
    values = _as_real("h", raw)
    if values.ndim not in (1, 2) or values.shape[0] != x.shape[0] or not values.size:
        raise EvaluationError(
            f"h returned an array of shape {values.shape} for x of shape {x.shape}; expected "
            f"({x.shape[0]},) or ({x.shape[0]}, p)"
        )
    if not np.isfinite(values).all():
        row = int(np.argmax(~np.isfinite(values.reshape(x.shape[0], -1)).all(axis=1)))
        raise EvaluationError(f"h returned {values[row]}", x=x[row])
    return values


def joined(parts: list[Array], axis: int = 0) -> Array:
    """Blocks of values of g as one."""
    shapes = {part.shape[2:] for part in parts}
    if len(shapes) > 1:
        raise EvaluationError(
            f"g returned arrays with different axes of outputs: {sorted(shapes)}",
            advice="The number of outputs has to be the same at all points.",
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)


def _check_shape(values: Array, x: Array, theta: Array) -> None:
    shape = (theta.shape[0], x.shape[1])
    fits = all(a in (1, b) for a, b in zip(values.shape, shape, strict=False))
    if values.ndim not in (2, 3) or not values.size or not fits:
        raise EvaluationError(
            f"g returned an array of shape {values.shape} for x of shape {x.shape} and theta of "
            f"shape {theta.shape}; expected {shape} or {(*shape, 'p')}",
            advice=_INDEX_ADVICE,
        )


def _refuse_lost_axes(g: _G, x: Array, theta: Array, values: Array) -> None:
    """Tell a g that ignores x (or θ) from one that lost an axis by writing x[:, 0].

    Both return a 1 where T or N was expected. Only the second has another value when it sees a
    single point; eight are tried, since g may well be 0 at some of them.
    """
    shape = (theta.shape[0], x.shape[1])
    places = [np.linspace(0, n - 1, min(n, 9), dtype=int)[1:] for n in shape]
    trials = max(map(len, places))
    for t, n in zip(
        *(np.resize(place if len(place) else 0, trials) for place in places), strict=True
    ):
        again = _as_real("g", g(x[[t % len(x)], n : n + 1], theta[[t]]))
        there = values[[t % len(values)], n % values.shape[1]][None]
        if again.shape != there.shape or not np.allclose(again, there, rtol=1e-9, atol=0.0):
            raise EvaluationError(
                f"g returned an array of shape {values.shape} for x of shape {x.shape} and "
                f"theta of shape {theta.shape}, and its values depend on the axis that it "
                f"dropped; expected {shape}",
                advice=_INDEX_ADVICE,
            )


_INDEX_ADVICE = (
    "x and theta may have any number of leading axes, so index the last one: x[..., 0], "
    "not x[:, 0]."
)


def _as_real(what: str, raw: Any) -> Array:
    """A returned value as float64: from NumPy, JAX, PyTorch, or lists of numbers."""
    if hasattr(raw, "detach"):  # a PyTorch tensor, which may track gradients or live on a GPU
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, np.ma.MaskedArray):
        raise EvaluationError(
            f"{what} returned a masked array; expected an array of real numbers",
            advice="Fill what is missing, with NaN for points that failed.",
        )
    try:
        values = np.asarray(raw)
        if values.dtype.kind not in "fiub":
            raise TypeError
        # A copy: the function may return the same memory again, with other values in it.
        return values.astype(float, order="C")
    except (TypeError, ValueError, OverflowError):
        dtype = getattr(raw, "dtype", type(raw).__name__)
        raise EvaluationError(
            f"{what} returned {dtype}; expected an array of real numbers",
            advice="Complex answers: return real and imaginary parts as two outputs.",
        ) from None


def _point_by_point(g: _G, x: Array, theta: Array, retries: int) -> Array:
    """A g of one point on a block: x (T or 1, N, d_x), theta (T, 1, d_θ)."""
    values: list[Array] = []
    for t, own in enumerate(theta[:, 0]):
        for point in x[t % x.shape[0]]:
            value = _evaluate_point(g, point, own, retries)
            if value.ndim > 1 or not value.size or (values and value.shape != values[0].shape):
                usual = "a number or a vector" if not values else f"shape {values[0].shape}"
                raise EvaluationError(
                    f"g returned an array of shape {value.shape} for one point; expected {usual}",
                    theta=own,
                    x=point,
                    advice="With vectorized=False g takes x (d_x,) and theta (d_theta,).",
                )
            values.append(value)
    return np.array(values).reshape(theta.shape[0], x.shape[1], *values[0].shape)


def _evaluate_point(g: _G, x: Array, theta: Array, retries: int) -> Array:
    """g at one point, repeated until the value is finite, up to `retries` times."""
    for attempt in range(retries + 1):
        value = _attempt(g, x, theta)
        if isinstance(value, BaseException):
            if attempt == retries:
                said = f"g raised {last_line(value)}{_times(attempt)}"
                raise EvaluationError(said, theta=theta, x=x) from value
        elif np.isfinite(value).all():
            return value
    raise _not_finite(value, theta, x, retries)


def _not_finite(value: object, theta: Array, x: Array, retries: int) -> EvaluationError:
    advice = "Every value of g has to be a finite number."
    return EvaluationError(f"g returned {value}{_times(retries)}", theta=theta, x=x, advice=advice)


def _attempt(g: _G, x: Array, theta: Array) -> Array | BaseException:
    """g at some points, or the exception that it raised."""
    try:
        return _as_real("g", g(x, theta))
    except EvaluationError:
        raise
    except (Exception, SystemExit) as error:
        return error


def _evaluate_block(g: _G, x: Array, theta: Array, retries: int) -> Array:
    """g at a block of x (T, N, d_x) and theta (T, 1, d_θ).

    Where it raises, halves of the block, down to single points that get `retries` tries. Without
    retries this finds the point to blame, or that there is none.
    """
    values = _attempt(g, x, theta)
    if not isinstance(values, BaseException):
        _check_shape(values, x, theta)
        return values
    x = np.broadcast_to(x, (theta.shape[0], *x.shape[1:]))
    shape = x.shape[:2]
    if shape == (1, 1):
        block: _G = lambda a, b: g(a[None, None], b[None, None])  # noqa: E731
        value = _evaluate_point(block, x[0, 0], theta[0, 0], retries)
        _check_shape(value, x, theta)
        return value
    axis = int(np.argmax(shape))
    parts = []
    for part in (slice(0, shape[axis] // 2), slice(shape[axis] // 2, None)):
        half = (x[part], theta[part]) if axis == 0 else (x[:, part], theta)
        again = _evaluate_block(g, *half, retries)
        parts.append(np.broadcast_to(again, half[0].shape[:2] + again.shape[2:]))
    if not retries:
        raise EvaluationError(
            f"g raised {last_line(values)} for x of shape {x.shape} and theta of shape "
            f"{theta.shape}",
            advice="It does not fail on either half of this block. " + _INDEX_ADVICE,
        ) from values
    return joined(parts, axis)


def _retry_points(g: _G, x: Array, theta: Array, values: Array, retries: int) -> Array:
    """Values with entries that are not finite evaluated again; an error if they stay so."""
    x = np.broadcast_to(x, (theta.shape[0], *x.shape[1:]))
    values = np.array(values)
    for attempt in range(retries + 1):
        usable = np.isfinite(values.reshape(*values.shape[:2], -1)).all(axis=-1)
        rows, columns = np.nonzero(~usable)
        if not rows.size:
            break
        t, n = rows[0], columns[0]
        if attempt == retries:
            raise _not_finite(values[t, n], theta[t, 0], x[t, n], retries)
        failed = x[rows, columns][:, None], theta[rows]
        block = _evaluate_block(g, *failed, retries - attempt - 1)
        block = np.broadcast_to(block, (rows.size, 1, *block.shape[2:]))
        joined([values[:1, :1], block[:1]])
        values[rows, columns] = block[:, 0]
    return values


def _times(retries: int) -> str:
    return "" if retries == 0 else f" at the {retries + 1} attempts that it had"
