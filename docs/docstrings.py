"""What the API page needs to know about our docstrings.

The parser knows the sections of numpydoc, but neither ``Shapes`` nor ``Cost``, whose underlines
Markdown would take for headings; and a few docstrings use roles, formulas and tables of
reStructuredText.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(Shapes|Cost)\n-+\n", re.M)
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_FORMULA = re.compile(r"^\.\. math:: (.*(?:\n {2,}.*)*)", re.M)
_RULE = r"=+ [= ]*="
_TABLE = re.compile(rf"^{_RULE}\n(?:.*\n)+?{_RULE}\n(?:.*\n)+?{_RULE}$", re.M)
# Functions of the front door have the name of their module.
_FRONT = {
    f"nestquad.{name}": f"nestquad.{module}.{name}"
    for name, module in (
        ("estimate", "estimate"),
        ("compare", "compare"),
        ("conditional", "conditional"),
        ("expectation", "expectation"),
        ("plan", "plan"),
        ("analyze", "plan"),
    )
}


class Docstrings(griffe.Extension):
    """Rewrites docstrings into Markdown before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The docstring with notes for our own sections, formulas, links for roles, code for tables."""
    text = _SECTION.sub(r"Notes\n-----\n**\1.** ", text)
    text = _FORMULA.sub(lambda m: "$$\n" + " ".join(m[1].split()) + "\n$$", text)
    text = _TABLE.sub(lambda m: f"```text\n{m[0]}\n```", text)
    return _ROLE.sub(_link, text)


def _link(role: re.Match[str]) -> str:
    """A reference to what has a heading of its own; code for the rest."""
    name = role[1]
    return f"[`{name}`][{_FRONT[name]}]" if name in _FRONT else f"`{name}`"
