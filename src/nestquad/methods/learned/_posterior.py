"""Posterior of J: draws of the function, and of every functional of it.

Two kinds of evidence make it. *Independent randomizations*: the change of a functional when one
group of points is deleted, over the change that the posterior of the model expects, calibrates the
errors of its paths. *Fresh pairs*: the discrepancy J − Ĵ given Ĵ has a mean b and a variance v that
no point of the fit has seen. A draw is

    J_k = Ĵ + b_k(Ĵ) + √v_k(Ĵ) ε_k + κ_k e_k,

and a functional F has draws F(Ĵ + b_k + √v_k ε_k) + κ_k ½ [F(Ĵ + e_k) − F(Ĵ − e_k)]. Only the odd
part of a path counts: that f(Ĵ) is biased because J scatters about Ĵ is learned from pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.methods.learned._discrepancy import (
    BinnedResiduals,
    Evidence,
    Pairs,
    Scores,
    draw_bias,
    draw_variances,
)
from nestquad.methods.learned._evidence import Check
from nestquad.methods.learned._model import HeldOut, ModelOfJ, Paths
from nestquad.methods.nested import effective_number


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
    prior_sd
        Standard deviation of log κ² before deleted groups are seen: models are wrong about their
        error by orders of magnitude. It is one where there are too few points for groups.
    group_dof
        Degrees of freedom that a deleted group adds to what is known of κ².
    group_points
        Fewest held-out points of a group: with fewer, the spread between groups is not known.
    bias_width
        Scale of the Laplace prior of log(bias / claimed bias): calibrated claims are right within a
        factor of three or so.
    held_out, calibrated, surprised, discrepant, student
        Switches of the devices, for ablation: cross-fitted residuals, the factor κ, its increase
        by fresh pairs, the discrepancy, and Student's factor.
    visible
        Step for an f with jumps, as a share of the standard deviation of J: smaller errors would
        carry none of a few hundred θ across a jump.
    """

    n_paths: int = 32
    n_discrepancies: int = 64
    n_draws: int = 1024
    prior_sd: float = 3.0
    group_dof: float = 1.0
    group_points: int = 64
    bias_width: float = 1.0
    visible: float = 0.1
    held_out: bool = True
    calibrated: bool = True
    surprised: bool = True
    discrepant: bool = True
    student: bool = True


DEFAULT = PosteriorSettings()
# Median of the square of a standard normal variable.
_MEDIAN_SQUARE = 0.4549
# Cells of normal scores over which errors are averaged reach that far: a bias varies on the scale
# of 1, and errors of opposite sign within a cell cancel in any functional.
_REACH = 2.0
# Bounds of squared factors: between rounding errors and a model that knows nothing.
_FACTORS = (1e-12, 1e6)


@dataclass(frozen=True, eq=False)
class FunctionalDraws:
    """Draws (K, k) of a functional less its value at Ĵ, and the power of n at which they narrow."""

    values: Array
    rate: float


Functional = Callable[[Array], Array]
"""Maps J (M, p) at the sketch to answers (S, k): the answer, then others for calibration."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Errors of a functional by the paths of a model, and the posterior of their factor κ.

    Attributes
    ----------
    effects
        Odd part (K, k) of the change of the functional by each path.
    log_factor, precision
        Mean (k,) and precision of log κ² given the changes of deleted groups.
    claimed
        Factor (p,) of the variance that the model claims at single θ.
    profiles
        Variance of the error of E[J | Ĵ] as the model claims it, for each output.
    held_out
        Cross-fitted residuals.
    rate
        Power of n at which standard deviations fall, from all points to all groups but one.
    """

    effects: Array
    log_factor: Array
    precision: float
    claimed: Array
    rate: float
    profiles: tuple[Profile, ...] = ()
    held_out: HeldOut | None = None
    n_groups: int = 0


@dataclass(frozen=True, eq=False)
class Profile:
    """Variance (C,) of the error of E[J | Ĵ] at places (C,) of Ĵ: errors at single θ cancel."""

    places: Array
    variance: Array

    @classmethod
    def of(cls, j: Array, weights: Array, paths: Paths, c: int) -> Profile:
        """Mean squares of errors averaged over cells of unit width in normal scores of Ĵ (M,)."""
        score = Scores.of(j, weights)(j)
        cell = np.unique(np.clip(np.round(score), -_REACH, _REACH), return_inverse=True)[1]
        total = np.bincount(cell, weights)

        def averaged(errors: Array) -> Array:
            rows = errors[..., c].reshape(-1, len(j))
            return np.stack([np.bincount(cell, weights * row) / total for row in rows])

        places = np.bincount(cell, weights * j) / total
        claimed = np.mean(averaged(paths.errors) ** 2, axis=0)
        if len(paths.observed) > 1:
            observed, expected = averaged(paths.observed), averaged(paths.expected)
            known = float(np.mean(expected**2))
            ratio = float(np.mean(observed**2)) / known if known > 0 else 1.0
            claimed = claimed * float(np.clip(ratio, *_FACTORS))
        return cls(places, claimed)

    def at(self, j: Array) -> Array:
        return np.asarray(np.interp(j, self.places, self.variance))


