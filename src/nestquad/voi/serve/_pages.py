"""HTML of the pages: templates beside this module, and everything from outside escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from nestquad.pages import bullets
from nestquad.voi.table._limits import MOST_BYTES

if TYPE_CHECKING:
    from nestquad.voi.serve._workspace import Work, Workspace

STATIC = Path(__file__).with_name("static")
# A person corrects the first ones and uploads again.
_MOST_PROBLEMS = 100


def start_page(
    workspace: Workspace, problem: str | None = None, given: Mapping[str, str] | None = None
) -> str:
    """Upload, example, saved analyses; a problem of the upload before."""
    works = "".join(
        f'<li><a href="analyses/{escape(work.name)}/">{escape(work.settings.title)}</a></li>'
        for work in workspace
    )
    listed = f'<h3>Open now</h3><ul class="listed">{works}</ul>' if works else ""
    body = _template("start").substitute(
        root="./",
        works=listed,
        problems=_alert("This cannot be read", [problem] if problem else []),
        upload=_upload("./", given or {}),
    )
    return _wrap("Value of information", "./", body)


def analysis_page(work: Work) -> str:
    """An analysis: what was understood, and the parts that the script fills."""
    settings, seen = work.settings, work.seen()
    problems = [] if seen is None else [one["message"] for one in seen["problems"]]
    failed = work.job is not None and not work.job.running and work.job.error
    unusable = bool(problems) or (seen is None and bool(failed))
    if seen is None and failed:
        problems = [str(failed)]
    unmatched = None if seen is None else seen["unmatched"]
    body = _template("analysis").substitute(
        title=escape(settings.title),
        summary="" if seen is None else _summary(seen),
        problems=_alert("These tables cannot be used yet", problems),
        match=_match(unmatched) if unmatched else "",
        seen="<p>Reading the tables …</p>" if seen is None else _seen(seen, settings.files),
        open=" open" if unusable else "",
        upload=_upload("../../", _given(settings)) if unusable else "",
    )
    bar = (
        '<form method="post" action="remove" id="remove"></form>'
        '<button type="button" class="plain" data-send="remove">Remove this analysis</button>'
    )
    return _wrap(settings.title, "../../", body, bar)


def message_page(words: str) -> str:
    """A sentence, and nothing from elsewhere: it also answers strangers."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>nestquad</title>'
        f"<body><p>{escape(words)}</p></body></html>\n"
    )


def _wrap(title: str, root: str, body: str, bar: str = "") -> str:
    return _template("page").substitute(title=escape(title), root=root, body=body, bar=bar)


@cache
def _template(name: str) -> Template:
    return Template((STATIC / f"{name}.html").read_text(encoding="utf-8"))


def _given(settings: Any) -> dict[str, str]:
    return {
        "wtp": f"{settings.wtp:.12g}",
        "title": settings.title,
        "currency": settings.currency,
        "effect": settings.effect,
    }


def _upload(root: str, given: Mapping[str, str]) -> str:
    return _template("upload").substitute(
        root=root,
        most=MOST_BYTES,
        wtp=escape(given.get("wtp", "20000")),
        currency=escape(given.get("currency", "£")),
        effect=escape(given.get("effect", "QALYs")),
        heading=escape(given.get("title", "")),
    )


def _alert(heading: str, problems: list[str]) -> str:
    if not problems:
        return ""
    left = len(problems) - _MOST_PROBLEMS
    listed = bullets([*problems[:_MOST_PROBLEMS], *([f"and {left:,} more"] if left > 0 else [])])
    return f'<section class="alert" role="alert"><h2>{escape(heading)}</h2>{listed}</section>'


def _match(names: Mapping[str, list[str]]) -> str:
    """A choice of the column of effects for each column of costs."""
    rows = "".join(
        f"<tr><td>{escape(cost)}</td><td><select data-match>{_choices(names['effects'], i)}"
        "</select></td></tr>"
        for i, cost in enumerate(names["costs"])
    )
    return (
        '<section class="card" id="match"><h2>Which belong together?</h2>'
        f"<table><tr><th>costs</th><th>effects</th></tr>{rows}</table>"
        '<button type="button" id="matched">These belong together</button></section>'
    )


def _choices(names: list[str], chosen: int) -> str:
    return "".join(
        f"<option{' selected' if i == chosen else ''}>{escape(name)}</option>"
        for i, name in enumerate(names)
    )


def _summary(seen: Mapping[str, Any]) -> str:
    """What was understood in a line, and what was left out or converted on the way."""
    tables = seen["tables"]
    options = " · ".join(map(escape, seen["options"]))
    return (
        f'<p class="quiet understood">{tables["parameters"]["rows"]:,} draws of '
        f"{len(seen.get('parameters', tables['parameters']['columns'])):,} parameters"
        f"{f'; options {options}' if options else ''}. "
        '<a href="#seen">What was understood</a></p>'
        f"{_notes(seen['notes'])}"
    )


def _notes(notes: Sequence[str]) -> str:
    return bullets(notes, css="notes quiet") if notes else ""


def _seen(seen: Mapping[str, Any], files: Mapping[str, str]) -> str:
    parts = []
    if seen["options"]:
        options = bullets(seen["options"], "ol", "inline")
        parts.append(f"<p>Options, matched in costs and effects:</p>{options}")
    parts.append(_notes(seen["notes"]))
    for kind, table in seen["tables"].items():
        name = files.get(kind) or files.get("workbook", "")
        bad = {one["column"] for one in seen["problems"] if one["table"].startswith(kind)}
        rows = "".join(
            f"<tr{_BAD if column in bad else ''}><td>{escape(column)}</td>{_cells(ends)}</tr>"
            for column, ends in zip(table["columns"], table["ranges"], strict=True)
        )
        parts.append(
            f"<h3>{escape(kind.capitalize())} <small>{escape(name)}: {table['rows']:,} draws, "
            f"{len(table['columns']):,} columns</small></h3>"
            f'<div class="scroll"><table class="numbers"><tr><th>column</th><th>least</th>'
            f"<th>mean</th><th>most</th></tr>{rows}</table></div>"
        )
    return "\n".join(parts)


_BAD = ' class="bad"'


def _cells(values: Iterable[Any]) -> str:
    return "".join(f"<td>{'–' if value is None else f'{value:,.5g}'}</td>" for value in values)
