"""Posterior of J: draws of the function, and of every functional of it.

Two kinds of evidence make it. *Independent randomizations*: the change of a functional when one
group of points is deleted, over the change that the posterior of the model expects, calibrates the
errors of its paths. *Fresh pairs*: the discrepancy J − Ĵ given Ĵ has a mean b and a variance v that
no point of the fit has seen. A draw is

    J_k = Ĵ + b_k(Ĵ) + √v_k(Ĵ) ε_k + κ_k e_k,

and a functional F has draws F(Ĵ + b_k + √v_k ε_k) + κ_k ½ [F(Ĵ + e_k) − F(Ĵ − e_k)]. Only the odd
part of a path counts: that f(Ĵ) is biased because J scatters about Ĵ is learned from pairs. The
answer is the mean of the draws: J given Ĵ has mean Ĵ + b(Ĵ) and variance v(Ĵ), whether J scatters
about Ĵ or Ĵ about J, which is a slope of b. Pairs show the variance v, not the shape of ε: a part
of the mean absolute change of f, which depends on its share of the variance of f and on the
smoothness of f, counts as an error of F. *Cross-fitting* values each group of points by the model
of the others, an estimate that noise of Ĵ does not bias: draws are shifted towards it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.methods._events import effective_number
from nestquad.methods.learned._discrepancy import (
    Evidence,
    Pairs,
    Scores,
    draw_bias,
    draw_variances,
)
from nestquad.methods.learned._evidence import Check
from nestquad.methods.learned._model import ModelOfJ, Paths


@dataclass(frozen=True)
class PosteriorSettings:
    """Tuning numbers of the posterior of J, chosen on few even seeds of the families.

    Attributes
    ----------
    n_paths
        Paths of the model: the variance of a functional is then known to a quarter.
    n_discrepancies
        Draws of the discrepancy.
    n_draws
        Draws of a functional, each a path, a discrepancy and a calibration factor: the 97.5 %
        quantile is then known to 5 % of a standard deviation.
    ungrouped_dof
        Degrees of freedom of κ² where there are too few points for groups.
    unshown
        Part of the error that groups do not show, as they share it: the geometric mean of what they
        show and the model claims, times this. Of 520 intervals of even seeds 92.5 % cover with none
        and 93.8 % with 0.3, at 5 % more width.
    bias_claim, bias_width
        Prior of the bias b: its variance over that of the calibrated paths, which count already,
        and the scale of the Laplace prior of log(bias / claimed bias). A quarter and a half made
        intervals a fifth narrower at the same coverage (219 runs of even seeds).
    contradiction
        Standard errors by which the mean product of pairs has to exceed the mean of v before it
        takes its place in all draws. With one, errors of `CKQ` on `finance` were 7 and 27 times as
        large at 1,000 and 10,000 evaluations (20 seeds).
    reach
        Normal scores up to which errors are averaged in cells of unit width: a bias varies on the
        scale of 1, and errors of opposite sign within a cell cancel in any functional.
    factors
        Bounds of squared factors: rounding errors, and a model without explanatory power.
    n_scatters
        Draws of the discrepancy for the change of f by the unknown shape of ε.
    step
        Share of held-out residuals by which functionals are differentiated.
    calibrated, discrepant, shaped, crossed, student
        Switches of the devices, for ablation: the factor κ, the discrepancy, its unknown shape,
        cross-fitting, and Student's factor of pairs.
    """

    n_paths: int = 32
    n_discrepancies: int = 64
    n_draws: int = 1024
    ungrouped_dof: float = 4.0
    unshown: float = 0.3
    bias_claim: float = 0.25
    bias_width: float = 0.5
    contradiction: float = 2.0
    reach: float = 2.0
    factors: tuple[float, float] = (1e-12, 1e6)
    n_scatters: int = 16
    step: float = 1e-6
    calibrated: bool = True
    discrepant: bool = True
    shaped: bool = True
    crossed: bool = True
    student: bool = True


DEFAULT = PosteriorSettings()


@dataclass(frozen=True, eq=False)
class FunctionalDraws:
    """Draws of a functional.

    Attributes
    ----------
    values
        Draws (K, k) less the value at Ĵ.
    correction
        Their center (k,), the mean change by the discrepancy of Ĵ.
    rate
        Power of n at which they narrow.
    """

    values: Array
    correction: Array
    rate: float

    @property
    def sd(self) -> float:
        """Standard deviation, the largest over the functionals; infinite if one is unknown."""
        return float(self.values.std(axis=0).max()) if np.isfinite(self.values).all() else np.inf


Functional = Callable[[Array], Array]
"""Maps J (M, p) at the sketch to answers (k,)."""
Change = Callable[[Array, Array], Array]
"""Maps two J (M, p) at the sketch to the error (k,) of a functional by their unknown shape."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Errors of a functional by the paths of a model, and the posterior of their factor κ.

    Attributes
    ----------
    effects, shared
        Odd parts (K, k) of the change of the functional by each path, and by each error that all
        groups share, to which κ does not apply.
    scale, dof
        Scale (k,) and degrees of freedom of the posterior of κ², a scaled inverse χ² variable.
    claimed
        Factor (p,) of the variance that the model claims at single θ.
    profiles
        Variance of the error of E[J | Ĵ] as the model claims it, for each output.
    rate
        Power of n at which standard deviations fall, from all points to all groups but one.
    changes
        Changes (R, k) of the functional where each group of points is valued by a model that has
        not seen it; none for a model without groups.
    """

    effects: Array
    shared: Array
    scale: Array
    dof: float
    claimed: Array
    rate: float
    profiles: tuple[Profile, ...] = ()
    changes: Array | None = None


@dataclass(frozen=True, eq=False)
class Profile:
    """Variance (C,) of the error of E[J | Ĵ] at places (C,) of Ĵ: errors at single θ cancel."""

    places: Array
    variance: Array

    @classmethod
    def of(
        cls, j: Array, weights: Array, paths: Paths, c: int, *, relative: bool = False
    ) -> Profile:
        """Mean squares of errors averaged over cells of unit width in normal scores of Ĵ (M,).

        With `relative`, of errors of log Ĵ, at places of log Ĵ.
        """
        score = Scores.of(j, weights)(j)
        cell = np.unique(
            np.clip(np.round(score), -DEFAULT.reach, DEFAULT.reach), return_inverse=True
        )[1]
        total = np.bincount(cell, weights)

        def averaged(errors: Array) -> Array:
            rows = errors[..., c].reshape(-1, len(j)) / (j if relative else 1.0)
            return np.stack([np.bincount(cell, weights * row) / total for row in rows])

        places = np.bincount(cell, weights * (np.log(j) if relative else j)) / total
        claimed = np.mean(averaged(paths.errors) ** 2, axis=0)
        if len(paths.observed) > 1:
            observed, expected = averaged(paths.observed), averaged(paths.expected)
            known = float(np.mean(expected**2))
            ratio = float(np.mean(observed**2)) / known if known > 0 else 1.0
            claimed = claimed * float(np.clip(ratio, *DEFAULT.factors))
        if paths.shared is not None:
            claimed = claimed + np.mean(averaged(paths.shared) ** 2, axis=0)
        return cls(places, claimed)

    def at(self, j: Array) -> Array:
        return np.asarray(np.interp(j, self.places, self.variance))


@dataclass(frozen=True, eq=False)
class PathEffects:
    """Effects of the errors of a model on a functional."""

    model: ModelOfJ
    functional: Functional
    settings: PosteriorSettings = DEFAULT

    def calibration(self, rng: np.random.Generator) -> Calibration:
        """Paths through the functional, calibrated by deleted groups.

        The mean square of the observed changes over that of the expected ones is κ² times a χ²
        variable over its degrees of freedom, one less than there are groups, as for the variance of
        a delete-a-group jackknife. Its posterior is a scaled inverse χ² law (Gelman and others
        2013, Bayesian data analysis, section 2.6), whose scale is the ratio. Errors that groups
        share do not change with a deletion: a part of the claim stands for them.
        """
        paths, base = self.model.paths(self.settings.n_paths, rng), self.model.sketch
        profiles = tuple(
            Profile.of(j, base.weights, paths, c, relative=self.model.logarithmic)
            for c, j in enumerate(base.j.T)
        )
        effects = np.stack([self._odd(error) for error in paths.errors])
        shared = np.zeros((1, effects.shape[1]))
        if paths.shared is not None:
            shared = np.stack([self._odd(error) for error in paths.shared])
        groups = len(paths.observed)
        if groups < 2 or not self.settings.calibrated:
            ones, dof = np.ones(effects.shape[1]), self.settings.ungrouped_dof
            return Calibration(effects, shared, ones, dof, np.ones(len(profiles)), 1.0, profiles)
        squares = np.sum([self._odd(change) ** 2 for change in paths.observed], axis=0)
        expected = np.sum(
            [np.mean([self._odd(c) ** 2 for c in drawn], axis=0) for drawn in paths.expected],
            axis=0,
        )
        known = (expected > 0) & np.isfinite(expected + squares)
        ratio = np.where(known, squares, 1.0) / np.where(known, expected, 1.0)
        scale = np.clip(ratio, *DEFAULT.factors)
        scale += self.settings.unshown**2 * np.sqrt(scale)
        # Deleting a group adds the expected variance of the change to that of the functional.
        variance, more = float(np.mean(effects**2)), float(expected.mean()) / groups
        growth = np.log1p(more / variance) if variance > 0 else 1.0
        rate = float(np.clip(0.5 * growth / np.log(groups / (groups - 1.0)), 0.5, 3.0))
        claimed = _pointwise_factor(paths)
        known_by = (effects, shared, scale, groups - 1.0, claimed, rate, profiles)
        return Calibration(*known_by, None if paths.held_out is None else self._crossed(paths))

    def _crossed(self, paths: Paths) -> Array:
        """Changes (R, k) of the functional by cross-fitting.

        With Ĵ_r, the model without group r, the answer is F(Ĵ_r) + F'(Ĵ_r)[g − ĝ_r], residuals of
        the group being its values less the model that has not seen them. A maximum then decides by
        one model and is valued by other points: an estimate that noise of Ĵ does not push upwards
        (Longstaff and Schwartz 2001, Valuing American options by simulation; Chernozhukov and
        others 2018, Double/debiased machine learning for treatment and structural parameters).
        """
        assert paths.held_out is not None
        base, step, changes = self.model.sketch.j, self.settings.step, []
        center = self.functional(base)
        for observed, rest in zip(paths.observed, paths.held_out, strict=True):
            j = base + observed
            up, down = (self.functional(j + sign * step * rest) for sign in (1.0, -1.0))
            changes.append(self.functional(j) + (up - down) / (2.0 * step) - center)
        return np.stack(changes)

    def _odd(self, error: Array) -> Array:
        """Odd part (k,) of the change of the functional by an error (M, p) of J."""
        base = self.model.sketch
        sides = [self.model.bounded(base.j + s * error, base.uniform) for s in (1.0, -1.0)]
        up, down = (self.functional(side) for side in sides)
        return unknown_as_infinite(0.5 * (up - down))


def _pointwise_factor(paths: Paths) -> Array:
    """Mean squared observed over expected changes (p,) of Ĵ at single θ.

    Means, since a median over θ is zero where J has an atom.
    """
    observed = np.mean(paths.observed**2, axis=(0, 1))
    expected = np.mean(paths.expected**2, axis=(0, 1, 2))
    known = expected > 0
    ratio = np.where(known, observed / np.where(known, expected, 1.0), 1.0)
    return np.asarray(np.clip(ratio, *DEFAULT.factors))


@dataclass(frozen=True, eq=False)
class PosteriorOfJ:
    """Posterior of J at the θ of a model's sketch.

    Attributes
    ----------
    model, check
        The model, and fresh pairs where there are any.
    rng
        Randomness of the draws.
    """

    model: ModelOfJ
    check: Check | None
    rng: np.random.Generator
    settings: PosteriorSettings = DEFAULT

    def draws(
        self,
        functional: Functional,
        calibration: Calibration,
        shape: Change | None = None,
        *,
        crossed: bool = False,
    ) -> FunctionalDraws:
        """Draws of a functional: a path with its factor, and a discrepancy, each.

        `shape` is the error by the unknown shape of J given Ĵ; None leaves it out. With `crossed`,
        for a functional that has slopes, the answer is combined with that of cross-fitting.
        """
        n, known, rng = self.settings.n_draws, calibration, self.rng
        kappa = rng.choice([-1.0, 1.0], size=(n, 1))
        kappa = kappa * np.sqrt(known.scale * known.dof / rng.chisquare(known.dof, size=(n, 1)))
        path = kappa * known.effects[rng.integers(len(known.effects), size=n)]
        values = path + known.shared[rng.integers(len(known.shared), size=n)]
        correction = np.zeros(values.shape[1])
        if self.check is not None and self.settings.discrepant:
            drawn = self._discrepancies(known)
            center = functional(self.model.sketch.j)
            shifts = np.stack([functional(j) - center for j in drawn.discrepant])
            correction = np.median(shifts, axis=0)
            shifts = self._by_pairs() * (shifts - correction)
            correction = np.where(np.isfinite(correction), correction, 0.0)
            values = values + correction + shifts[rng.integers(len(shifts), size=n)]
            if shape is not None and self.settings.shaped and not self.model.logarithmic:
                errors = list(map(shape, drawn.discrepant, drawn.biased))
                values = values + np.mean(errors, axis=0) * rng.standard_normal(values.shape)
        values = unknown_as_infinite(values)
        if crossed and self.settings.crossed and known.changes is not None:
            shift = crossed_shift(values, correction, known.changes)
            values, correction = values + shift, correction + shift
        return FunctionalDraws(values, correction, known.rate)

    def _by_pairs(self) -> float:
        """Student's factor of discrepancies, for the number of pairs that carry the variance."""
        if self.check is None or not self.settings.student:
            return 1.0
        mean = self._residuals()[1].mean(axis=1)
        number = float(effective_number(mean - mean.mean(axis=0)).min())
        return student_factor(max(number - 1.0, 2.0))

    def _residuals(self) -> tuple[Array, Array]:
        """Ĵ (m, p) at the pairs and g − ĝ (m, 2, p); for a model of log J, log Ĵ and (g − ĝ)/Ĵ."""
        assert self.check is not None
        s, r = self.model.mean(self.check.uniform), self.check.residuals(self.model)
        return (np.log(s), r / s[:, None]) if self.model.logarithmic else (s, r)

    def _discrepancies(self, known: Calibration) -> Discrepancies:
        """Draws of Ĵ + b(Ĵ) + √v(Ĵ) ε.

        For a model of log J, these are draws of log J: pairs cannot see an absolute error of a tiny
        Ĵ, and a relative one they can.
        """
        base, n, check = self.model.sketch, self.settings.n_discrepancies, self.check
        assert check is not None
        s, r = self._residuals()
        relative = self.model.logarithmic
        center = np.log(base.j) if relative else base.j
        sd = self.model.sd(check.uniform) / (np.exp(s) if relative else 1.0)
        claims = sd**2 * known.claimed
        normal = self.rng.standard_normal((n, *base.j.shape)) @ _correlation(r).T
        few, biased, drawn = self.settings.n_scatters, [], []
        for c, j in enumerate(center.T):
            if np.ptp(j) == 0:
                biased.append(np.repeat(j[None], few, axis=0))
                drawn.append(np.repeat(j[None], n, axis=0))
                continue
            law = Scores.of(j, base.weights)
            least, z = max(1e-12 * law.variance, 1e-300), law(s[:, c])
            claimed = self.settings.bias_claim * known.profiles[c].at(s[:, c])
            common = Pairs(s[:, c], r[:, :, c], check.weights, claimed)
            b = draw_bias(law, Evidence(common, z, least), n, self.rng, self.settings.bias_width)
            pairs = Pairs(s[:, c], r[:, :, c], check.weights, claims[:, c])
            seen = Evidence(pairs, z, least)
            clearly = self.settings.contradiction
            v = draw_variances(law, seen, b[0], n, self.rng, clearly, widened=not relative)
            order = np.argsort(np.argsort(j, kind="stable"), kind="stable")
            biased.append(j + b[1 : 1 + few, order])
            drawn.append(j + b[1:, order] + np.sqrt(v[1:, order]) * normal[:, :, c])
        values = check.values.reshape(-1, base.j.shape[1])
        low = np.minimum(base.j.min(axis=0), values.min(axis=0))
        high = np.maximum(base.j.max(axis=0), values.max(axis=0))

        def as_means(columns: list[Array]) -> Array:
            """J (K, M, p) within the range of Ĵ and g, from its columns, or those of log J."""
            if relative:
                pairs = zip(columns, np.log(high), strict=True)
                columns = [np.exp(np.minimum(column, most)) for column, most in pairs]
            j = np.clip(np.stack(columns, axis=-1), low, high)
            return np.stack([self.model.bounded(one, base.uniform) for one in j])

        return Discrepancies(as_means(biased), as_means(drawn))


