"""Parts of self-contained HTML pages: style, amounts, tables, embedded figures, footer.

Pages fetch no other file: figures are embedded, styles are inline. Text from outside (names, notes,
commands) is escaped.
"""

from __future__ import annotations

import base64
import datetime
import platform
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._files import new_file
from nestquad.errors import MissingExtraError
from nestquad.plots import new_axes, to_png


def money(value: float, currency: str = "", half: float = 0.0) -> str:
    """An amount of money with the digits that its 95 % half-width supports; a dash for NaN."""
    if np.isnan(value):
        return "–"
    size = abs(value)
    if half > 0 and size > 0:
        unit = 10.0 ** last_digit(half)
        size = round(size / unit) * unit
        scale, letter = next((s for s in _SCALES if size >= s[0] and unit >= s[0] / 1e3), (1.0, ""))
        digits = max(0, round(np.log10(scale / unit))) if size else 0
        text = f"{size / scale:,.{digits}f}{letter}"
    else:
        text = f"{size:,.0f}" if size >= 100 else f"{size:.3g}"
    negative = value < 0 and any(digit in "123456789" for digit in text)
    return f"{'−' if negative else ''}{currency}{text}"


def last_digit(half: float) -> int:
    """Power of ten of the last digit that a 95 % half-width supports: one more where it is 1."""
    return int(np.floor(np.log10(half / 2)))


def span(low: float, high: float, currency: str = "") -> str:
    """Both ends of an interval, with the digits that its width supports."""
    half = (high - low) / 2
    ends = (0.0 if abs(x) < half / 20 else x for x in (low, high))
    return " to ".join(money(x, currency, half) for x in ends)


_SCALES = ((1e9, "bn"), (1e6, "m"))


def percent(share: float) -> str:
    """A share in per cent, without decimals; a dash where there is none (NaN)."""
    return "–" if np.isnan(share) else f"{100 * share:.0f} %"


_BEST = ' class="best"'

_STYLE = """
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 50rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; }
.answer { font-size: clamp(1.5rem, 7vw, 2.6rem); font-weight: 600; margin: .5rem 0 0; }
.answer { color: #0072b2; overflow-wrap: anywhere; line-height: 1.2; }
.scroll { overflow-x: auto; }
.page-end { border-bottom: 1px solid #ddd; margin: 2rem 0; }
table { border-collapse: collapse; font-size: .9rem; margin: 1rem 0; }
caption { text-align: left; color: #6b6b6b; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
tr { border-bottom: 1px solid #eee; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.numbers td { overflow-wrap: normal; }
.numbers td:first-child, .numbers td.words { overflow-wrap: anywhere; }
.numbers th, .numbers td { text-align: right; }
.numbers th:first-child, .numbers td:first-child, .numbers .words { text-align: left; }
.numbers td:first-child { min-width: 6rem; }
.numbers td.words { min-width: 10rem; }
@media screen and (max-width: 40rem) { /* a card for each row: nothing to scroll */
  .numbers thead { display: none; }
  .numbers, .numbers tbody, .numbers caption { display: block; }
  .numbers tr { display: block; padding: .4rem 0; border-bottom: 1px solid #ccc; }
  .numbers td, .numbers td:first-child { display: flex; justify-content: space-between; }
  .numbers td { gap: 1rem; padding: 0; min-width: 0; }
  .numbers td:first-child { font-weight: 600; }
  .numbers td.words { display: block; text-align: left; }
  .numbers td:not(.words):not(:first-child)::before { content: attr(data-name); color: #6b6b6b; }
}
.best { font-weight: 600; }
figure { margin: 1rem 0; break-inside: avoid; }
img { max-width: 100%; height: auto; }
figcaption, footer { font-size: .9rem; color: #6b6b6b; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .5rem; }
@media print {
  body { font-size: 10pt; }
  table, figcaption, footer { font-size: 9pt; }
  main { max-width: none; }
  .scroll { overflow: visible; }
  .page-end { break-after: page; border: 0; margin: 0; }
  .downloads, figure .files { display: none; }
  th, td { padding-right: .6rem; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  img { width: 12cm; }
  footer { break-inside: avoid; }
}
"""


