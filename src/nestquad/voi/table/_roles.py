"""Roles of the columns of one table that has inputs, costs and effects together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nestquad._checks import shown
from nestquad.errors import InputError, unknown_name
from nestquad.voi.table._names import kind_of_name, plain_names
from nestquad.voi.table._tables import numbers_rows

if TYPE_CHECKING:
    import pandas as pd

INPUT, IGNORED = "input", "ignored"
_ROLE = re.compile(r"(cost|effect) of (.+)", re.DOTALL)
# Words of results that follow from costs and effects, and of what a program logs: no inputs.
_DERIVED = re.compile(
    r"i?n[mh]?b\d*|icers?|inc|incr|incremental|delta|diff|difference|net|ce|ceac?|wtp|lambda_?wtp|"
    r"(cost)?effective|preferred|optimal|winner|cum|cumulative|running|seed|date|timestamp",
    re.IGNORECASE,
)
# Words of costs and effects that are inputs although they are there for each option.
_EACH = re.compile(r"\b(units?|per|prices?|daily|weekly|monthly|annual|utilit(y|ies))\b")
_DATE = r"\s*\d{4}-\d\d-\d\d.*|\s*\d{1,2}[./]\d{1,2}[./]\d{2,4}.*"
_EXPECTED = "“input”, “cost of …”, “effect of …” or “ignored”"


def assign_roles(
    frame: pd.DataFrame, given: Mapping[str, str], hidden: Collection[str] = ()
) -> dict[str, str]:
    """Role of each column: as `given`, or else from its name and its values.

    A cost and an effect of the same option make a pair; of several with one name, QALYs, totals and
    discounted values are preferred, then the nearest. The others are ignored, and so are parts of
    costs and effects by option, columns that number the draws, constant texts, dates, names of
    options, and results such as net benefits; all others are inputs. Hidden costs and effects are
    ignored where others are left.
    """
    names = [str(name) for name in frame.columns]
    words = {name: re.split(r"[\W_]+", name) for name in names}
    free = [
        name
        for name in names
        if name and not numbers_rows(name, frame[name])
        and not any(map(_DERIVED.fullmatch, words[name]))
        and not _is_label(frame[name])
    ]  # fmt: skip
    kinds = {name: kind_of_name(name) for name in free}
    costs, effects = ([n for n in free if kinds[n] == kind] for kind in ("costs", "effects"))
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
        parts = _parts_by_option([n for n in (*costs, *effects) if kinds[n]], pairs)
        for name in names:
            kind = "costs" if name in costs else "effects" if name in effects else ""
            is_result = kind and _option(plain_names([name], kind)[0]) in pairs
            if is_result or name in parts or set(frame[name].unique()) <= {*pairs}:
                roles[name] = IGNORED
        for option, (cost, effect) in pairs.items():
            roles[cost], roles[effect] = f"cost of {option}", f"effect of {option}"
        folded = [pair for pair in pairs.values() if {*pair} & {*hidden} - {*given}]
        if len(pairs) - len(folded) > 1:
            roles |= dict.fromkeys((name for pair in folded for name in pair), IGNORED)
    return {name: given.get(name, role) for name, role in roles.items()}


def check_roles(roles: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse roles of columns that are not there, and other words."""
    for column, role in given.items():
        if column not in roles:
            raise unknown_name("columns", column, roles)
        if role not in (INPUT, IGNORED) and not _ROLE.fullmatch(str(role)):
            raise InputError("columns", f"{shown(role)} for {column!r}", _EXPECTED)


def other_results(roles: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Notes on columns that are ignored, or inputs, although their names say costs or effects."""
    notes = {
        IGNORED: "columns ignored as other results",
        INPUT: "inputs, since no option has a cost and an effect of that name",
    }
    kinds = {n: role for n, role in roles.items() if n not in given and kind_of_name(n)}
    names = {role: [repr(n) for n in kinds if kinds[n] == role] for role in notes}
    return [f"{notes[role]}: {', '.join(those)}" for role, those in names.items() if those]


def _is_label(column: pd.Series[Any]) -> bool:
    """Whether all cells are one text, no formula or error, or dates."""
    if column.dtype.kind in "mMfiub":
        return column.dtype.kind in "mM"
    text = str(column.dropna().iloc[0]) if column.notna().any() else "#"
    is_date = bool(column.astype(str).str.fullmatch(_DATE).all())
    return is_date or (column.nunique() == 1 and text[:1] not in ("#", "="))


def _parts_by_option(names: Sequence[str], options: Iterable[str]) -> set[str]:
    """Names with the name of an option in them that are there for two options or more."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        plain = re.sub(r"[\W_]+", " ", name).casefold()
        # At its end first: the cost of drugs in the arm Drug.
        for option in () if _EACH.search(plain) else options:
            before, word, after = plain.rpartition(option.casefold())
            if word and plain != word:
                found.setdefault(f"{before}|{after}", {})[option] = name
    return {name for by in found.values() if len(by) > 1 for name in by.values()}


def _pairs(
    names: Sequence[str], costs: Sequence[str], effects: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Costs and effects by option."""
    pairs: dict[str, tuple[str, str]] = {}
    short = dict(zip(costs, plain_names(costs, "costs"), strict=True))
    options = dict(zip(effects, plain_names(effects, "effects"), strict=True))
    for option in dict.fromkeys(options.values()):
        same = [c for c in costs if short[c] == option]
        same = same or [c for c in costs if short[c].casefold() == option.casefold()]
        if same:
            effect = min((e for e in effects if options[e] == option), key=_preference)
            place = names.index(effect)
            cost = min(same, key=lambda c: (_preference(c), abs(names.index(c) - place)))
            pairs[_option(option)] = (cost, effect)
    return pairs


def _preference(name: str) -> tuple[bool, bool, bool]:
    """Order of columns of one option: QALYs, discounted values, totals."""
    folded = name.casefold()
    is_other = kind_of_name(name) == "effects" and "qal" not in folded
    return is_other, "undisc" in folded, not re.search("total|disc", folded)


def _option(name: str) -> str:
    return f"option {name}" if name.isdigit() else name


def columns_by_kind(roles: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Names in the tables of parameters, costs and effects by columns, from roles of columns."""
    kinds = {"parameters": {name: name for name, role in roles.items() if role == INPUT}}
    matches = {name: _ROLE.fullmatch(role) for name, role in roles.items()}
    for kind in ("costs", "effects"):
        of = {name: match[2] for name, match in matches.items() if match and match[1] + "s" == kind}
        if len(of) < 2 or len(set(of.values())) < len(of):
            given = f"{kind} of {', '.join(map(repr, of.values())) or 'no option'}"
            expected = f"a column of {kind} for each of at least two options"
            advice = f"Say the role of each column: {_EXPECTED}; or have sheets named parameters, "
            raise InputError("columns", given, expected, f"{advice}costs and effects.")
        kinds[kind] = of
    if not kinds["parameters"]:
        raise InputError("columns", "no input", "at least one column that is an input")
    return kinds