@dataclass(frozen=True, eq=False)
class Discrepancies:
    """Draws of J at the sketch by fresh pairs.

    Attributes
    ----------
    biased, discrepant
        Ĵ + b_k for the first `n_scatters` draws, and Ĵ + b_k + √v_k ε_k, both (·, M, p).
    """

    biased: Array
    discrepant: Array


def shape_errors(moved: Array, biased: Array, f: Array, share: Array, *, smooth: bool) -> Array:
    """Standard deviations (q,) of means of f by the unknown shape of J given Ĵ.

    The mean absolute change of f, of the order of v^{1/2}, bounds the change of its mean. The shape
    of J given Ĵ changes that by the order of v^{3/2} if f is smooth (skewness times the third
    derivative), v at a kink, and v^{1/2} at a jump. The share of the variance of f, of the order of
    v or, at a jump, v^{1/2}, counts with a power of 1, 1/2 and 1/2. At a jump a power of zero would
    be right, and makes intervals wider that cover no more often.

    Shapes
    ------
    f (M, q) at draws Ĵ + b + √v ε, at Ĵ + b, and at Ĵ; shares (M,) of the θ, of sum one.
    """
    change = np.nan_to_num(np.abs(moved - biased))
    scatter, away = share @ change**2, np.nan_to_num(f - share @ np.nan_to_num(f))
    part = scatter / np.maximum(scatter + share @ away**2, np.finfo(float).tiny)
    return np.asarray((share @ change) * part ** (1.0 if smooth else 0.5))


