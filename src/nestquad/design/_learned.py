"""An experiment with proposals for its posteriors, as a nested expectation over data.

With weights w ∝ p(y | θ) p(θ) / s(θ) and r = q(θ | y) / s(θ) of draws from s, normalized at each y,

    gain = E[log q(θ | y)] − E[log p(θ)] + E_y[KL(posterior ‖ q)]

and KL(w ‖ r) over the draws estimates the last term without noise of first order: it vanishes where
q is the posterior. E[log p(θ)] is known, and E[log q] is a mean over simulated pairs, at no cost in
likelihoods. Without the last term that is a lower bound (Barber and Agakov, 2003). The gain about
some of the parameters is that about all of them less that about the others when these are known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.design._experiment import Experiment
from nestquad.design._proposal import NEAR_DRAWS, NormalProposal, Proposal, fit_proposal
from nestquad.distributions import Empirical, Law, Transport
from nestquad.errors import EvaluationError, InputError
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

_PAIRS = 32  # at which the user's functions are checked before the budget is spent
_BLOCKS = 16  # of a Sobol sequence, whose means show the error of simulated averages
# Simulations that show what one costs, its part of a fit included, and the share of the time for
# all of them: fits of several sizes, the averages and the likelihoods need the rest.
_FEWEST, _SHARE = 256, 0.25
_LARGEST = 300.0  # log weights are cut there: squares stay below the largest number


class Once:
    """A function of rows (n, c), called once for each: chunks and turns ask for some again."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self._function = function
        self._known: dict[bytes, Array] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, rows: Array) -> Array:
        keys = [row.tobytes() for row in np.ascontiguousarray(rows)]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            found = self._function(rows[list(new.values())])
            self._known.update(zip(new, found, strict=True))
        return np.array([self._known[key] for key in keys])


@dataclass(frozen=True, eq=False)
class Block:
    """A posterior that the gain is made of: of all parameters given y, or of nuisance given ψ, y.

    `own` are the latent coordinates that it is about, and `known` those that belong to its data.
    """

    proposal: Proposal
    own: tuple[int, ...]
    known: tuple[int, ...]
    sign: float

    def data(self, latent: Array, y: Array) -> Array:
        return np.concatenate([latent[:, self.known], y], axis=1)


