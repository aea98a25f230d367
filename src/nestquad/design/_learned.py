"""Experiments with a learned proposal: utilities as a simulated term plus a nested correction.

Each utility has the form E[s(θ, y)] + E_y[c(y)] with c ≥ 0. The first term is a mean over simulated
pairs and a lower bound of the utility. The correction is a nested expectation over the posterior,
by importance sampling from a law that is wider than the proposal, and vanishes where the proposal
is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from nestquad._typing import Array
from nestquad.design._experiment import Experiment, Setup
from nestquad.design._proposal import (
    Mixture,
    NormalPosterior,
    Proposal,
    Summary,
    fit_proposal,
)
from nestquad.distributions import Empirical
from nestquad.errors import EvaluationError, InputError
from nestquad.points import Sobol, Stream

N_CHECKED = 32  # pairs at which the user's functions are checked before the budget is spent
_INSIDE = 1024  # draws of q for its means of payoffs; they cost no likelihoods
_PILOT = 512  # simulations whose fit shows the cost of a simulation
_PRIOR_DRAWS = 2**14  # draws of θ for the variance under the prior; they cost no simulations
_AMORTIZED, _SCORED = 2**15, 256  # simulations of a fit for all designs, and of each for its bound
_ROWS_EACH = 8  # simulations for each control variate
_LARGEST = 300.0  # limit of log weights: their squares stay finite
_MOST_CELLS = 2**23  # products of samples and data: a second of work for a prior of samples
_CELLS = 2**16  # draws, or products of samples and data, in memory at once


@dataclass(frozen=True, eq=False)
class BlockProposal:
    """Posterior of all parameters given y, or of the nuisance parameters given targets and y.

    `own` are its latent coordinates, and `known` the latent coordinates among its data.
    """

    proposal: Proposal
    own: tuple[int, ...]
    known: tuple[int, ...]
    sign: float

    def data(self, latent: Array, y: Array) -> Array:
        return np.concatenate([latent[:, self.known], y], axis=1)


@dataclass(frozen=True, eq=False)
class Rows:
    """Simulated data for the nested correction.

    Latent θ (T, k) behind them, y (T, n_y), log likelihoods (T,) at these θ, log weights (T, K) of
    components for the draws of each block, and weights (T,) in the mean.
    """

    latent: Array
    y: Array
    truth: Array
    mixing: Sequence[Array]
    weight: Array

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, at: Any) -> Rows:
        mixing = [part[at] for part in self.mixing]
        return Rows(self.latent[at], self.y[at], self.truth[at], mixing, self.weight[at])


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of a wider law s for one block: latent θ (T, N, k), and logs (T, N).

    log w is that of likelihood × prior / s, relative to the θ that made the data, which is a draw
    of the posterior. The mean weight is then above 1/K with probability at least 1 − 1/K; a mean
    below 1/N shows that N draws missed the posterior.
    """

    latent: Array
    log_w: Array
    log_q: Array
    log_prior: Array
    log_s: Array


