"""Settings of an analysis, from a form or a saved file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nestquad.errors import InputError
from nestquad.voi.report._analysis import Audience, Study
from nestquad.voi.table import (
    DISCOUNT,
    BinaryTrial,
    CountTrial,
    NormalTrial,
    SurvivalTrial,
    study_sizes,
)
from nestquad.voi.table._names import one_line
from nestquad.voi.table._numbers import is_float
from nestquad.voi.table._population import ungrouped
from nestquad.voi.table._studies import read_sizes

# Steps of the slider: fine enough for the eye, and computed in seconds.
_STEPS = 40
_DESIGNS: dict[str, Any] = {
    "binary": BinaryTrial, "normal": NormalTrial, "count": CountTrial, "survival": SurvivalTrial,
}  # fmt: skip
_DETAILS = {"normal": "standard deviation", "count": "observation", "survival": "follow-up"}
# Advice for fields whose unit is not money.
_EXAMPLES = {
    "standard deviation": "2.5, in the unit of the measurement, or the name of a parameter",
    "observation": "1, in the unit of time of the rate",
    "follow-up": "2, in the unit of time of the hazard",
    "discount": "0.035 for 3.5 % a year",
    "years": "10",
    "people a year": "4000, or 4000 4200 4400 for three years",
    "uptake": "0.8, or 0.2 0.5 0.8 for three years",
    "people now": "12000",
    "duration": "2 (years)",
    "share": "0.3",
    "duration each": "0.01 (years)",
}
# More than all the money and people there are.
_MOST = 1e15
# Amounts of some hundreds and more, as a rule: three digits after a point are rather thousands.
_LARGE = ("wtp", "people a year", "fixed cost", "cost per participant")


@dataclass(frozen=True)
class Settings:
    """Settings of an analysis."""

    wtp: float
    title: str = "Value of information"
    currency: str = "£"
    effect: str = "QALYs"
    author: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    match: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    sheets: tuple[str, ...] = ()
    as_given: bool = False
    is_swapped: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    per_year: tuple[float, ...] = ()
    horizon: float | None = None
    discount: float = DISCOUNT
    prevalence: float = 0.0
    uptake: tuple[float, ...] = (1.0,)
    studies: tuple[Mapping[str, Any], ...] = ()
    parts: tuple[Mapping[str, Any], ...] = ()
    """Scenarios and subgroups: kind, name, share, names of two files, and their code on disk."""
    center: float | None = None
    """The willingness to pay in the middle of the slider; `wtp` is one of its positions."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from plain objects, whoever sent them: every value is checked or made text."""
        try:
            return cls._of(given)
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError("settings", str(error), "settings as the page sends them") from None

    @classmethod
    def _of(cls, given: Mapping[str, Any]) -> Settings:
        wtp = amount("wtp", given.get("wtp"))
        studies = [*map(_study, given.get("studies") or ())]
        center = _optional("center", given.get("center"))
        return cls(
            wtp=wtp,
            # The range of the slider stays while one of its positions is asked for.
            center=center if center is not None and wtp in cls(center).curve else wtp,
            title=_text(given.get("title") or cls.title),
            currency=_text(given.get("currency", cls.currency)),
            effect=_text(given.get("effect") or cls.effect),
            author=_text(given.get("author") or ""),
            files={_text(k): _text(name) for k, name in (given.get("files") or {}).items()},
            match=_names(given.get("match") or []),
            columns={_text(k): _text(v) for k, v in (given.get("columns") or {}).items()},
            sheets=_names(given.get("sheets") or []),
            as_given=given.get("as_given") is True,
            is_swapped=given.get("is_swapped") is True,
            groups={_text(k): _names(g) for k, g in (given.get("groups") or {}).items()},
            per_year=_by_year("people a year", given.get("per_year")),
            horizon=_optional("years", given.get("horizon")),
            discount=amount("discount", given.get("discount", DISCOUNT)),
            prevalence=_optional("people now", given.get("prevalence")) or 0.0,
            uptake=_by_year("uptake", given.get("uptake")) or cls.uptake,
            studies=tuple(one for i, one in enumerate(studies) if one not in studies[:i]),
            parts=tuple(map(_part, given.get("parts") or ())),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, given: Mapping[str, Any]) -> Settings:
        """With the values that a page may change.

        Of groups and studies a page sends changes alone, as another tab may have added some since:
        groups to add, and None for one to remove; a study to add, or its number to remove it.
        """
        allowed = {one.name for one in fields(self)} - {"files", "groups", "studies", "parts"}
        changes = {k: v for k, v in given.items() if k in allowed}
        if given.get("swap") is True:
            changes["is_swapped"] = not self.is_swapped
        if "sheets" in given:  # columns of other sheets
            changes |= {"columns": {}, "match": []}
        changes["groups"] = self._regrouped(given.get("groups") or {})
        removed = given.get("remove_study")
        changes["studies"] = [one for i, one in enumerate(self.studies) if i != removed]
        changes["studies"] += [given["study"]] if given.get("study") else []
        gone = given.get("remove_part")
        changes["parts"] = [part for part in self.parts if part["code"] != gone]
        new = Settings.of({**self.to_dict(), **changes})
        new.audience(), new.the_studies()  # refused now, not by the job
        return new

    def _regrouped(self, changes: Any) -> dict[str, Any]:
        if not isinstance(changes, Mapping):
            raise InputError("groups", repr(changes), "a mapping from labels to lists of names")
        groups: dict[str, Any] = dict(self.groups)
        for given, members in changes.items():
            label = _text(given)
            if members is None:
                groups.pop(label, None)
            elif groups.setdefault(label, _names(members)) != _names(members):
                advice = (
                    f"{label!r} is {', '.join(groups[label])}: remove it first, or rename this."
                )
                raise InputError("groups", f"a second group {label!r}", "another name", advice)
        return groups

    @property
    def curve(self) -> list[float]:
        """Positions of the slider: round numbers up to twice the center, and the center itself."""
        center = self.wtp if self.center is None else self.center
        top = 2.0 * center or 50_000.0
        power = 10.0 ** math.floor(math.log10(top / _STEPS))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= top / _STEPS * (1 - 1e-9))
        count = math.ceil(top / step - 1e-9)
        return sorted({center, *(round(step * i, 12) for i in range(count + 1))})

    def audience(self) -> Audience | None:
        """The people of the decision, where they were given."""
        if not self.per_year and self.horizon is None:
            return None
        if not self.per_year or self.horizon is None:
            raise InputError("population", "one number", "people a year and years, or neither")
        return Audience(
            list(self.per_year), self.horizon, self.discount, self.prevalence, list(self.uptake)
        )

    def the_studies(self) -> list[Study]:
        """The studies to be valued."""
        if self.studies and self.audience() is None:
            expected = "people a year and years of relevance"
            advice = "A study is worth its cost to somebody: say how many people decide."
            raise InputError("study", "no population", expected, advice)
        found = []
        for given in self.studies:
            one = dict(given)
            kind, pars, detail = one.pop("kind"), one.pop("pars"), one.pop("detail")
            design = _DESIGNS[kind](pars) if detail is None else _DESIGNS[kind](pars, detail)
            found.append(Study(design, **one))
        return found