@dataclass(frozen=True, eq=False)
class Learned:
    """An experiment under one design, with proposals learned from its simulations."""

    experiment: Experiment
    design: Any
    targets: tuple[int, ...]
    blocks: tuple[Block, ...]
    stream: Stream
    n_y: int
    n_fit: int
    simulations: int

    @property
    def each(self) -> int:
        """Likelihoods of one evaluation of g."""
        return len(self.blocks)

    @property
    def nuisance(self) -> bool:
        return self.each > 1

    def n_truths(self, found: Estimate) -> int:
        """Likelihoods at the θ behind the data; workers in other processes keep theirs."""
        here = len(self.at_truth)
        return here if here > _PAIRS else here + found.n_outer

    @property
    def n_latent(self) -> int:
        return len(self.blocks[0].own)

    @cached_property
    def at_truth(self) -> Once:
        """Log likelihoods of rows (latent θ, y) of simulated experiments."""

        def fn(rows: Array) -> Array:
            latent, y = rows[:, : self.n_latent], rows[:, self.n_latent :]
            found = self.experiment.log_likelihood(y, latent, self.design)
            if np.isneginf(found).any():
                raise EvaluationError(
                    "log_prob returned -inf for data that simulate made, "
                    f"y = {y[int(np.argmax(np.isneginf(found)))]}",
                    advice="simulate and log_prob have to describe the same experiment.",
                )
            return found

        return Once(fn)

    def inner(self, rows: Array, *, near: bool = False) -> Law:
        """Draws of each block's proposal, side by side; or more of them near the θ of the row."""
        latent, y = rows[:, : self.n_latent], rows[:, self.n_latent : self.n_latent + self.n_y]
        sizes = [block.proposal.base_dim for block in self.blocks]
        starts = np.cumsum([0, *sizes])

        def fn(u: Array) -> Array:
            parts = []
            for block, start, size in zip(self.blocks, starts, sizes, strict=False):
                center = latent[:, block.own] if near else None
                part = u[..., start : start + size]
                parts.append(block.proposal.draws(block.data(latent, y), part, center))
            return np.concatenate(parts, axis=-1)

        return Transport(fn, dim=int(starts[-1]), batch=len(rows))

    def weighted(self, x: Array, rows: Array) -> list[tuple[Array, ...]]:
        """For each block latent parameters, log weight, log r, log q: only here are likelihoods.

        Weights are relative to that of the θ that made the data, a draw of the posterior. Its
        likelihood is one more for each row. The mean weight is then above 1/K with a probability
        of 1 − 1/K at least, and where it is below 1/N, N draws have missed the posterior.
        """
        after = self.n_latent + self.n_y
        truth, y = rows[..., : self.n_latent], rows[..., self.n_latent : after]
        at_truth = self.at_truth(rows[..., :after].reshape(-1, after)).reshape(rows.shape[:-1])
        found: list[tuple[Array, ...]] = []
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
            likelihood = self.experiment.log_likelihood(y, latent, self.design) - at_truth
            log_w = likelihood + log_ratio - rows[..., after + i]
            found.append((latent, np.clip(log_w, -_LARGEST, _LARGEST), log_r, log_q))
        return found

    def g(self, x: Array, rows: Array) -> Array:
        """w, w log(w/r), r, w log q, r log q and w² of each block, and the weight of the data."""
        outputs = []
        for _, log_w, log_r, log_q in self.weighted(x, rows):
            w, r = np.exp(log_w), np.exp(log_r)
            outputs += [w, w * (log_w - log_r), r, w * log_q, r * log_q, w * w]
        outputs.append(np.broadcast_to(rows[..., -1], outputs[0].shape))
        return np.stack(outputs, axis=-1)

    def f(self, j: Array, pairs: Array) -> Array:
        """KL(posterior ‖ q), E[log q | y] less that of `pairs`, effective sample size, sum of KLs.

        The second is E[log q] by draws of q, as the mean of r is 1, and the change Σ (w − r) log q.
        Its mean over y is 0 if `simulate` and `log_prob` describe one experiment.
        """
        gap, apart, size, total = 0.0, 0.0, 1.0, 0.0
        for i, block in enumerate(self.blocks):
            w, ws, r, wq, rq, ww = np.moveaxis(j[..., 6 * i : 6 * i + 6], -1, 0)
            kl = ws / w - np.log(w / r)
            gap, total = gap + block.sign * kl, total + kl
            apart = apart + block.sign * (wq / w - rq / r + rq - r * pairs[i])
            size = np.minimum(size, w * w / ww)
        return np.stack([gap, apart, size, total], axis=-1) * j[..., -1:]

    def missed(self, j: Array, n: int) -> Array:
        """Nats (T,) that the evidence of n draws may lack: those that the θ behind the data adds.

        With it, bounds of the gain are from below (Foster et al., 2019), without it from above.
        """
        parts = [np.log1p(1.0 / (n * j[..., 6 * i])) for i in range(self.each)]
        return np.asarray(np.sum(parts, axis=0))

    def resolved(self, rows: Array) -> tuple[Array, Array]:
        """f (T, 4) by draws near the θ behind the data, and nats (T,) that may be wrong in it."""
        law, size = self.inner(rows, near=True), (0, NEAR_DRAWS)
        u = Sobol().uniforms(self.stream.child(5), law.base_dim, (0, len(rows)), size)
        j = self.g(law.from_uniform(u), rows[:, None]).mean(axis=1)
        doubt = self.missed(j, NEAR_DRAWS)
        for i in range(self.each):
            doubt += j[:, 6 * i + 5] / (NEAR_DRAWS * j[:, 6 * i] ** 2)
        return self.f(j, np.zeros(self.each)), doubt

    def population(self, n: int) -> Population:
        """The averages of n simulations that no fit has seen, and the law of their data."""
        u = Sobol().uniforms(self.stream.child(2), self.experiment.dim, (0, 1), (0, n))[0]
        latent, y = self.experiment.simulated(u, self.design)
        at = [b.proposal.at(latent[:, b.own], b.data(latent, y)) for b in self.blocks]
        ratios, log_q, log_evidence = np.moveaxis(np.array(at), -1, 0)
        signs = np.array([block.sign for block in self.blocks])
        pairs = signs @ (log_q - [[block.proposal.log_prior_mean] for block in self.blocks])
        bound = pairs
        if self.nuisance:
            whole = self.blocks[0].proposal
            assert isinstance(whole, NormalProposal)
            prior = -0.5 * len(self.targets) * (1.0 + np.log(2.0 * np.pi))
            bound = whole.log_marginal(latent, y, self.targets) - prior
        parts = np.array_split(np.column_stack([pairs, bound]), _BLOCKS)
        means = np.stack([part.mean(axis=0) for part in parts])
        order = np.argsort(log_evidence[0], kind="stable")
        rows = np.column_stack([latent, y, *ratios])[order]
        return Population(self, rows, means, log_q.mean(axis=1))