def crossed_shift(values: Array, center: Array, changes: Array) -> Array:
    """Shift (k,) of draws (K, k) with that center by the changes (R, k) of cross-fitting.

    The center with the variance of the draws and the mean change with its own, which R groups show
    with R − 1 degrees of freedom, are weighed by their precisions. The draws keep their spread: R
    groups show that of the mean to a third only.
    """
    claimed, n = values.var(axis=0), len(changes)
    error = (student_factor(n - 1.0) * changes.std(axis=0, ddof=1)) ** 2 / n
    shift = claimed / np.maximum(claimed + error, np.finfo(float).tiny)
    shift = shift * (changes.mean(axis=0) - center)
    return np.asarray(np.where(np.isfinite(shift), shift, 0.0))


def unknown_as_infinite(changes: Array) -> Array:
    """Changes of a functional, infinite where it could not be computed: a zero would be a claim."""
    return np.where(np.isfinite(changes), changes, np.inf)


def student_factor(freedom: float) -> float:
    """Ratio of the 97.5 % quantiles of Student's t and of the normal distribution."""
    return float(stdtrit(freedom, 0.975) / stdtrit(np.inf, 0.975))


def _correlation(residuals: Array) -> Array:
    """Root (p, p) of the correlation of J − Ĵ between outputs, from residuals (m, 2, p)."""
    products = np.einsum("mc,md->cd", residuals[:, 0], residuals[:, 1])
    both = 0.5 * (products + products.T)
    values, vectors = np.linalg.eigh(both)
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    sizes = np.sqrt(np.diag(covariance))
    if not (sizes > 0).all():
        return np.eye(len(sizes))
    values, vectors = np.linalg.eigh(covariance / np.outer(sizes, sizes))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