@dataclass(frozen=True, eq=False)
class LearnedExperiment:
    """Experiment under one design, with proposals learned from its simulations.

    `pairs` are simulations of the fit, latent parameters and data, `n_fit` is the number of all up
    to its end, and `most` the largest number. `reference` is the fit of a design that this one is
    compared with.
    """

    setup: Setup
    targets: tuple[int, ...]
    blocks: tuple[BlockProposal, ...]
    stream: Stream
    pairs: tuple[Array, Array]
    n_fit: int
    most: int
    notes: tuple[str, ...] = ()
    reference: LearnedExperiment | None = None
    orders: dict[tuple[int, int], Any] = field(default_factory=dict)

    @property
    def experiment(self) -> Experiment:
        return self.setup.experiment

    @property
    def each(self) -> int:
        """Likelihoods of one inner draw."""
        return len(self.blocks)

    @property
    def mixtures(self) -> tuple[Mixture, ...]:
        return tuple(block.proposal.mixture for block in self.blocks)

    def at_truth(self, latent: Array, y: Array) -> Array:
        """Log likelihoods (n,) of simulated data at their own parameters."""
        values = self.setup.log_likelihood(y, latent)
        if np.isneginf(values).any():
            raise EvaluationError(
                "log_prob returned -inf for data that simulate made, "
                f"y = {y[int(np.argmax(np.isneginf(values)))]}",
                advice="simulate and log_prob have to describe the same experiment.",
            )
        return values

    def chunks(self, n: int, width: int) -> Iterator[slice]:
        """Slices of n data with `width` draws at each, or with the samples of the prior."""
        law = self.experiment.prior_law
        width = max(width, len(law.samples) if isinstance(law, Empirical) else 1)
        rows = max(1, _CELLS // width)
        return (slice(i, i + rows) for i in range(0, n, rows))

    def draws(self, rows: Rows, uniform: Array, near: bool) -> list[Draws]:
        """Weighted draws of each block's posterior; `near`: around the θ of each row."""
        parts, start = [], 0
        for block, mixing in zip(self.blocks, rows.mixing, strict=True):
            law = block.proposal.given(block.data(rows.latent, rows.y), mixing)
            dim, known = block.proposal.base_dim, rows.latent[:, block.own]
            center = known if near else None
            own = law.draws(uniform[..., start : start + dim], center)
            start += dim
            log_prior, log_q, log_s = law.logs(own, center)
            prior_there, _, s_there = law.logs(known[:, None])
            latent = own
            if block.sign < 0:
                latent = np.repeat(rows.latent[:, None], own.shape[1], axis=1)
                latent[..., block.own] = own
            likelihood = self.setup.log_likelihood(rows.y[:, None], latent)
            log_w = likelihood - rows.truth[:, None] + log_prior - log_s - prior_there + s_there
            log_w = np.clip(log_w, -_LARGEST, _LARGEST)
            parts.append(Draws(latent, log_w, log_q, log_prior, log_s))
        return parts

    def mixing(self, u: Array, latent: Array, y: Array) -> list[Array]:
        """Log weights (n, K) of components of each block, of the reference where there is one.

        The data of all designs have the same driving uniforms u. Counts jump from one design to the
        next, and components of one design are far from the posteriors of another.
        """
        own = [block.proposal.mixing(block.data(latent, y)) for block in self.blocks]
        other = self.reference
        if other is None or self.blocks[0].proposal.summary.counts.any():
            return own
        shared = other.mixing(u, *other.experiment.simulated(u, other.setup.design))
        alike = [a.shape for a in own] == [b.shape for b in shared]
        return shared if alike else own

    def order(self, n: int, replicate: int) -> Any:
        """Simulations of one replicate from the rarest data to the most frequent."""
        if (n, replicate) not in self.orders:
            self.orders[n, replicate] = self.population(n, replicate).order
        return self.orders[n, replicate]

    def population(self, n: int, replicate: int) -> Population:
        """Simulations (n) of one replicate; no fit has used them."""
        stream = self.stream.child(2, replicate)
        u = Sobol().uniforms(stream, self.experiment.dim, (0, 1), (0, n))[0]
        latent, y = self.setup.simulated(u)
        parts, bounds = [], []
        for at in self.chunks(n, 1):
            laws = [block.proposal.given(block.data(latent[at], y[at])) for block in self.blocks]
            there = [latent[at, None, block.own] for block in self.blocks]
            logs = [law.logs(z)[:2] for law, z in zip(laws, there, strict=True)]
            rows = np.reshape(logs, (2 * self.each, -1))
            parts.append(np.concatenate([rows, [laws[0].log_evidence]]))
            if self.each > 1 and isinstance(laws[0], NormalPosterior):
                bounds.append(laws[0].log_gain(latent[at], self.targets))
        table = np.concatenate(parts, axis=1)
        order = np.argsort(table[-1], kind="stable")
        if self.reference is not None:
            order = self.reference.order(n, replicate)
        bound = np.concatenate(bounds) if bounds else None
        log_q, log_prior = table[1:-1:2], table[:-1:2]
        return Population(self, stream, ndtri(u), latent, y, log_q, log_prior, bound, order)


@dataclass(frozen=True, eq=False)
class Population:
    """Simulations of one replicate, with logs of the proposal at their θ.

    Logs (blocks, n) of the proposals and of the prior, and for targets alone their difference
    (n,). `order` sorts simulations by the density of their data, the rarest first.
    """

    learned: LearnedExperiment
    stream: Stream
    drivers: Array
    latent: Array
    y: Array
    log_q: Array
    log_prior: Array
    bound: Array | None
    order: Any

    @cached_property
    def weights(self) -> Array:
        return control_weights(self.drivers)

    def mean(self, values: Array) -> float:
        """Mean of values at the simulations, with control variates."""
        return float(self.weights @ values)

    def chosen(self, n: int, turn: int) -> tuple[Any, Array]:
        """Indices (n,) of data for the nested correction, and their weights.

        The correction has most of its spread in rare data: with a share v of rarer data, a datum
        is chosen with density ∝ v^(-1/2), one in each stratum. Designs that are compared have the
        order of the reference, and the same data.
        """
        m = len(self.y)
        t = (np.arange(n) + self.stream.child(1, turn).generator().random()) / n
        return self.order[np.minimum((m * t * t).astype(int), m - 1)], 2.0 * t

    def rows(self, n: int, turn: int) -> Rows:
        """Data of a turn; evaluates a likelihood at the θ of each."""
        at, weight = self.chosen(n, turn)
        latent, y = self.latent[at], self.y[at]
        mixing = self.learned.mixing(ndtr(self.drivers[at]), latent, y)
        return Rows(latent, y, self.learned.at_truth(latent, y), mixing, weight)


def control_weights(z: Array) -> Array:
    """Weights (n,) of a mean with polynomials of driving normals z (n, d) as control variates.

    Quadratic polynomials where there are enough rows, else coordinates and squares, else none
    (Owen, 2013, Monte Carlo theory, methods and examples, section 8.9).
    """
    n, d = z.shape
    i, j = np.triu_indices(d)
    if len(i) + d <= n // _ROWS_EACH:
        x = np.concatenate([z, z[:, i] * z[:, j] - (i == j)], axis=1)
    elif 2 * d <= n // _ROWS_EACH:
        x = np.concatenate([z, z * z - 1.0], axis=1)
    else:
        return np.full(n, 1.0 / n)
    center = x.mean(axis=0)
    gram = x.T @ x - n * np.outer(center, center) + 1e-9 * n * np.eye(len(center))
    return np.asarray(1.0 / n - (x - center) @ np.linalg.solve(gram, center))


@dataclass(frozen=True, eq=False)
class Utility:
    """Expected utility of an experiment: simulated term, and outputs of the nested correction.

    `f` maps posterior means of `outputs`, of which those of each block's weight come first, to the
    correction, the discrepancy between simulated pairs and likelihoods, and the effective sample
    size, each (T,). The jackknife removes a bias where f is `smooth`.
    """

    learned: LearnedExperiment
    smooth: ClassVar[bool] = True

    def pairs(self, population: Population) -> Array:
        raise NotImplementedError

    def bound(self, population: Population) -> Array:
        return self.pairs(population)

    def outputs(self, draws: list[Draws]) -> Array:
        raise NotImplementedError

    def known(self, rows: Rows) -> Array:
        """Further arguments (T, m) of `f`, from the data alone."""
        return np.zeros((len(rows), 0))

    def f(self, j: Array, known: Array) -> Array:
        raise NotImplementedError

    def corrections(self, rows: Rows, n: int, stream: Stream, near: bool = False) -> Array:
        """Values of f (T, 3) from n draws at each datum, and nats (T,) that they may lack.

        Including the true θ among the draws gives a lower bound of the gain and excluding it an
        upper bound (Foster et al., 2019, Variational Bayesian Optimal Experimental Design).
        """
        dim = sum(block.proposal.base_dim for block in self.learned.blocks)
        parts = []
        for at in self.learned.chunks(len(rows), n):
            some = rows[at]
            u = Sobol().uniforms(stream, dim, (at.start, at.start + len(some)), (0, n))
            outputs, known = self.outputs(self.learned.draws(some, u, near)), self.known(some)
            j = outputs.mean(axis=1)
            f, evidence = self.f(j, known), j[:, : self.learned.each]
            lacking = np.log1p(1.0 / (n * evidence)).sum(axis=1)
            if self.smooth and not near:
                halves = (outputs[:, : n // 2], outputs[:, n // 2 :])
                both = [self.f(half.mean(axis=1), known) for half in halves]
                f[:, :2] = (2.0 * f - 0.5 * (both[0] + both[1]))[:, :2]
            parts.append(np.column_stack([f, lacking]))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Information(Utility):
    """Information gain: E[log q(θ | y) − log p(θ)] + E_y[KL(posterior ‖ q)].

    With normalized weights w ∝ p(y | θ) p(θ) / s(θ) and r = q(θ | y) / s(θ) of draws from s,
    KL(w ‖ r) estimates the correction without noise of first order. The simulated term is the
    bound of Barber and Agakov (2003), The IM algorithm. The gain about targets is the gain about
    all parameters less the gain about the others given the targets. `log_q` are the means of log q
    over simulated pairs.
    """

    log_q: Array = field(default_factory=lambda: np.zeros(2))

    def pairs(self, population: Population) -> Array:
        signs = [block.sign for block in self.learned.blocks]
        return np.asarray(signs @ (population.log_q - population.log_prior))

    def bound(self, population: Population) -> Array:
        return self.pairs(population) if population.bound is None else population.bound

    def outputs(self, draws: list[Draws]) -> Array:
        weights, others = [], []
        for part in draws:
            w, log_r = np.exp(part.log_w), part.log_q - part.log_s
            r = np.exp(log_r)
            weights.append(w)
            others += [w * (part.log_w - log_r), r, w * part.log_q, r * part.log_q, w * w]
        return np.stack(weights + others, axis=-1)

    def f(self, j: Array, known: Array) -> Array:
        gap, apart, size = np.zeros(len(j)), np.zeros(len(j)), np.ones(len(j))
        each = self.learned.each
        for i, block in enumerate(self.learned.blocks):
            w, (ws, r, wq, rq, ww) = j[:, i], j[:, each + 5 * i : each + 5 * i + 5].T
            gap = gap + block.sign * (ws / w - np.log(w / r))
            apart = apart + block.sign * (wq / w - rq / r + rq - r * self.log_q[i])
            size = np.minimum(size, w * w / ww)
        return np.stack([gap, apart, size], axis=-1)


@dataclass(frozen=True, eq=False)
class Regressed(Utility):
    """Regression of payoffs or parameters h(θ) on the data: the base of other utilities.

    Posterior means of h have its means under q as control variate.
    """

    h: Callable[[Array], Array]
    center: Array

    @cached_property
    def summary(self) -> Summary:
        latent, y = self.learned.pairs
        return Summary.of(self.values(latent), y)

    def values(self, latent: Array) -> Array:
        """h(θ) − center, (..., k), from latent parameters."""
        flat = latent.reshape(-1, latent.shape[-1])
        values = self.h(self.learned.experiment.theta(flat)) - self.center
        return np.asarray(values.reshape(*latent.shape[:-1], -1))

    def predicted(self, y: Array) -> Array:
        return self.summary.at(y)[0]

    def known(self, rows: Rows) -> Array:
        """Predictions of h, and its means under q less the predictions, (T, 2k)."""
        law, proposal = self.learned.experiment.prior_law, self.learned.blocks[0].proposal
        u = Sobol().uniforms(self.learned.stream.child(10), law.base_dim, (0, 1), (0, _INSIDE))
        base = self.predicted(rows.y)
        means = [
            proposal.given(rows.y[at]).expected(self.values, u)
            for at in self.learned.chunks(len(rows), _INSIDE * law.base_dim)
        ]
        return np.concatenate([base, np.concatenate(means) - base], axis=1)

    def outputs(self, draws: list[Draws]) -> Array:
        """Weights, and h under the weights of the posterior and of q."""
        (part,) = draws
        w, r, h = np.exp(part.log_w), np.exp(part.log_q - part.log_s), self.values(part.latent)
        share = self.learned.blocks[0].proposal.share
        r = r - share * np.exp(part.log_prior - part.log_s)
        sums = np.stack([w, w * w, r], axis=-1)
        return np.concatenate([sums, w[..., None] * h, r[..., None] * h], axis=-1)

    def f(self, j: Array, known: Array) -> Array:
        w, ww, r = j[:, :3].T[..., None]
        wh, rh = np.split(j[:, 3:], 2, axis=1)
        base, inside = np.split(known, 2, axis=1)
        change = self.correction(wh / w - rh / r + inside, base)
        size = (w * w / ww)[:, 0]
        return np.stack([change, 0.0 * size, size], axis=-1)

    def correction(self, shift: Array, predicted: Array) -> Array:
        """Correction (T,) from posterior means of h, relative to their predictions."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Variance(Regressed):
    """Reduction of variance: E[(θ − μ)² − (θ − m(y))²] + E_y[(E[θ | y] − m(y))²]."""

    def pairs(self, population: Population) -> Array:
        experiment, law = self.learned.experiment, self.learned.experiment.prior_law
        u = Sobol().uniforms(population.stream, law.base_dim, (1, 2), (0, _PRIOR_DRAWS))[0]
        before = (self.values(experiment.latent(u)) ** 2).sum(axis=1).mean()
        residual = self.values(population.latent) - self.predicted(population.y)
        return np.asarray(before - (residual**2).sum(axis=1))

    def correction(self, shift: Array, predicted: Array) -> Array:
        return np.asarray((shift**2).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class Decision(Regressed):
    """Value of deciding after the data, with the option of the largest prediction m_a(y) as rule.

    E[h_a*(y) − h_best] + E_y[max_a E[h_a | y] − E[h_a* | y]]; `center` is the prior mean of each
    payoff. The second term is positive only where the rule chooses another option than the
    posterior mean does.
    """

    def pairs(self, population: Population) -> Array:
        values = self.values(population.latent) + self.center
        predicted = self.predicted(population.y) + self.center
        chosen = np.argmax(predicted, axis=1)[:, None]
        best = int(np.argmax(self.center))
        return np.asarray(np.take_along_axis(values, chosen, axis=1)[:, 0] - values[:, best])

    def correction(self, shift: Array, predicted: Array) -> Array:
        rule = np.argmax(predicted + self.center, axis=-1)[..., None]
        means = shift + predicted + self.center
        return np.asarray(means.max(axis=-1) - np.take_along_axis(means, rule, axis=-1)[..., 0])


@dataclass(eq=False)
class Shared:
    """Random numbers and fits shared by the estimates of several designs.

    Differences of designs are well known if the error is a smooth function of the design. All fits
    start from the first one, so that components of mixtures correspond. With a reference design,
    estimates also take the same simulations for the nested correction as it does, and choose the
    components behind their inner draws with its weights: a draw then moves with its component, and
    does not jump to another one.
    """

    reference: Any = None
    first: LearnedExperiment | None = None

    def learn(self, setup: Setup, simulations: int, stream: Stream) -> LearnedExperiment:
        """Fit of one of the designs."""

        def fitted(d: Any) -> LearnedExperiment:
            starts = () if self.first is None else self.first.mixtures
            return learn(Setup(setup.experiment, d, setup.schedule), simulations, stream, starts)

        if self.first is None:
            self.first = fitted(setup.design if self.reference is None else self.reference)
        known = self.first.setup.design is setup.design
        own = self.first if known else fitted(setup.design)
        setup.experiment = own.experiment
        setup.n_simulations += own.n_fit
        return replace(own, setup=setup, reference=None if self.reference is None else self.first)


def _roles(
    everything: tuple[int, ...], targets: tuple[int, ...], likelihood: bool
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """Coordinates, given coordinates and sign of each posterior that the gain is made of."""
    if targets and not likelihood:
        return [(targets, (), 1.0)]
    rest = tuple(i for i in everything if i not in targets)
    return [(everything, (), 1.0), *([(rest, targets, -1.0)] if targets else [])]


def learn(
    setup: Setup, simulations: int, stream: Stream, starts: tuple[Mixture, ...] = ()
) -> LearnedExperiment:
    """Simulate and fit the proposals, without likelihoods.

    With a time limit, simulations are limited by the cost of a pilot fit.
    """
    targets: tuple[int, ...] = ()
    experiment, schedule = setup.experiment, setup.schedule
    notes = experiment.split_notes
    if experiment.targets is not None:
        experiment, targets = experiment.split
        setup.experiment = experiment
    law = experiment.prior_law
    parts: list[tuple[Array, Array]] = []

    def simulated(n: int) -> tuple[Array, Array]:
        """Latent coordinates and data; only new ones are simulated."""
        done = sum(len(y) for _, y in parts)
        if n > done:
            u = Sobol().uniforms(stream.child(1), experiment.dim, (0, 1), (done, n))[0]
            new = setup.simulated(u)
            if parts and new[1].shape[1] != parts[0][1].shape[1]:
                raise InputError(
                    "simulate",
                    f"data of {new[1].shape[1]} columns after {parts[0][1].shape[1]}",
                    "data of the same form for any number of rows",
                )
            parts.append(new)
        latent, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return latent[:n], y[:n]

    def fitted(
        own: tuple[int, ...], known: tuple[int, ...], most: int, share: float, start: Mixture | None
    ) -> tuple[Proposal, int]:
        def pairs(n: int) -> tuple[Array, Array]:
            latent, y = simulated(n)
            if isinstance(law, Empirical):
                return experiment.theta(latent), y
            return latent[:, own], np.concatenate([latent[:, known], y], axis=1)

        return fit_proposal(pairs, most, law, own, schedule.room_for(share), start)

    simulated(2)  # checks the form of the simulated data
    everything = tuple(range(law.base_dim))
    with schedule.measure("simulation", min(_PILOT, simulations // 2)):
        fitted(everything, (), min(_PILOT, simulations // 2), 0.0, None)
    simulations = max(min(simulations, _PILOT), schedule.affordable("simulation", simulations))
    roles = _roles(everything, targets, experiment.log_prob is not None)
    known_starts = starts if len(starts) == len(roles) else (None,) * len(roles)
    fits = [
        fitted(own, known, simulations // 2, schedule.fit_share, start)
        for (own, known, _), start in zip(roles, known_starts, strict=True)
    ]
    blocks = tuple(BlockProposal(fit[0], *role) for fit, role in zip(fits, roles, strict=True))
    n_fit = max(n for _, n in fits)
    if isinstance(law, Empirical):
        simulations = min(simulations, n_fit + max(_MOST_CELLS // len(law.samples), 2**12))
    most = setup.n_simulations - n_fit + simulations
    pairs = simulated(n_fit)
    if setup.ignores_noise(*(part[:N_CHECKED] for part in pairs)):
        notes = (*notes, "simulate makes the same data for other noise: does it use e?")
    return LearnedExperiment(
        setup, targets, blocks, stream, pairs, setup.n_simulations, most, notes
    )


def amortized_bounds(
    experiment: Experiment, designs: Sequence[Any], places: Array, stream: Stream
) -> Array | None:
    """Lower 95 % limits (n,) of the gains of many designs by one proposal q(θ | y, d).

    The coordinates (n, k) of the designs are among its data (amortized inference; Foster et al.,
    2019). None where data of designs have different forms, or θ is not driven by normals.
    """
    law = experiment.prior_law
    if isinstance(law, Empirical) or experiment.targets is not None:
        return None
    n, each = len(designs), -(-_AMORTIZED // len(designs))

    def simulated(u: Array, i: int) -> tuple[Array, Array]:
        latent, y = experiment.simulated(u, designs[i])
        return latent, np.concatenate([y, np.tile(places[i], (len(y), 1))], axis=1)

    u = Sobol().uniforms(stream.child(0), experiment.dim, (0, 1), (0, n * each))[0]
    parts = [simulated(u[i::n], i) for i in range(n)]
    if len({y.shape[1] for _, y in parts}) > 1:
        return None
    latent, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.random.default_rng(0).permutation(len(y))  # a part of all designs is held out
    latent, y = latent[order], y[order]
    own = tuple(range(law.base_dim))
    fit = fit_proposal(lambda m: (latent[:m], y[:m]), len(y), law, own)[0]
    fresh = Sobol().uniforms(stream.child(1), experiment.dim, (0, 1), (0, _SCORED))[0]
    bounds = []
    for i in range(n):
        z, data = simulated(fresh, i)
        log_prior, log_q, _ = fit.given(data).logs(z[:, None])
        terms = log_q - log_prior
        bounds.append(float(terms.mean() - 2.0 * terms.std() / np.sqrt(_SCORED)))
    return np.array(bounds)