@dataclass(frozen=True, eq=False)
class Population:
    """Simulated data in the order of their rarity, the rarest first, and averages over them.

    `means` (16, 2) are those of blocks of log q − E[log p], and of the lower bound; `log_q` has one
    mean for each posterior.
    """

    learned: Learned
    rows: Array
    means: Array
    log_q: Array

    @property
    def base(self) -> Array:
        return np.asarray(self.means.mean(axis=0))

    @property
    def std_errors(self) -> Array:
        n = len(self.means)
        return np.asarray(np.sqrt(self.means.var(axis=0, ddof=1) / n * student(n)))

    def problem(
        self,
        g: Callable[[Array, Array], Array],
        f: Callable[[Array], Array],
        combine: Callable[[Array], Any],
        name: str,
    ) -> NestedExpectation:
        """An expectation over the data of f given each of them.

        KL(posterior ‖ q) has most of its spread in rare data. So the share v of rarer data is drawn
        as t², with the weight dv/dt = 2t that is at most 2, the last coordinate of the data.
        """
        n, learned = len(self.rows), self.learned

        def fn(t: Array) -> Array:
            index = np.minimum((n * t[..., 0] ** 2).astype(int), n - 1)
            return np.concatenate([self.rows[index], 2.0 * t], axis=-1)

        name = learned.experiment.name or name
        return NestedExpectation(Transport(fn, dim=1), learned.inner, g, f, combine, name=name)


def student(n: int) -> float:
    """Square of Student's factor at 95 %: a variance from n values is itself uncertain."""
    return float(stdtrit(n - 1, 0.975) / NORMAL_95) ** 2


def learn(
    experiment: Experiment,
    design: Any,
    simulations: int,
    stream: Stream,
    max_seconds: float | None = None,
) -> Learned:
    """Simulate, and fit the proposals; a few likelihoods check the user's function.

    With a time, simulations are as many as a first fit says, and it ends after half of it.
    """
    started, until = time.perf_counter(), np.inf
    targets: tuple[int, ...] = ()
    if experiment.targets is not None:
        experiment, targets = experiment.split
    law = experiment.prior_law
    parts: list[tuple[Array, Array]] = []

    def simulated(n: int) -> tuple[Array, Array]:
        """Latent coordinates and data, of which only new ones are simulated."""
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
        own: tuple[int, ...], known: tuple[int, ...], most: int, until: float
    ) -> tuple[Proposal, int]:
        def pairs(n: int) -> tuple[Array, Array]:
            latent, y = simulated(n)
            if isinstance(law, Empirical):
                return experiment.theta(latent), y
            return latent[:, own], np.concatenate([latent[:, known], y], axis=1)

        return fit_proposal(pairs, most, law, own, until)

    n_y = simulated(2)[1].shape[1]  # a look at what the user's function returns
    everything = tuple(range(law.base_dim))
    if max_seconds is not None:
        n, most = _FEWEST, 0
        while n < simulations // 2:  # larger ones show how little of it is overhead
            begun = time.perf_counter()
            fitted(everything, (), n, 0.0)
            most = int(_SHARE * max_seconds * n / (time.perf_counter() - begun))
            n *= 8
            if most < 4 * n:
                break
        simulations = max(2 * _FEWEST, min(simulations, most or simulations))
        until = started + 0.5 * max_seconds
    roles: list[tuple[tuple[int, ...], tuple[int, ...], float]] = [(everything, (), 1.0)]
    if targets and experiment.log_prob is None:
        roles = [(targets, (), 1.0)]
    elif targets:
        roles.append((tuple(i for i in everything if i not in targets), targets, -1.0))
    fits = [fitted(own, known, simulations // 2, until) for own, known, _ in roles]
    blocks = tuple(Block(fit[0], *role) for fit, role in zip(fits, roles, strict=True))
    n_fit = max(n for _, n in fits)
    found = Learned(experiment, design, targets, blocks, stream, n_y, n_fit, simulations)
    if experiment.log_prob is not None:
        found.at_truth(np.concatenate(simulated(n_fit), axis=1)[:_PAIRS])
    return found
