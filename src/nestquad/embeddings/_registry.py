"""Closed forms by pair: (kernel on one coordinate, law on one coordinate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.errors import UnsupportedError
from nestquad.kernels import Kernel

__all__ = ["ClosedForm", "closed_form", "register", "supported_pairs", "unsupported"]


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
    """The closed form of a pair, or an error that lists those there are."""
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
