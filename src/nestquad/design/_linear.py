"""Linearized experiments: classical optimality criteria, gradients, and point exchange."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nestquad._checks import choice
from nestquad._typing import Array
from nestquad.design._experiment import Experiment, check_experiment
from nestquad.distributions import Empirical
from nestquad.errors import InputError
from nestquad.points import Sobol, Stream

Kind = Literal["D", "A", "I"]
_MOST_SQUARED = 8  # observations with squares and products as predictors; more overfit
_RIDGE = 1e-10  # regularization of Gram matrices, relative to their trace
_PASSES = 20  # sweeps of the exchange over all points


@dataclass(frozen=True, eq=False)
class Linearized:
    """Least-squares linearization of an experiment over its prior, for any design.

    Parameters are regressed on the data of simulations whose random numbers all designs share
    (statistical linearization; Särkkä, 2013, Bayesian filtering and smoothing, section 5.4). With
    few observations, their squares and products are predictors too. Noise is antithetic: additive
    noise does not disturb the slopes.

    Attributes
    ----------
    experiment, theta, e
        The experiment, and parameters (n, p) and noise (n, n_e) of the simulations.
    z
        Coordinates (n, k) to learn about: normals that drive the prior, or standardized samples.
    scaled
        Parameters of interest (n, k) in their own units.
    """

    experiment: Experiment
    theta: Array
    e: Array
    z: Array
    scaled: Array

    @classmethod
    def of(cls, experiment: Experiment, n: int, stream: Stream) -> Linearized:
        u = Sobol().uniforms(stream, experiment.dim, (0, 1), (0, n // 2))[0]
        base = experiment.prior_law.base_dim
        u = np.concatenate([u, np.concatenate([u[:, :base], 1.0 - u[:, base:]], axis=1)])
        latent = experiment.latent(u[:, :base])
        theta = experiment.theta(latent)
        kept = list(experiment.targets or range(experiment.n_parameters))
        scaled = theta[:, kept]
        z = latent if experiment.targets is None else scaled
        if isinstance(experiment.prior_law, Empirical):
            z = scaled
        z = z - z.mean(axis=0)
        z = z / np.maximum(z.std(axis=0), 1e-300)
        e = experiment.noise_law.from_uniform(u[:, base:])
        return cls(experiment, theta, e, z, scaled - scaled.mean(axis=0))

    def data(self, d: Any) -> Array:
        return self.experiment.data(self.theta, self.e, d)

    def gain(self, d: Any) -> float:
        """Information gain of the linearized experiment, in nats."""
        residual = self._regressed(self.z, self.data(d))[0]
        return 0.5 * (_logdet(self.z) - _logdet(residual))

    def reduction(self, d: Any) -> float:
        """Reduction of the summed variance of the parameters of interest."""
        residual = self._regressed(self.scaled, self.data(d))[0]
        return float((self.scaled**2).mean(axis=0).sum() - (residual**2).mean(axis=0).sum())

    def prediction_variance(self, d: Any, over: Sequence[Any]) -> float:
        """Mean variance of the linear predictor of data under the designs `over`."""
        residual = self._regressed(self.z, self.data(d))[0]
        left = residual.T @ residual / len(residual)
        total = 0.0
        for other in over:
            slopes = np.linalg.lstsq(self.z, _centered(self.data(other)), rcond=None)[0]
            total += float(np.einsum("ij,ik,kj->", slopes, left, slopes)) / slopes.shape[1]
        return total / len(over)

    def _regressed(self, z: Array, y: Array) -> tuple[Array, Array, Array]:
        """Residuals (n, k) of z, coefficients (f, k), and standardized data (n, n_y)."""
        v = _centered(y)
        v = v / np.maximum(v.std(axis=0), 1e-300)
        features = _centered(self._features(v))
        gram = features.T @ features
        gram[np.diag_indices(len(gram))] += _RIDGE * max(float(np.trace(gram)), 1e-300)
        coefficients = np.asarray(np.linalg.solve(gram, features.T @ z), dtype=np.float64)
        return z - features @ coefficients, coefficients, v

    @staticmethod
    def _features(v: Array) -> Array:
        if v.shape[1] > _MOST_SQUARED:
            return v
        i, j = np.triu_indices(v.shape[1])
        return np.concatenate([v, v[:, i] * v[:, j]], axis=1)

    def gradient(self, d: Array) -> Array | None:
        """Gradient (k,) of `gain` by automatic differentiation of `simulate`; None without one.

        With residuals R of covariance S and coefficients C, the derivative with respect to the
        predictors is R S⁻¹ Cᵀ / n, as least squares makes the coefficients stationary.
        """
        pullback = _pullback(self.experiment.simulate, self.theta, self.e, d)
        if pullback is None:
            return None
        y, back = pullback
        residual, coefficients, v = self._regressed(self.z, y)
        n, m = v.shape
        change = _centered(np.linalg.solve(_covariance(residual), residual.T).T @ coefficients.T)
        slope = change[:, :m] / n
        if change.shape[1] > m:
            i, j = np.triu_indices(m)
            for column, (a, b) in enumerate(zip(i, j, strict=True)):
                slope[:, a] += change[:, m + column] * v[:, b] / n
                slope[:, b] += change[:, m + column] * v[:, a] / n
        return back(slope / np.maximum(y.std(axis=0), 1e-300))


def _pullback(
    simulate: Any, theta: Array, e: Array, d: Array
) -> tuple[Array, Callable[[Array], Array]] | None:
    """Data, and the map from derivatives by data to derivatives by design; None without one."""
    if "torch" in sys.modules:
        import torch

        point = torch.tensor(d, dtype=torch.double, requires_grad=True)
        try:
            y = simulate(torch.as_tensor(theta), torch.as_tensor(e), point)
        except Exception:  # not written for tensors
            y = None
        if isinstance(y, torch.Tensor) and y.requires_grad:
            kept = y

            def by_torch(weights: Array) -> Array:
                (slope,) = torch.autograd.grad(kept, point, torch.as_tensor(weights))
                return np.asarray(slope.numpy(), dtype=float)

            return kept.detach().double().numpy(), by_torch
    if "jax" in sys.modules:
        import jax

        try:
            y, vjp = jax.vjp(lambda at: simulate(theta, e, at), jax.numpy.asarray(d))
        except Exception:  # not written for tracers
            return None

        def by_jax(weights: Array) -> Array:
            return np.asarray(vjp(jax.numpy.asarray(weights, dtype=y.dtype))[0], dtype=float)

        return np.asarray(y, dtype=float), by_jax
    return None


def optimality(
    experiment: Experiment,
    design: Any,
    kind: Kind = "D",
    *,
    over: Sequence[Any] = (),
    simulations: int = 4096,
) -> float:
    """Bayesian D-, A- or I-optimality of the linearized experiment; larger is better.

    D is the information gain of the linearized experiment in nats, A the reduction of the summed
    variance of the parameters, and I minus the mean variance of predictions under the designs
    `over` (Chaloner and Verdinelli, 1995, Bayesian experimental design: a review). They need no
    likelihood, and are exact for linear experiments with normal prior and noise.

    Examples
    --------
    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> line = design.Experiment(
    ...     prior=nq.Normal(np.zeros(2)),
    ...     simulate=lambda theta, e, d: theta[..., :1] + theta[..., 1:] * d + 0.5 * e,
    ...     noise=nq.Normal(np.zeros(2)),
    ... )
    >>> bool(abs(design.optimality(line, np.array([-1.0, 1.0])) - np.log(9.0)) < 0.02)
    True
    """
    check_experiment(experiment)
    choice("kind", kind, ("D", "A", "I"))
    model = Linearized.of(experiment, simulations, Stream.from_rng(0))
    if kind == "D":
        return model.gain(design)
    if kind == "A":
        return model.reduction(design)
    if not len(over):
        raise InputError("over", "no designs", "the designs whose data are to be predicted")
    return -model.prediction_variance(design, over)


def exchange(
    experiment: Experiment,
    candidates: Array,
    points: int,
    *,
    simulations: int = 1024,
    starts: int = 8,
    stream: Stream,
) -> list[Array]:
    """Designs of several points chosen from candidates (m, …), the best D-optimality first.

    Exchange algorithm (Fedorov, 1972, Theory of optimal experiments) on the linearized experiment,
    from random starts. Observations at different points are taken as independent given θ, in the
    order of the points.
    """
    model = Linearized.of(experiment, simulations, stream.child(0))
    information = _information(model, candidates, points)
    prior = np.linalg.inv(_covariance(model.z))
    generator = stream.child(1).generator()
    designs: dict[tuple[int, ...], float] = {}
    for _ in range(starts):
        chosen = generator.integers(len(candidates), size=points)
        for _ in range(_PASSES):
            before = chosen.copy()
            for i in range(points):
                rest = prior + information[np.delete(chosen, i)].sum(axis=0)
                chosen[i] = int(np.argmax(np.linalg.slogdet(rest + information)[1]))
            if np.array_equal(np.sort(before), np.sort(chosen)):
                break
        total = prior + information[chosen].sum(axis=0)
        designs[tuple(np.sort(chosen).tolist())] = float(np.linalg.slogdet(total)[1])
    order = sorted(designs, key=lambda key: -designs[key])
    return [candidates[list(key)] for key in order]


def _information(model: Linearized, candidates: Array, points: int) -> Array:
    """Information matrices (m, k, k) of single observations at the candidates."""
    parts = []
    solve = np.linalg.pinv(model.z)
    for candidate in candidates:  # the first of equal points: all have the same noise
        y = _centered(model.data(np.stack([candidate] * points)))
        if y.shape[1] % points:
            raise InputError(
                "simulate", f"{y.shape[1]} observations", f"the same number at each of {points}"
            )
        each = y.shape[1] // points
        b = solve @ y[:, :each]
        noise = _covariance(y[:, :each] - model.z @ b) + 1e-12 * np.eye(each)
        parts.append(b @ np.linalg.solve(noise, b.T))
    return np.stack(parts)


def _centered(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=0))


def _covariance(x: Array) -> Array:
    return np.atleast_2d(x.T @ x / len(x))


def _logdet(x: Array) -> float:
    return float(np.linalg.slogdet(_covariance(x))[1])