@dataclass(frozen=True, eq=False)
class PathEffects:
    """Effects of the errors of a model on a functional; `jumps` if the functional has some."""

    model: ModelOfJ
    functional: Functional
    jumps: bool
    settings: PosteriorSettings = DEFAULT

    def calibration(self, rng: np.random.Generator) -> Calibration:
        """Paths through the functional, calibrated by deleted groups.

        The mean over groups and answers of squared observed over expected changes is a multiple of
        a χ² variable over its degrees of freedom, so its logarithm is about normal.
        """
        paths, base = self.model.paths(self.settings.n_paths, rng), self.model.sketch
        profiles = tuple(Profile.of(j, base.weights, paths, c) for c, j in enumerate(base.j.T))
        effects = np.stack([self._odd(error)[0] for error in paths.errors])
        groups, prior = len(paths.observed), self.settings.prior_sd**-2
        if groups < 2 or not self.settings.calibrated:
            none = np.zeros(effects.shape[1])
            ones = np.ones(len(profiles))
            return Calibration(effects, none, 1.0, ones, 1.0, profiles, paths.held_out)
        squares = np.sum([self._odd(change) ** 2 for change in paths.observed], axis=0)
        expected = np.sum(
            [np.mean([self._odd(c) ** 2 for c in drawn], axis=0) for drawn in paths.expected],
            axis=0,
        )
        known = expected > 0
        ratio = np.where(known, squares / np.where(known, expected, 1.0), 1.0).mean(axis=0)
        likelihood = 0.5 * self.settings.group_dof * groups
        log_factor = np.log(np.clip(ratio, *_FACTORS)) * likelihood / (prior + likelihood)
        # Deleting a group adds the expected variance of the change to that of the functional.
        variance, more = float(np.mean(effects**2)), float(expected[0].mean()) / groups
        growth = np.log1p(more / variance) if variance > 0 else 1.0
        rate = float(np.clip(0.5 * growth / np.log(groups / (groups - 1.0)), 0.5, 3.0))
        claimed = _pointwise_factor(paths)
        return Calibration(
            effects, log_factor, prior + likelihood, claimed, rate, profiles, paths.held_out, groups
        )

    def _odd(self, error: Array) -> Array:
        """Odd part (S, k) of the change of the functional by an error (M, p) of J."""
        base = self.model.sketch
        step = self._step(error) if self.jumps else 1.0
        sides = [self.model.bounded(base.j + s * error, base.uniform) for s in (step, -step)]
        up, down = (self.functional(side) for side in sides)
        return np.asarray(np.nan_to_num(up - down) / (2.0 * step))

    def _step(self, error: Array) -> float:
        """Multiple of an error at which jumps of f are seen."""
        size, spread = np.median(np.abs(error), axis=0), self.model.sketch.j.std(axis=0)
        seen = size > 0
        if not seen.any():
            return 1.0
        return max(1.0, float((self.settings.visible * spread[seen] / size[seen]).min()))


def _pointwise_factor(paths: Paths) -> Array:
    """Squared observed over expected changes (p,) of Ĵ at single θ, by medians over θ."""
    observed = np.median(paths.observed**2, axis=(0, 1)) / _MEDIAN_SQUARE
    expected = np.median((paths.expected**2).mean(axis=1), axis=(0, 1))
    known = expected > 0
    ratio = np.where(known, observed / np.where(known, expected, 1.0), 1.0)
    return np.asarray(np.clip(ratio, *_FACTORS))


