"""Roles of the columns of one table that has inputs, costs and effects together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad.errors import InputError
from nestquad.voi.table._tables import (
    kind_of_name,
    numbers_rows,
    pandas,
    plain_names,
    unknown_column,
)

if TYPE_CHECKING:
    import pandas as pd

INPUT, IGNORED = "input", "ignored"
_ROLE = re.compile(r"(cost|effect) of (.+)", re.DOTALL)
# Results that follow from costs and effects: no inputs.
_DERIVED = re.compile(
    r"i?n[mh]?b\d*|icers?|inc|incr|incremental|delta|diff|difference|net|ceac?|wtp|lambda_?wtp",
    re.IGNORECASE,
)
_EXPECTED = "“input”, “cost of …”, “effect of …” or “ignored”"


def guess_roles(frame: pd.DataFrame) -> dict[str, str]:
    """Role of each column, from its name and its values.

    A cost and an effect of the same option make a pair; of several costs with one name the nearest
    to the effect is its own. Columns that number the draws, and results such as net benefits, are
    ignored; all others are inputs.
    """
    names = [str(name) for name in frame.columns]
    roles = dict.fromkeys(names, INPUT)
    for name in names:
        words = re.split(r"[\W_]+", name)
        if not name or numbers_rows(name, frame[name]) or any(map(_DERIVED.fullmatch, words)):
            roles[name] = IGNORED
    free = [name for name in names if roles[name] == INPUT]
    costs = [name for name in free if kind_of_name(name) == "costs"]
    effects = [name for name in free if kind_of_name(name) == "effects"]
    strong = [name for name in effects if not re.search("utilit", name, re.IGNORECASE)]
    effects = strong or effects
    pairs = _pairs(names, costs, effects)
    if len(pairs) < 2:  # the short names of R: c1, e1, c.SoC, e.SoC
        costs = [name for name in free if re.match(r"c[\d._ ]", name, re.IGNORECASE)]
        effects = [name for name in free if re.match(r"[eq][\d._ ]", name, re.IGNORECASE)]
        pairs = _pairs(names, costs, effects)
    if len(pairs) > 1:
        for option, (cost, effect) in pairs.items():
            roles[cost], roles[effect] = f"cost of {option}", f"effect of {option}"
    return roles


def _pairs(
    names: Sequence[str], costs: Sequence[str], effects: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Costs and effects by option."""
    found: dict[str, tuple[str, str]] = {}
    short = dict(zip(costs, plain_names(costs, "costs"), strict=True))
    for effect, option in zip(effects, plain_names(effects, "effects"), strict=True):
        same = [c for c in costs if short[c].casefold() == option.casefold()]
        if same:
            at = names.index(effect)
            cost = min(same, key=lambda name: abs(names.index(name) - at))
            found[f"option {option}" if option.isdigit() else option] = (cost, effect)
    return found


def with_roles(
    frame: pd.DataFrame, given: Mapping[str, str] | None
) -> tuple[dict[str, str], dict[str, pd.DataFrame]]:
    """Roles of all columns, the given ones first, and the tables of parameters, costs, effects."""
    roles = guess_roles(frame)
    for name, role in (given or {}).items():
        if name not in roles:
            raise unknown_column("columns", name, roles)
        if role not in (INPUT, IGNORED) and not _ROLE.fullmatch(str(role)):
            raise InputError("columns", f"{shown(role)} for {name!r}", _EXPECTED)
        roles[name] = role
    tables: dict[str, Any] = {}
    for kind, word in (("costs", "cost"), ("effects", "effect")):
        of = {name: m[2] for name, role in roles.items() if (m := _ROLE.fullmatch(role))}
        columns = [name for name in of if roles[name].startswith(word)]
        options = [of[name] for name in columns]
        if len(options) < 2 or len(set(options)) < len(options):
            raise InputError(
                "columns",
                f"{kind} of {', '.join(map(repr, options)) or 'no option'}",
                f"a column of {kind} for each of at least two options",
                f"Say the role of each column: {_EXPECTED}; or have sheets named parameters, costs "
                "and effects.",
            )
        tables[kind] = frame[columns].set_axis(options, axis=1)
    inputs = [name for name, role in roles.items() if role == INPUT]
    if not inputs:
        raise InputError("columns", "no input", "at least one column that is an input")
    return roles, {"parameters": frame[inputs], **tables}


def ranges(frame: pd.DataFrame) -> list[list[float | None]]:
    """Least, mean and largest number of each column; None where it has none."""
    numbers = frame.apply(pandas().to_numeric, errors="coerce")
    ends = numbers.where(np.isfinite(numbers)).agg(["min", "mean", "max"])
    return [[float(x) if x == x else None for x in ends.iloc[:, j]] for j in range(frame.shape[1])]
