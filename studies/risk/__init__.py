"""Random problems of risk with their truths: a family and a seed make a case.

Even seeds are to develop on, odd seeds to report, as in `studies.families`. J is a closed form
everywhere; VaR, expected shortfall and exceedances are exact on a line and in the model problem,
and come from dense quasi-Monte Carlo with their own error elsewhere. They are kept in truths.csv.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

import nestquad as nq
from studies.families._truth import Truth
from studies.risk import _books, _credit, _insurer, _model
from studies.risk._case import Sketch
from studies.risk._truth import MEASURES, truths
from studies.runner.ledger import code_of

__all__ = [
    "ABOUT",
    "MEASURES",
    "Case",
    "Truth",
    "case_of",
    "draw",
    "families",
    "remember",
    "sketch",
]

_FAMILIES: Mapping[str, tuple[Callable[[np.random.Generator], Sketch], str]] = {
    "book1": (_books.Family(1).sketch, "20–100 calls and puts on one asset"),
    "book5": (_books.Family(5).sketch, "20–100 calls and puts on five correlated assets"),
    "book12": (_books.Family(12).sketch, "20–100 calls and puts on twelve correlated assets"),
    "book5-exotic": (
        _books.Family(5, exotic=0.5).sketch,
        "20–100 positions on five assets, half of them digitals and barriers",
    ),
    "book5-sampled": (
        _books.Family(5, sampled=True).sketch,
        "calls and puts on five assets, whose inner law can only be sampled",
    ),
    "giles-haji-ali": (
        _model.sketch,
        "the model problem of Giles and Haji-Ali (2019): a delta-hedged short position in S²",
    ),
    "insurer": (
        _insurer.sketch,
        "layers of gamma and log-normal claims in 2–8 lines with correlated risk indices",
    ),
    "credit": (
        _credit.sketch,
        "loans to 3–20 names: J jumps where a name has defaulted by the horizon",
    ),
}
ABOUT = {name: about for name, (_, about) in _FAMILIES.items()}
_FOLDER = Path(__file__).parent
CACHE = _FOLDER / "truths.csv"


@dataclass(frozen=True)
class Case:
    """A problem without f (g is the loss), and what is true of J.

    `truth` has the measures by name: ``"VaR 99"``, ``"ES 97.5"``, ``"P 1"`` (P(J > c) near 1 %).
    `levels` has c of each exceedance, by the same names.
    """

    problem: nq.NestedExpectation
    levels: Mapping[str, float]
    truth: Mapping[str, Truth]
    about: str


def families() -> tuple[str, ...]:
    """The names of all families.

    Examples
    --------
    >>> from studies import risk
    >>> risk.families()[:3]
    ('book1', 'book5', 'book12')
    """
    return tuple(_FAMILIES)


def draw(family: str, seed: int) -> Case:
    """The case of a family and a seed.

    Examples
    --------
    >>> from studies import risk
    >>> case = risk.draw("giles-haji-ali", 0)
    >>> case.problem.name, list(case.levels)
    ('giles-haji-ali-0', ['P 1', 'P 0.1'])
    >>> round(case.truth["P 1"].value, 4)
    0.01
    """
    made = sketch(family, seed)
    tags = (family, "odd" if seed % 2 else "even")
    problem = replace(made.problem, name=f"{family}-{seed}", tags=tags)
    return Case(problem, made.levels, truth(family, seed), made.about)


def case_of(name: str) -> Case:
    """The case of a name such as ``"book5-0"``."""
    family, _, seed = name.rpartition("-")
    return draw(family, int(seed))


@lru_cache(maxsize=64)
def sketch(family: str, seed: int) -> Sketch:
    """The problem without its truths."""
    if family not in _FAMILIES:
        raise nq.InputError("family", repr(family), f"one of {', '.join(_FAMILIES)}")
    return _FAMILIES[family][0](np.random.default_rng([zlib.crc32(family.encode()), seed]))


def truth(family: str, seed: int) -> dict[str, Truth]:
    """The measures of J, from the cache if they are there."""
    kept = _kept().get((family, seed))
    return kept or _computed(family, seed)


@lru_cache(maxsize=64)
def _computed(family: str, seed: int) -> dict[str, Truth]:
    made = sketch(family, seed)
    return truths(made.law, made.levels)


@lru_cache
def _kept() -> dict[tuple[str, int], dict[str, Truth]]:
    found: dict[tuple[str, int], dict[str, Truth]] = {}
    if CACHE.exists():
        with CACHE.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["code"] == code():
                    mine = found.setdefault((row["family"], int(row["seed"])), {})
                    value, error = float(row["value"]), float(row["error"])
                    mine[row["measure"]] = Truth(value, error, abs(value))
    return found


def missing(names: Iterable[str], seeds: Iterable[int]) -> list[tuple[str, int]]:
    """Families and seeds whose truths are not in the cache."""
    seeds = list(seeds)
    return [(family, seed) for family in names for seed in seeds if (family, seed) not in _kept()]


def remember(found: Iterable[tuple[str, int, Mapping[str, Truth]]]) -> None:
    """Keep truths; those of older code go."""
    _kept.cache_clear()  # others may have written in the meantime
    kept = _kept() | {(family, seed): dict(mine) for family, seed, mine in found}
    with CACHE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["family", "seed", "code", "measure", "value", "error"])
        for (family, seed), mine in sorted(kept.items()):
            for name, one in mine.items():
                writer.writerow([family, seed, code(), name, repr(one.value), f"{one.error:.3g}"])
    _kept.cache_clear()


@lru_cache
def code() -> str:
    """A hash of the code that draws cases; comments and layout do not matter."""
    mine = ("books", "credit", "model", "insurer", "case", "truth")
    drawn = [_FOLDER / f"_{name}.py" for name in mine]
    used = ("books", "insurance", "sketch", "truth")
    drawn += [_FOLDER.parent / "families" / f"_{name}.py" for name in used]
    return code_of([*drawn, _FOLDER.parent / "quadrature.py"])
