"""Draw the picture in docs/architecture.md: `python docs/draw_architecture.py`."""

from __future__ import annotations

from html import escape
from pathlib import Path

FIGURE = Path(__file__).resolve().parent / "figures" / "architecture.svg"
WIDTH, MARGIN, GAP, LABEL, ROOM = 960, 16, 8, 124, 50
INK, SOFT, LINE, PAPER = "#222222", "#5B5B5B", "#9A9A9A", "#FFFFFF"

# Floors from top to bottom, in the order of the imports: a room uses rooms above it or beside it.
FLOORS = (
    (
        "Description",
        "#E8F1FA",
        (
            ("distributions", "laws as transports"),
            ("kernels", "and their sums"),
            ("embeddings", "integrals of kernels"),
            ("points", "sequences, streams"),
            ("problem", "laws, g, f, combine"),
        ),
    ),
    (
        "Mathematics",
        "#E9F5EC",
        (
            ("rules", "nodes → weights"),
            ("gp", "dense, on lattices, lengthscales"),
            ("regression", "polynomials, control variates"),
            ("quadrature", "recipe: kernel, space, tuning"),
        ),
    ),
    (
        "Evaluation",
        "#FDF0E0",
        (
            ("evaluate", "the only caller of g: designs, chunks, workers, store, retries"),
            ("result", "Estimate"),
            ("accuracy", "calibration, smoothness of f"),
        ),
    ),
)
METHODS = (
    ("nested/", ("NMC  NQMC  NKQ", "inner and outer rule,", "floor for rare events")),
    ("learned/", ("CKQ  JointLattice  LSMC", "a design and a model of J;", "one average, one bar")),
    ("multilevel/", ("MLMC  MLKQ", "telescoping sum", "over levels of N")),
    ("auto", ("pilots of the others,", "continue the best", "")),
)
DOORS = (
    (
        "Front doors",
        "#F3ECF8",
        (
            ("estimate", "and its loop"),
            ("conditional", "J as a function"),
            ("compare", "methods side by side"),
            ("plan", "points out, values in"),
            ("expectation", "one stage only"),
        ),
    ),
    (
        "Applications",
        "#F4F4F4",
        (
            ("problems", "exact values"),
            ("plots", "figures"),
            ("pages", "HTML reports"),
            ("voi", "table, model, report"),
            ("risk", "tail of J"),
            ("design", "gain, search, sequence"),
            ("botorch", "sampler, look-ahead"),
            ("cli", "nestquad …"),
        ),
    ),
)


def main() -> None:
    """Write the figure."""
    FIGURE.write_text(drawn(), encoding="utf-8")


def drawn() -> str:
    """The house as SVG."""
    parts: list[str] = []
    top = MARGIN
    for floor in FLOORS:
        top = _floor(parts, top, *floor)
    top = _methods(parts, top + 44)
    for floor in DOORS:
        top = _floor(parts, top, *floor)
    _box(parts, MARGIN, top, WIDTH - 2 * MARGIN, 40, PAPER, dashed=True)
    beside = "Outside the wheel: studies (paper, promises, families, runner), examples, docs, tests"
    _text(parts, WIDTH / 2, top + 25, beside, size=13, anchor="middle", color=SOFT)
    height = top + 40 + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'font-family="system-ui, Helvetica, Arial, sans-serif" role="img">\n'
        "<title>The rooms of nestquad, from top to bottom in the order of the imports</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height:g}" rx="10" fill="{PAPER}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _floor(
    parts: list[str], top: float, name: str, color: str, rooms: tuple[tuple[str, str], ...]
) -> float:
    """One floor with its rooms; where the next one begins."""
    height = ROOM + 2 * GAP
    _box(parts, MARGIN, top, WIDTH - 2 * MARGIN, height, color)
    _text(parts, MARGIN + 12, top + height / 2 + 5, name, size=14, bold=True)
    # Rooms share the floor by the length of what they say.
    free = WIDTH - 2 * MARGIN - LABEL - GAP * len(rooms)
    needs = [max(len(room) + 2, len(words), 14) for room, words in rooms]
    left = float(MARGIN + LABEL)
    for (room, words), need in zip(rooms, needs, strict=True):
        width = free * need / sum(needs)
        _box(parts, left, top + GAP, width, ROOM, PAPER)
        _text(parts, left + width / 2, top + GAP + 21, room, bold=True, anchor="middle")
        _text(parts, left + width / 2, top + GAP + 39, words, size=11, anchor="middle", color=SOFT)
        left += width + GAP
    return top + height + 10


def _methods(parts: list[str], top: float) -> float:
    """The methods, with the loop through `evaluate` above them."""
    height = 112
    for x, upward, words in (
        (300, True, "plan: a Design describes points"),
        (580, False, "analyze: values → Turn (design, estimate, state)"),
    ):
        ends = (top - 4, top - 50) if upward else (top - 50, top - 4)
        parts.append(
            f'<line x1="{x}" y1="{ends[0]:g}" x2="{x}" y2="{ends[1]:g}" stroke="{INK}" '
            'stroke-width="1.6" marker-end="url(#tip)"/>'
        )
        _text(parts, x + 10, top - 22, words, size=12)
    _box(parts, MARGIN, top, WIDTH - 2 * MARGIN, height, "#FBE9E7")
    _text(parts, MARGIN + 12, top + height / 2 + 5, "Methods", size=14, bold=True)
    width = (WIDTH - 2 * MARGIN - LABEL - GAP * len(METHODS)) / len(METHODS)
    for i, (room, lines) in enumerate(METHODS):
        left = MARGIN + LABEL + i * (width + GAP)
        _box(parts, left, top + GAP, width, height - 2 * GAP, PAPER)
        _text(parts, left + width / 2, top + GAP + 22, room, bold=True, anchor="middle")
        for k, line in enumerate(lines):
            at, color = top + GAP + 43 + 17 * k, INK if k == 0 else SOFT
            _text(parts, left + width / 2, at, line, size=11.5, anchor="middle", color=color)
    return top + height + 10


def _box(
    parts: list[str],
    left: float,
    top: float,
    width: float,
    height: float,
    color: str,
    *,
    dashed: bool = False,
) -> None:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    parts.append(
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" '
        f'fill="{color}" stroke="{LINE}"{dashes}/>'
    )


def _text(
    parts: list[str],
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    bold: bool = False,
    anchor: str = "start",
    color: str = INK,
) -> None:
    weight = ' font-weight="600"' if bold else ""
    parts.append(
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" '
        f'fill="{color}"{weight} xml:space="preserve">{escape(words)}</text>'
    )


if __name__ == "__main__":
    main()
