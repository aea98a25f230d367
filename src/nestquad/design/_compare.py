"""Designs side by side, with common random numbers: table, figure and page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import pages
from nestquad._checks import listed, shown
from nestquad._frames import frame_of
from nestquad._notebook import grid, text_rows
from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import Array, RNGLike
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import (
    LOWER_BOUND,
    ROUNDING,
    Gain,
    decision_value,
    eig,
    student,
    variance_reduction,
)
from nestquad.design._learned import Shared
from nestquad.errors import InputError
from nestquad.estimate import as_budget
from nestquad.plots import INK, axes_or_new, series_styles
from nestquad.points import Stream
from nestquad.result import NORMAL_95, Estimate, plain

Criterion = Callable[..., Estimate]

_SHARING = (eig, variance_reduction, decision_value)  # criteria that take the setting `like`
_DRAWS = 2**14  # of the errors, for probabilities to within 0.4 %
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


@dataclass(frozen=True, eq=False)
class DesignComparison:
    """Estimates for several designs, from the same random numbers.

    Values of a simulator without likelihood are lower bounds: the design with the largest need not
    be the best.

    Attributes
    ----------
    designs, labels
        The designs, and short texts for them.
    estimates
        An `Estimate` for each.
    covariance
        Covariance (n, n) of the errors. Common random numbers make it positive between designs, so
        that differences are better known than values.
    """

    designs: tuple[Any, ...]
    labels: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    covariance: Array

    @classmethod
    def of(
        cls, designs: Iterable[Any], estimates: Sequence[Estimate], labels: Sequence[str] = ()
    ) -> DesignComparison:
        rows = tuple(designs)
        texts = tuple(labels or map(label_of, rows))
        return cls(rows, texts, tuple(estimates), joint_covariance(estimates))

    @cached_property
    def values(self) -> Array:
        return np.array([float(est.value) for est in self.estimates])

    @property
    def bounds_only(self) -> bool:
        """Whether the values are lower bounds, from a simulator without likelihood."""
        return all(est.method == LOWER_BOUND for est in self.estimates)

    @property
    def best(self) -> int:
        """Index of the design with the largest estimate, or the largest lower bound."""
        return int(np.argmax(self.values))

    @cached_property
    def prob_best(self) -> Array:
        """Probability (n,) that each design is the best, as far as these estimates know."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        rng = np.random.default_rng(0)  # the same numbers give the same probabilities
        draws = self.values + rng.standard_normal((_DRAWS, len(self.values))) @ root.T
        return np.bincount(draws.argmax(axis=1), minlength=len(self.values)) / _DRAWS

    def difference(self, i: int, j: int) -> Gain:
        """Value of design i less the value of design j, from the differences of replicates."""
        n = len(self.designs)
        for name, index in (("i", i), ("j", j)):
            if not isinstance(index, int | np.integer) or not -n <= index < n:
                raise InputError(name, shown(index), f"the index of a design, from 0 to {n - 1}")
        first, second, c = self.estimates[i], self.estimates[j], self.covariance
        variance = c[i, i] + c[j, j] - 2.0 * c[i, j]
        rows = [est.replicates if isinstance(est, Gain) else None for est in (first, second)]
        return Gain(
            value=float(self.values[i] - self.values[j]),
            std_error=float(np.hypot(np.sqrt(max(variance, 0.0)), ROUNDING)),
            n_evaluations=first.n_evaluations + second.n_evaluations,
            n_outer=min(first.n_outer, second.n_outer),
            n_inner=min(first.n_inner, second.n_inner),
            method="difference",
            dof=min(first.dof, second.dof),
            problem=f"{self.labels[i]} less {self.labels[j]}",
            replicates=None if rows[0] is None or rows[1] is None else rows[0] - rows[1],
        )

    @property
    def n_evaluations(self) -> int:
        return sum(est.n_evaluations for est in self.estimates)

    def rows(self) -> list[dict[str, Any]]:
        """A record for each design."""
        records = []
        for i, (label, est) in enumerate(zip(self.labels, self.estimates, strict=True)):
            low, high = est.interval()
            records.append(
                {
                    "design": label,
                    "value": est.value,
                    "std_error": est.std_error,
                    "low": low,
                    "high": high,
                    "prob_best": float(self.prob_best[i]),
                    "behind_best": self.difference(self.best, i).value,
                    "behind_best_error": self.difference(self.best, i).std_error,
                    "effective_sample_size": est.diagnostics.get("effective_sample_size"),
                    "components": est.diagnostics.get("components"),
                    "n_evaluations": est.n_evaluations,
                    "simulations": est.diagnostics.get("simulations"),
                    "status": est.status,
                }
            )
        return records

    def to_frame(self, library: str = "pandas") -> Any:
        """The rows as a data frame of pandas, polars or another; needs the extra ``frames``."""
        return frame_of(self.rows(), library)

    def to_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.quantity,
            "best": self.best,
            "designs": plain(self.rows()),
            "covariance": plain(self.covariance),
            "n_evaluations": self.n_evaluations,
            "notes": [
                f"{label}: {note}"
                for label, est in zip(self.labels, self.estimates, strict=True)
                for note in (*est.warnings, *est.diagnostics.get("notes", []))
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        lines = text_rows([self._head, *self._cells()])
        lines[1 + self.best] += " ←"
        return "\n".join(lines)

    @property
    def quantity(self) -> str:
        return LOWER_BOUND if self.bounds_only else "value"

    @property
    def _head(self) -> tuple[str, ...]:
        return ("design", self.quantity, "± 95 %", "behind best", "P(best)")

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = []
        for i, row in enumerate(self.rows()):
            behind = f"{row['behind_best']:.4f} ± {NORMAL_95 * row['behind_best_error']:.4f}"
            cells.append(
                (
                    row["design"],
                    f"{row['value']:.4f}",
                    f"{NORMAL_95 * row['std_error']:.2g}",
                    "–" if i == self.best else behind,
                    f"{row['prob_best']:.2f}",
                )
            )
        return cells

    def _repr_html_(self) -> str:
        title = f"{len(self.designs)} designs, the best is {self.labels[self.best]}"
        return grid(title, self._head, self._cells())

    def plot(self, ax: Any = None) -> Any:
        """Draw value and 95 % interval of each design; needs the extra ``plot``."""
        return plot_designs(self, ax)


def compare(
    experiment: Experiment,
    designs: Sequence[Any],
    *,
    budget: int | None = None,
    simulations: int | None = None,
    criterion: Criterion = eig,
    rng: RNGLike = None,
    progress: ProgressLike = False,
    labels: Sequence[str] | None = None,
    **settings: Any,
) -> DesignComparison:
    """Estimate several designs with common random numbers.

    Parameters
    ----------
    experiment, designs
        The experiment, and the designs to compare.
    budget
        The most evaluations of `log_prob` in all, divided evenly.
    simulations
        The most simulations for each design.
    criterion
        `eig`, `variance_reduction`, or a function of that form whose larger values are better.
    rng, progress
        As in `eig`.
    labels
        Texts for the designs.
    settings
        Others of the criterion, such as `tol` for each design.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> slope = design.Experiment(  # a simulator alone: lower bounds, without a budget
    ...     nq.Normal(), simulate=lambda theta, e, d: theta * d + 0.5 * e, noise=nq.Normal()
    ... )
    >>> table = design.compare(slope, [0.5, 1.0, 2.0], rng=0)
    >>> table.best
    2
    """
    check_experiment(experiment)
    rows = listed("designs", designs, "a sequence of designs")
    if not rows:
        raise InputError("designs", "none", "at least one design")
    if not callable(criterion):
        raise InputError("criterion", shown(criterion), "a function such as design.eig")
    names = map(label_of, rows) if labels is None else listed("labels", labels, "texts for designs")
    texts = [str(entry) for entry in names]
    if len(texts) != len(rows):
        raise InputError("labels", f"{len(texts)} labels", f"one for each of {len(rows)} designs")
    stream, show = Stream.from_rng(rng), as_progress(progress)
    known = getattr(criterion, "func", criterion) in _SHARING
    if known and settings.get("max_seconds") is None:
        settings["like"] = Shared(None if experiment.log_prob is None else rows[len(rows) // 2])
    if budget is not None:
        settings["budget"] = as_budget(budget) // len(rows)
    answers: list[Estimate] = []
    for i, row in enumerate(rows):
        show(i, len(rows), texts[i])
        answers.append(criterion(experiment, row, simulations=simulations, rng=stream, **settings))
    show(len(rows), len(rows), "designs")
    return DesignComparison.of(rows, answers, texts)


def coordinates(design: Any) -> Array | None:
    """Numbers (k,) of a design that has no others, else None."""
    try:
        return np.asarray(design, dtype=float).ravel()
    except (TypeError, ValueError):
        return None


def label_of(design: Any) -> str:
    """A short text for a design."""
    if (answers := coordinates(design)) is None:
        return str(design)
    return ", ".join(f"{x:.4g}" for x in answers[:6]) + (", …" if answers.size > 6 else "")


def joint_covariance(estimates: Sequence[Estimate]) -> Array:
    """Covariance of errors: the correlation over replicates with common random numbers."""
    errors = np.array([float(est.std_error) for est in estimates])
    covariance = np.diag(errors**2)
    rows = [est.replicates for est in estimates if isinstance(est, Gain)]
    sizes = {0 if row is None else len(row) for row in rows}
    if len(rows) == len(errors) > 1 and len(sizes) == 1 and sizes != {0}:
        table = np.stack([row for row in rows if row is not None])
        spread = np.cov(table) / table.shape[1] * student(table.shape[1]) ** 2
        # Errors that replicates do not show belong to the experiment and are common to all designs.
        extra = np.sqrt(np.maximum(errors**2 - np.diag(spread), 0.0))
        covariance = spread + np.outer(extra, extra)
    return np.asarray(covariance)


def plot_designs(comparison: Any, ax: Any = None) -> Any:
    """Value and 95 % interval of each design: over its number where it is one, else by name."""
    ax = axes_or_new(ax)
    label = "lower bound of the expected gain" if comparison.bounds_only else "expected gain"
    values = comparison.values
    halves = NORMAL_95 * np.array([float(est.std_error) for est in comparison.estimates])
    color = series_styles(2)[0].color
    numbers = [x for x in map(coordinates, comparison.designs) if x is not None and x.size == 1]
    if 2 < len(values) == len(numbers):
        x = np.concatenate(numbers)
        ax.errorbar(x, values, halves, fmt="o", color=color, markersize=4, linewidth=1)
        ax.plot(x[comparison.best], values[comparison.best], "o", color=INK, markersize=7)
        ax.set_xlabel("design")
        ax.set_ylabel(label)
        return ax
    y = -np.arange(len(values))
    ax.errorbar(values, y, xerr=halves, fmt="o", color=color, markersize=4, linewidth=1)
    ax.plot(values[comparison.best], y[comparison.best], "o", color=INK, markersize=7)
    ax.set_yticks(y, [label[:26] for label in comparison.labels])
    ax.set_xlabel(label)
    return ax


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
    for cell, est in zip(comparison._cells(), comparison.estimates, strict=True):
        size = est.diagnostics.get("effective_sample_size")
        used = "–" if size is None else f"{100 * size:.0f} %"
        status = "" if est.status in ("done", "converged") else est.status
        cells.append((*cell, used, "; ".join(est.warnings) or status))
    bound = comparison.bounds_only
    head = [*comparison._head, "draws used"]
    head += ["flags"] if any(row[-1] for row in cells) else []
    shown = [row[: len(head)] for row in cells]
    low, high = comparison.estimates[best].interval()
    simulations = sum(int(row["simulations"] or 0) for row in comparison.rows())
    notes = comparison.to_dict()["notes"]
    sections = [
        f"<h1>{escape(heading)}</h1>",
        f'<p class="answer">{escape(comparison.labels[best])}</p>',
        pages.paragraphs(
            [
                f"The {'largest bound' if bound else 'best'} of {len(cells)} designs, with a "
                f"probability of {comparison.prob_best[best]:.2f}. Its expected gain is "
                f"{'at least ' if bound else ''}"
                f"{comparison.values[best]:.4g} nats (95 % interval {low:.4g} to {high:.4g}).",
                f"{comparison.n_evaluations:,} likelihoods and {simulations:,} simulations in all.",
            ]
        ),
        pages.figure(
            lambda ax: plot_designs(comparison, ax),
            f"{'Lower bound' if bound else 'Expected gain'} of each design with its 95 % interval; "
            "the best is dark.",
            "; ".join(f"{row[0]}: {row[1]}" for row in cells),
            height=max(3.0, 0.25 * len(cells)),
        ),
        "<h2>All designs</h2>",
        pages.grid(head, shown, "", [best]),
        "<h2>How to read this</h2>",
        pages.paragraphs([_BOUND, *_READ] if bound else _READ),
    ]
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        sections.append(f"<h2>Notes</h2>\n<ul>{items}</ul>")
    sections.append(pages.footer(command))
    return pages.write_page(path, heading, sections)
