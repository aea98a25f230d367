"""An experiment: prior, simulator and likelihood of data under a design."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from nestquad._checks import instance, listed, numbers, shown
from nestquad._typing import Array
from nestquad.clock import OutOfTimeError, TimeSplit
from nestquad.distributions import Empirical, Law, Normal, Transport, as_law
from nestquad.errors import EvaluationError, InputError, NestquadError
from nestquad.evaluate import opened, packed

_LIGHTEST = 1e-16  # weight of samples relative to the largest: rounding
_MOST_SAMPLES = 4096  # samples of a prior; the cost of a datum is proportional to them
_FEWEST, _MOST, _LONG = 2**8, 2**16, 0.05  # likelihoods of a chunk, and the seconds it may take
_FARTHEST = 1e100  # samples whose squares, and products with others, are numbers


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data y about parameters θ under a design d.

    Parameters
    ----------
    prior
        The law of θ: any law that is a transport, a frozen ``scipy.stats`` distribution, or a tuple
        of them. Or samples of θ, such as draws from an earlier posterior: an array (n, p), or a
        pair ``(samples, weights)``.
    log_prob
        ``log_prob(y, theta, d)``: log p(y | θ, d), with y (…, n_y) and theta (…, p), whose leading
        axes broadcast against each other. NumPy, JAX and PyTorch results are fine. None if there
        is only a simulator: `eig` then returns a lower bound.
    simulate
        ``simulate(theta, e, d)``: data (…, n_y) from theta (…, p) and noise e (…, n_e).
    noise
        The law of e.
    target
        Indices of the parameters of interest; the others are nuisance parameters. None: all.
    name
        For printing and plots.
    support
        All outcomes (K, n_y) of data with finitely many values, or a function of the design that
        returns them; gains are then sums over them. Small tables of counts are found without it.
    parameters
        Labels of the parameters, for posteriors of `Sequential`.

    Examples
    --------
    A straight line measured at both ends, with noise of standard deviation 0.5:

    >>> import numpy as np
    >>> import nestquad as nq
    >>> from nestquad import design
    >>> def log_prob(y, theta, d):
    ...     mean = theta[..., :1] + theta[..., 1:] * d
    ...     return (-0.5 * ((y - mean) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))).sum(-1)
    >>> experiment = design.Experiment(
    ...     prior=nq.Normal(np.zeros(2)),
    ...     log_prob=log_prob,
    ...     simulate=lambda theta, e, d: theta[..., :1] + theta[..., 1:] * d + 0.5 * e,
    ...     noise=nq.Normal(np.zeros(2)),
    ... )
    >>> est = design.eig(experiment, np.array([-1.0, 1.0]), budget=1000, rng=0)
    >>> bool(abs(est.value - np.log(9.0)) < 0.01)
    True
    """

    prior: Any
    log_prob: Callable[[Array, Array, Any], Any] | None = None
    simulate: Callable[[Array, Array, Any], Any] | None = None
    noise: Any = None
    target: Sequence[int] | int | None = None
    name: str | None = None
    support: Any = None
    parameters: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not callable(self.simulate):
            raise InputError(
                "simulate",
                type(self.simulate).__name__,
                "a function simulate(theta, e, d) that returns data",
                "The proposal for the posterior is learned from simulated data.",
            )
        if self.log_prob is not None and not callable(self.log_prob):
            raise InputError(
                "log_prob",
                type(self.log_prob).__name__,
                "a function log_prob(y, theta, d), or None",
            )
        for argument, law in (("prior", self.prior_law), ("noise", self.noise_law)):
            if law.batch is not None or not law.has_transport:
                raise InputError(
                    argument,
                    "a batch of laws"
                    if law.batch is not None
                    else "a law that can only be sampled",
                    "one law that is a transport",
                    "Give samples: prior=law.sample(4096, rng)." if argument == "prior" else "",
                )
        if self.parameters is not None:
            labels = listed("parameters", self.parameters, "a label for each parameter")
            if len(labels) != self.n_parameters:
                raise InputError(
                    "parameters", shown(self.parameters), f"{self.n_parameters} labels"
                )
        if self.support is not None and not callable(self.support):
            self.outcomes(None)
        if not isinstance(self.name, str | None):
            raise InputError("name", shown(self.name), "a text, or None")
        _ = self.targets

    @cached_property
    def prior_law(self) -> Law:
        given = self.prior
        pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], np.ndarray)
        if pair or isinstance(given, np.ndarray):
            samples, weights = given if pair else (given, None)
            if samples.ndim > 2 or (
                samples.size
                and np.abs(np.nan_to_num(numbers("prior", samples, "samples (n, p)"))).max()
                > _FARTHEST
            ):
                raise InputError(
                    "prior",
                    f"samples of shape {samples.shape}" if samples.ndim > 2 else "huge samples",
                    f"an array (n, p) of numbers below {_FARTHEST:g}",
                )
            law = Empirical(samples[:, None] if samples.ndim == 1 else samples, weights)
            # Others are never drawn, and the logarithm of a weight of zero is not finite.
            kept = law.weights > _LIGHTEST * law.weights.max()
            return _in_order(Empirical(law.samples[kept], law.weights[kept]))
        return as_law(given, argument="prior")

    @cached_property
    def certain(self) -> bool:
        """Whether all samples of the prior are the same."""
        law = self.prior_law
        return isinstance(law, Empirical) and bool((law.samples == law.samples[0]).all())

    @cached_property
    def noise_law(self) -> Law:
        if self.noise is None:
            raise InputError("noise", "None", "the law of the noise e, such as nq.Normal(zeros(3))")
        return as_law(self.noise, argument="noise")

    @cached_property
    def n_parameters(self) -> int:
        return int(self.prior_law.from_uniform(np.full((1, self.prior_law.base_dim), 0.5)).shape[1])

    @cached_property
    def targets(self) -> tuple[int, ...] | None:
        """Indices of the parameters of interest; None for all."""
        if self.target is None:
            return None
        p = self.n_parameters
        expected = f"different indices from 0 to {p - 1}"
        found = np.atleast_1d(numbers("target", self.target, expected))
        if found.ndim > 1 or not found.size or not np.isin(found, np.arange(p)).all():
            raise InputError("target", shown(self.target), expected)
        chosen = tuple(int(i) for i in found)
        if len(set(chosen)) < len(chosen):
            raise InputError("target", shown(self.target), expected)
        if len(chosen) == p:
            return None
        return chosen

    @cached_property
    def split(self) -> tuple[Experiment, tuple[int, ...]]:
        """An experiment whose first normals drive the targets alone, and their indices.

        Parameters are driven by separate normals, or by earlier ones: a correlated normal law
        is factorized with the targets first.
        """
        assert self.targets is not None
        law, p = self.prior_law, self.n_parameters
        order = [*self.targets, *(i for i in range(p) if i not in self.targets)]
        if isinstance(law, Empirical):
            copula = _copula(law, order)
            return replace(self, prior=copula, target=None), tuple(range(len(self.targets)))
        if isinstance(law, Normal) and law.cov is not None:
            ordered, back = (
                Normal(law.loc[order], cov=law.cov[np.ix_(order, order)]),
                np.argsort(order),
            )
            moved = Transport(
                lambda z: ordered.from_normal(z)[..., back], dim=p, base="normal", out_dim=p
            )
            return replace(self, prior=moved), tuple(range(len(self.targets)))
        # Other normals of the nuisance parameters must leave the targets as they are.
        chosen = list(self.targets)
        z = np.random.default_rng(0).standard_normal((2, 16, law.base_dim))
        z[1][:, chosen] = z[0][:, chosen]
        first, second = (self.theta(one)[:, chosen] for one in z)
        if law.base_dim != p or not np.array_equal(first, second):
            raise InputError(
                "target",
                f"{self.target!r} with the prior {law!r}",
                "a prior of independent parameters, or a normal one",
                "Each parameter of interest needs a driving variable of its own.",
            )
        return self, self.targets

    @property
    def split_notes(self) -> tuple[str, ...]:
        """Warnings about `split`."""
        if self.targets is None or not isinstance(self.prior_law, Empirical):
            return ()
        return ("a target with a prior of samples: a Gaussian copula with their margins is used",)

    def theta(self, latent: Array) -> Array:
        """Parameters (n, p) from normals that drive the prior, or from numbers of samples."""
        if isinstance(self.prior_law, Empirical):
            return np.asarray(self.prior_law.samples[latent[..., 0].astype(int)])
        return self.prior_law.from_normal(latent)

    def outcomes(self, d: Any) -> Array:
        """All outcomes (K, n_y) of `support` under a design."""
        rows = self.support(d) if callable(self.support) else self.support
        table = numbers("support", rows, "outcomes (K, n_y)")
        if table.ndim != 2 or not table.size:
            raise InputError("support", f"shape {table.shape}", "outcomes (K, n_y)")
        return table

    def latent(self, uniform: Array) -> Array:
        """Latent coordinates (n, k) from uniforms: driving normals, or numbers of samples."""
        if not isinstance(self.prior_law, Empirical):
            return np.asarray(ndtri(uniform))
        edges = np.cumsum(self.prior_law.weights)
        return np.searchsorted(edges[:-1] / edges[-1], uniform[:, :1]).astype(float)

    def simulated(self, uniform: Array, d: Any) -> tuple[Array, Array]:
        """θ in latent coordinates (T, k) and data (T, n_y) from rows of uniforms."""
        n = self.prior_law.base_dim
        latent = self.latent(uniform[:, :n])
        e = self.noise_law.from_uniform(uniform[:, n:])
        return latent, self.data(self.theta(latent), e, d)

    def data(self, theta: Array, e: Array, d: Any) -> Array:
        """Data (T, n_y) from parameters and noise."""
        y = self.called("simulate", self.simulate, theta, e, d)
        if y.ndim != 2 or len(y) != len(theta) or not y.shape[1] or not np.isfinite(y).all():
            shaped = y.ndim == 2 and y.size and len(y) == len(theta)
            given = "values that are not finite" if shaped else f"shape {y.shape}"
            raise InputError(
                "simulate",
                given,
                f"finite data of shape ({len(theta)}, n_y) for {len(theta)} rows of theta",
                "Keep the last axis, also for one observation.",
            )
        return y

    @property
    def dim(self) -> int:
        """Number of uniforms behind one simulated experiment."""
        return self.prior_law.base_dim + self.noise_law.base_dim

    def log_likelihood(self, y: Array, latent: Array, d: Any) -> Array:
        """log p(y | θ, d) with leading axes that broadcast; −inf is a likelihood of zero."""
        shape = np.broadcast_shapes(y.shape[:-1], latent.shape[:-1])
        rows = latent.reshape(-1, latent.shape[-1])
        theta = self.theta(rows).reshape(*latent.shape[:-1], -1)
        found = self.called("log_prob", self.log_prob, y, theta, d)
        if found.shape != shape:
            raise InputError(
                "log_prob",
                f"shape {found.shape} for y {y.shape} and theta {theta.shape}",
                f"shape {shape}",
                "Sum over observations along the last axis: .sum(-1).",
            )
        wrong = np.isnan(found) | (found == np.inf)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise EvaluationError(
                f"log_prob returned {found[at]}",
                theta=np.broadcast_to(theta, (*shape, theta.shape[-1]))[at],
                x=np.broadcast_to(y, (*shape, y.shape[-1]))[at],
                advice="x is the data y here. A likelihood of zero is -inf.",
            )
        return found

    @staticmethod
    def called(argument: str, function: Any, *arguments: Any) -> Array:
        """Numbers from a function of the user."""
        try:
            found = function(*arguments)
        except NestquadError:
            raise
        except Exception as error:
            last = traceback.format_exception_only(error)[-1].strip()
            shapes = " and ".join(str(np.shape(one)) for one in arguments[:2])
            raise EvaluationError(
                f"{argument} raised {last} for arguments of shapes {shapes}",
                advice="Leading axes broadcast: index the last one, as in theta[..., 0].",
            ) from error
        if hasattr(found, "detach"):  # a tensor that may carry gradients
            found = found.detach()
        return numbers(argument, found, "an array of numbers from it")