def amount(name: str, given: Any) -> float:
    """A number that is not negative; an ambiguous text is refused."""
    text = str("" if given is None else given).strip().lstrip("£$€").strip()
    typed, meant = isinstance(given, str) and name in _LARGE, ungrouped(text)
    if meant and (typed or not _is_number(text)):
        raise InputError(name, repr(text), "a number without separators", f"Did you mean {meant}?")
    if not _is_number(text) or not 0 <= float(text) < _MOST:
        advice = f"For instance {_EXAMPLES.get(name, '20000')}."
        given = repr(text) if text else "nothing"
        raise InputError(name, given, "a number that is not negative", advice)
    return float(text)


def _is_number(text: str) -> bool:
    return is_float(text) and "_" not in text  # 1_000 may be the name of a parameter


def _optional(name: str, given: Any) -> float | None:
    return None if given is None or given == "" else amount(name, given)


def _by_year(name: str, given: Any) -> tuple[float, ...]:
    """A number, or one for each year, typed with blanks between them."""
    several = (
        given if isinstance(given, list | tuple) else str("" if given is None else given).split()
    )
    return tuple(amount(name, one) for one in several)


def _text(given: Any) -> str:
    return one_line(given)[:200]


def _names(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise InputError("names", repr(given), "a list of names")
    return tuple(map(_text, given))


def _part(given: Mapping[str, Any]) -> dict[str, Any]:
    """Scenario or subgroup: kind, name, share, names of its two files, and their code on disk."""
    kind, code = given["kind"], str(given["code"])
    if kind not in ("scenario", "subgroup") or not re.fullmatch(r"[0-9a-f]{12}", code):
        raise InputError("part", repr(kind), "a scenario or a subgroup")
    share = amount("share", given.get("share"))
    if not (name := _text(given.get("name") or "")) or share > 1:
        raise InputError(kind, f"{name!r} with a share of {share:g}", "a name, and at most 1")
    return {"kind": kind, "name": name, "share": share, "files": _names(given["files"]),
        "code": code}  # fmt: skip


def _study(given: Mapping[str, Any]) -> dict[str, Any]:
    """Kind, parameters and detail of a design, and the arguments of `Study`."""
    kind, detail, sizes = given["kind"], given.get("detail"), given["sizes"]
    if kind not in _DESIGNS:
        raise InputError("study", repr(kind), f"one of {', '.join(_DESIGNS)}")
    if not given["pars"]:
        expected = "the parameter that each arm measures"
        raise InputError("study", "no parameter", expected, "Click one or more.")
    if kind == "binary":
        detail = None
    elif kind != "normal" or not detail or _is_number(str(detail)):
        detail = amount(_DETAILS[kind], detail)
    # A page sends typed text, a saved file has a list.
    counts = study_sizes(read_sizes(sizes) if isinstance(sizes, str) else sizes)
    numbers = ("fixed_cost", "cost_per_participant", "duration", "duration_each")
    return {
        "kind": kind,
        "pars": _names(given["pars"]),
        "detail": detail,
        "sizes": sorted(set(counts)),
        **{one: amount(one.replace("_", " "), given.get(one) or 0) for one in numbers},
    }
