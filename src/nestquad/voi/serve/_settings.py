"""Settings of an analysis, from a form or a saved file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nestquad.errors import InputError
from nestquad.voi.report import Audience, Study
from nestquad.voi.table import (
    DISCOUNT,
    BinaryTrial,
    CountTrial,
    NormalTrial,
    SurvivalTrial,
)

# A slider with so many steps is fine enough for the eye, and its answers take seconds.
_STEPS = 40
_DESIGNS: dict[str, Any] = {
    "binary": BinaryTrial, "normal": NormalTrial, "count": CountTrial, "survival": SurvivalTrial,
}  # fmt: skip
_DETAILS = {"normal": "standard deviation", "count": "observation", "survival": "follow-up"}
_LONGEST_NAME = 200
_MOST_SIZES = 30
_SEPARATED = re.compile(r"\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+")


@dataclass(frozen=True)
class Settings:
    """What was asked of the tables; validated, whoever sent it."""

    wtp: float
    title: str = "Value of information"
    currency: str = "£"
    effect: str = "QALYs"
    files: Mapping[str, str] = field(default_factory=dict)
    match: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    per_year: float | None = None
    horizon: float | None = None
    discount: float = DISCOUNT
    study: Mapping[str, Any] | None = None
    center: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from plain objects: every value is checked, unknown ones are left out."""
        study, wtp = given.get("study"), amount("wtp", given.get("wtp"))
        center = _optional("center", given.get("center"))
        # The range of the slider stays where it is while one of its positions is asked for.
        center = center if center is not None and wtp in cls(center).curve else wtp
        return cls(
            wtp=wtp,
            center=center,
            title=_text("title", given.get("title") or cls.title),
            currency=_text("currency", given.get("currency", cls.currency)),
            effect=_text("effect", given.get("effect") or cls.effect),
            files={_text("files", k): _text("files", v) for k, v in _map(given, "files").items()},
            match=_names("match", given.get("match") or []),
            groups={
                _text("groups", label): _names("groups", members)
                for label, members in _map(given, "groups").items()
            },
            per_year=_optional("people a year", given.get("per_year")),
            horizon=_optional("years", given.get("horizon")),
            discount=amount("discount", given.get("discount", DISCOUNT)),
            study=None if study is None else _study(study),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, given: Mapping[str, Any]) -> Settings:
        """With the values that a page may change."""
        allowed = {one.name for one in fields(self)} - {"files"}
        new = Settings.of({**self.to_dict(), **{k: v for k, v in given.items() if k in allowed}})
        new.audience(), new.the_study()  # refused now, not by the job
        return new

    @property
    def curve(self) -> list[float]:
        """Positions of the slider: round numbers up to twice the one asked for first, and itself.

        Examples
        --------
        >>> Settings(20_000.0).curve[:3], len(Settings(20_000.0).curve)
        ([0.0, 1000.0, 2000.0], 41)
        """
        center = self.wtp if self.center is None else self.center
        top = 2.0 * center or 50_000.0
        power = 10.0 ** math.floor(math.log10(top / _STEPS))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= top / _STEPS * (1 - 1e-9))
        count = math.ceil(top / step - 1e-9)
        return sorted({center, *(round(step * i, 12) for i in range(count + 1))})

    def audience(self) -> Audience | None:
        """The people of the decision, where they were given."""
        if self.per_year is None and self.horizon is None:
            return None
        if self.per_year is None or self.horizon is None:
            raise InputError(
                "population",
                "people a year without years" if self.horizon is None else "years without people",
                "both, or neither",
            )
        return Audience(self.per_year, self.horizon, self.discount)

    def the_study(self) -> Study | None:
        """The study to be valued, where one was given."""
        if self.study is None:
            return None
        if self.audience() is None:
            raise InputError(
                "study",
                "no population",
                "people a year and years of relevance",
                "A study is worth its cost to somebody: say how many people decide.",
            )
        one = self.study
        design, detail = _DESIGNS[one["kind"]], one["detail"]
        return Study(
            design(one["pars"]) if detail is None else design(one["pars"], detail),
            one["sizes"],
            one["fixed_cost"],
            one["cost_each"],
            one["duration"],
            one["duration_each"],
        )


def amount(name: str, given: Any) -> float:
    """A number that is not negative; what could mean two numbers is refused."""
    text = str(given if given is not None else "").strip().lstrip("£$€").strip()
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if _SEPARATED.fullmatch(text) and "." not in text:
        digits = re.sub(r"\D", "", text)
        raise InputError(name, repr(text), "a number without separators", f"Did you mean {digits}?")
    if isinstance(given, bool) or not 0 <= value < math.inf:
        raise InputError(name, repr(text), "a number that is not negative", "For instance 20000.")
    return value


def _optional(name: str, given: Any) -> float | None:
    return None if given is None or given == "" else amount(name, given)


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str) or len(given) > _LONGEST_NAME:
        raise InputError(name, f"{str(given)[:40]!r}", f"text of at most {_LONGEST_NAME} letters")
    return given.strip()


def _names(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise InputError(name, repr(given), "a list of names")
    return tuple(_text(name, one) for one in given)


def _map(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name) or {}
    if not isinstance(value, Mapping):
        raise InputError(name, repr(value), "names with values")
    return value


def _study(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or given.get("kind") not in _DESIGNS:
        raise InputError("study", repr(given)[:80], f"a study of kind {', '.join(_DESIGNS)}")
    pars = _names("study", given.get("pars") or [])
    if not pars:
        raise InputError("study", "no parameters", "the parameter that each arm measures")
    sizes = given.get("sizes")
    if isinstance(sizes, str):
        sizes = sizes.replace(",", " ").split()
    if not isinstance(sizes, list | tuple) or not 1 <= len(sizes) <= _MOST_SIZES:
        raise InputError("sizes", repr(sizes), f"1 to {_MOST_SIZES} numbers of participants")
    counts = [amount("sizes", one) for one in sizes]
    if not all(n.is_integer() and n >= 1 for n in counts):
        raise InputError("sizes", repr(sizes), "whole numbers of at least 1", "As 50, 100, 200.")
    detail = given.get("detail")
    if given["kind"] == "binary":
        detail = None
    elif given["kind"] != "normal" or _is_number(str(detail)):  # a parameter may be the deviation
        detail = amount(_DETAILS[given["kind"]], detail)
    else:
        detail = _text(_DETAILS["normal"], detail)
    numbers = ("fixed_cost", "cost_each", "duration", "duration_each")
    return {
        "kind": given["kind"],
        "pars": pars,
        "detail": detail,
        "sizes": sorted({int(n) for n in counts}),
        **{one: amount(one.replace("_", " "), given.get(one) or 0) for one in numbers},
    }


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