def _copula(law: Empirical, order: Sequence[int]) -> Transport:
    """Gaussian copula with the margins of weighted samples; normals drive parameters in an order.

    See Nelsen (2006), An introduction to copulas.
    """
    levels = np.empty_like(law.samples)
    knots = []
    for j, column in enumerate(law.samples.T):
        rank = np.argsort(column, kind="stable")
        middle = np.cumsum(law.weights[rank]) - 0.5 * law.weights[rank]
        levels[rank, j] = middle
        knots.append((ndtri(middle), column[rank]))
    scores = ndtri(levels[:, order])
    cov = (scores * law.weights[:, None]).T @ scores
    sd = np.sqrt(np.diag(cov))
    root = np.linalg.cholesky(cov / np.outer(sd, sd) + 1e-9 * np.eye(len(sd)))

    def fn(z: Array) -> Array:
        out = np.empty_like(z)
        driven = np.einsum("ij,...j->...i", root, z)
        for at, j in enumerate(order):
            out[..., j] = np.interp(driven[..., at], *knots[j])
        return out

    return Transport(fn, dim=len(sd), base="normal", out_dim=len(sd))


@dataclass(eq=False)
class Setup:
    """Experiment under one design, with counts of its simulations and likelihoods.

    Likelihoods are evaluated in chunks until time is over, by an executor if there is one.
    """

    experiment: Experiment
    design: Any
    schedule: TimeSplit = field(default_factory=TimeSplit)
    executor: Executor | None = None
    show: Callable[[int], None] = lambda done: None
    n_simulations: int = 0
    n_likelihoods: int = 0
    chunk: int = _FEWEST

    def simulated(self, uniform: Array) -> tuple[Array, Array]:
        """θ in latent coordinates (T, k) and data (T, n_y) from rows of uniforms."""
        self.n_simulations += len(uniform)
        return self.experiment.simulated(uniform, self.design)

    def ignores_noise(self, latent: Array, y: Array) -> bool:
        """Whether data that differ between parameters are the same under other noise."""
        u = np.random.default_rng(0).random((len(y), self.experiment.noise_law.base_dim))
        theta, e = self.experiment.theta(latent), self.experiment.noise_law.from_uniform(u)
        self.n_simulations += len(y)
        other = self.experiment.data(theta, e, self.design)
        return bool(np.array_equal(other, y) and (y != y[0]).any())

    def log_likelihood(self, y: Array, latent: Array) -> Array:
        """log p(y | θ) of data (T, …, n_y) and latent parameters (T, …, k), or one of T = 1."""
        shape = np.broadcast_shapes(y.shape[:-1], latent.shape[:-1])
        parts, done, begin = [], 0, self.schedule.now()
        compute = map if self.executor is None else self.executor.map
        for part in compute(self._call, self._cut(y, latent, shape)):
            parts.append(part)
            done += len(part)
            self.n_likelihoods += part.size
            self.show(self.n_likelihoods)
            if done < shape[0] and self.schedule.left <= 0.0:
                raise OutOfTimeError("time ran out before all likelihoods were evaluated")
            if self.executor is None and self.schedule.now() - begin < _LONG:
                self.chunk = min(2 * self.chunk, _MOST)
            begin = self.schedule.now()
        return np.concatenate(parts)

    @cached_property
    def _call(self) -> _Likelihood:
        return _Likelihood(self.experiment, self.design)

    def _cut(self, y: Array, latent: Array, shape: tuple[int, ...]) -> Iterator[tuple[Array, ...]]:
        """Chunks of rows; a serial computation reads the size of each when it begins."""
        at, each = 0, max(int(np.prod(shape[1:])), 1)
        while at < shape[0]:
            end = at + max(self.chunk // each, 1)
            yield tuple(part if len(part) == 1 else part[at:end] for part in (y, latent))
            at = end


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Log likelihoods under one design, which travel to other processes as bytes."""

    experiment: Experiment
    design: Any

    def __call__(self, pair: tuple[Array, ...]) -> Array:
        y, latent = pair
        return self.experiment.log_likelihood(y, latent, self.design)

    @cached_property
    def payload(self) -> bytes:
        return packed((self.experiment, self.design))

    def __reduce__(self) -> tuple[Callable[[bytes], _Likelihood], tuple[bytes]]:
        return _unpacked, (self.payload,)


def _unpacked(payload: bytes) -> _Likelihood:
    return _Likelihood(*opened(payload))


def check_experiment(experiment: Any) -> None:
    instance("experiment", experiment, Experiment, "a nestquad.design.Experiment")


def _in_order(law: Empirical) -> Empirical:
    """Samples in the order of a tree, cut at medians of the widest coordinate; neighbors are near.

    Of more than `_MOST_SAMPLES`, that number are kept by systematic resampling in this order.
    """
    sd = np.sqrt(law.weights @ (law.samples - law.weights @ law.samples) ** 2)
    x, parts = law.samples / np.where(sd > 0, sd, 1.0), [np.arange(len(law.samples))]
    for _ in range(min(_MOST_SAMPLES.bit_length() - 1, (len(x) - 1).bit_length())):
        cut = []
        for rows in parts:
            by = x[rows, np.argmax(np.ptp(x[rows], axis=0))]
            order = rows[np.argsort(by, kind="stable")]
            cut += [order[: len(rows) // 2], order[len(rows) // 2 :]]
        parts = [rows for rows in cut if len(rows)]
    order = np.concatenate(parts)
    samples, weights = law.samples[order], law.weights[order]
    if len(order) <= _MOST_SAMPLES:
        return Empirical(samples, weights)
    levels = (np.arange(_MOST_SAMPLES) + 0.5) / _MOST_SAMPLES
    return Empirical(samples[np.searchsorted(np.cumsum(weights)[:-1], levels)])
