"""HTML of the pages: Jinja2 templates in the folder static, everything from outside escaped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestquad.voi.table._limits import MOST_BYTES

if TYPE_CHECKING:
    from nestquad.voi.serve._workspace import Work, Workspace

STATIC = Path(__file__).with_name("static")
# Problems on one page; a person corrects the first ones and uploads again.
_MOST_PROBLEMS = 100


def start_page(
    workspace: Workspace, problem: str | None = None, given: Mapping[str, str] | None = None
) -> str:
    """Upload, example, saved analyses; a problem of the upload before."""
    problems = [problem] if problem else []
    return _rendered("start", root="./", works=list(workspace), problems=problems, given=given)


def analysis_page(work: Work) -> str:
    """Page of an analysis: the reading of its tables, and the parts that the script fills."""
    seen = work.seen()
    problems = [] if seen is None else [one["message"] for one in seen["problems"]]
    if seen is None and work.job is not None and not work.job.running and work.job.error:
        problems = [work.job.error]
    left = len(problems) - _MOST_PROBLEMS
    bad = {} if seen is None else {(p["table"], p["column"]) for p in seen["problems"]}
    return _rendered(
        "analysis",
        root="../../",
        work=work,
        seen=seen,
        bad=bad,
        given=vars(work.settings),
        problems=[*problems[:_MOST_PROBLEMS], *([f"and {left:,} more"] if left > 0 else [])],
    )


def message_page(words: str) -> str:
    """A sentence without style or script: it also answers strangers."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>nestquad</title>'
        f"<body><p>{escape(words)}</p></body></html>\n"
    )


def _rendered(name: str, **values: Any) -> str:
    page: str = _templates().get_template(f"{name}.html").render(most=MOST_BYTES, **values)
    return page


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader

    found = Environment(loader=FileSystemLoader(STATIC), autoescape=True, trim_blocks=True)
    found.filters["short"] = lambda x: (
        "–" if x is None else format(x, ",.0f" if abs(x) >= 1e4 else ",.5g")
    )
    found.filters["plain"] = lambda x: f"{x:.12g}" if isinstance(x, float) else x
    return found
