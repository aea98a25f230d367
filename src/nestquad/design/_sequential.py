"""Experiments one after the other: each design is chosen given the data so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtri

from nestquad._checks import listed, numbers, shown
from nestquad._notebook import pairs
from nestquad._progress import ProgressLike
from nestquad._typing import Array, RNGLike
from nestquad.design._compare import Criterion, DesignComparison, compare, label_of
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.design._gain import eig
from nestquad.distributions import Empirical
from nestquad.errors import InputError
from nestquad.plots import axes_or_new
from nestquad.points import Sobol, Stream

_SWEEPS = 8  # Metropolis steps after each resampling
_STEP = 2.38  # over √dimension: the best step of a random walk on a normal law
_ABSURD = 4  # ranges of the simulated data, from their median
_PRIOR = 1024  # particles that stand for the posterior in `next`, whose cost is proportional


class Posterior(Empirical):
    """Weighted samples of the parameters, with summaries."""

    names: tuple[str, ...]

    def __init__(self, samples: Any, weights: Any = None, names: Sequence[str] | None = None):
        super().__init__(samples, weights)
        count = self.samples.shape[1]
        labels = names if names is not None else [f"θ{i}" for i in range(count)]
        vars(self).update(names=tuple(labels))

    def std(self) -> Array:
        """Standard deviations (p,)."""
        return np.asarray(np.sqrt(self.weights @ (self.samples - self.mean()) ** 2))

    def quantile(self, q: Any) -> Array:
        """Quantiles (…, p) of each parameter at probabilities q."""
        levels, columns = np.asarray(q, dtype=float), []
        for column in self.samples.T:
            order = np.argsort(column, kind="stable")
            middle = np.cumsum(self.weights[order]) - 0.5 * self.weights[order]
            columns.append(np.interp(levels, middle, column[order]))
        return np.stack(columns, axis=-1)

    def draws(self, n: int, rng: RNGLike = None) -> Array:
        """Equally weighted draws (n, p)."""
        return self.samples[np.random.default_rng(rng).choice(len(self.weights), n, p=self.weights)]

    def plot(self, ax: Any = None) -> Any:
        """Draw median and 95 % interval of each parameter; needs the extra ``plot``."""
        ax = axes_or_new(ax)
        low, middle, high = self.quantile([0.025, 0.5, 0.975])
        at = -np.arange(len(middle))
        ax.errorbar(middle, at, xerr=[middle - low, high - middle], fmt="o", markersize=4)
        ax.set_yticks(at, self.names)
        ax.set_xlabel("parameter, median and 95 % interval")
        return ax


@dataclass(eq=False)
class Sequential:
    """Bayesian adaptive design.

    The posterior is a cloud of weighted particles. New data reweight them, by degrees if need be,
    and Metropolis steps that leave the posterior of all data unchanged renew them.

    Parameters
    ----------
    experiment
        With `log_prob`.
    particles
        Number of particles; the gain of one step should stay well below its logarithm.
    rng
        Anything that ``numpy.random.default_rng`` takes.

    Attributes
    ----------
    data
        Pairs of design and data, in order.
    comparison
        Designs that the last `next` compared.
    n_evaluations
        Evaluations of `log_prob` so far, including `next`.
    """

    experiment: Experiment
    particles: int = 4096
    rng: RNGLike = None
    data: list[tuple[Any, Array]] = field(default_factory=list, init=False)
    comparison: DesignComparison | None = field(default=None, init=False)
    n_evaluations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_experiment(self.experiment)
        if self.experiment.log_prob is None:
            raise InputError("experiment", "one without log_prob", "one with a likelihood")
        if self.experiment.targets is not None:
            raise InputError(
                "experiment",
                "one with a target",
                "one whose target is None",
                "Later priors are samples, for which a target is not supported.",
            )
        if not isinstance(self.particles, int | np.integer) or self.particles < 64:
            raise InputError("particles", repr(self.particles), "a whole number of at least 64")
        self._stream = Stream.from_rng(self.rng)
        law = self.experiment.prior_law
        if isinstance(law, Empirical):
            self._latent = np.arange(len(law.samples), dtype=float)[:, None]
            self._log_weights = np.log(np.maximum(law.weights, 1e-300))
        else:
            points = Sobol().uniforms(
                self._stream.child(0), law.base_dim, (0, 1), (0, int(self.particles))
            )
            self._latent = ndtri(points[0])
            self._log_weights = np.full(len(self._latent), -np.log(len(self._latent)))

    @property
    def weights(self) -> Array:
        return np.asarray(np.exp(self._log_weights - logsumexp(self._log_weights)))

    @property
    def posterior(self) -> Posterior:
        """Law of θ given all data so far: weighted samples."""
        names = self.experiment.parameters
        return Posterior(self.experiment.theta(self._latent), self.weights, names)

    @property
    def effective_particles(self) -> float:
        return float(1.0 / (self.weights**2).sum())

    def next(
        self,
        designs: Sequence[Any],
        *,
        budget: int | None = None,
        simulations: int = 4096,
        criterion: Criterion = eig,
        progress: ProgressLike = False,
    ) -> Any:
        """The design with the largest expected gain given the data so far.

        The budget, by default 256 likelihoods for each design, is that of `compare`, whose table
        stays in `comparison`.
        """
        designs = listed("designs", designs, "a sequence of designs")
        now = self.experiment
        if self.data:
            now = replace(now, prior=self._few())
        self.comparison = compare(
            now,
            designs,
            budget=256 * len(designs) if budget is None else budget,
            simulations=simulations,
            criterion=criterion,
            rng=self._stream.child(1, len(self.data)),
            progress=progress,
        )
        self.n_evaluations += self.comparison.n_evaluations
        return self.comparison.designs[self.comparison.best]

    def tell(self, design: Any, y: Any) -> None:
        """Take in the data y (n_y,) of an experiment under a design."""
        row = np.atleast_1d(numbers("y", y, "finite data of shape (n_y,)"))
        expected = self._simulated(design)
        if row.shape != expected.shape[1:] or not np.isfinite(row).all():
            given = f"shape {row.shape}" if np.isfinite(row).all() else shown(y)
            raise InputError("y", given, f"finite data of shape {expected.shape[1:]}")
        # Tempering towards data that no particle explains would take forever.
        far = np.abs(row - np.median(expected, axis=0)) > _ABSURD * np.ptp(expected, axis=0)
        if far.any():
            raise InputError(
                "y",
                str(row),
                f"data within {_ABSURD} times the range of {len(expected)} simulated ones",
                "Check units and design; if both are right, widen the prior or the noise.",
            )
        likelihood = self._log_likelihood(design, row, self._latent)
        if np.isneginf(likelihood).all():
            raise InputError(
                "y", str(row), "data that are possible for some particle", "Use more particles."
            )
        generator = self._stream.child(2, len(self.data)).generator()
        moves, done = not isinstance(self.experiment.prior_law, Empirical), 0.0
        while done < 1.0:
            step = self._temper(likelihood, 1.0 - done) if moves else 1.0 - done
            self._log_weights = self._log_weights + step * np.maximum(likelihood, -1e300)
            self._log_weights -= logsumexp(self._log_weights)
            done += step
            if moves and self.effective_particles < 0.5 * len(self._latent):
                likelihood = self._renewed(design, row, done, likelihood, generator)
        self.data.append((design, row))

    def _simulated(self, design: Any) -> Array:
        """Data (n, n_y) under a design, as the particles expect them."""
        noise = self.experiment.noise_law
        u = Sobol().uniforms(self._stream.child(3), noise.base_dim, (0, 1), (0, _PRIOR))[0]
        return self.experiment.data(self._few(), noise.from_uniform(u), design)

    def _few(self) -> Array:
        """Parameters (1024, p) that stand for the posterior."""
        levels = (np.arange(_PRIOR) + 0.5) / _PRIOR
        index = np.searchsorted(np.cumsum(self.weights)[:-1], levels)
        return self.experiment.theta(self._latent)[index]

    def _repr_html_(self) -> str:
        law = self.posterior
        rows = {
            "experiments so far": str(len(self.data)),
            "posterior mean": label_of(law.mean()),
            "posterior standard deviation": label_of(law.std()),
            "effective particles": f"{self.effective_particles:,.0f} of {len(self._latent):,}",
            "likelihoods": f"{self.n_evaluations:,}",
        }
        return pairs(self.experiment.name or "Experiments in sequence", rows)

    def _log_likelihood(self, design: Any, y: Array, latent: Array) -> Array:
        self.n_evaluations += len(latent)
        return self.experiment.log_likelihood(
            np.broadcast_to(y, (len(latent), y.size)), latent, design
        )

    def _temper(self, likelihood: Array, most: float) -> float:
        """The largest power of the likelihood that keeps a third of the particles effective."""

        def effective(power: float) -> float:
            logs = self._log_weights + power * np.maximum(likelihood, -1e300)
            logs -= logsumexp(logs)
            return float(np.exp(-logsumexp(2.0 * logs)))

        least = len(likelihood) / 3.0
        if effective(most) >= least:
            return most
        return float(brentq(lambda power: effective(power) - least, 0.0, most, xtol=1e-9 * most))

    def _renewed(
        self, design: Any, y: Array, power: float, likelihood: Array, rng: np.random.Generator
    ) -> Array:
        """Resample, and move particles by Metropolis steps under the tempered posterior."""
        n, p = self._latent.shape
        levels = (np.arange(n) + rng.random()) / n
        index = np.searchsorted(np.cumsum(self.weights)[:-1], levels)
        latent, likelihood = self._latent[index], likelihood[index]
        before = self._before(latent)
        spread = np.atleast_2d(np.cov(latent, rowvar=False)) + 1e-12 * np.eye(p)
        root = np.linalg.cholesky(spread) * _STEP / np.sqrt(p)
        for sweep in range(_SWEEPS):
            # Small steps in between, for posteriors of several separate parts.
            scale = 1.0 if sweep % 2 == 0 else 0.2
            moved = latent + scale * rng.standard_normal((n, p)) @ root.T
            new, new_before = self._log_likelihood(design, y, moved), self._before(moved)
            accept = np.log(rng.random(n)) < power * (new - likelihood) + new_before - before
            latent = np.where(accept[:, None], moved, latent)
            likelihood = np.where(accept, new, likelihood)
            before = np.where(accept, new_before, before)
        self._latent, self._log_weights = latent, np.full(n, -np.log(n))
        return likelihood

    def _before(self, latent: Array) -> Array:
        """Log of the prior and the likelihoods of all earlier data, up to a constant."""
        total = -0.5 * (latent**2).sum(axis=1)
        for design, y in self.data:
            total = total + self._log_likelihood(design, y, latent)
        return np.asarray(total)
