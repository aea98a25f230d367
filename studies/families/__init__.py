"""Families of random problems with exact values: a family and a seed make a problem.

Even seeds are to develop on. Odd seeds are to report: nothing is tuned on them, and no problem of
theirs is looked at one by one before it is reported. Exact values come from closed-form J with
enumeration, quadrature or dense averages, and use no estimator of nestquad; they are kept in
truths.csv by family, seed and a hash of the code that made them, so that they are computed once.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

import nestquad as nq
from studies.families import (
    _books,
    _decisions,
    _experiments,
    _insurance,
    _kinks,
    _noisy,
    _rare,
    _rough,
    _smooth,
)
from studies.families._sketch import Sketch
from studies.families._truth import Truth
from studies.runner.ledger import code_of

__all__ = ["ABOUT", "Truth", "draw", "families", "problem_of", "remember", "sketch", "truth"]

_MODULES = {
    "books": _books,
    "experiments": _experiments,
    "decisions": _decisions,
    "insurance": _insurance,
    "rough": _rough,
    "rare": _rare,
    "smooth": _smooth,
    "noisy": _noisy,
    "kinks": _kinks,
}
ABOUT = {
    name: module.__doc__.split("\n", 1)[0].split(": ", 1)[-1].rstrip(".")
    for name, module in _MODULES.items()
}
_FOLDER = Path(__file__).parent
CACHE = _FOLDER / "truths.csv"
# Other modules that make a problem: a noisy one is one of another family.
_USED = {"noisy": ("books", "decisions", "insurance", "smooth"), "kinks": ("nested",)}


def families() -> tuple[str, ...]:
    """The names of all families.

    Examples
    --------
    >>> from studies import families
    >>> families.families()[:3]
    ('books', 'experiments', 'decisions')
    """
    return tuple(_MODULES)


def draw(family: str, seed: int) -> nq.NestedExpectation:
    """The problem of a family and a seed, its exact value set.

    Examples
    --------
    >>> from studies import families
    >>> problem = families.draw("rare", 0)
    >>> problem.name, problem.tags
    ('rare-0', ('rare', 'even'))
    """
    made = sketch(family, seed)
    parity = "odd" if seed % 2 else "even"
    return replace(
        made.problem,
        exact=truth(family, seed).value,
        name=f"{family}-{seed}",
        tags=(family, parity),
    )


def problem_of(name: str) -> nq.NestedExpectation:
    """The problem of a name such as ``"rare-0"``."""
    family, _, seed = name.rpartition("-")
    return draw(family, int(seed))


@lru_cache(maxsize=64)
def sketch(family: str, seed: int) -> Sketch:
    """The problem without its exact value."""
    if family not in _MODULES:
        raise nq.InputError("family", repr(family), f"one of {', '.join(_MODULES)}")
    return _MODULES[family].sketch(np.random.default_rng([zlib.crc32(family.encode()), seed]))


def truth(family: str, seed: int) -> Truth:
    """The exact value, from the cache if it is there."""
    kept = _kept().get((family, seed, code(family)))
    return kept or sketch(family, seed).truth()


@dataclass(frozen=True)
class _Row:
    family: str
    seed: int
    code: str
    value: float
    error: float
    scale: float


@lru_cache
def _kept() -> dict[tuple[str, int, str], Truth]:
    if not CACHE.exists():
        return {}
    with CACHE.open(newline="", encoding="utf-8") as file:
        return {
            (row["family"], int(row["seed"]), row["code"]): Truth(
                float(row["value"]), float(row["error"]), float(row["scale"])
            )
            for row in csv.DictReader(file)
        }


def missing(names: Iterable[str], seeds: Iterable[int]) -> list[tuple[str, int]]:
    """Families and seeds whose exact values are not in the cache."""
    seeds = list(seeds)
    return [(f, s) for f in names for s in seeds if (f, s, code(f)) not in _kept()]


def remember(found: Iterable[tuple[str, int, Truth]]) -> None:
    """Keep exact values; those of older code go."""
    _kept.cache_clear()  # others may have written in the meantime
    kept = {key: one for key, one in _kept().items() if key[2] == code(key[0])}
    kept |= {(family, seed, code(family)): one for family, seed, one in found}
    with CACHE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(_Row.__annotations__), lineterminator="\n")
        writer.writeheader()
        for (family, seed, of), one in sorted(kept.items()):
            writer.writerow(asdict(_Row(family, seed, of, one.value, one.error, one.scale)))
    _kept.cache_clear()


@lru_cache
def code(family: str) -> str:
    """A hash of the code that draws a family; comments and layout do not matter."""
    used = [family, *_USED.get(family, ())]
    paths = [_FOLDER / f"_{name}.py" for name in (*used, "sketch", "truth")]
    return code_of([*paths, _FOLDER.parent / "quadrature.py"])
