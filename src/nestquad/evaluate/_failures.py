"""When g fails: which point it was, another try, and g of one point at a time."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError

__all__ = [
    "INDEX_ADVICE",
    "G",
    "as_real",
    "locate_failure",
    "point_by_point",
    "retry_halves",
    "retry_points",
]

G: TypeAlias = Callable[[Array, Array], Any]

INDEX_ADVICE = (
    "x and theta may have any number of leading axes, so index the last one: x[..., 0], "
    "not x[:, 0]."
)


def as_real(what: str, raw: Any) -> Array:
    """What a function returned as float64: of NumPy, JAX, PyTorch, or lists of numbers."""
    if hasattr(raw, "detach"):  # a PyTorch tensor, which may track gradients or live on a GPU
        raw = raw.detach().cpu().numpy()
    try:
        values = np.asarray(raw)
        if values.dtype.kind not in "fiub":
            raise TypeError
        # JAX lends its arrays for reading only; the caller may need to write.
        return values.astype(float, copy=not values.flags.writeable)
    except (TypeError, ValueError):
        dtype = getattr(raw, "dtype", type(raw).__name__)
        raise EvaluationError(
            f"{what} returned {dtype}; expected an array of real numbers",
            advice="Complex answers: return real and imaginary parts as two outputs.",
        ) from None


def point_by_point(g: G, x: Array, theta: Array, retries: int) -> Array:
    """A g of one point on a block: x (T or 1, N, d_x), theta (T, 1, d_θ)."""
    values: list[Array] = []
    for t, own in enumerate(theta[:, 0]):
        for one in x[t % x.shape[0]]:
            value = _one(g, one, own, retries)
            if value.ndim > 1 or (values and value.shape != values[0].shape):
                usual = "a number or a vector" if not values else f"shape {values[0].shape}"
                raise EvaluationError(
                    f"g returned an array of shape {value.shape} for one point; expected {usual}",
                    theta=own,
                    x=one,
                    advice="With vectorized=False g takes x (d_x,) and theta (d_theta,).",
                )
            values.append(value)
    return np.array(values).reshape(theta.shape[0], x.shape[1], *values[0].shape)


def _one(g: G, x: Array, theta: Array, retries: int) -> Array:
    """g at one point, as often as it takes to get a finite answer and no more than allowed."""
    for attempt in range(retries + 1):
        try:
            value = as_real("g", g(x, theta))
        except EvaluationError:
            raise
        except Exception as error:
            if attempt == retries:
                raise EvaluationError(
                    f"g raised {_last(error)}{_times(attempt)}", theta=theta, x=x
                ) from error
            continue
        if np.isfinite(value).all():
            return value
    raise EvaluationError(
        f"g returned {value}{_times(retries)}",
        theta=theta,
        x=x,
        advice="Every value of g has to be a finite number.",
    )


def retry_halves(g: G, x: Array, theta: Array, retries: int) -> Array:
    """A block on which g raised, in halves, down to single points that get `retries` tries."""
    x = np.broadcast_to(x, (theta.shape[0], *x.shape[1:]))
    shape = x.shape[:2]
    if shape == (1, 1):
        block: G = lambda a, b: g(a[None, None], b[None, None])  # noqa: E731
        value = _one(block, x[0, 0], theta[0, 0], retries)
        return value.reshape(1, 1, *value.shape[2:])
    axis = int(np.argmax(shape))
    parts = []
    for part in (slice(0, shape[axis] // 2), slice(shape[axis] // 2, None)):
        some = (x[part], theta[part]) if axis == 0 else (x[:, part], theta)
        try:
            values = as_real("g", g(*some))
        except EvaluationError:
            raise
        except Exception:
            values = retry_halves(g, *some, retries)
        if values.ndim >= 2:
            values = np.broadcast_to(values, some[0].shape[:2] + values.shape[2:])
        parts.append(values)
    return np.concatenate(parts, axis=axis)


def retry_points(g: G, x: Array, theta: Array, values: Array, retries: int) -> Array:
    """The values, with those that are not finite evaluated again; an error if they stay so."""
    x = np.broadcast_to(x, (theta.shape[0], *x.shape[1:]))
    values = np.array(values)
    for attempt in range(retries + 1):
        usable = np.isfinite(values.reshape(*values.shape[:2], -1)).all(axis=-1)
        rows, columns = np.nonzero(~usable)
        if not rows.size:
            break
        t, n = rows[0], columns[0]
        if attempt == retries:
            raise EvaluationError(
                f"g returned {values[t, n]}{_times(retries)}",
                theta=theta[t, 0],
                x=x[t, n],
                advice="Every value of g has to be a finite number.",
            )
        block = as_real("g", g(x[rows, columns][:, None], theta[rows]))
        values[rows, columns] = np.broadcast_to(block, (rows.size, 1, *values.shape[2:]))[:, 0]
    return values


def locate_failure(g: G, x: Array, theta: Array, error: Exception) -> EvaluationError:
    """Halve the failing block until one point is left: about log2(T N) more calls of g."""
    x = np.broadcast_to(x, (theta.shape[0], *x.shape[1:]))
    last = _last(error)
    for axis in (0, 1):
        while x.shape[axis] > 1:
            half = x.shape[axis] // 2
            index = [slice(None)] * 3
            for part in (slice(0, half), slice(half, None)):
                index[axis] = part
                sub_theta = theta[tuple(index)] if axis == 0 else theta
                if _raises(g, x[tuple(index)], sub_theta):
                    x, theta = x[tuple(index)], sub_theta
                    break
            else:  # fails only on the whole block: no single point to blame
                return EvaluationError(
                    f"g raised {last} for x of shape {x.shape} and theta of shape {theta.shape}",
                    advice="It does not fail on either half of this block. " + INDEX_ADVICE,
                )
    return EvaluationError(f"g raised {last}", theta=theta[0, 0], x=x[0, 0])


def _raises(g: G, x: Array, theta: Array) -> bool:
    try:
        g(x, theta)
    except Exception:
        return True
    return False


def _last(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _times(retries: int) -> str:
    return "" if retries == 0 else f" at the {retries + 1} attempts that it had"
