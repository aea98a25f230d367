"""The parts, in the order of the page, and the series that their tasks name."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

from nestquad.reproduce._part import Part, Series
from nestquad.reproduce._series import SERIES

__all__ = ["PLACES", "absent", "can_run", "parts", "series_named"]

# Modules of this folder with a tuple PARTS. One that does not exist is named on the page as not
# there yet; writing it is all that is needed to add it.
PLACES = {
    "synthetic": "The synthetic experiment",
    "dimension": "More dimensions",
    "ablation": "Regularisation, lengthscale and kernel",
    "applications": "Finance and health economics",
    "multilevel": "Multilevel methods",
    "bayesopt": "Bayesian optimisation",
    "conditional": "Conditional expectations",
    "illustration": "The two stages",
    "rates": "Evaluations for a given error",
    "tails": "Tails of the error",
    "theory": "The corollary's sizes",
    "errata": "Errata",
}
# What an extra brings that parts need.
_MODULES = {"": (), "botorch": ("torch", "botorch")}


@lru_cache
def parts() -> dict[str, Part]:
    """All parts that there are, by name."""
    found: dict[str, Part] = {}
    for place in PLACES:
        if _exists(place):
            found |= {part.name: part for part in import_module(_module(place)).PARTS}
    return found


def absent() -> list[str]:
    """Titles of the parts that are not there yet."""
    return [title for place, title in PLACES.items() if not _exists(place)]


def can_run(part: Part) -> bool:
    """Whether what its runs need is installed."""
    return all(find_spec(module) is not None for module in _MODULES[part.extra])


def series_named(name: str) -> Series:
    """The series of a task: one of the common ones, or one that a part brings."""
    return _series()[name]


@lru_cache
def _series() -> dict[str, Series]:
    own = {series.name: series for part in parts().values() for series in part.series}
    return {**SERIES, **own}


def _exists(place: str) -> bool:
    return find_spec(_module(place)) is not None


def _module(place: str) -> str:
    return f"nestquad.reproduce.{place}"
