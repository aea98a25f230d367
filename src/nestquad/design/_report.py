"""Report of compared designs as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from nestquad.design._compare import DesignComparison
from nestquad.design._figures import plot_designs
from nestquad.pages import figure, footer, grid, paragraphs, write_page
from nestquad.result import NORMAL_95

_BOUND = (
    "Values are lower bounds of the gain, from a simulator without likelihood: nothing is known "
    "about their distance from it, and the design with the largest bound need not have the largest "
    "gain."
)
_READ = (
    "The gain is the expected information about the parameters in nats: the expected divergence of "
    "what is known after the experiment from what is known before. For a normal parameter, "
    "a gain of one nat leaves 37 % of the standard deviation.",
    "All designs were estimated with the same random numbers, so that a part of their "
    "errors cancels in differences. P(best) is the probability that a design is the best of the "
    "table, as far as these estimates know. Draws used is the effective share of the inner "
    "draws: below 10 % the proposal is far from the posterior, and intervals are wide.",
)


def write_design_report(
    path: str | Path,
    comparison: DesignComparison,
    *,
    title: str | None = None,
    command: str | None = None,
) -> Path:
    """Write compared designs as one self-contained HTML page; returns the file.

    Without the extra ``plot`` it has no figure, and says so.
    """
    best = comparison.best
    heading = title or comparison.estimates[best].problem or "Designs"
    cells = []
    for row, est in zip(comparison.rows(), comparison.estimates, strict=True):
        half = NORMAL_95 * row["behind_best_error"]
        size = row["effective_sample_size"]
        cells.append(
            (
                row["design"],
                f"{row['value']:.4f}",
                f"{est.half_width:.2g}",
                f"{row['behind_best']:.4f} ± {half:.2g}" if half > 0 else "–",
                f"{row['prob_best']:.2f}",
                "–" if size is None else f"{100 * size:.0f} %",
                "; ".join(est.warnings)
                or ("" if est.status in ("done", "converged") else est.status),
            )
        )
    bound = comparison.bounds_only
    name = "lower bound" if bound else "gain"
    head = ["design", name, "± 95 %", "behind the best", "P(best)", "draws used"]
    head += ["flags"] if any(row[-1] for row in cells) else []
    shown = [row[: len(head)] for row in cells]
    low, high = comparison.estimates[best].interval()
    simulations = sum(int(row["simulations"] or 0) for row in comparison.rows())
    notes = comparison.to_dict()["notes"]
    sections = [
        f"<h1>{escape(heading)}</h1>",
        f'<p class="answer">{escape(comparison.labels[best])}</p>',
        paragraphs(
            [
                f"The {'largest bound' if bound else 'best'} of {len(cells)} designs, with a "
                f"probability of {comparison.prob_best[best]:.2f}. Its expected gain is "
                f"{'at least ' if bound else ''}"
                f"{comparison.values[best]:.4g} nats (95 % interval {low:.4g} to {high:.4g}).",
                f"{comparison.n_evaluations:,} likelihoods and {simulations:,} simulations in all.",
            ]
        ),
        figure(
            lambda ax: plot_designs(comparison, ax),
            f"Expected {name} of each design with its 95 % interval; the best is dark.",
            "; ".join(f"{row[0]}: {row[1]}" for row in cells),
            height=max(3.0, 0.25 * len(cells)),
        ),
        "<h2>All designs</h2>",
        grid(head, shown, "", [best]),
        "<h2>How to read this</h2>",
        paragraphs([_BOUND, *_READ] if bound else _READ),
    ]
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        sections.append(f"<h2>Notes</h2>\n<ul>{items}</ul>")
    sections.append(footer(command))
    return write_page(path, heading, sections)
