"""Diagnosis of a proxy of J from residuals of fresh draws: bias, misses, faults, a verdict.

Residuals r at a θ have mean J − Ĵ and independent noise, so that products of two of them have mean
(J − Ĵ)². That mean square is attributed, in this order, to a shift and a scale (calibration in the
large and calibration slope: Cox 1958, Two further applications of a model for binary regression),
to a flattened tail, to coordinates of θ that Ĵ leaves out (omitted variables: Ramsey 1969, Tests
for specification errors in classical linear least-squares regression analysis), and to noise of the
fit. Tests are robust to unequal variances (MacKinnon and White 1985, Some
heteroskedasticity-consistent covariance matrix estimators).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import fdtrc, ndtri
from scipy.stats import rankdata

from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.methods.learned import mean_products
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate, summary


@dataclass(frozen=True)
class FaultSettings:
    """Tuning numbers of the search for faults.

    Attributes
    ----------
    good
        Share of the variance of J that a proxy may miss and still be called good: 5 % of the
        standard deviation of J.
    unmet
        Share of scenarios, all of them unlike the drawn ones at 95 % confidence, up to which
        a proxy may be called good: three of 300, by the rule of three.
    negligible
        Mean square error as a share of the variance of J, below which there is no fault: 0.3 % of
        the standard deviation of J. Control variates may be biased by less.
    significance
        Probability below which a pattern is not chance, divided by the number of coordinates.
    error
        The same for means, in standard errors: 3.3 have a probability of .001.
    share
        Least share of the mean square error that a fault explains, so that it is worth naming.
    most_of
        Share that a shift, a tail or a scale (twice as much) has to explain, since other faults
        imply some of them.
    one_sided
        Least share of the mean square in a tail that is due to its mean error.
    tails
        Shares of scenarios in a tail, tried in turn: a cut-off further out spoils a smaller one.
    most_factors
        Coordinates that are named at most.
    n_bootstrap
        Bootstrap samples of θ.
    fewest, fewest_tail
        Scenarios below which no fault, and no fault of a tail, is looked for.
    neighbors
        Neighbors in Ĵ over which variances of residuals are averaged.
    """

    good: float = 0.0025
    unmet: float = 0.01
    negligible: float = 1e-5
    significance: float = 1e-3
    error: float = 3.3
    share: float = 0.1
    most_of: float = 0.4
    one_sided: float = 0.25
    tails: tuple[float, ...] = (0.1, 0.05, 0.025)
    most_factors: int = 3
    n_bootstrap: int = 400
    fewest: int = 32
    fewest_tail: int = 8
    neighbors: int = 16


SETTINGS = FaultSettings()

_MORE = " A proxy is called good where these are at most {}: raise the budget."


@dataclass(frozen=True)
class Fault:
    """A fault of a model of J.

    Attributes
    ----------
    kind
        ``"shift"``, ``"flattened tail"``, ``"scale"``, ``"missing factor"``, ``"overfit"`` or
        ``"unexplained"``.
    share
        Share of the mean square error that it explains.
    size
        Mean error J − Ĵ of a shift or in a tail, slope of J on Ĵ of a scale or an overfit.
    coordinate
        Coordinate of θ that is missing, from 0; None for other faults.
    side, tail
        1 for an upper tail, −1 for a lower one, 0 otherwise; and its share of scenarios.
    """

    kind: str
    share: float
    size: float = 0.0
    coordinate: int | None = None
    side: int = 0
    tail: float = 0.0

    def sentence(self, low: float, high: float) -> str:
        """The fault in words; `low` and `high` are ends of the 95 % interval of |bias|."""
        part, size = _percent(min(self.share, 1.0)), abs(self.size)
        side = "low" if self.size > 0 else "high"
        return {
            "shift": f"Shift: the proxy is too {side} by {size:.3g} everywhere (95 %: {low:.3g} to "
            f"{high:.3g}).",
            "flattened tail": f"Flattened tail: in the {'upper' if self.side > 0 else 'lower'} "
            f"{_percent(self.tail)} of scenarios by its own predictions the proxy is too {side} by "
            f"{size:.3g} on average; {part} of its mean square error is there.",
            "scale": f"Scale: the proxy varies too {'little' if self.size > 1 else 'much'}: J "
            f"rises by {self.size:.3g} for each unit of the proxy, which explains {part} of its "
            "mean square error.",
            "missing factor": f"Missing factor: errors depend on theta[{self.coordinate}], "
            f"which explains {part} of the mean square error.",
            "overfit": "Overfit: errors follow no coordinate, and J rises by only "
            f"{self.size:.3g} for each unit of the proxy, as where a fit follows its own noise; "
            "more data or a smoother fit would help.",
            "unexplained": f"Unexplained: {part} of the mean square error follows no single "
            "coordinate and no tail: products of factors may be missing.",
        }[self.kind]


def _percent(share: float) -> str:
    """A share in per cent with two digits."""
    return f"{100.0 * share:.0f} %" if share >= 0.0995 else f"{100.0 * share:.2g} %"


@dataclass(frozen=True, eq=False)
class Scenario:
    """A scenario at which a proxy was observed.

    Attributes
    ----------
    theta
        θ (d_θ,).
    predicted, observed
        Ĵ by the proxy, and J by fresh draws: floats, or (p,) for several outputs.
    std_error
        Standard error of `observed`.
    """

    theta: Array
    predicted: float | Array
    observed: float | Array
    std_error: float | Array

    @property
    def error(self) -> float | Array:
        """Observed less predicted."""
        return self.observed - self.predicted

    def __str__(self) -> str:
        place = ", ".join(f"{value:.4g}" for value in self.theta)
        return (
            f"θ = ({place}): {summary(self.observed, self.std_error)}, proxy {self.predicted:.5g}"
        )


@dataclass(frozen=True, eq=False)
class Errors:
    """Fresh residuals of one output of g at θ.

    Attributes
    ----------
    theta, weights
        θ (n, d), and weights (n,) that make them a sample of their law.
    predicted
        Ĵ (n,).
    mean, square
        Mean residual (n,), whose mean is J − Ĵ, and the mean product of two different residuals
        (n,), whose mean is (J − Ĵ)².
    noise
        Variance (n,) of the mean residual by x, from neighbors in Ĵ.
    """

    theta: Array
    weights: Array
    predicted: Array
    mean: Array
    square: Array
    noise: Array

    @classmethod
    def of(cls, theta: Array, weights: Array, predicted: Array, parts: Sequence[Array]) -> Errors:
        """From residuals (n_l, N_l) of levels l with N_l ≥ 2."""
        mean = np.concatenate([part.mean(axis=1) for part in parts])
        square = np.concatenate([mean_products(part) for part in parts])
        within = np.concatenate([part.var(axis=1, ddof=1) for part in parts])
        order = np.argsort(predicted, kind="stable")
        near = np.ones(min(SETTINGS.neighbors, len(order)))
        sums = (np.convolve(one, near, "same") for one in (within[order], np.ones(len(order))))
        noise = np.empty(len(order))
        noise[order] = np.divide(*sums)
        return cls(theta, weights, predicted, mean, square, noise / _counts(parts))

    @property
    def shares(self) -> Array:
        """Weights (n,) that sum to one."""
        return np.asarray(self.weights / self.weights.sum())

    def where(self, rows: Any) -> Errors:
        return Errors(*(getattr(self, one.name)[rows] for one in fields(self)))

    def about(self, mean: float) -> Errors:
        """Errors about another mean."""
        square = self.square - 2.0 * mean * self.mean + mean**2
        return replace(self, mean=self.mean - mean, square=square)

    def precision(self) -> Array:
        """Weights (n,) of mean residuals whose variance over θ adds to their noise."""
        total = max(float(self.shares @ self.square), 0.0) + self.noise
        return np.asarray(self.weights * total.mean() / np.maximum(total, 1e-300))

    def mean_error(self) -> tuple[float, float]:
        """Mean of J − Ĵ over the law, and its standard error."""
        mean = float(self.shares @ self.mean)
        return mean, float(np.linalg.norm(self.shares * (self.mean - mean)))

    def summaries(self, spread: float, rng: np.random.Generator) -> Array:
        """Draws (1 + n, 3) of bias E[Ĵ − J], mean square, and variance of J; the first is best.

        Resampled by the Bayesian bootstrap of θ (Rubin 1981, The Bayesian bootstrap); `spread` is
        the variance of Ĵ.
        """
        n = len(self.mean)
        chance = rng.standard_exponential((SETTINGS.n_bootstrap, n))
        w = np.concatenate([np.ones((1, n)), chance]) * self.weights
        w /= w.sum(axis=1, keepdims=True)
        bias, square = w @ self.mean, w @ self.square
        together = w @ (self.predicted * self.mean) - (w @ self.predicted) * bias
        return np.stack([-bias, square, spread + 2.0 * together + square - bias**2], axis=1)

    def faults(self, summaries: Array) -> tuple[Fault, ...]:
        """Faults in the order of their shares of the mean square; none without evidence of any."""
        total, variance = (max(float(one), 1e-300) for one in summaries[0, 1:])
        lowest = float(np.quantile(summaries[1:, 1], 0.025))
        if lowest <= SETTINGS.negligible * variance or len(self.mean) < SETTINGS.fewest:
            return ()
        return tuple(sorted(_attributed(self, total), key=lambda fault: -fault.share))


def _counts(parts: Sequence[Array]) -> Array:
    """Numbers (Σ n_l,) of residuals of each θ."""
    return np.repeat([float(part.shape[1]) for part in parts], [len(part) for part in parts])


def _attributed(errors: Errors, total: float) -> Iterator[Fault]:
    """Faults that explain the mean square `total` of J − Ĵ, each given the earlier ones."""
    named = False
    mean, noise = errors.mean_error()
    if abs(mean) > SETTINGS.error * noise and mean**2 / total >= SETTINGS.most_of:
        yield Fault("shift", min(mean**2 / total, 1.0), mean)
        errors, named = errors.about(mean), True
    share = float(errors.shares @ errors.square) / total
    for side in (1, -1):
        fault, rows = _tail(errors, side, total)
        if fault is not None:
            yield fault
            errors, share, named = errors.where(~rows), share - fault.share, True
    if share < SETTINGS.share or len(errors.mean) < SETTINGS.fewest:
        return
    left = max(float(errors.shares @ errors.square), 1e-300)
    slope, t, part = _slope(errors, left)
    if abs(t) > SETTINGS.error and part >= 2.0 * SETTINGS.most_of:
        yield Fault("scale", part * share, slope)
        return
    factors = _factors(errors, left)
    for factor in factors:
        yield replace(factor, share=factor.share * share)
    share *= 1.0 - sum(factor.share for factor in factors)
    least = SETTINGS.most_of * (1.0 if factors else 0.5)
    if share >= (max(least, 0.5) if named or factors else least):
        rough = t < -SETTINGS.error
        yield Fault("overfit" if rough else "unexplained", min(share, 1.0), slope)


def _tail(errors: Errors, side: int, total: float) -> tuple[Fault | None, Any]:
    """A tail of Ĵ in which errors have one sign, J beyond Ĵ, and most of the mean square."""
    s, w = side * errors.predicted, errors.shares
    order = np.argsort(s, kind="stable")
    rank = np.cumsum(w[order])
    for tail in SETTINGS.tails:
        rows = s >= s[order][np.searchsorted(rank, 1.0 - tail)]
        if min(rows.sum(), (~rows).sum()) < SETTINGS.fewest_tail:
            continue
        square, inside = float((w * errors.square)[rows].sum()), float(w[rows].sum())
        mean, noise = errors.where(rows).mean_error()
        one_sided = mean**2 * inside >= SETTINGS.one_sided * max(square, 0.0)
        beyond = side * mean > SETTINGS.error * noise
        if beyond and one_sided and square >= SETTINGS.most_of * total:
            share = min(square / total, 1.0)
            return Fault("flattened tail", share, mean, side=side, tail=inside), rows
    return None, None


def _slope(errors: Errors, total: float) -> tuple[float, float, float]:
    """Slope of J on Ĵ, the t of its distance to 1, and the share of the mean square it explains."""
    w = errors.precision()
    x = errors.predicted - np.average(errors.predicted, weights=w)
    coefficients, covariance = _robust(np.stack([np.ones_like(x), x], axis=1), errors.mean, w)
    slope, variance = float(coefficients[1]), float(covariance[1, 1])
    part = max(slope**2 - variance, 0.0) * float(errors.shares @ x**2) / total
    return 1.0 + slope, slope / np.sqrt(max(variance, 1e-300)), min(part, 1.0)


def _factors(errors: Errors, total: float) -> list[Fault]:
    """Coordinates of θ on which J − Ĵ depends, by forward selection.

    Not given Ĵ: a noisy Ĵ = J + ε has errors that depend on θ given Ĵ, and on no coordinate alone.
    """
    n, d = errors.theta.shape
    w, s = errors.precision(), _scores(errors.predicted)
    base, factors = np.ones((n, 1)), list[Fault]()
    free = {
        k: np.stack([c, c**2 - 1.0, c**3 - 3.0 * c, *([c * s] if np.ptp(s) > 0 else [])], axis=1)
        for k, c in enumerate(map(_scores, errors.theta.T))
        if np.ptp(c) > 0
    }
    while free and len(factors) < SETTINGS.most_factors:
        tests = {k: _wald(base, columns, errors, w) for k, columns in free.items()}
        k = min(tests, key=lambda k: (tests[k][0], -tests[k][1]))
        p, part = tests[k][0], tests[k][1] / total
        if p > SETTINGS.significance / d or part < SETTINGS.share:
            break
        factors.append(Fault("missing factor", min(part, 1.0), coordinate=k))
        base = np.concatenate([base, free.pop(k)], axis=1)
    return factors


def _wald(base: Array, columns: Array, errors: Errors, w: Array) -> tuple[float, float]:
    """Probability of further columns by chance (Wald test), and the mean square they explain."""
    root = np.sqrt(w)[:, None]
    # Orthogonal to the base and to each other, so that coefficients are shares of the mean square.
    q, _ = np.linalg.qr(root * np.concatenate([base, columns], axis=1))
    q = q[:, base.shape[1] :] / np.maximum(root, 1e-300)
    coefficients, covariance = _robust(np.concatenate([base, q], axis=1), errors.mean, w)
    own, covariance = coefficients[base.shape[1] :], covariance[base.shape[1] :, base.shape[1] :]
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / scale / scale[:, None]
    wald = float(own / scale @ np.linalg.lstsq(correlation, own / scale, rcond=None)[0])
    k, freedom = len(own), max(len(w) - base.shape[1] - len(own), 1)
    gram = q.T @ (errors.shares[:, None] * q)
    part = float(own @ gram @ own - np.trace(gram @ covariance))
    return float(fdtrc(k, freedom, wald / k)), max(part, 0.0)


def _robust(design: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """Weighted least squares, and the covariance HC3 of its coefficients."""
    gram = np.linalg.pinv(design.T @ (w[:, None] * design), hermitian=True)
    coefficients = gram @ (design.T @ (w * y))
    leverage = np.minimum(w * np.einsum("ij,jk,ik->i", design, gram, design), 0.99)
    score = design * (w * (y - design @ coefficients) / (1.0 - leverage))[:, None]
    return coefficients, gram @ (score.T @ score) @ gram


def _scores(values: Array) -> Array:
    """Normal scores of ranks, equal values with their mean rank."""
    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Verdict on a proxy from fresh residuals.

    Attributes
    ----------
    bias
        E[Ĵ − J], positive where the proxy is too high: a float, or one for each output.
    unexplained
        Share of the variance of J that the proxy misses: Var(J − Ĵ) / Var J.
    faults
        Faults by output.
    errors
        Residuals by output.
    rank
        Scores (n,) by which `worst` selects scenarios, chosen without the residuals it shows.
    shown, shown_error
        J − Ĵ at the scenarios (n, p), and standard errors.
    n_met
        Scenarios at which g was evaluated, as of a sample of their law.
    """

    bias: Estimate
    unexplained: Estimate
    faults: tuple[tuple[Fault, ...], ...]
    errors: tuple[Errors, ...] = field(repr=False)
    rank: Array = field(repr=False)
    shown: Array = field(repr=False)
    shown_error: Array = field(repr=False)
    n_met: int = 0

    @classmethod
    def of(
        cls,
        problem: NestedExpectation,
        theta: Array,
        weights: Array,
        predicted: Array,
        parts: Sequence[Array],
        spread: Array,
        rng: np.random.Generator,
        rank: Array | None = None,
        n_others: int = 0,
    ) -> Diagnosis:
        """From residuals (n_l, N_l, p) of levels l at θ (Σ n_l, d_θ) with weights and Ĵ (·, p).

        `spread` (p,) is the variance of Ĵ over θ. `rank` (Σ n_l,) is a size of errors that is known
        without these residuals; without it the first residual of each θ selects, and the others
        show the error. g was evaluated at `n_others` other scenarios.
        """
        errors = tuple(
            Errors.of(theta, weights, predicted[:, c], [part[:, :, c] for part in parts])
            for c in range(predicted.shape[1])
        )
        draws = [e.summaries(float(v), rng) for e, v in zip(errors, spread, strict=True)]
        faults = tuple(e.faults(drawn) for e, drawn in zip(errors, draws, strict=True))
        bias, square, variance = np.stack(draws, axis=2).swapaxes(0, 1)  # each (1 + B, p)
        # A variance of J that the draws do not show, or that is rounding, is no divisor.
        size = np.mean(predicted**2, axis=0) + np.maximum(square[0], 0.0)
        least = np.maximum(variance[1:].std(axis=0), 1e-12 * size) + np.finfo(float).tiny
        share = np.clip((square - bias**2) / np.maximum(variance, least), 0.0, None)
        n = sum(part[..., 0].size for part in parts)

        def estimate(values: Array) -> Estimate:
            return Estimate.from_draws(
                values[0, 0] if values.shape[1] == 1 else values[0],
                values[1:],
                problem=replace(problem, exact=None),
                n_evaluations=n,
                n_outer=len(theta),
                n_inner=round(n / len(theta)),
                method="fresh draws",
            )

        mean = np.stack([one.mean for one in errors], axis=1)
        noise = np.sqrt(np.stack([one.noise for one in errors], axis=1))
        if rank is None:
            first, count = np.concatenate([part[:, 0] for part in parts]), _counts(parts)[:, None]
            rank = np.abs(first / np.sqrt(np.maximum(spread, 1e-300))).max(axis=1)
            mean = (count * mean - first) / (count - 1.0)
            noise = noise * np.sqrt(count / (count - 1.0))
        # Where weights are large, draws are rarer than of the law.
        n_met = int(len(theta) / max(float(weights.max() / weights.mean()), 1.0)) + n_others
        return cls(estimate(bias), estimate(share), faults, errors, rank, mean, noise, n_met)

    @property
    def n_outputs(self) -> int:
        return len(self.errors)

    @cached_property
    def verdict(self) -> str:
        """Faults of the proxy in words, the gravest first."""
        bias, share = (
            np.stack([np.ravel(end) for end in (estimate.value, *estimate.interval())], axis=1)
            for estimate in (self.bias, self.unexplained)
        )
        texts = []
        for c, faults in enumerate(self.faults):
            name = f"Output {c + 1}: " if self.n_outputs > 1 else ""
            misses, _, most = map(_percent, share[c])
            words = [fault.sentence(*sorted(np.abs(bias[c, 1:]))) for fault in faults]
            if not np.ptp(self.errors[c].predicted):
                words.insert(0, "The proxy predicts the same value for all scenarios.")
            words.append(f"The proxy misses {misses} of the variance of J (at most {most}).")
            texts.append(name + " ".join(words if words[1:] else ["No fault seen.", *words]))
        if not any(self.faults) and np.nanmax(share[:, 2]) > SETTINGS.good:
            texts.append(
                f"It is not called good: that takes at most {_percent(SETTINGS.good)}, which more "
                "evaluations might show."
            )
        texts.append(
            f"Errors in fewer than {_percent(self.unmet)} of scenarios may have been met by no "
            "draw (95 %): the verdict and intervals do not know of them."
            + ("" if self.unmet <= SETTINGS.unmet else _MORE.format(_percent(SETTINGS.unmet)))
        )
        return "\n".join(texts)

    @property
    def unmet(self) -> float:
        """Largest probability of scenarios that were not drawn: the rule of three."""
        return min(3.0 / max(self.n_met, 1), 1.0)

    @property
    def is_good(self) -> bool:
        """Whether the proxy misses little of the variance of J, and few scenarios."""
        upper = np.atleast_1d(np.asarray(self.unexplained.interval()[1]))
        shift = any(fault.kind == "shift" for faults in self.faults for fault in faults)
        met = self.unmet <= SETTINGS.unmet
        return bool((upper <= SETTINGS.good).all()) and met and not shift

    def worst(self, n: int = 10) -> list[Scenario]:
        """The n different scenarios drawn with the largest errors, each with its error.

        They are selected by other evidence than the draws that show their errors, so that these
        are not exaggerated by the selection.
        """
        n = whole("n", n, "a number of scenarios, from 1 on")
        order = np.argsort(-self.rank, kind="stable")
        _, first = np.unique(self.errors[0].theta[order], axis=0, return_index=True)
        predicted = np.stack([one.predicted for one in self.errors], axis=1)

        def given(values: Array) -> float | Array:
            return float(values[0]) if self.n_outputs == 1 else values

        return [
            Scenario(
                self.errors[0].theta[i],
                given(predicted[i]),
                given(predicted[i] + self.shown[i]),
                given(self.shown_error[i]),
            )
            for i in order[np.sort(first)[:n]]
        ]

    def rows(self) -> list[dict[str, Any]]:
        """All scenarios drawn: θ, prediction, observation and its standard error."""
        theta, n = self.errors[0].theta, self.n_outputs
        columns = {f"theta[{k}]": theta[:, k] for k in range(theta.shape[1])}
        for c, one in enumerate(self.errors):
            end = f" {c + 1}" if n > 1 else ""
            columns[f"predicted{end}"] = one.predicted
            columns[f"observed{end}"] = one.predicted + one.mean
            columns[f"std_error{end}"] = np.sqrt(one.noise)
        columns["weight"] = self.errors[0].weights
        return [
            {name: float(values[i]) for name, values in columns.items()} for i in range(len(theta))
        ]


