"""Measures of risk from a table: an existing nested simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Any, TypeAlias

import numpy as np
from scipy.special import gammaincinv, ndtri
from scipy.stats import rankdata

from nestquad import clock
from nestquad._checks import generator, instance, listed, shown
from nestquad._scale import SIZES, scale_of
from nestquad._typing import Array, Indices, RNGLike
from nestquad.accuracy import tail_shape
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.methods.learned import Pairs
from nestquad.methods.nested import NO_VARIATION
from nestquad.regression import Ridge, ScoreTable, ridge
from nestquad.result import Estimate
from nestquad.risk._contributions import Contributions
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._law import DEFAULT as LAW
from nestquad.risk._law import LawOfJ, LawSettings
from nestquad.risk._report import RiskReport
from nestquad.risk._targets import Kind, Targets, label

_Rows: TypeAlias = tuple[Indices, Array, Array]


@dataclass(frozen=True)
class TableSettings:
    """Tuning numbers of measures from tables.

    Attributes
    ----------
    n_bootstrap
        Bootstrap samples of scenarios.
    n_groups, pooled
        Groups of neighbors whose inner variances are pooled; that of all scenarios counts in each
        as much as this number of repeated draws, which know it to a half.
    shows
        Share of noise beyond which the shape of J is hidden.
    fewest_beyond, hits
        Scenarios beyond a quantile below which it is unknown (at 95 %, three are expected
        where none was seen), and those from which on a probability has an error of its own.
    repeats
        Repeated draws below which a bootstrap of scenarios does not show the error of their
        variance.
    n_folds
        Parts of the scenarios, each predicted by the fit to the others (Chernozhukov and others
        2018, Double/debiased machine learning).
    max_degree, max_terms
        Polynomials in normal scores of the factors: up to this degree, as far as there is room.
    fewest_pairs
        Scenarios with two draws or more, below which pairs are uninformative.
    n_splits
        Splits of the scenarios into two halves, by which errors of fits are measured.
    heaviest
        Least index of the tail of residuals, as for certificates.
    """

    n_bootstrap: int = 200
    n_groups: int = 20
    pooled: float = 8.0
    shows: float = 0.1
    fewest_beyond: float = 3.0
    hits: float = 20.0
    repeats: int = 20
    n_folds: int = 10
    max_degree: int = 6
    max_terms: int = 500
    fewest_pairs: int = 32
    n_splits: int = 3
    heaviest: float = 1.1


SETTINGS = TableSettings()


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
    names = []
    if factors is not None:
        expected = "names of different columns, such as ['rate', 'equity']"
        names = listed("factors", factors, expected)
        if not names or len({*map(str, names)}) < len(names):
            raise InputError("factors", shown(factors), expected)
    group, values, z = _read(frame, scenario, columns, names)
    seed, n = int(generator(rng).integers(1 << 62)), int(group.max()) + 1
    fields: dict[str, Any] = {"problem": name, "n_evaluations": len(group), "n_outer": n}
    fields |= {"n_inner": round(len(group) / n), "method": "nested simulation"}
    contributions, law = None, NestedTable.of(group, values, seed)
    if names:
        by_scenario, names = _by_scenario(z, names, group)
        by_factors = FactorTable.of(group, values.sum(axis=1), by_scenario)
        learned = by_factors.law(seed)
        fields["method"] = "regression on factors"
        found = Estimate.from_draws(*by_factors.measured(learned, targets, seed), **fields)
        notes = [*_factor_notes(learned, names, n), *_few_notes(targets, n)]
        few = [_is_beyond(kind, level, n) for kind, level in targets.keys]
        if any(few):  # the law has the scenarios of the table, and no others
            errors = np.where(few, np.inf, found.std_error)
            found = replace(found, std_error=errors, covariance=np.diag(errors**2), draws=None)
        distribution = LossDistribution(learned)
    else:
        fields["status"] = "done" if law.varies else "unreliable"
        value, errors = law.moved().values(targets), law.directions(targets)
        found = Estimate.from_directions(value, errors, diagnostics={"notes": []}, **fields)
        notes, distribution = _notes(targets, law, n), LossDistribution(law)
        if len(columns) > 1:
            contributions = law.contributions(targets, errors, tuple(columns), fields)
    found = replace(found, seconds=clock.now() - started)
    return RiskReport(
        name,
        found,
        targets.keys,
        tuple(notes),
        distribution=distribution,
        contributions=contributions,
    )


def _factor_notes(law: LawOfJ, names: Sequence[str], n: int) -> list[str]:
    return [
        f"the loss is learned from {', '.join(map(str, names))} at {n:,} scenarios, each predicted "
        "by a fit to others",
        "J does not vary over scenarios: factors have nothing to explain"
        if not law.variance > 0
        else f"repeated draws show that factors leave {law.unexplained_share:.1%} of the variance "
        "of J unexplained, which the law accounts for",
    ]


@dataclass(frozen=True, eq=False)
class NestedTable:
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
    def of(cls, group: Indices, values: Array, seed: int) -> NestedTable:
        count = np.bincount(group).astype(float)
        means = np.stack([np.bincount(group, one) / count for one in values.T], axis=1)
        away = values - means[group]
        summed = away.sum(axis=1)
        sums = [np.bincount(group, one * summed) for one in away.T]
        products: Array = np.stack(sums, axis=1).astype(float)
        # Inner variances of neighbors are alike, and of one scenario hardly known.
        rank = np.argsort(np.argsort(means.sum(axis=1), kind="stable"), kind="stable")
        part = rank * min(SETTINGS.n_groups, max(1, len(count) // 20)) // len(count)
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
        pooled = SETTINGS.pooled * sums.sum(axis=0) / freedom.sum()
        inner = (sums + pooled) / (freedom + SETTINGS.pooled)[:, None]
        noise = noisier * inner[self.part] / self.count[:, None]
        center = w @ self.means / w.sum()
        away = self.means - center
        total, noise_total = away.sum(axis=1), np.maximum(noise.sum(axis=1), 0.0)
        seen, hidden = w @ total**2 / w.sum(), w @ noise_total / w.sum()
        left = max(float(seen - hidden), 0.0)
        if left == 0:  # J is not seen, nor how outputs vary with it
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
        drawn = (random.integers(n, size=n) for _ in range(SETTINGS.n_bootstrap))
        return tuple(self.moved(np.bincount(at, minlength=n).astype(float)) for at in drawn)

    def directions(self, targets: Targets) -> Array:
        """Errors (k, ·) of measures: bootstrap samples first, then what they do not show."""
        value, n = targets.values(self.center), len(self.count)
        drawn = [each.values(targets) for each in self.samples]
        raw = Moved(self.means, np.ones(n), np.ones(1), 0.0)
        parts = [(np.stack(drawn, axis=1) - value[:, None]) / np.sqrt(SETTINGS.n_bootstrap)]
        # Of h scenarios beyond a level there might as well be h + 3, and samples of h know no more.
        beyond = np.array([np.inf if k == "exceed" else (1.0 - p) * n for k, p in targets.keys])
        parts[0] *= np.sqrt(1.0 + 3.0 / beyond)[:, None]
        # The move is right for a normal J. A skewed one has less noise in its quantiles than that,
        # perhaps none.
        doubt = 0.5 * (1.0 + min(abs(self.skewness), 1.0))
        rest = [doubt * (raw.values(targets) - value), _unseen(targets, value, raw, n)]
        if self.repeats < SETTINGS.repeats:
            # Ends of the 95 % interval of a variance with so many degrees of freedom.
            half = 0.5 * self.repeats
            ends = [self.moved(noisier=half / gammaincinv(half, p)) for p in (0.025, 0.975)]
            rest.append(0.5 * np.max([np.abs(one.values(targets) - value) for one in ends], axis=0))
        if not self.varies:
            bounded = np.array([kind == "exceed" for kind, _ in targets.keys])
            rest.append(np.where(bounded, 0.0, np.inf))
        return np.column_stack([*parts, *rest])

    def contributions(
        self, targets: Targets, errors: Array, outputs: tuple[str, ...], fields: dict[str, Any]
    ) -> Contributions:
        """Contributions of outputs, with errors by the bootstrap and by that of the sum."""
        split: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
        moved, n = self.moved(), SETTINGS.n_bootstrap
        best = moved.contributions(targets)
        away = np.stack([one.contributions(targets) for one in self.samples], axis=2)
        away -= best[:, :, None]
        for k, (kind, level) in enumerate(targets.keys):
            if kind in split:
                # Other errors of the sum belong to outputs as they vary with it.
                rest = np.linalg.norm(errors[k, n:]) * moved.share
                parts = np.column_stack([away[k] / np.sqrt(n), rest])
                split[kind][level] = Estimate.from_directions(best[k], parts, **fields)
        return Contributions(outputs, split["var"], split["es"])

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


def _read(frame: Any, scenario: str, losses: list[str], factors: list[str]) -> _Rows:
    """Scenario numbers, losses and factors of all rows."""
    try:
        there = [str(one) for one in getattr(frame, "columns", frame)]
    except TypeError as error:
        raise InputError("frame", type(frame).__name__, "a table with named columns") from error
    columns = {name: _column(frame, name, there) for name in (scenario, *losses, *factors)}
    lengths = {name: len(one) for name, one in columns.items()}
    if len({*lengths.values()}) > 1 or 0 in lengths.values():
        raise InputError(
            "frame", f"columns of lengths {lengths}", "columns of one length, with a row at least"
        )
    numbers: dict[Any, int] = {}
    labels = columns[scenario].tolist()
    for row, one in enumerate(labels):
        if _missing(one):
            raise InputError("scenario", f"nothing in row {row}", "a scenario for each row")
        try:
            numbers.setdefault(one, len(numbers))
        except TypeError as error:
            expected = "numbers or words"
            raise InputError("scenario", f"{shown(one)} in row {row}", expected) from error
    group = np.array([numbers[one] for one in labels])
    values, z = (
        np.stack([_floats(kind, name, columns[name]) for name in names], axis=1)
        if names
        else np.empty((len(group), 0))
        for kind, names in (("loss", losses), ("factors", factors))
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
    return group, values, z


def _column(frame: Any, name: str, there: list[str]) -> np.ndarray[Any, Any]:
    if there.count(name) != 1:
        names = ", ".join(map(repr, there)) or "none"
        given = f"{there.count(name) or 'no'} column{'s' * (name in there)} {name!r}"
        raise InputError("frame", given, f"one such column; it has {names}")
    try:
        found = np.asarray(frame[name])
    except (TypeError, ValueError, LookupError) as error:
        raise InputError("frame", f"a {type(frame).__name__}", "a table of columns") from error
    if found.ndim != 1:
        expected = "a column with one cell for each row"
        raise InputError("frame", f"a column {name!r} of shape {found.shape}", expected)
    return found


def _floats(argument: str, name: str, column: np.ndarray[Any, Any]) -> Array:
    expected = "finite numbers, one for each row"
    if column.dtype.kind in "cmM":
        raise InputError(argument, f"a column {name!r} of type {column.dtype}", expected)
    values = np.full(len(column), np.nan)
    try:
        values = column.astype(float)
    except (TypeError, ValueError):
        for row, one in enumerate(column.tolist()):
            try:
                values[row] = float(one)
            except (TypeError, ValueError):
                break
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        given, advice = f"{shown(column[row].item())} in row {row} of {name!r}", "Drop such rows."
        raise InputError(argument, given, expected, advice)
    return values


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
            out[i] = np.sqrt(hits + 3.0) / n if hits < SETTINGS.hits else 0.0
        elif _is_beyond(kind, level, n):
            out[i] = np.inf
        elif kind == "es" and not j[-1] > np.quantile(j, level, method="inverted_cdf"):
            # Three of n scenarios may have larger losses, by no less than losses differ.
            out[i] = 3.0 / n * (j[-1] - j[0]) / (1.0 - level)
    return out


def _notes(targets: Targets, table: NestedTable, n: int) -> list[str]:
    noise = table.moved().noise
    notes = [f"noise of the inner draws is {noise:.0%} of the variance of scenario means"]
    if not table.varies:
        notes.append(NO_VARIATION)
    if table.repeats < SETTINGS.repeats:
        notes.append(
            f"few repeated draws ({table.repeats}) tell little of the noise of x, and intervals "
            "are wide: a second draw in more scenarios would help most"
        )
    # Means of k draws have a skewness that the move keeps, and J another: it shows above the noise.
    if noise > SETTINGS.shows and abs(table.skewness) > 1.0:
        notes.append(
            f"scenario means are skewed ({table.skewness:.1f}), and noise hides the shape of the "
            "tail of J: quantiles may be too near the mean, by more than the intervals say; more "
            "inner draws for each scenario would help"
        )
    if noise > 0.5:
        notes.append("more inner draws for each scenario would help most")
    return notes + _few_notes(targets, n)


def _is_beyond(kind: Kind, level: float, n: int) -> bool:
    """Whether fewer of n scenarios are beyond a level than it takes to know it."""
    return kind != "exceed" and (1.0 - level) * n < SETTINGS.fewest_beyond


def _few_notes(targets: Targets, n: int) -> list[str]:
    return [
        f"{label(kind, level)} takes at least "
        f"{np.ceil(SETTINGS.fewest_beyond / (1.0 - level)):,.0f} scenarios; there are {n:,}, and "
        "its error is not known: more scenarios, or a lower level, would help"
        for kind, level in targets.keys
        if _is_beyond(kind, level, n)
    ]


def _by_scenario(z: Array, names: Sequence[str], group: Indices) -> tuple[Array, list[str]]:
    """Values (n, d) of factors (m, ·), which all rows of a scenario share, and those that vary."""
    by_scenario = z[np.unique(group, return_index=True)[1]]
    differs = z != by_scenario[group]
    if differs.any():
        row, k = np.argwhere(differs)[0]
        raise InputError(
            "factors",
            f"{names[k]!r} with {by_scenario[group[row], k]:g} and {z[row, k]:g} in one scenario "
            f"(row {row})",
            "one value of a factor for each scenario",
            "What varies within a scenario is part of the inner draw.",
        )
    varies = np.ptp(by_scenario, axis=0) > 0
    if not varies.any():
        given = f"{', '.join(map(repr, names))}, the same in all scenarios"
        raise InputError("factors", given, "at least one factor that varies")
    return by_scenario[:, varies], [one for one, own in zip(names, varies, strict=True) if own]


def predict_losses(factors: Array, means: Array, count: Array, seed: int, n_terms: int) -> Array:
    """Ĵ (n,) at scenarios with factors (n, d), each by a ridge of `n_terms` on the other folds.

    `means` (n,) are mean losses of `count` (n,) draws.
    """
    n = len(factors)
    uniform = (rankdata(factors, axis=0) - 0.5) / n
    fold = np.random.default_rng(seed).permutation(n) % SETTINGS.n_folds
    predicted, scale = np.empty(n), float(scale_of(means[:, None])[0])
    for k in range(SETTINGS.n_folds):
        rest, own = fold != k, fold == k
        fitted = _ridge(uniform[rest], means[rest] / scale, count[rest], n_terms)
        table = ScoreTable(uniform[own], fitted.table.scores)
        predicted[own] = scale * fitted.fits[0].evaluate(table)
    return predicted


def choose_terms(factors: Array, means: Array, count: Array) -> int:
    """Number of terms with the smallest leave-one-out residuals, of a whole degree."""
    n, dim = factors.shape
    uniform, means = (rankdata(factors, axis=0) - 0.5) / n, means / scale_of(means[:, None])
    degrees = range(1, SETTINGS.max_degree + 1)
    tried = sorted({min(comb(dim + k, k), SETTINGS.max_terms) for k in degrees})
    return min(tried, key=lambda terms: float(_ridge(uniform, means, count, terms).fits[0].loo))


def _ridge(uniform: Array, means: Array, count: Array, n_terms: int) -> Ridge:
    return ridge(means[:, None], uniform, count, max_points=len(means), max_terms=n_terms)


@dataclass(frozen=True, eq=False)
class FactorTable:
    """Losses of repeated draws by scenario, with risk factors from which J is learned.

    Attributes
    ----------
    factors
        Factors (n, d) of the scenarios.
    count, half, sizes
        Draws (n,) of each scenario, and the mean losses and the sizes (n, 2) of two halves of them:
        the last of an odd number joins the first half.
    n_terms
        Terms of the regression.
    """

    factors: Array
    count: Array
    half: Array
    sizes: Array
    n_terms: int

    @classmethod
    def of(cls, group: Indices, loss: Array, factors: Array) -> FactorTable:
        """From losses (m,) of scenarios (m,) with factors (n, d)."""
        count = np.bincount(group).astype(float)
        order = np.argsort(group, kind="stable")
        place = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count.astype(int))
        both = 2 * group[order] + (place % 2).astype(np.intp)
        sums = np.bincount(both, loss[order], 2 * len(count)).reshape(-1, 2)
        sizes = np.bincount(both, minlength=2 * len(count)).reshape(-1, 2)
        rows = int((sizes[:, 1] > 0).sum())
        if rows < SETTINGS.fewest_pairs:
            raise InputError(
                "factors",
                f"a table with {rows} scenarios of two draws or more",
                f"at least {SETTINGS.fewest_pairs}",
                "Without repeated draws nothing tells the error of a regression on factors.",
            )
        n_terms = choose_terms(factors, sums.sum(axis=1) / count, count)
        half: Array = sums / np.maximum(sizes, 1)
        return cls(factors, count, half, sizes.astype(float), n_terms)

    def where(self, rows: Indices) -> FactorTable:
        own = self.factors[rows], self.count[rows], self.half[rows], self.sizes[rows]
        return FactorTable(*own, self.n_terms)

    def law(self, seed: int, settings: LawSettings = LAW) -> LawOfJ:
        """Law of J over the scenarios."""
        means = (self.half * self.sizes).sum(axis=1) / self.count
        n, d = self.factors.shape
        s = predict_losses(self.factors, means, self.count, seed, self.n_terms)
        rows = self.sizes[:, 1] > 0
        r = self.half[rows] - s[rows, None]
        size = max(float((r[:, 0] * r[:, 1]).mean()), 1e-6 * float(s.var()), 1e-300)
        repeats = self.sizes[rows, 1]
        pairs = Pairs(s[rows], r, np.ones(len(r)), np.full(len(r), size), None, repeats)
        replicate = np.random.default_rng(seed + 1).permutation(n) % 16
        law = replace(LawOfJ.of_model(s, np.ones(n), replicate, float(d), n), settings=settings)
        return law.corrected(pairs, np.random.default_rng(seed + 2))

    def measured(self, law: LawOfJ, targets: Targets, seed: int) -> tuple[Array, Array]:
        """Measures (k,) of a law, and draws (K, k) of them that know errors of the fit."""
        value, draws = law.measured(targets)
        assert draws is not None
        rng = np.random.default_rng(seed + 3)
        away = self._half_samples(targets, seed) - value
        beyond = np.maximum((away**2).mean(axis=0) - draws.var(axis=0), 0.0)
        error = np.sqrt(beyond + _unmet(law, targets) ** 2)
        return value, draws + error * rng.standard_normal(draws.shape)

    def _half_samples(self, targets: Targets, seed: int) -> Array:
        """Measures (H, k) by halves of the scenarios, each with a fit of its own.

        Their mean square distance to measures of all scenarios is the variance of these (McCarthy
        1969, Pseudo-replication: half samples).
        """
        rng, n, few = np.random.default_rng(seed + 4), len(self.count), replace(LAW, n_draws=1)
        found = []
        for _ in range(SETTINGS.n_splits):
            order = rng.permutation(n)
            for rows in (order[: n // 2], order[n // 2 :]):
                found.append(targets.values(self.where(rows).law(seed, few).center))
        return np.stack(found)


def _unmet(law: LawOfJ, targets: Targets) -> Array:
    """Standard errors (k,) of measures for residuals larger than in any pair.

    The mean of a tail of index α beyond a bound is α/(α − 1) times the bound: one residual beyond
    the largest near a level is larger by 1/(α − 1) of it.
    """
    assert law.pairs is not None
    pairs = law.pairs
    rest = pairs.r.mean(axis=1) - np.interp(pairs.s, law.s, law.b[0])
    near = np.clip(np.searchsorted(law.s, pairs.s), 0, len(law.s) - 1)
    share = law.dependence(targets)[:, near]
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
    alpha = max(1.0 / max(tail_shape(rest[:, None]), 1e-9), SETTINGS.heaviest)
    error: Array = np.abs(share * rest).max(axis=1) / (alpha - 1.0)
    for i, (kind, level) in enumerate(targets.keys):
        if kind == "exceed":  # a change of losses changes a probability by the law
            sides = [law.center.exceedance(level + sign * error[i]) for sign in (1.0, -1.0)]
            error[i] = 0.5 * abs(sides[0] - sides[1])
    return error
