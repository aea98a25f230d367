"""Measures of risk from a table: an existing nested simulation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nestquad._checks import generator, listed, shown
from nestquad._typing import Array, Indices, RNGLike
from nestquad.errors import InputError
from nestquad.result import Estimate
from nestquad.risk._contributions import Contributions
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._measure import by_kind
from nestquad.risk._report import RiskReport
from nestquad.risk._targets import Kind, Targets, label

# Bootstrap samples of scenarios, and groups of neighbors whose inner variances are pooled.
_BOOTSTRAP, _GROUPS = 200, 20
# Share of noise beyond which the shape of J is hidden.
_SHOWS = 0.1
# Scenarios beyond a quantile below which nothing is known of it: at 95 %, three are expected where
# none was seen.
_FEWEST, _HITS = 3.0, 20.0


def from_table(
    frame: Any,
    *,
    scenario: str = "scenario",
    loss: str | Sequence[str] = "loss",
    var: float | Sequence[float] = (0.99,),
    es: float | Sequence[float] = (0.975,),
    exceed: float | Sequence[float] = (),
    rng: RNGLike = 0,
    name: str = "nested simulation",
) -> RiskReport:
    """Measure risk from a nested simulation: several inner draws for each scenario.

    Means of few draws vary more than J does, so that raw quantiles are too far out. Means are
    moved towards their average until their variance is that of J, which draws of the same scenario
    reveal. Errors come from a bootstrap of scenarios and from half of that move.

    Parameters
    ----------
    frame
        A pandas DataFrame, or a mapping of columns, with a row for each inner draw.
    scenario
        The column that says to which scenario a row belongs; numbers of rows may differ.
    loss
        The column of losses, or several that are summed (positions, desks).
    var, es, exceed
        As in :func:`measure`.
    rng
        Of the bootstrap.
    name
        For printing and plots.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad import risk
    >>> rng = np.random.default_rng(0)
    >>> j = rng.standard_normal(5000).repeat(20)
    >>> table = {"scenario": np.arange(5000).repeat(20), "loss": j + rng.standard_normal(j.size)}
    >>> report = risk.from_table(table, var=0.95)
    >>> bool(abs(report.var[0.95].value - 1.645) < 0.1)
    True
    """
    started = time.perf_counter()
    targets = Targets.of(var, es, exceed)
    expected = "the name of a column, or several"
    columns = [loss] if isinstance(loss, str) else listed("loss", loss, expected)
    if not columns or not all(isinstance(one, str) for one in (scenario, *columns)):
        raise InputError("loss", shown(loss), expected)
    group, values = _columns(frame, scenario, columns)
    table = _Table.of(group, values)
    total = table.moved.sum(axis=1)
    value = _values(targets, total)
    random = generator(rng)
    n = len(total)
    drawn = np.empty((len(value), _BOOTSTRAP))
    shares = np.empty((_BOOTSTRAP, len(value), len(columns)))
    best = _contributions(targets, table.moved, total)
    for i in range(_BOOTSTRAP):
        rows = random.integers(n, size=n)
        drawn[:, i] = _values(targets, total[rows])
        shares[i] = _contributions(targets, table.moved[rows], total[rows])
    raw = _values(targets, table.means.sum(axis=1))
    parts = [(drawn - value[:, None]) / np.sqrt(_BOOTSTRAP), 0.5 * (raw - value)[:, None]]
    parts.append(_unseen(targets, value, n)[:, None])
    fields: dict[str, Any] = {
        "n_evaluations": len(group),
        "n_outer": n,
        "n_inner": round(len(group) / n),
        "method": "nested simulation",
        "seconds": time.perf_counter() - started,
    }
    found = Estimate.from_directions(
        value, np.concatenate(parts, axis=1), problem=name, diagnostics={"notes": []}, **fields
    )
    split: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
    for k, (kind, level) in enumerate(targets.keys):
        if kind in split:
            away = (shares[:, k] - best[k]).T / np.sqrt(_BOOTSTRAP)
            split[kind][level] = Estimate.from_directions(best[k], away, problem=name, **fields)
    several = len(columns) > 1
    return RiskReport(
        name,
        **by_kind(targets, found),
        distribution=_distribution(total, table.means.sum(axis=1)),
        contributions=Contributions(tuple(columns), split["var"], split["es"]) if several else None,
        exposure=None,
        estimate=found,
        labels=tuple(label(*key) for key in targets.keys),
        notes=tuple(_notes(targets, table, n)),
    )


class _Table:
    """Means (n, p) of the scenarios, the same moved together, and the share of noise in them."""

    def __init__(self, means: Array, moved: Array, noise: float) -> None:
        self.means, self.moved, self.noise = means, moved, noise

    @classmethod
    def of(cls, group: Indices, values: Array) -> _Table:
        count = np.bincount(group)
        means = np.stack([np.bincount(group, one) / count for one in values.T], axis=1)
        total, summed = means.sum(axis=1), values.sum(axis=1)
        squares = np.bincount(group, (summed - total[group]) ** 2)
        # Inner variances of neighbors are alike, and of one scenario hardly known.
        rank = np.argsort(np.argsort(total, kind="stable"), kind="stable")
        part = rank * min(_GROUPS, max(1, len(count) // 20)) // len(count)
        freedom = np.bincount(part, count - 1.0)
        inner = np.bincount(part, squares) / np.maximum(freedom, 1.0)
        noise = inner[part] / count
        seen = float(total.var())
        left = max(seen - float(noise.mean()), 0.0)
        factor = (
            np.sqrt(left / np.maximum(left + noise, 1e-300)) if seen > 0 else np.ones(len(rank))
        )
        center = means.mean(axis=0)
        moved = center + factor[:, None] * (means - center)
        return cls(means, moved, 1.0 - left / seen if seen > 0 else 0.0)


def _columns(frame: Any, scenario: str, losses: list[str]) -> tuple[Indices, Array]:
    try:
        there = [str(one) for one in getattr(frame, "columns", frame)]
    except TypeError as error:
        raise InputError("frame", type(frame).__name__, "a table with named columns") from error
    for column in (scenario, *losses):
        if column not in there:
            names = ", ".join(map(repr, there)) or "none"
            raise InputError("frame", f"no column {column!r}", f"one of its columns: {names}")
    lengths = {column: len(frame[column]) for column in (scenario, *losses)}
    if len({*lengths.values()}) > 1 or 0 in lengths.values():
        raise InputError("frame", f"columns of lengths {lengths}", "columns of one length, not 0")
    labels = np.asarray(frame[scenario])
    missing = [one is None or one != one for one in labels.tolist()]  # NaN is not itself
    if any(missing):
        row = missing.index(True)
        raise InputError("scenario", f"nothing in row {row}", "a scenario for each row")
    try:
        values = np.stack([np.asarray(frame[one], dtype=float) for one in losses], axis=1)
    except (TypeError, ValueError) as error:
        raise InputError("loss", f"columns {losses}", "numbers, one for each row") from error
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InputError(
            "loss", f"a value that is not finite in row {row}", "finite numbers", "Drop such rows."
        )
    _, group = np.unique(labels, return_inverse=True)
    count = np.bincount(group)
    if len(count) < 20 or count.max() < 2:
        raise InputError(
            "scenario",
            f"{len(count)} scenarios with at most {count.max()} draws each",
            "at least 20 scenarios, and two draws or more in some of them",
            "A single draw does not tell the noise of x from the variation over scenarios.",
        )
    return group, values


def _values(targets: Targets, j: Array) -> Array:
    out = []
    for kind, level in targets.keys:
        if kind == "exceed":
            out.append(float((j > level).mean()))
            continue
        q = float(np.quantile(j, level))
        rest = float(np.maximum(j - q, 0.0).mean()) / (1.0 - level)
        out.append(q if kind == "var" else q + rest)
    return np.array(out)


def _contributions(targets: Targets, parts: Array, j: Array) -> Array:
    """Means (k, p) of the outputs near a quantile or beyond it, that add up to the measure."""
    order = np.argsort(j, kind="stable")
    n, out = len(j), np.zeros((len(targets.keys), parts.shape[1]))
    for i, (kind, level) in enumerate(targets.keys):
        if kind == "exceed":
            continue
        at = int(level * (n - 1))
        near = max(5, round(0.25 * (1.0 - level) * n))
        rows = order[max(at - near, 0) : at + near + 1] if kind == "var" else order[at + 1 :]
        mean = parts[rows].mean(axis=0) if len(rows) else parts[order[-1]]
        measure = _values(Targets(((kind, level),)), j)[0]
        out[i] = mean + (measure - mean.sum()) / len(mean)
    return out


def _unseen(targets: Targets, value: Array, n: int) -> Array:
    """Errors (k,) where too few scenarios are beyond a level to know it."""
    out = np.zeros(len(value))
    for i, (kind, level) in enumerate(targets.keys):
        if kind == "exceed" and value[i] * n < _HITS:
            out[i] = np.sqrt(value[i] * n + 3.0) / n
        elif kind != "exceed" and (1.0 - level) * n < _FEWEST:
            out[i] = np.inf
    return out


def _distribution(moved: Array, raw: Array) -> LossDistribution:
    at = np.unique(np.quantile(moved, np.linspace(0.0, 1.0, min(len(moved), 300))))
    p, other = (np.searchsorted(np.sort(one), at, "right") / len(one) for one in (moved, raw))
    error = np.hypot(np.sqrt(p * (1.0 - p) * len(moved) + 3.0) / len(moved), 0.5 * (p - other))
    return LossDistribution(at, p, error)


def _notes(targets: Targets, table: _Table, n: int) -> list[str]:
    notes = [f"noise of the inner draws is {table.noise:.0%} of the variance of scenario means"]
    away = table.means.sum(axis=1) - table.means.sum() / len(table.means)
    skew = float((away**3).mean() / max((away**2).mean() ** 1.5, 1e-300))
    # Means of k draws have a skewness that the move keeps, and J another: it shows beside noise.
    if table.noise > _SHOWS and abs(skew) > 1.0:
        notes.append(
            f"scenario means are skewed ({skew:.1f}), and noise hides the shape of the tail of J: "
            "quantiles are too near the mean, by more than the intervals say; more inner draws for "
            "each scenario would help"
        )
    if table.noise > 0.5:
        notes.append("more inner draws for each scenario would help most")
    for kind, level in targets.keys:
        if kind in ("var", "es") and (1.0 - level) * n < _FEWEST:
            need = int(np.ceil(_FEWEST / (1.0 - level)))
            notes.append(
                f"{label(kind, level)} takes at least {need:,} scenarios; there are {n:,}, and its "
                "error is not known: more scenarios, or a lower level, would help"
            )
    return notes
