"""Visual style: colors, markers, labels and numbers of all figures.

A method has the same color, marker and dashes in every figure of the project. Methods differ in
all three, so that figures survive color blindness and a black-and-white printer. Lines are
labeled at their ends.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array
from nestquad.errors import InputError, optional_module

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, _GRID = "#222222", "#6B6B6B", "#DDDDDD"
TEXT_SIZE = 9.0
# Dashes of a line that marks a mean or an exact value; no method has them.
AVERAGE = (0, (8, 3))


@dataclass(frozen=True)
class MethodStyle:
    """How one method is drawn wherever it appears."""

    color: str
    marker: str
    dashes: Any

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot``."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


_STYLES = {
    "nmc": MethodStyle(SOFT, "o", (0, (1, 1.5))),
    "nqmc": MethodStyle("#C97700", "s", (0, (4, 2))),
    "nkq": MethodStyle("#0072B2", "D", "-"),
    "ckq": MethodStyle("#00805D", "^", (0, (10, 1))),
    "joint": MethodStyle("#B04A86", "P", (0, (6, 1.5, 1, 1.5))),
    "mlmc": MethodStyle("#8A6D00", "v", (0, (1, 1))),
    "mlkq": MethodStyle("#3A9BD9", "X", (0, (4, 1, 1, 1, 1, 1))),
    "process": MethodStyle("#C03B26", "H", (0, (8, 1.5))),
    "lsmc": MethodStyle("#5E3C99", "*", (0, (2, 2))),
    "auto": MethodStyle("#000000", "h", (0, (12, 1, 2, 1))),
}
_SPARE = (
    MethodStyle("#A6403B", "<", (0, (3, 1))),
    MethodStyle("#2F6B3A", ">", (0, (7, 2))),
    MethodStyle("#7A4A1F", "p", (0, (2, 1, 1, 1))),
    MethodStyle("#4C5C7A", "d", (0, (5, 1, 2, 1))),
)


def method_styles(labels: Iterable[str]) -> dict[str, MethodStyle]:
    """A style for each label: that of its method, or a spare one.

    Labels are names such as ``"nkq"`` or configurations such as ``"NKQ(n_inner=64)"``, of which
    the first takes the style of the method.

    Examples
    --------
    >>> styles = method_styles(["nkq", "mine"])
    >>> styles["nkq"].marker, styles["mine"].marker
    ('D', '<')
    """
    chosen: dict[str, MethodStyle] = {}
    for label in dict.fromkeys(labels):
        own = _STYLES.get(label.partition("(")[0].strip().lower())
        if own is None or own in chosen.values():
            free = [spare for spare in _SPARE if spare not in chosen.values()]
            own = free[0] if free else _SPARE[len(chosen) % len(_SPARE)]
        chosen[label] = own
    return chosen


def series_styles(count: int) -> list[MethodStyle]:
    """Styles for curves that are not methods, such as options of a decision; the same in order."""
    order = ("nkq", "nqmc", "ckq", "joint", "process", "mlkq", "lsmc", "mlmc")
    looks = [*(_STYLES[name] for name in order), *_SPARE]
    return [looks[k % len(looks)] for k in range(count)]


def new_axes(
    width: float = 6.4, height: float = 3.8, *, columns: int = 1, rows: int = 1
) -> tuple[Figure, Any]:
    """A figure (in inches) for saving, and a list of its styled axes, row by row.

    The figure is not known to pyplot: it needs no display and goes with its last reference.
    """
    optional_module("matplotlib", "Drawing a figure", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    places = range(1, rows * columns + 1)
    return figure, [style(figure.add_subplot(rows, columns, place)) for place in places]


def axes_or_new(ax: Any) -> Any:
    """The axes that the user gave, or new ones, in our style."""
    if ax is None:
        optional_module("matplotlib", "Drawing a figure", "plot")
        # Of pyplot, so that the figure appears in a notebook and in plt.show().
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    if not hasattr(ax, "set_axisbelow"):
        raise InputError("ax", shown(ax), "axes of matplotlib, or None for new ones")
    return style(ax)


def style(ax: Any) -> Any:
    """Give axes the project's look: a light grid behind, no frame. Touches no global setting."""
    ax.set_axisbelow(True)
    ax.grid(True, color=_GRID, linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(SOFT)
    ax.tick_params(labelsize=TEXT_SIZE, colors=INK, length=3, width=0.6)
    ax.tick_params(which="minor", labelsize=TEXT_SIZE - 1, length=2, width=0.4)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set(fontsize=TEXT_SIZE, color=INK)
    return ax


def title(ax: Any, name: str, text: str, pad: float = 8.0) -> None:
    """Write a title above the axes, left-aligned, after the problem's name."""
    # Names are the user's: a dollar sign in them starts no formula.
    shown = f"{name}: {text}" if name else text
    ax.set_title(shown, loc="left", fontsize=TEXT_SIZE + 1, color=INK, pad=pad, parse_math=False)


@dataclass(frozen=True)
class End:
    """Label of a curve, at the height `y` of its end; a thin line leads to an end at `x`."""

    y: float
    text: str
    color: str
    x: float | None = None


def label_ends(ax: Any, ends: Iterable[End]) -> None:
    """Write labels where curves end, or right of the axes if they would cover others there.

    Right of the axes they are moved apart where they would overlap. Fixes the limits.
    """
    ax.autoscale_view()
    ax.set_xlim(ax.get_xlim())
    ax.set_ylim(ax.get_ylim())
    to_axes = ax.transData + ax.transAxes.inverted()
    right, size = ax.get_xlim()[1], ax.get_window_extent()
    line = 1.4 * TEXT_SIZE / (72.0 * size.height / ax.figure.dpi)
    letter = 0.62 * TEXT_SIZE / (72.0 * size.width / ax.figure.dpi)
    curves = [
        to_axes.transform(np.column_stack(curve.get_data()).astype(float))
        for curve in ax.get_lines()
        if curve.get_transform() == ax.transData
    ]
    text_look = {"fontsize": TEXT_SIZE, "va": "center", "transform": ax.transAxes}
    places: list[tuple[float, float, End]] = []
    for end in ends:
        x, y = map(float, to_axes.transform((right if end.x is None else end.x, end.y)))
        box = np.array([[x + 0.02, y], [x + 0.02 + letter * len(end.text.replace("$", "")), y]])
        if box[1, 0] < 1.0 and not any(_meets(curve, box, 0.6 * line) for curve in curves):
            ax.text(x + 0.015, y, end.text, color=end.color, **text_look)
            curves.append(box)
        else:
            places.append((x, y, end))
    places.sort(key=lambda place: place[1])
    sizes = [line * (1 + end.text.count("\n")) for _, _, end in places]
    heights = _apart([y for _, y, _ in places], sizes)
    for height, (x, y, end) in zip(heights, places, strict=True):
        if end.x is not None and (x < 0.9 or abs(height - y) > line):
            line_look = {"linewidth": 0.5, "alpha": 0.7, "zorder": 1, "clip_on": False}
            ax.plot([x, 1.01], [y, height], color=end.color, transform=ax.transAxes, **line_look)
        ax.text(1.015, height, end.text, color=end.color, **text_look)


def _meets(curve: Array, box: Array, distance: float) -> bool:
    """Whether a curve (n, 2) comes closer to a horizontal line (2, 2) than a distance."""
    curve = curve[np.argsort(curve[:, 0])]
    if not len(curve):
        return False
    x = np.linspace(box[0, 0], box[1, 0], 40)
    y = np.interp(x, curve[:, 0], curve[:, 1], left=np.inf, right=np.inf)
    return bool((np.abs(y - box[0, 1]) < distance).any())


def _apart(wanted: list[float], sizes: list[float]) -> list[float]:
    """Heights in the order wanted, none closer than sizes allow, as near as a few sweeps get.

    None is below 0, where the labels of the axis are.
    """
    heights = list(wanted)
    for _ in range(100):
        heights[:1] = [max(y, 0.0) for y in heights[:1]]
        for i in range(len(heights) - 1):
            lack = (sizes[i] + sizes[i + 1]) / 2 - (heights[i + 1] - heights[i])
            if lack > 1e-6:
                heights[i] -= lack / 2
                heights[i + 1] += lack / 2
    return heights


def count_axis(ax: Any, counts: Array) -> None:
    """A log axis of numbers of evaluations, written out in full."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = float(np.ptp(np.log10(counts)))
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if decades > 2.2 else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("evaluations of g (log scale)")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the suffix (.png, .svg, .pdf) says how. Equal figures give equal bytes."""
    path = Path(path)
    path.write_bytes(_rendered(figure, path.suffix.lower().lstrip(".")))
    return path


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG of 200 dots per inch."""
    return _rendered(figure, "png")


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG, the same bytes for the same figure."""
    return _rendered(figure, "svg")


def _rendered(figure: Figure, kind: str) -> bytes:
    import matplotlib as mpl

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with mpl.rc_context({"svg.hashsalt": "nestquad"}):
        figure.savefig(
            buffer, format=kind, dpi=200, bbox_inches="tight", facecolor="white", metadata=metadata
        )
    return buffer.getvalue()


MOST_ANSWERS = 4


def short(text: str, longest: int = 40) -> str:
    """A label cut to a length, with dollar signs that start no formula."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return cut.replace("$", r"\$")


def plus_minus(value: float, half_width: float) -> str:
    """A value and its half-width to the same decimal, two digits of the latter.

    Examples
    --------
    >>> plus_minus(3.0708528, 0.0079874)
    '3.0709 ± 0.0080'
    >>> plus_minus(24791.2, 310.0)
    '24791 ± 310'
    """
    if not (np.isfinite(value) and np.isfinite(half_width) and half_width > 0):
        return f"{value:.6g} ± {half_width:.2g}"
    # Rounded to two digits first, so that 0.0999 has the decimals of 0.10.
    decimals = 1 - int(np.floor(np.log10(float(f"{half_width:.1e}"))))
    if decimals > 9 or max(abs(value), half_width) >= 1e9:
        return f"{value:.10g} ± {half_width:.1e}"
    decimals = max(decimals, 0)
    return f"{value:.{decimals}f} ± {half_width:.{decimals}f}"


def answer_text(estimate: Any) -> str:
    """The value of an estimate ± its 95 % half-width; of many answers the first few."""
    values, halves = np.ravel(estimate.value), np.ravel(estimate.half_width)
    shown = [plus_minus(*pair) for pair in zip(values, halves, strict=True)]
    more = f" and {len(shown) - MOST_ANSWERS} more" if len(shown) > MOST_ANSWERS else ""
    return ", ".join(shown[:MOST_ANSWERS]) + more
