"""Benchmark problems, each with its exact value, its tags and its smoothness."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nestquad._checks import choice
from nestquad.problem import NestedExpectation
from nestquad.problems._finance import finance, gaussian_es
from nestquad.problems._health import health
from nestquad.problems._information_gain import eig_linear
from nestquad.problems._synthetic import rainforth, synthetic

__all__ = [
    "all",
    "eig_linear",
    "finance",
    "gaussian_es",
    "get",
    "health",
    "names",
    "rainforth",
    "synthetic",
]

_BUILDERS: dict[str, Callable[[], NestedExpectation]] = {
    "synthetic": synthetic,
    "synthetic10": lambda: synthetic(dim=10),
    "finance": finance,
    "health": health,
    "health-durations": lambda: health(known="durations"),
    "rainforth": rainforth,
    "eig-linear": eig_linear,
    "gaussian-es": gaussian_es,
}


def names() -> tuple[str, ...]:
    """The names that `get` knows."""
    return tuple(_BUILDERS)


def get(name: str) -> NestedExpectation:
    """The shipped problem of that name.

    Examples
    --------
    >>> from nestquad import problems
    >>> problems.get("synthetic10").exact
    33.503401360544...
    """
    choice("name", name, _BUILDERS)
    return _BUILDERS[name]()


def all() -> Iterator[NestedExpectation]:
    """Every shipped problem, one after the other.

    Examples
    --------
    >>> from nestquad import problems
    >>> [p.name for p in problems.all() if "log" in p.tags]
    ['rainforth', 'eig-linear']
    """
    return (build() for build in _BUILDERS.values())
