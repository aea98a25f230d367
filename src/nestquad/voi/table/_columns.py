"""Roles of the columns of one table that has inputs, costs and effects together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nestquad._checks import shown
from nestquad.errors import InputError, unknown_name
from nestquad.voi.table._outputs import plain_names
from nestquad.voi.table._tables import kind_of_name, numbers_rows

if TYPE_CHECKING:
    import pandas as pd

INPUT, IGNORED = "input", "ignored"
_ROLE = re.compile(r"(cost|effect) of (.+)", re.DOTALL)
# Results that follow from costs and effects: no inputs.
_DERIVED = re.compile(
    r"i?n[mh]?b\d*|icers?|inc|incr|incremental|delta|diff|difference|net|ce|ceac?|wtp|lambda_?wtp|"
    r"(cost)?effective|preferred|optimal|winner",
    re.IGNORECASE,
)
_EXPECTED = "“input”, “cost of …”, “effect of …” or “ignored”"


def assign_roles(frame: pd.DataFrame, given: Mapping[str, str]) -> dict[str, str]:
    """Role of each column: as `given`, or else from its name and its values.

    A cost and an effect of the same option make a pair; of several costs with one name the nearest
    to the effect is its own, and the others are ignored. So are columns that number the draws,
    constant texts, names of options, and results such as net benefits; all others are inputs.
    """
    names = [str(name) for name in frame.columns]
    words = {name: re.split(r"[\W_]+", name) for name in names}
    free = [
        name
        for name in names
        if name and not numbers_rows(name, frame[name])
        and not any(map(_DERIVED.fullmatch, words[name]))
        and not _is_constant_text(frame[name])
    ]  # fmt: skip
    costs = [name for name in free if kind_of_name(name) == "costs"]
    effects = [name for name in free if kind_of_name(name) == "effects"]
    effects = [name for name in effects if "utilit" not in name.lower()] or effects
    pairs = _pairs(names, costs, effects)
    if len(pairs) < 2:  # the short names of R: c1, e1, c.SoC, e.SoC
        costs, effects = (
            [name for name in free if re.match(rf"{letter}[\d._ ]", name, re.IGNORECASE)]
            for letter in ("c", "[eq]")
        )
        pairs = _pairs(names, costs, effects)
    roles = {name: INPUT if name in free else IGNORED for name in names}
    if len(pairs) > 1:
        for name in names:
            kind = "costs" if name in costs else "effects" if name in effects else ""
            is_result = kind and _option(plain_names([name], kind)[0]) in pairs
            if is_result or set(frame[name].unique()) <= {*pairs}:
                roles[name] = IGNORED
        for option, (cost, effect) in pairs.items():
            roles[cost], roles[effect] = f"cost of {option}", f"effect of {option}"
    return {name: given.get(name, role) for name, role in roles.items()}


def _is_constant_text(column: pd.Series[Any]) -> bool:
    """Whether all cells are one text, and no formula or error."""
    is_text = column.dtype.kind not in "fiub" and column.nunique() == 1
    return is_text and str(column.dropna().iloc[0])[:1] not in ("#", "=")


def check_roles(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse roles of unknown columns, and unknown roles."""
    for name, role in given.items():
        if name not in known:
            raise unknown_name("columns", name, known)
        if role not in (INPUT, IGNORED) and not _ROLE.fullmatch(str(role)):
            raise InputError("columns", f"{shown(role)} for {name!r}", _EXPECTED)


def _pairs(
    names: Sequence[str], costs: Sequence[str], effects: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Costs and effects by option; of several effects, quality-adjusted ones."""
    pairs: dict[str, tuple[str, str]] = {}
    short = dict(zip(costs, plain_names(costs, "costs"), strict=True))
    for effect, option in zip(effects, plain_names(effects, "effects"), strict=True):
        known = pairs.get(_option(option), ("", ""))[1].casefold()
        if "qaly" in known and "qaly" not in effect.casefold():
            continue
        same = [c for c in costs if short[c].casefold() == option.casefold()]
        if same:
            cost = min(same, key=lambda name: abs(names.index(name) - names.index(effect)))
            pairs[_option(option)] = (cost, effect)
    return pairs


def _option(name: str) -> str:
    return f"option {name}" if name.isdigit() else name


def columns_by_kind(roles: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Names in the tables of parameters, costs and effects by columns, from roles of columns."""
    kinds = {"parameters": {name: name for name, role in roles.items() if role == INPUT}}
    matches = {name: _ROLE.fullmatch(role) for name, role in roles.items()}
    for kind in ("costs", "effects"):
        of = {name: match[2] for name, match in matches.items() if match and match[1] + "s" == kind}
        if len(of) < 2 or len(set(of.values())) < len(of):
            raise InputError(
                "columns",
                f"{kind} of {', '.join(map(repr, of.values())) or 'no option'}",
                f"a column of {kind} for each of at least two options",
                f"Say the role of each column: {_EXPECTED}; or have sheets named parameters, costs "
                "and effects.",
            )
        kinds[kind] = of
    if not kinds["parameters"]:
        raise InputError("columns", "no input", "at least one column that is an input")
    return kinds
