"""Roles of the columns of one table that has inputs, costs and effects together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nestquad._checks import shown
from nestquad.errors import InputError
from nestquad.voi.table._outputs import plain_names
from nestquad.voi.table._tables import kind_of_name, numbers_rows, unknown_column

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
    effects = [name for name in effects if "utilit" not in name.lower()] or effects
    pairs = _pairs(names, costs, effects)
    if len(pairs) < 2:  # the short names of R: c1, e1, c.SoC, e.SoC
        short = (
            [name for name in free if re.match(rf"{letter}[\d._ ]", name, re.IGNORECASE)]
            for letter in ("c", "[eq]")
        )
        pairs = _pairs(names, *short)
    for option, (cost, effect) in pairs.items() if len(pairs) > 1 else ():
        roles[cost], roles[effect] = f"cost of {option}", f"effect of {option}"
    return roles


def _pairs(
    names: Sequence[str], costs: Sequence[str], effects: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Costs and effects by option."""
    pairs: dict[str, tuple[str, str]] = {}
    short = dict(zip(costs, plain_names(costs, "costs"), strict=True))
    for effect, option in zip(effects, plain_names(effects, "effects"), strict=True):
        same = [c for c in costs if short[c].casefold() == option.casefold()]
        if same:
            cost = min(same, key=lambda name: abs(names.index(name) - names.index(effect)))
            pairs[f"option {option}" if option.isdigit() else option] = (cost, effect)
    return pairs


def with_roles(
    frame: pd.DataFrame, given: Mapping[str, str] | None
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Roles of all columns, the given ones first; and for each kind of table names of its columns.

    The second maps ``"parameters"``, ``"costs"`` and ``"effects"`` to names by columns of `frame`.
    """
    roles = guess_roles(frame)
    for name, role in (given or {}).items():
        if name not in roles:
            raise unknown_column("columns", name, roles)
        if role not in (INPUT, IGNORED) and not _ROLE.fullmatch(str(role)):
            raise InputError("columns", f"{shown(role)} for {name!r}", _EXPECTED)
        roles[name] = role
    sources = {"parameters": {name: name for name, role in roles.items() if role == INPUT}}
    for kind, word in (("costs", "cost"), ("effects", "effect")):
        matches = {name: _ROLE.fullmatch(role) for name, role in roles.items()}
        of = {name: match[2] for name, match in matches.items() if match and match[1] == word}
        if len(of) < 2 or len(set(of.values())) < len(of):
            raise InputError(
                "columns",
                f"{kind} of {', '.join(map(repr, of.values())) or 'no option'}",
                f"a column of {kind} for each of at least two options",
                f"Say the role of each column: {_EXPECTED}; or have sheets named parameters, costs "
                "and effects.",
            )
        sources[kind] = of
    if not sources["parameters"]:
        raise InputError("columns", "no input", "at least one column that is an input")
    return roles, sources
