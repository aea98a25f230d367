"""Registry of closed forms by pair: (kernel on one coordinate, law on one coordinate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.errors import UnsupportedError
from nestquad.kernels import Kernel


@dataclass(frozen=True)
class ClosedForm:
    """The two integrals of a kernel of one coordinate under a law of one coordinate.

    Attributes
    ----------
    mean
        ``mean(kernel, law, x)`` with x (..., N): ∫ k(x, t) dP(t), (..., N).
    double
        ``double(kernel, law)``: ∬ k dP dP, () or (T,).
    """

    mean: Callable[[Any, Any, Array], Array]
    double: Callable[[Any, Any], Array]


# By exact type: a subclass may be another function, and an inherited integral would be wrong.
_FORMS: dict[tuple[type, type], ClosedForm] = {}

_WITHOUT_FACTORS = [
    ("Gaussian", "Normal with full covariance"),
    ("Stein", "any law whose density vanishes at its border"),
    ("any kernel", "Empirical"),
]


def register(kernel: type[Kernel], law: type[Law], form: ClosedForm) -> None:
    """Add the closed form of one pair of types."""
    _FORMS[kernel, law] = form


def closed_form(kernel: Kernel, law: Law) -> ClosedForm:
    """The closed form of a pair, or an error that lists the supported pairs."""
    try:
        return _FORMS[type(kernel), type(law)]
    except KeyError:
        raise unsupported(kernel, law) from None


def supported_pairs() -> list[tuple[str, str]]:
    """Pairs (kernel, law) that have closed forms.

    Laws side by side (`Independent`, several coordinates of one law) follow from their
    coordinates; `Additive`, `Anova`, `Tensor`, `Sum` and `Scaled` from their parts.

    Examples
    --------
    >>> ("Matern", "Normal") in supported_pairs()
    True
    """
    return [(kernel.__name__, law.__name__) for kernel, law in _FORMS] + _WITHOUT_FACTORS


def unsupported(kernel: Kernel, law: Law, reason: str = "") -> UnsupportedError:
    """The error for a pair without closed form."""
    pairs = "; ".join(f"{k} on {p}" for k, p in supported_pairs())
    return UnsupportedError(
        f"No closed-form embedding of {type(kernel).__name__} under {law!r}"
        f"{': ' + reason if reason else ''}. Supported, for independent coordinates and for "
        f"Additive, Anova, Tensor, Sum and Scaled of such kernels: {pairs}. Otherwise integrate "
        "in the transported space: any law with x = law.from_uniform(u), such as a Transport, "
        "needs only the embedding of a kernel in u under Uniform(0, 1)."
    )


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def short_mean(function: Callable[[Array], Array], start: Array, width: Array) -> Array:
    """Mean of `function` over [start, start + width], exact to rounding for short intervals.

    Short means a width of at most 2 for functions such as polynomial × e^{-z} or e^{-z²/2}, and
    little change within the interval; the error of 10 nodes is then far below 1e-16.
    """
    total = np.zeros(np.broadcast_shapes(start.shape, width.shape))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += 0.5 * weight * function(start + width * (0.5 + 0.5 * node))
    return total
