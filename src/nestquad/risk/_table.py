"""Measures of risk from a table: an existing nested simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from nestquad import clock
from nestquad._checks import generator, instance, listed, shown
from nestquad._typing import Array, Indices, RNGLike
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.methods.nested import NO_VARIATION
from nestquad.result import Estimate
from nestquad.risk._contributions import Contributions
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._factors import factors_by_scenario, law_of_table
from nestquad.risk._law import LawOfJ
from nestquad.risk._method import SIZES
from nestquad.risk._report import RiskReport
from nestquad.risk._targets import Kind, Targets, label

# Bootstrap samples of scenarios, and groups of neighbors whose inner variances are pooled; that of
# all scenarios counts in each as much as this number of repeated draws, which know it to a half.
_BOOTSTRAP, _GROUPS, _POOLED = 200, 20, 8.0
# Share of noise beyond which the shape of J is hidden.
_SHOWS = 0.1
# Scenarios beyond a quantile below which nothing is known of it: at 95 %, three are expected where
# none was seen.
_FEWEST, _HITS = 3.0, 20.0
# Repeated draws below which a bootstrap of scenarios does not show the error of their variance.
_REPEATS = 20


def from_table(
    frame: Any,
    *,
    scenario: str = "scenario",
    loss: str | Sequence[str] = "loss",
    factors: Sequence[str] | None = None,
    var: float | Sequence[float] = (0.99,),
    es: float | Sequence[float] = (0.975,),
    exceed: float | Sequence[float] = (),
    rng: RNGLike = 0,
    name: str = "nested simulation",
) -> RiskReport:
    """Measure risk from a nested simulation: several inner draws for each scenario.

    Means of few draws vary more than J does, so that raw quantiles are too far out. Means are
    moved towards their average until their variance is that of J, which draws of the same scenario
    reveal; outputs of a sum are moved by their own covariances with it. Errors come from a
    bootstrap of scenarios and from half of that move.

    Parameters
    ----------
    frame
        A pandas DataFrame, or a mapping of columns, with a row for each inner draw.
    scenario
        The column that says to which scenario a row belongs; numbers of rows may differ.
    loss
        The column of losses, or several that are summed (positions, desks).
    factors
        Columns with the risk factors of the scenario. J is then learned from them by a
        cross-fitted regression, and the law of its predictions corrected by repeated draws: few
        draws a scenario are enough, also for a skewed J. There are no contributions then.
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
    started = clock.now()
    targets = Targets.of(var, es, exceed)
    instance("name", name, str, "a text")
    expected = "the name of a column, or several different ones"
    columns = [loss] if isinstance(loss, str) else listed("loss", loss, expected)
    if not columns or not all(isinstance(one, str) for one in (scenario, *columns)):
        raise InputError("loss", shown(loss), expected)
    if len({*columns}) < len(columns):
        raise InputError("loss", shown(loss), expected)
    group, values = _columns(frame, scenario, columns)
    seed, n = int(generator(rng).integers(1 << 62)), int(group.max()) + 1
    fields: dict[str, Any] = {"problem": name, "n_evaluations": len(group), "n_outer": n}
    fields |= {"n_inner": round(len(group) / n), "method": "nested simulation"}
    if factors is not None:
        names = listed("factors", factors, "names of columns, such as ['rate', 'equity']")
        z = factors_by_scenario(frame, names, group)
        law = law_of_table(group, values.sum(axis=1), z, seed)
        found = Estimate.from_draws(*law.measured(targets), **fields)
        found = replace(found, method="regression on factors", seconds=clock.now() - started)
        notes = _factor_notes(law, names, n)
        return RiskReport(name, found, targets.keys, notes, distribution=LossDistribution(law))
    table = Table.of(group, values, seed)
    moved = table.moved()
    directions = table.directions(targets)
    fields |= {"status": "done" if table.varies else "unreliable"}
    found = Estimate.from_directions(
        moved.values(targets),
        directions,
        diagnostics={"notes": []},
        seconds=clock.now() - started,
        **fields,
    )
    contributions = None
    if len(columns) > 1:
        split: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
        best = moved.contributions(targets)
        away = np.stack([one.contributions(targets) for one in table.samples], axis=2)
        away -= best[:, :, None]
        for k, (kind, level) in enumerate(targets.keys):
            if kind in split:
                # What else is unknown of the sum belongs to outputs as they vary with it.
                rest = np.linalg.norm(directions[k, _BOOTSTRAP:]) * moved.share
                parts = np.column_stack([away[k] / np.sqrt(_BOOTSTRAP), rest])
                split[kind][level] = Estimate.from_directions(best[k], parts, **fields)
        contributions = Contributions(tuple(columns), split["var"], split["es"])
    return RiskReport(
        name,
        found,
        targets.keys,
        tuple(_notes(targets, table, n)),
        distribution=LossDistribution(table),
        contributions=contributions,
    )


