"""Words in the names of columns: costs, effects, options, numbers of draws, units."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nestquad.errors import InputError
from nestquad.voi.table._numbers import is_float

# Names of columns that number the draws, and others that do so where their values do.
DRAW_NAMES = re.compile(
    r"(psa|mc|sim(ulation)?s?|iter(ation)?s?|draws?|samples?|row)s?"
    r"([ _.]?(id|no|nr|number|index|run|sample|iteration|draw|names?|#))?",
    re.IGNORECASE,
)
ROW_NAMES = re.compile(rf"|x|unnamed: ?\d+|index|id|run|{DRAW_NAMES.pattern}", re.IGNORECASE)
# Words in the names of columns that hold costs, or effects; letters before the names of options.
_WORDS = {
    "costs": r"costs?|kosten",
    "effects": r"effects?|effs?|[qd]alys?( (?:averted|avoided|saved|gained))?|lys?|life ?years?|"
    r"outcomes?|utilit(?:y|ies)",
}
_LETTERS = {"costs": "c", "effects": "[euq]"}
# Words that say which costs or effects, not whose.
_QUALIFIERS = "total|(un)?disc(ounted)?|lifetime|mean|expected"
# Units such as (£000), [k€], ('000 USD), T€, in £ millions, per 1,000 patients; effects that harm.
_UNITS = {
    "costs": (
        r"[(\[,][\s£$€]*(['’]?000['’]?s?|k|m|mn|mio|(in )?(thousand|million)s?)"
        r"[\s£$€]*([a-z]{3})?[)\]]|[£$€]\s?(k|m|mn|['’]?000['’]?s?)\b|"
        r"\b(in|usd|eur|gbp|chf) [£$€]?\s?(thousand|million)s?\b|[£$€]\s?(thousand|million)s?\b|"
        r"\b[TK](€|EUR)|\bper (1[,. ]?000|thousand)\b",
        "costs in thousands or millions",
        "costs in full, of one patient",
        "Write them in full, as 3600000 for 3.6m, with the sign of the currency alone.",
    ),
    "effects": (
        r"\bper (1[,. ]?000|thousand)\b|"
        r"^(?!.*(avert|avoid|sav|gain|prevent)).*((?<![a-z])dalys?(?![a-z])|qalys? lost|qaly loss)",
        "effects of which fewer are better, or of many patients",
        "effects of one patient, of which more are better",
        "Give DALYs averted, as differences from one number for all options, and name them so.",
    ),
}


def one_line(name: object) -> str:
    """Name in one line: control characters can be in no workbook and no document."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(name)).strip()


def kind_of_name(name: str) -> str:
    """Whether a column holds costs or effects, by words of its name; "" where it says neither."""
    words = re.sub(r"[\W\d_]+", " ", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).casefold())
    kinds = [kind for kind, pattern in _WORDS.items() if re.search(rf"\b({pattern})\b", words)]
    is_money = not kinds and re.search("[£$€]", name)
    return "costs" if is_money else kinds[0] if len(kinds) == 1 else ""


def plain_names(names: Sequence[str], kind: str) -> list[str]:
    """Names without punctuation, units in parentheses, and words for costs or effects."""
    word = rf"({_WORDS[kind]}|{_LETTERS[kind]})"
    bare = [re.sub(r"[(\[].*?[)\]]", " ", name) for name in names]
    # Doses in parentheses tell options apart.
    names = bare if all(map(str.strip, bare)) and len({*bare}) == len({*names}) else names
    texts = [re.sub(r"[^\w+&%']+|_+", " ", name).strip() for name in names]
    texts = [re.sub(rf"\s*\b({_QUALIFIERS})\b", "", t, flags=re.I).strip() or t for t in texts]
    drop = re.compile(rf"^{word}(?= |\d|$)|(?<= ){word}$", re.IGNORECASE)
    return [drop.sub("", text).strip() or text for text in texts]


def check_names(argument: str, names: Sequence[str]) -> None:
    """Refuse names that are missing, repeated or numbers of a first draw."""
    if not names:
        raise InputError(argument, "a table without columns", "at least one column")
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        given, expected = f"the column {twice!r} {names.count(twice)} times", "a different name"
        advice = "Rename one of them in the header."
        raise InputError(argument, given, f"{expected} for each column", advice)
    counted = any(names == [str(k + first) for k in range(len(names))] for first in (0, 1))
    numbers = list(filter(is_float, names))
    if 2 * len(numbers) > len(names) and not counted:  # 0, 1, 2, … of a data frame without names
        advice = "Without a header, the first draw is taken for it: add a line of names on top. "
        advice += "If each draw is a column, transpose the table."
        expected = "a header line with names, and one row for each draw"
        given = f"numbers as column names ({', '.join(numbers[:3])})"
        raise InputError(argument, given, expected, advice)


def check_unit(kind: str, argument: str, names: Sequence[str]) -> None:
    """Refuse costs and effects whose names or titles say another unit."""
    pattern, given, expected, advice = _UNITS.get(kind, ("$^", "", "", ""))
    says = re.compile(pattern, re.IGNORECASE).search
    # The sheet DALYs may have columns of DALYs averted.
    if says(" ".join(names)) and (unit := next(filter(says, names), "")):
        raise InputError(argument, f"{given} ({unit})", expected, advice)