def write_page(path: str | Path, heading: str, sections: Iterable[str]) -> Path:
    """Write sections of HTML as one page; returns the file."""
    body = "\n".join(sections)
    path = new_file(path)
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
        encoding="utf-8",
    )
    return path


def figure(draw: Callable[[Any], Any], caption: str, alt: str = "", height: float = 3.5) -> str:
    """A figure inside the page, small enough for a phone; without the extra ``plot``, a sentence.

    `draw` takes the axes; `alt` is for readers who do not see the figure.
    """
    try:
        drawn, (ax,) = new_axes(5.6, height)
    except MissingExtraError as error:
        return paragraphs([f"A figure is left out. {error}"])
    draw(ax)
    return picture(to_png(drawn), caption, alt)


def picture(
    png: bytes, caption: str, alt: str = "", *, svg: bytes | None = None, name: str = "figure"
) -> str:
    """A drawn figure inside the page; with its SVG, both can be downloaded under the `name`."""
    address = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    files = ""
    if svg is not None:
        vector = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
        links = {"svg": vector, "png": address}
        made = [f'<a download="{name}.{k}" href="{v}">{k.upper()}</a>' for k, v in links.items()]
        files = f' <span class="files">{" ".join(made)}</span>'
    return (
        f'<figure><img src="{address}" alt="{escape(alt or caption)}">'
        f"<figcaption>{escape(caption)}{files}</figcaption></figure>"
    )


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>\n" for k, v in rows)
    return f'<div class="scroll"><table>{body}</table></div>'


def grid(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", best: Container[int] = ()
) -> str:
    """A table with a head, numbers to the right, names and words to the left; `best` rows bold.

    Columns named flags or words hold sentences; the latter name is not shown. A narrow screen
    shows a card for each row.
    """
    named = ["", *(f' data-name="{escape(name)}"' for name in head[1:])]
    marks = [
        ' class="words"' if n in ("flags", "words") else a for n, a in zip(head, named, strict=True)
    ]
    shown = ["" if name == "words" else name for name in head]
    top = "".join(f"<th{m}>{escape(name)}</th>" for name, m in zip(shown, marks, strict=True))
    # A minus sign stays with its number.
    lines = [[escape(cell).replace("−", "−\u2060") for cell in row] for row in rows]
    body = "\n".join(
        f"<tr{_BEST if i in best else ''}>"
        f"{''.join(f'<td{m}>{c}</td>' for c, m in zip(row, marks, strict=True))}</tr>"
        for i, row in enumerate(lines)
    )
    top = f"<thead><tr>{top}</tr></thead>" if any(shown) else ""
    said = f"<caption>{escape(caption)}</caption>\n" if caption else ""
    return (
        f'<div class="scroll"><table class="numbers">{said}{top}\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def paragraphs(texts: Iterable[str]) -> str:
    """Texts, each a paragraph."""
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def bullets(texts: Iterable[str], tag: str = "ul") -> str:
    """Texts as a list, numbered with the tag ``ol``."""
    return f"<{tag}>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</{tag}>"


def footer(command: str | None) -> str:
    """How the page was made, by which versions, and when."""
    made_by = "" if command is None else f"<p>Made by</p><pre>{escape(command)}</pre>"
    made_with = f"{versions('numpy', 'scipy')}; {datetime.date.today().isoformat()}"
    return f"<footer>{made_by}<p>{escape(made_with)}</p></footer>"


def versions(*packages: str) -> str:
    """Versions of nestquad, Python and the packages, as far as installed."""
    from nestquad import __version__

    names = [f"nestquad {__version__}", f"Python {platform.python_version()}"]
    for name in packages:
        with suppress(PackageNotFoundError):
            names.append(f"{name} {version(name)}")
    return ", ".join(names)
