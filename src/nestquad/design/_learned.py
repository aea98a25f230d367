"""Experiments with a learned proposal: utilities as a simulated term plus a nested correction.

Each utility has the form E[s(θ, y)] + E_y[c(y)] with c ≥ 0. The first term is a mean over simulated
pairs and a lower bound of the utility. The correction is a nested expectation over the posterior,
by importance sampling from a proposal s(θ | y), and vanishes where the proposal is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from nestquad._typing import Array
from nestquad.clock import Schedule
from nestquad.design._experiment import Experiment
from nestquad.design._proposal import (
    NEAR_DRAWS,
    Mixture,
    NormalProposal,
    PriorProposal,
    Proposal,
    Summary,
    fit_proposal,
)
from nestquad.distributions import Empirical, Law, Transport
from nestquad.errors import EvaluationError, InputError
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation

N_CHECKED = 32  # pairs at which the user's functions are checked before the budget is spent
_INSIDE = 1024  # draws of q for its means of payoffs; they cost no likelihoods
_ANCHORS = 16  # fits whose components the draws of compared designs share
_PILOT = 512  # simulations whose fit shows the cost of a simulation
_PRIOR_DRAWS = 2**14  # draws of θ for the variance under the prior; they cost no simulations
_ROWS_EACH = 8  # simulations for each control variate
_LARGEST = 300.0  # limit of log weights: their squares stay finite
_MOST_CELLS = 2**23  # products of samples and data: a second of work for a prior of samples


@dataclass(frozen=True, eq=False)
class Block:
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
class Learned:
    """Experiment under one design, with proposals learned from its simulations.

    `pairs` are simulations of the fit, latent parameters and data. `anchors` are fits of designs
    that this one is compared with.
    """

    experiment: Experiment
    design: Any
    targets: tuple[int, ...]
    blocks: tuple[Block, ...]
    stream: Stream
    pairs: tuple[Array, Array]
    n_fit: int
    simulations: int
    notes: tuple[str, ...] = ()
    anchors: tuple[Learned, ...] = ()
    orders: dict[tuple[int, int], Any] = field(default_factory=dict)

    @property
    def each(self) -> int:
        """Likelihoods of one evaluation of g."""
        return len(self.blocks)

    @property
    def n_latent(self) -> int:
        return len(self.blocks[0].own)

    @property
    def n_y(self) -> int:
        return int(self.pairs[1].shape[1])

    @property
    def mixtures(self) -> tuple[Mixture, ...]:
        fits = [block.proposal for block in self.blocks]
        return tuple(fit.mixture for fit in fits if not isinstance(fit, PriorProposal))

    def check(self) -> None:
        """Evaluate a few likelihoods, which must be finite, before the budget is spent."""
        if self.experiment.log_prob is not None:
            latent, y = self.pairs
            self.at_truth(latent[:N_CHECKED], y[:N_CHECKED])

    def with_prior(self) -> Learned:
        """Experiment with draws of the prior instead of the proposal."""
        blocks = tuple(
            replace(block, proposal=PriorProposal(len(block.own))) for block in self.blocks
        )
        return replace(self, blocks=blocks)

    def at_truth(self, latent: Array, y: Array) -> Array:
        """Log likelihoods (n,) of simulated data at their own parameters."""
        values = self.experiment.log_likelihood(y, latent, self.design)
        if np.isneginf(values).any():
            raise EvaluationError(
                "log_prob returned -inf for data that simulate made, "
                f"y = {y[int(np.argmax(np.isneginf(values)))]}",
                advice="simulate and log_prob have to describe the same experiment.",
            )
        return values

    def inner(self, rows: Array, *, near: bool = False) -> Law:
        """Draws of each block's proposal, side by side; `near`: around the θ of each row."""
        latent, y = rows[:, : self.n_latent], rows[:, self.n_latent : self.n_latent + self.n_y]
        sizes = [block.proposal.base_dim for block in self.blocks]
        starts = np.cumsum([0, *sizes])
        mixing = self._mixing_of(rows)

        def fn(u: Array) -> Array:
            parts = []
            for block, start, size, mix in zip(self.blocks, starts, sizes, mixing, strict=False):
                center = latent[:, block.own] if near else None
                part = u[..., start : start + size]
                parts.append(block.proposal.draws(block.data(latent, y), part, mix, center))
            return np.concatenate(parts, axis=-1)

        return Transport(fn, dim=int(starts[-1]), batch=len(rows))

    def _mixing_of(self, rows: Array) -> list[Array]:
        """Log weights (T, K) of the components that draws of each block come from."""
        first = self.n_latent + self.n_y + self.each
        ends = first + np.cumsum([block.proposal.components for block in self.blocks])
        return np.split(rows, [first, *ends.tolist()], axis=1)[1:-1]

    def mixing(self, u: Array, latent: Array, y: Array) -> list[Array]:
        """Log weights (n, K) of components of each block: means over the anchors.

        The data of all designs have the same driving uniforms u.
        """
        own = [block.proposal.mixing(block.data(latent, y)) for block in self.blocks]
        shapes = [part.shape for part in own]
        tables = [
            anchor.mixing(u, *anchor.experiment.simulated(u, anchor.design))
            for anchor in self.anchors
        ]
        alike = [table for table in tables if [part.shape for part in table] == shapes] or [own]
        return [
            np.asarray(logsumexp(parts, axis=0) - np.log(len(alike)))
            for parts in zip(*alike, strict=True)
        ]

    def weighted(self, x: Array, rows: Array) -> list[tuple[Array, ...]]:
        """Latent parameters, log weight, log r and log q of each block; evaluates likelihoods.

        Weights are relative to the weight of the θ that made the data, a draw of the posterior.
        The mean weight is then above 1/K with probability at least 1 − 1/K; a mean below 1/N shows
        that N draws missed the posterior.
        """
        after = self.n_latent + self.n_y
        truth, y = rows[..., : self.n_latent], rows[..., self.n_latent : after]
        parts: list[tuple[Array, ...]] = []
        start = 0
        for i, block in enumerate(self.blocks):
            k = len(block.own)
            own = x[..., start : start + k]
            log_ratio, log_r, log_q = np.moveaxis(x[..., start + k : start + k + 3], -1, 0)
            start += k + 3
            latent = own
            if block.sign < 0:
                shape = np.broadcast_shapes(own.shape[:-1], truth.shape[:-1])
                latent = np.broadcast_to(truth, (*shape, self.n_latent)).copy()
                latent[..., block.own] = own
            likelihood = self.experiment.log_likelihood(y, latent, self.design)
            log_w = likelihood - rows[..., -2] + log_ratio - rows[..., after + i]
            parts.append((latent, np.clip(log_w, -_LARGEST, _LARGEST), log_r, log_q))
        return parts

    def at(self, latent: Array, y: Array, mixing: Sequence[Array]) -> list[Array]:
        """Logs (n, 3) of each block at θ: prior − sampled law, q, and the density of the data."""
        return [
            block.proposal.at(latent[:, block.own], block.data(latent, y), mix)
            for block, mix in zip(self.blocks, mixing, strict=True)
        ]

    def order(self, n: int, replicate: int) -> Any:
        """Simulations of one replicate from the rarest data to the most frequent."""
        if (n, replicate) not in self.orders:
            self.orders[n, replicate] = self.population(n, replicate).order
        return self.orders[n, replicate]

    def population(self, n: int, replicate: int) -> Population:
        """Simulations (n) of one replicate; no fit has used them."""
        stream = self.stream.child(2, replicate)
        u = Sobol().uniforms(stream, self.experiment.dim, (0, 1), (0, n))[0]
        latent, y = self.experiment.simulated(u, self.design)
        own = [block.proposal.mixing(block.data(latent, y)) for block in self.blocks]
        _, log_q, log_evidence = np.moveaxis(np.array(self.at(latent, y, own)), -1, 0)
        order = np.argsort(log_evidence[0], kind="stable")
        if self.anchors:
            order = self.anchors[len(self.anchors) // 2].order(n, replicate)
        return Population(self, stream, ndtri(u), latent, y, log_q, order)


@dataclass(frozen=True, eq=False)
class Population:
    """Simulations of one replicate, with the logs of the proposal at them.

    `order` sorts them by the density of the data, the rarest first.
    """

    learned: Learned
    stream: Stream
    drivers: Array
    latent: Array
    y: Array
    log_q: Array
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
        is chosen with probability ∝ v^(-1/2). Permanent random numbers choose nearly the same data
        under similar designs (Rosén, 1997, On sampling with probability proportional to size).
        With draws of the prior, the gain of all data is averaged, and turns continue the sequence.
        """
        m = len(self.y)
        if isinstance(self.learned.blocks[0].proposal, PriorProposal):
            return (turn * n + np.arange(n)) % m, np.ones(n)
        generator = self.stream.child(1, turn).generator()
        if 2 * n > m:
            t = (np.arange(n) + generator.random()) / n
            return self.order[np.minimum((m * t * t).astype(int), m - 1)], 2.0 * t
        chance = np.empty(m)
        chance[self.order] = np.minimum(0.5 * n / np.sqrt(m * (np.arange(m) + 0.5)), 0.999)
        xi = generator.random(m)
        rank = xi / (1.0 - xi) * (1.0 - chance) / chance
        index = np.argpartition(rank, n)[:n]
        weight = 1.0 / chance[index]
        return index, weight * n / weight.sum()

    def rows(self, n: int, turn: int, more: Callable[[Array], Sequence[Array]]) -> Array:
        """Data (n, ...) of a turn: latent θ, y, ratios, mixing, more, likelihood at θ, weight."""
        at, weight = self.chosen(n, turn)
        latent, y, learned = self.latent[at], self.y[at], self.learned
        truth = learned.at_truth(latent, y)
        mixing = learned.mixing(ndtr(self.drivers[at]), latent, y)
        ratios = [part[:, 0] for part in learned.at(latent, y, mixing)]
        return np.column_stack([latent, y, *ratios, *mixing, *more(y), truth, weight])


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

    `f` maps posterior means of `g` to the correction, the discrepancy between simulated pairs and
    likelihoods, and the effective sample size, each (T,). `more` are further columns of the rows of
    data. The jackknife removes a bias where f is `smooth`.
    """

    learned: Learned
    smooth: ClassVar[bool] = True

    def pairs(self, population: Population) -> Array:
        raise NotImplementedError

    def bound(self, population: Population) -> Array:
        return self.pairs(population)

    def more(self, y: Array) -> Sequence[Array]:
        return ()

    def g(self, x: Array, rows: Array) -> Array:
        raise NotImplementedError

    def f(self, j: Array) -> Array:
        raise NotImplementedError


def nested_problem(utility: Utility, n_columns: int, name: str) -> NestedExpectation:
    """Expectation of the correction over rows of data; the last column is their weight."""
    outer = Transport(lambda u: u, dim=n_columns, out_dim=n_columns)

    def g(x: Array, rows: Array) -> Array:
        outputs = utility.g(x, rows)
        weight = np.broadcast_to(rows[..., -1:], (*outputs.shape[:-1], 1))
        return np.concatenate([outputs, weight], axis=-1)

    def f(j: Array) -> Array:
        return utility.f(j[..., :-1]) * j[..., -1:]

    return NestedExpectation(outer, utility.learned.inner, g, f, lambda i: i[0], name=name)


def lacking(j: Array, n: int) -> Array:
    """Nats (T, blocks) that the true θ adds to the evidence of n draws, from mean weights j.

    Including the true θ gives a lower bound of the gain and excluding it an upper bound (Foster et
    al., 2019, Variational Bayesian Optimal Experimental Design).
    """
    return np.asarray(np.log1p(1.0 / (n * j)))


@dataclass(frozen=True, eq=False)
class Information(Utility):
    """Information gain: E[log q(θ | y) − log p(θ)] + E_y[KL(posterior ‖ q)].

    With normalized weights w ∝ p(y | θ) p(θ) / s(θ) and r = q(θ | y) / s(θ) of draws from s,
    KL(w ‖ r) estimates the correction without noise of first order. The simulated term is the
    bound of Barber and Agakov (2003), The IM algorithm. The gain about targets is the gain about
    all parameters less the gain about the others given the targets.
    """

    log_q: Array = field(default_factory=lambda: np.zeros(2))

    def pairs(self, population: Population) -> Array:
        blocks = self.learned.blocks
        signs = np.array([block.sign for block in blocks])
        prior = np.array([[block.proposal.log_prior_mean] for block in blocks])
        return np.asarray(signs @ (population.log_q - prior))

    def bound(self, population: Population) -> Array:
        whole = self.learned.blocks[0].proposal
        if self.learned.each == 1 or not isinstance(whole, NormalProposal):
            return self.pairs(population)
        kept = self.learned.targets
        prior = -0.5 * len(kept) * (1.0 + np.log(2.0 * np.pi))
        return np.asarray(whole.log_marginal(population.latent, population.y, kept) - prior)

    def g(self, x: Array, rows: Array) -> Array:
        outputs = []
        for _, log_w, log_r, log_q in self.learned.weighted(x, rows):
            w, r = np.exp(log_w), np.exp(log_r)
            outputs += [w, w * (log_w - log_r), r, w * log_q, r * log_q, w * w]
        return np.stack(outputs, axis=-1)

    def f(self, j: Array) -> Array:
        gap, apart, size = np.zeros(j.shape[:-1]), np.zeros(j.shape[:-1]), np.ones(j.shape[:-1])
        for i, block in enumerate(self.learned.blocks):
            w, ws, r, wq, rq, ww = np.moveaxis(j[..., 6 * i : 6 * i + 6], -1, 0)
            gap = gap + block.sign * (ws / w - np.log(w / r))
            apart = apart + block.sign * (wq / w - rq / r + rq - r * self.log_q[i])
            size = np.minimum(size, w * w / ww)
        return np.stack([gap, apart, size], axis=-1)

    def repaired(self, rows: Array) -> tuple[Array, Array]:
        """Corrections (T,) by draws near the θ behind the data, and nats (T,) still missing."""
        law, size = self.learned.inner(rows, near=True), (0, NEAR_DRAWS)
        u = Sobol().uniforms(self.learned.stream.child(5), law.base_dim, (0, len(rows)), size)
        j = self.g(law.from_uniform(u), rows[:, None]).mean(axis=1)
        w, ww = j[:, 0::6], j[:, 5::6]
        # The logarithm of a mean with relative variance v is v/2 too low in expectation.
        missing = lacking(w, NEAR_DRAWS) + 0.5 * ww / (NEAR_DRAWS * w**2)
        return self.f(j)[:, 0], missing.sum(axis=1)


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

    def more(self, y: Array) -> Sequence[Array]:
        """Predictions of h, and its means under q less the predictions, (T, k) each."""
        law, proposal = self.learned.experiment.prior_law, self.learned.blocks[0].proposal
        u = Sobol().uniforms(self.learned.stream.child(10), law.base_dim, (0, 1), (0, _INSIDE))
        base, width = self.predicted(y), max(2**20 // (_INSIDE * law.base_dim), 1)
        parts = [y[i : i + width] for i in range(0, len(y), width)]
        means = np.concatenate([proposal.expected(self.values, part, u) for part in parts])
        return base, means - base

    def g(self, x: Array, rows: Array) -> Array:
        """Weights, deviations of h from its prediction under both weights, and constants."""
        ((latent, log_w, log_r, _),) = self.learned.weighted(x, rows)
        w, r, h = np.exp(log_w)[..., None], np.exp(log_r)[..., None], self.values(latent)
        share = self.learned.blocks[0].proposal.share
        r = r - share * np.exp(x[..., -3, None])
        k = h.shape[-1]
        constants = np.broadcast_to(rows[..., -2 - 2 * k : -2], (*h.shape[:-1], 2 * k))
        away = h - constants[..., :k]
        return np.concatenate([w, w * w, r, w * away, r * away, constants], axis=-1)

    def f(self, j: Array) -> Array:
        w, ww, r = np.moveaxis(j[..., :3, None], -2, 0)
        wh, rh, base, inside = np.split(j[..., 3:], 4, axis=-1)
        change = self.correction(wh / w - (rh / r - inside), base)
        size = (w * w / ww)[..., 0]
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
    start from that of the first design, so that components of mixtures correspond. Estimates of a
    comparison take the same simulations for the nested correction, and choose the components behind
    their inner draws with the same weights: means over the fits of at most `_ANCHORS` designs. A
    draw then moves with its component, and does not jump to another one.
    """

    designs: Sequence[Any] = ()
    starts: tuple[Mixture, ...] = ()
    anchors: tuple[Learned, ...] = ()

    def learn(
        self,
        experiment: Experiment,
        design: Any,
        simulations: int,
        stream: Stream,
        schedule: Schedule,
    ) -> Learned:
        """Fit of one of the designs."""

        def fitted(d: Any) -> Learned:
            return learn(experiment, d, simulations, stream, schedule, self.starts)

        if not self.starts:
            self.starts = fitted(self.designs[0] if len(self.designs) else design).mixtures
        if len(self.designs) and not self.anchors:
            step = -(-len(self.designs) // _ANCHORS)
            self.anchors = tuple(fitted(d) for d in self.designs[::step])
        fit = next((fit for fit in self.anchors if fit.design is design), None)
        return replace(fit or fitted(design), anchors=self.anchors)


def _roles(
    everything: tuple[int, ...], targets: tuple[int, ...], likelihood: bool
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """Coordinates, given coordinates and sign of each posterior that the gain is made of."""
    if targets and not likelihood:
        return [(targets, (), 1.0)]
    rest = tuple(i for i in everything if i not in targets)
    return [(everything, (), 1.0), *([(rest, targets, -1.0)] if targets else [])]


def learn(
    experiment: Experiment,
    design: Any,
    simulations: int,
    stream: Stream,
    schedule: Schedule,
    starts: tuple[Mixture, ...] = (),
) -> Learned:
    """Simulate and fit the proposals, without likelihoods.

    With a time limit, simulations are limited by the cost of a pilot fit.
    """
    targets: tuple[int, ...] = ()
    given = experiment
    if experiment.targets is not None:
        experiment, targets = experiment.split
    law = experiment.prior_law
    parts: list[tuple[Array, Array]] = []

    def simulated(n: int) -> tuple[Array, Array]:
        """Latent coordinates and data; only new ones are simulated."""
        done = sum(len(y) for _, y in parts)
        if n > done:
            u = Sobol().uniforms(stream.child(1), experiment.dim, (0, 1), (done, n))[0]
            new = experiment.simulated(u, design)
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
    blocks = tuple(Block(fit[0], *role) for fit, role in zip(fits, roles, strict=True))
    n_fit = max(n for _, n in fits)
    if isinstance(law, Empirical):
        simulations = min(simulations, n_fit + max(_MOST_CELLS // len(law.samples), 2**12))
    pairs = simulated(n_fit)
    latent, y = (part[:N_CHECKED] for part in pairs)
    notes = given.split_notes
    if experiment.ignores_noise(latent, y, design):
        notes = (*notes, "simulate makes the same data for other noise: does it use e?")
    return Learned(
        experiment, design, targets, blocks, stream, pairs, n_fit + N_CHECKED, simulations, notes
    )