def check_sections(
    diagnosis: Diagnosis, lines: dict[str, str], notes: Sequence[str], name: str
) -> list[str]:
    """Sections of a page: verdict, numbers, figure, worst scenarios, notes."""
    from nestquad.pages import figure, grid, paragraphs, table
    from nestquad.plots import plot_proxy_errors

    verdict = lines.get("verdict", diagnosis.verdict)
    sections = ["<h2>Verdict</h2>", paragraphs(verdict.splitlines())]
    sections.append(table([(key, text) for key, text in lines.items() if key != "verdict"]))
    sections.append(
        figure(
            lambda ax: plot_proxy_errors(diagnosis, ax, name),
            "Errors of the proxy, observed less predicted, along its predictions. The band is the "
            "95 % interval of the mean error.",
            height=3.6,
        )
    )
    if diagnosis.n_outputs == 1:
        worst = [
            (
                ", ".join(f"{value:.4g}" for value in one.theta),
                f"{one.predicted:.5g}",
                f"{one.observed:.5g}",
                f"{one.error:.3g} ± {NORMAL_95 * float(one.std_error):.2g}",
            )
            for one in diagnosis.worst()
        ]
        sections.append("<h2>Scenarios where the proxy is worst</h2>")
        sections.append(grid(("θ", "proxy", "observed", "error (95 %)"), worst))
    return [*sections, "<h2>How it was checked</h2>", paragraphs(notes)]