@dataclass(frozen=True, eq=False)
class Posterior:
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

    def draws(self, functional: Functional, calibration: Calibration) -> FunctionalDraws:
        """Draws of a functional: a path with its factor, and a discrepancy, each."""
        n, known = self.settings.n_draws, calibration
        surprise = 1.0
        if self.check is not None and self.settings.surprised:
            surprise = self.check.surprise(self.model)
        logarithm = known.log_factor + self.rng.standard_normal((n, 1)) * known.precision**-0.5
        kappa = self.rng.choice([-1.0, 1.0], size=(n, 1)) * np.exp(0.5 * logarithm)
        path = known.effects[self.rng.integers(len(known.effects), size=n)]
        center = functional(self.model.sketch.j)[0]
        functions = self._discrepant(known, surprise)
        shifts = np.stack([functional(j)[0] - center for j in functions])
        shift = _symmetric(shifts, self.rng)[self.rng.integers(len(shifts), size=n)]
        if self.check is not None:
            # Pairs show the variance of J given Ĵ, not its shape, on which the shift depends.
            share = self.check.unexplained_share(self.model)
            shift = shift * (1.0 + share * self.rng.standard_normal((n, 1)))
        values = np.nan_to_num(shift + np.sqrt(surprise) * kappa * path)
        student = self._student(known.n_groups) if self.settings.student else 1.0
        return FunctionalDraws(student * values, known.rate)

    def _student(self, groups: int) -> float:
        """Student's factor for the number of groups, and of pairs that carry the variance.

        Each deleted group shows several answers, which count as two degrees of freedom.
        """
        freedom = 2.0 * (groups - 1.0) if groups > 1 else np.inf
        if self.check is not None:
            mean = self.check.residuals(self.model).mean(axis=1)
            number = float(effective_number(mean - mean.mean(axis=0)).min())
            freedom = min(freedom, max(number - 1.0, 2.0))
        return float(stdtrit(freedom, 0.975) / stdtrit(np.inf, 0.975))

    def _discrepant(self, known: Calibration, surprise: float) -> Array:
        """Draws (K, M, p) of Ĵ + b(Ĵ) + √v(Ĵ) ε; claims are wrong by the factor `surprise`."""
        base, n = self.model.sketch, self.settings.n_discrepancies
        if self.check is None or not self.settings.discrepant:
            return base.j[None]
        check = self.check
        r, s = check.residuals(self.model), self.model.mean(check.uniform)
        claims = self.model.sd(check.uniform) ** 2 * known.claimed * surprise
        drawn = np.repeat(base.j[None], n, axis=0)
        normal = self.rng.standard_normal((n, *base.j.shape)) @ _correlation(r).T
        values = check.values.reshape(-1, base.j.shape[1])
        low = np.minimum(base.j.min(axis=0), values.min(axis=0))
        high = np.maximum(base.j.max(axis=0), values.max(axis=0))
        for c in np.flatnonzero(np.ptp(base.j, axis=0) > 0):
            law = Scores.of(base.j[:, c], base.weights)
            least, z = max(1e-12 * law.variance, 1e-300), law(s[:, c])
            profile = replace(known.profiles[c], variance=surprise * known.profiles[c].variance)
            common = Pairs(s[:, c], r[:, :, c], check.weights, profile.at(s[:, c]))
            seen = BinnedResiduals.of_pairs(Evidence(common, z, least))
            out = known.held_out if self.settings.held_out else None
            if out is not None and len(out.weights) >= self.settings.group_points * known.n_groups:
                j = out.j[:, c]
                seen = seen.with_others(
                    BinnedResiduals.of_groups(
                        law(j), out.residuals[:, c], out.weights, out.group, profile.at(j) + least
                    )
                )
            b = draw_bias(law, seen, n, self.rng, self.settings.bias_width)
            pairs = Pairs(s[:, c], r[:, :, c], check.weights, claims[:, c])
            v = draw_variances(law, Evidence(pairs, z, least), b[0], n, self.rng)
            order = np.argsort(np.argsort(base.j[:, c], kind="stable"), kind="stable")
            drawn[:, :, c] += b[1:, order] + np.sqrt(v[1:, order]) * normal[:, :, c]
        drawn = np.clip(drawn, low, high)
        return np.stack([self.model.bounded(j, base.uniform) for j in drawn])


def _symmetric(shifts: Array, rng: np.random.Generator) -> Array:
    """Shifts (K, k) with random signs, where their mean is within two standard deviations of zero.

    A mean shift that chance explains is an error of unknown sign: answers that are corrected by it
    were less accurate than plug-in answers on 37 even problems at 10,000 evaluations.
    """
    signs = rng.choice([-1.0, 1.0], size=(len(shifts), 1))
    uncertain = np.abs(shifts.mean(axis=0)) <= 2.0 * shifts.std(axis=0)
    return np.where(uncertain, signs * shifts, shifts)


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
