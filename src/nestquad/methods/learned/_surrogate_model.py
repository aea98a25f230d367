"""Gaussian process of J over θ, and the choice of its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.errors import InputError, NumericalError
from nestquad.gp import (
    Hyperparameters,
    Surrogate,
    SurrogateKind,
    first_kinds,
    fit_surrogate,
    near_kinds,
)
from nestquad.methods.learned._inner_means import InnerMeans
from nestquad.methods.learned._model import DenseSet, ModelOfJ, Paths, n_expected, sketch_points


def scores_of(law: Law, uniform: Array) -> Array:
    """Coordinates of θ in which J is learned, of about unit variance.

    Normal scores where the law is written in normals; otherwise the uniforms themselves, since a
    function that is tame on an interval runs away between the last point and the end of the
    normal scale.
    """
    if law.base == "normal":
        return np.asarray(ndtri(uniform))
    return np.asarray(np.sqrt(12.0) * (uniform - 0.5))


@dataclass
class KindSearch:
    """The kind of surrogate that was best in earlier turns, and hyperparameters of all kinds."""

    best: SurrogateKind | None = None
    starts: dict[SurrogateKind, tuple[Hyperparameters, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SurrogateModel(ModelOfJ):
    """J learned from estimates of it at T design points.

    Attributes
    ----------
    law
        The outer law, in whose scores J is learned.
    uniform, weights
        Uniforms (T, d_θ) of the design, and weights (T,) that make it a sample of the law.
    means
        J at the design points, from all, half and a quarter of the inner points.
    surrogate
        The process that predicts left-out points best.
    plausible
        Whether f(Ĵ) stays near the values that were seen. If not, Ĵ is kept within the range of J.
    n_tried, search
        How many kinds were compared, and where the next search starts.
    """

    groups: ClassVar[int] = 4
    """Number of groups that are deleted in turn; a lattice has at least that number of shifts."""

    law: Law
    uniform: Array
    weights: Array
    means: InnerMeans
    surrogate: Surrogate
    plausible: bool
    n_tried: int
    search: KindSearch

    @property
    def dim(self) -> int:
        return self.law.base_dim

    @property
    def n_points(self) -> int:
        return len(self.uniform)

    @property
    def cost(self) -> int:
        # An exponential takes as long as several products.
        return 4 * self.n_points * len(self.surrogate.outputs)

    @property
    def logarithmic(self) -> bool:
        return self.surrogate.kind.logarithm and self.plausible

    @cached_property
    def sketch(self) -> DenseSet:
        uniform = sketch_points(self.dim, 256)  # paths factorize their covariance
        return DenseSet(uniform, np.ones(len(uniform)), self.mean(uniform))

    @cached_property
    def design(self) -> DenseSet:
        return DenseSet(self.uniform, self.weights, self.mean(self.uniform))

    def mean(self, uniform: Array) -> Array:
        found = self.surrogate.mean(scores_of(self.law, uniform))
        if self.plausible:
            return found
        return np.clip(found, self.means.j[0].min(axis=0), self.means.j[0].max(axis=0))

    def sd(self, uniform: Array) -> Array:
        """Standard deviation of the process and of the inner stage.

        Errors of single points are in the nugget. Their common part shows in the change of Ĵ
        when it is learned from half of the inner points.
        """
        z = scores_of(self.law, uniform)
        outer = self.surrogate.sd(z)
        inner = [np.abs(change) for change in self._inner_changes(z)]
        return np.hypot(outer, np.max(inner, axis=0)) if inner else outer

    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        found, controls = self.mean(uniform), self.means.controls
        return found if controls is None else found + controls.at(inner, uniform)

    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        """Draws about Ĵ from the process.

        Conditioning on more points changes a posterior mean by the fall of the covariance, so
        the expected change without a group has the difference of two covariances.
        """
        z, base = scores_of(self.law, self.sketch.uniform), self.sketch.j
        errors = self.surrogate.paths(z, n_paths, rng) - self.surrogate.mean(z)
        shared = self._inner_errors(z, n_paths, rng)
        group = np.arange(self.n_points) % self.groups
        least = max(8, 2 + self.surrogate.kind.trend.size(z.shape[1]))
        if self.n_points - (self.n_points + self.groups - 1) // self.groups < least:
            none = np.zeros((0, *base.shape))
            return Paths(errors, none, np.zeros((0, n_paths, *base.shape)), shared)
        observed, expected, few = [], [], n_expected(n_paths)
        for number in range(self.groups):
            rows = group == number
            fewer = self.surrogate.restricted(~rows)
            observed.append(fewer.mean(z) - self.surrogate.mean(z))
            expected.append(self.surrogate.change_paths(fewer, z, few, rng))
        return Paths(errors, np.array(observed), np.array(expected), shared)

    def _inner_errors(self, z: Array, n_paths: int, rng: np.random.Generator) -> Array:
        """Errors (K, M, p) that all θ have in common, from halving the inner points."""
        changes = self._inner_changes(z)
        if not changes:  # log J of fewer inner points is not defined: the error is that of J itself
            changes = [self.sketch.j]
        largest = max(changes, key=lambda change: float(np.mean(change**2)))
        return np.asarray(rng.standard_normal((n_paths, 1, 1)) * largest)

    def residuals(self) -> Array:
        return np.asarray(self.means.j[0] - self.surrogate.leave_one_out())

    def unexplained(self) -> tuple[Array, Array]:
        return self.means.rest, self.weights[: len(self.means.rest)]

    def inner_changes(self) -> list[Array]:
        """Errors (M, p) at the θ of the sketch that the inner stage may have left."""
        return self._inner_changes(scores_of(self.law, self.sketch.uniform))

    def _inner_changes(self, z: Array) -> list[Array]:
        """Errors (n, p) that the inner stage may have left, from its last two halvings."""
        found = self.surrogate.means(z, self.surrogate.can_model(self.means.j))
        factors = (self.means.left, self.means.left * 2.0**-self.means.rate)
        return [
            factor * (fewer - more)
            for factor, more, fewer in zip(factors, found, found[1:], strict=False)
        ]

    def describe(self) -> dict[str, Any]:
        notes = [
            f"J at each theta by {self.means.rule}",
            f"surrogate of {self.surrogate.kind}, the best of {self.n_tried} at left-out points",
        ]
        if not self.plausible:
            notes.append(
                "no surrogate of J was plausible with these sizes, so there is no error bar; use a "
                "larger budget, or method='nkq'"
            )
        return {
            "inner": {"rule": self.means.rule, "rate": self.means.rate},
            "surrogate": str(self.surrogate.kind),
            "lengthscales": [gp.parameters.lengthscale for gp in self.surrogate.outputs],
            "noise_sd": [
                float(gp.noise_sd.mean() * (1.0 if self.surrogate.kind.logarithm else scale))
                for gp, scale in zip(self.surrogate.outputs, self.surrogate.scale, strict=True)
            ],
            "notes": notes,
        }


def fit_surrogate_model(
    law: Law,
    uniform: Array,
    weights: Array,
    means: InnerMeans,
    f: Callable[[Array], Array],
    positive: bool | None,
    search: KindSearch,
) -> SurrogateModel:
    """Search among kinds of surrogates, from the kind that was best before.

    Parameters
    ----------
    f
        f at J (n, p) as (n, q), NaN where f cannot take it.
    positive
        Model log J (True), J (False), or whichever predicts left-out points better (None).
    search
        Kinds and hyperparameters of the last search, brought up to date.
    """
    can_be_log = bool((means.j[:2] > 0).all())
    if positive and not can_be_log:
        raise InputError(
            "positive",
            "True, but some estimates of J are not positive",
            "a problem whose J is positive",
            "Use more inner points (n_inner), or positive=None.",
        )
    z = scores_of(law, uniform)
    count, dim = z.shape
    candidates = _Candidates(law, z, means, f, search)
    if positive is None and can_be_log and not np.isfinite(f(np.zeros_like(means.j[0][:1]))).all():
        positive = True  # f takes no J that is not positive
    allowed = {bool(positive)} if positive is not None or not can_be_log else {False, True}
    seeds = first_kinds(dim, count, positive=True)
    for kind in seeds if search.best is None else [search.best, *seeds]:
        if kind.logarithm in allowed:
            candidates.judge(kind)
    for _ in range(4):
        best = candidates.best()
        if best is None:
            break
        for kind in near_kinds(best.kind, dim, count):
            candidates.judge(kind)
        if candidates.best() is best:
            break
    best = candidates.best()
    if best is None:
        if candidates.implausible is None:
            raise NumericalError("no Gaussian process could be fitted to J at the design points")
        best = candidates.implausible[1]
        return SurrogateModel(law, uniform, weights, means, best, False, 0, search)
    search.best = best.kind
    n_tried = len(candidates.found)
    return SurrogateModel(law, uniform, weights, means, best, True, n_tried, search)


@dataclass
class _Candidates:
    """Kinds that were tried: density and error of f at left-out points, and the process."""

    law: Law
    z: Array
    means: InnerMeans
    f: Callable[[Array], Array]
    search: KindSearch
    found: dict[SurrogateKind, tuple[float, float, Surrogate]] = field(default_factory=dict)
    tried: set[SurrogateKind] = field(default_factory=set)
    implausible: tuple[float, Surrogate] | None = None

    def judge(self, kind: SurrogateKind) -> None:
        if kind in self.tried:
            return
        self.tried.add(kind)
        j = self.means.j[0]
        start = self.search.starts.get(kind)
        surrogate = fit_surrogate(kind, self.z, j, self.means.change, start)
        if surrogate is None:
            return
        self.search.starts[kind] = tuple(gp.parameters for gp in surrogate.outputs)
        left_out = self.f(surrogate.leave_one_out())
        error = float(np.sqrt(np.mean((left_out - self.f(j)) ** 2)))
        density = surrogate.log_predictive_density(j)
        if not self._plausible(surrogate, j):
            if self.implausible is None or density > self.implausible[0]:
                self.implausible = density, surrogate
        elif np.isfinite(error) and np.isfinite(density):
            self.found[kind] = (density, error, surrogate)

    def _plausible(self, surrogate: Surrogate, j: Array) -> bool:
        """Whether f(Ĵ) stays within the range of f at J ± twice its deviations."""
        z = scores_of(self.law, sketch_points(self.law.base_dim, 256))
        dense, seen = self.f(surrogate.mean(z)), self.f(j)
        if not np.isfinite(dense).all() or not np.isfinite(seen).all():
            return False
        # Averages reach further into the tails, where f has to take extrapolated values.
        far = 3.0 * z[:64]
        if self.law.base == "normal" and not np.isfinite(self.f(surrogate.mean(far))).all():
            return False
        stretched = self.f(2.0 * j - j.mean(axis=0))
        seen = np.concatenate([seen, np.where(np.isfinite(stretched), stretched, seen)])
        low, high = seen.min(axis=0), seen.max(axis=0)
        margin = 2.0 * (high - low) + 1e-12 * np.abs(high)
        return bool(((dense >= low - margin) & (dense <= high + margin)).all())

    def best(self) -> Surrogate | None:
        """Surrogate of highest density; errors of f at left-out points are near the smallest."""
        smallest = min((error for _, error, _ in self.found.values()), default=np.inf)
        sound = [entry for entry in self.found.values() if entry[1] <= 3.0 * smallest]
        return max(sound, key=lambda entry: entry[0])[2] if sound else None
