"""The documents of the project, and what stands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text and the line on which the text starts."""

    language: str
    text: str
    line: int


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in these languages, in order."""
    text = read(page)
    results = [
        Block(m["language"], m["body"], text.count("\n", 0, m.start("body")) + 1)
        for m in _FENCE.finditer(text)
    ]
    return [block for block in results if block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def label(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