def _factor_notes(law: LawOfJ, names: Sequence[str], n: int) -> tuple[str, ...]:
    share = law.unexplained / max(law.unexplained + law.variance, 1e-300)
    return (
        f"the loss is learned from {', '.join(map(str, names))} at {n:,} scenarios, each predicted "
        "by a fit to others",
        f"repeated draws show that factors leave {share:.1%} of the variance of J unexplained, "
        "which the law accounts for",
    )


@dataclass(frozen=True, eq=False)
class Table:
    """Scenarios of a nested simulation: the law of J that its measures are read from.

    Attributes
    ----------
    count, means
        Inner draws (n,) and mean losses (n, p) by scenario.
    products
        Sums (n, p) over inner draws of deviations of an output times that of the sum.
    part
        Groups (n,) of neighbors.
    seed
        Of the bootstrap.
    """

    count: Array
    means: Array
    products: Array
    part: Indices
    seed: int
    steps: bool = True

    @classmethod
    def of(cls, group: Indices, values: Array, seed: int) -> Table:
        count = np.bincount(group).astype(float)
        means = np.stack([np.bincount(group, one) / count for one in values.T], axis=1)
        away = values - means[group]
        summed = away.sum(axis=1)
        sums = [np.bincount(group, one * summed) for one in away.T]
        products: Array = np.stack(sums, axis=1).astype(float)
        # Inner variances of neighbors are alike, and of one scenario hardly known.
        rank = np.argsort(np.argsort(means.sum(axis=1), kind="stable"), kind="stable")
        part = rank * min(_GROUPS, max(1, len(count) // 20)) // len(count)
        return cls(count, means, products, part, seed)

    @property
    def varies(self) -> bool:
        return float(np.ptp(self.means.sum(axis=1))) > 0

    @property
    def repeats(self) -> int:
        """Degrees of freedom of the inner variance."""
        return int((self.count - 1.0).sum())

    def moved(self, weights: Array | None = None, noisier: float = 1.0) -> Moved:
        """Means as far from their average as J is, where each scenario counts by its weight (n,).

        The noise of the sum is part of its distance M − c from the average, and so is that of an
        output: given M, noise of output k is n_k / (v + n) (M − c) on average, with n_k the
        covariance of its noise with that of the sum, n = Σ n_k and v = Var J. Without it, M_k is
        E[J_k | M], which is nearer to the average than E[J_k | J] by √(v / (v + n)) for the J of
        the same rank. Outputs add up to c + √(v / (v + n)) (M − c).
        """
        w = np.ones(len(self.count)) if weights is None else weights
        freedom = np.bincount(self.part, w * (self.count - 1.0))
        if freedom.sum() == 0:  # a resample without repeated draws
            return self.moved()
        sums = np.stack([np.bincount(self.part, w * one) for one in self.products.T], axis=1)
        pooled = _POOLED * sums.sum(axis=0) / freedom.sum()
        inner = (sums + pooled) / (freedom + _POOLED)[:, None]
        noise = noisier * inner[self.part] / self.count[:, None]
        center = w @ self.means / w.sum()
        away = self.means - center
        total, noise_total = away.sum(axis=1), np.maximum(noise.sum(axis=1), 0.0)
        seen, hidden = w @ total**2 / w.sum(), w @ noise_total / w.sum()
        left = max(float(seen - hidden), 0.0)
        if left == 0:  # nothing is seen of J, and nothing of how outputs vary with it
            p = len(center)
            return Moved(np.tile(center, (len(w), 1)), w, np.full(p, 1.0 / p), 1.0 * (seen > 0))
        whole = left + noise_total
        own = away - noise / whole[:, None] * total[:, None]
        share = (w @ (away * total[:, None]) - w @ noise) / w.sum() / left
        # Without noise these are the means, to the last bit.
        outputs = self.means + (own / np.sqrt(left / whole)[:, None] - away)
        return Moved(outputs, w, share / share.sum(), 1.0 - left / seen)

    @cached_property
    def skewness(self) -> float:
        """Skewness of the means of scenarios."""
        away = self.means.sum(axis=1) - self.means.sum() / len(self.means)
        return float((away**3).mean() / max((away**2).mean() ** 1.5, 1e-300))

    @cached_property
    def samples(self) -> tuple[Moved, ...]:
        """Bootstrap samples of scenarios."""
        random, n = np.random.default_rng(self.seed), len(self.count)
        drawn = (random.integers(n, size=n) for _ in range(_BOOTSTRAP))
        return tuple(self.moved(np.bincount(at, minlength=n).astype(float)) for at in drawn)

    def directions(self, targets: Targets) -> Array:
        """Errors (k, ·) of measures: bootstrap samples first, then what they do not show."""
        value, n = targets.values(self.center), len(self.count)
        drawn = [each.values(targets) for each in self.samples]
        raw = Moved(self.means, np.ones(n), np.ones(1), 0.0)
        parts = [(np.stack(drawn, axis=1) - value[:, None]) / np.sqrt(_BOOTSTRAP)]
        # Of h scenarios beyond a level there might as well be h + 3, and samples of h know no more.
        beyond = np.array([np.inf if k == "exceed" else (1.0 - p) * n for k, p in targets.keys])
        parts[0] *= np.sqrt(1.0 + 3.0 / beyond)[:, None]
        # The move is right for a normal J. A skewed one has less noise in its quantiles than that,
        # perhaps none.
        doubt = 0.5 * (1.0 + min(abs(self.skewness), 1.0))
        rest = [doubt * (raw.values(targets) - value), _unseen(targets, value, raw, n)]
        if self.repeats < _REPEATS:
            # Ends of the 95 % interval of a variance with so many degrees of freedom.
            half = 0.5 * self.repeats
            ends = [self.moved(noisier=half / gammaincinv(half, p)) for p in (0.025, 0.975)]
            rest.append(0.5 * np.max([np.abs(one.values(targets) - value) for one in ends], axis=0))
        if not self.varies:
            bounded = np.array([kind == "exceed" for kind, _ in targets.keys])
            rest.append(np.where(bounded, 0.0, np.inf))
        return np.column_stack([*parts, *rest])

    @cached_property
    def center(self) -> WeightedSample:
        """The law of J."""
        return self.moved().law

    def ends(self, targets: Targets, level: float) -> tuple[Array, Array]:
        """Ends (k,) of intervals of measures."""
        errors = np.linalg.norm(self.directions(targets), axis=1)
        value, half = targets.values(self.center), ndtri(0.5 + level / 2) * errors
        return value - half, value + half


@dataclass(frozen=True, eq=False)
class Moved:
    """Outputs (n, p) of weighted scenarios, regression of outputs on J, share of noise in means."""

    outputs: Array
    weights: Array
    share: Array
    noise: float

    @cached_property
    def law(self) -> WeightedSample:
        return WeightedSample(self.outputs.sum(axis=1), self.weights, steps=True)

    def values(self, targets: Targets) -> Array:
        return targets.values(self.law)

    def contributions(self, targets: Targets) -> Array:
        """Means (k, p) of the outputs near a quantile or beyond it, that add up to the measure."""
        values, out = self.values(targets), np.zeros((len(targets.keys), self.outputs.shape[1]))
        order = np.argsort(self.law.j, kind="stable")
        outputs, w = self.outputs[order], self.weights[order]
        cumulative = np.cumsum(w) / w.sum()
        for i, (kind, level) in enumerate(targets.keys):
            if kind == "exceed":
                continue
            near = max(5.0 / len(w), 0.25 * (1.0 - level))
            rows = np.abs(cumulative - level) <= near if kind == "var" else cumulative > level
            chosen = np.where(rows, w, 0.0) if (w * rows).any() else 1.0 * (cumulative >= 1.0)
            mean = chosen @ outputs / chosen.sum()
            out[i] = mean + (values[i] - mean.sum()) * self.share
        return out


def _columns(frame: Any, scenario: str, losses: list[str]) -> tuple[Indices, Array]:
    try:
        there = [str(one) for one in getattr(frame, "columns", frame)]
    except TypeError as error:
        raise InputError("frame", type(frame).__name__, "a table with named columns") from error
    for column in (scenario, *losses):
        if column not in there:
            names = ", ".join(map(repr, there)) or "none"
            raise InputError("frame", f"no column {column!r}", f"one of its columns: {names}")
        if there.count(column) > 1:
            raise InputError("frame", f"{there.count(column)} columns {column!r}", "one of a name")
    labels, *columns = (_column(frame, name) for name in (scenario, *losses))
    lengths = {name: len(one) for name, one in zip(losses, columns, strict=True)}
    lengths[scenario] = len(labels)
    if len({*lengths.values()}) > 1 or 0 in lengths.values():
        raise InputError("frame", f"columns of lengths {lengths}", "columns of one length, not 0")
    numbers: dict[Any, int] = {}
    for row, one in enumerate(labels.tolist()):
        if _missing(one):
            raise InputError("scenario", f"nothing in row {row}", "a scenario for each row")
        try:
            numbers.setdefault(one, len(numbers))
        except TypeError as error:
            expected = "numbers or words"
            raise InputError("scenario", f"{shown(one)} in row {row}", expected) from error
    group = np.array([numbers[one] for one in labels.tolist()])
    values = np.stack([_floats(*one) for one in zip(losses, columns, strict=True)], axis=1)
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InputError(
            "loss", f"a value that is not finite in row {row}", "finite numbers", "Drop such rows."
        )
    size = float(np.abs(values).max())
    if size and not SIZES[0] < size < SIZES[1]:
        expected = f"sizes between {SIZES[0]:g} and {SIZES[1]:g}"
        advice = "State losses in another unit of money."
        raise InputError("loss", f"values of size {size:.2g}", expected, advice)
    count = np.bincount(group)
    if len(count) < 20 or count.max() < 2:
        raise InputError(
            "scenario",
            f"{len(count)} scenarios with at most {count.max()} draws each",
            "at least 20 scenarios, and two draws or more in some of them",
            "A single draw does not tell the noise of x from the variation over scenarios.",
        )
    return group, values


def _column(frame: Any, name: str) -> np.ndarray[Any, Any]:
    expected = "a column with one cell for each row"
    try:
        found = np.asarray(frame[name])
    except (TypeError, ValueError, LookupError) as error:
        raise InputError("frame", f"a {type(frame).__name__}", "a table of columns") from error
    if found.ndim != 1:
        raise InputError("frame", f"a column {name!r} of shape {found.shape}", expected)
    return found


def _floats(name: str, column: np.ndarray[Any, Any]) -> Array:
    expected = "numbers, one for each row"
    if column.dtype.kind in "cmM":
        raise InputError("loss", f"a column {name!r} of type {column.dtype}", expected)
    try:
        return column.astype(float)
    except (TypeError, ValueError):
        pass
    for row, one in enumerate(column.tolist()):
        try:
            float(one)
        except (TypeError, ValueError) as error:
            raise InputError("loss", f"{shown(one)} in row {row} of {name!r}", expected) from error
    raise InputError("loss", f"a column {name!r} of type {column.dtype}", expected)


def _missing(one: Any) -> bool:
    try:
        return one is None or one == "" or bool(one != one)  # NaN is not itself
    except (TypeError, ValueError):  # nor does pandas' NA say
        return True


def _unseen(targets: Targets, value: Array, raw: Moved, n: int) -> Array:
    """Errors (k,) where too few scenarios are on one side of a level to know it."""
    j = np.sort(raw.law.j)
    out = np.zeros(len(value))
    for i, (kind, level) in enumerate(targets.keys):
        if kind == "exceed":
            hits = min(value[i], 1.0 - value[i]) * n
            out[i] = np.sqrt(hits + 3.0) / n if hits < _HITS else 0.0
        elif (1.0 - level) * n < _FEWEST:
            out[i] = np.inf
        elif kind == "es" and not j[-1] > np.quantile(j, level, method="inverted_cdf"):
            # Three of n scenarios may have larger losses, by no less than losses differ.
            out[i] = 3.0 / n * (j[-1] - j[0]) / (1.0 - level)
    return out


def _notes(targets: Targets, table: Table, n: int) -> list[str]:
    noise = table.moved().noise
    notes = [f"noise of the inner draws is {noise:.0%} of the variance of scenario means"]
    if not table.varies:
        notes.append(NO_VARIATION)
    if table.repeats < _REPEATS:
        notes.append(
            f"few repeated draws ({table.repeats}) tell little of the noise of x, and intervals "
            "are wide: a second draw in more scenarios would help most"
        )
    # Means of k draws have a skewness that the move keeps, and J another: it shows beside noise.
    if noise > _SHOWS and abs(table.skewness) > 1.0:
        notes.append(
            f"scenario means are skewed ({table.skewness:.1f}), and noise hides the shape of the "
            "tail of J: quantiles may be too near the mean, by more than the intervals say; more "
            "inner draws for each scenario would help"
        )
    if noise > 0.5:
        notes.append("more inner draws for each scenario would help most")
    for kind, level in targets.keys:
        if kind in ("var", "es") and (1.0 - level) * n < _FEWEST:
            need = int(np.ceil(_FEWEST / (1.0 - level)))
            notes.append(
                f"{label(kind, level)} takes at least {need:,} scenarios; there are {n:,}, and its "
                "error is not known: more scenarios, or a lower level, would help"
            )
    return notes
