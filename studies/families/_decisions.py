"""Decisions: the expected value of partial perfect information (EVPPI) of decision models.

2–6 options, 3–20 parameters. Decision trees: a success probability, a benefit and a cost of each
option, some of them known, and a shared benefit of failure. Markov models: well, ill and dead, with
uncertain transitions, relative risks, utilities and costs. Net benefits are multilinear in what is
not learned, so that J has a closed form (or small quadratures); the average over what is learned is
a dense one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.special import expit, logit, ndtr, ndtri

import nestquad as nq
from studies.families._sketch import Sketch, base, choice, written
from studies.families._truth import Truth, average, moments, tabulated

_WORTH = 10.0  # of one unit of benefit, in units of cost


@dataclass(frozen=True)
class _Parameter:
    """A parameter as a function of a standard normal, and its mean."""

    of: Callable[[np.ndarray], np.ndarray]
    mean: float


def _probability(rng: np.random.Generator) -> _Parameter:
    if rng.random() < 0.5:
        a, b = rng.uniform(2.0, 15.0, 2)
        # betaincinv takes microseconds, which a g of this size does not notice.
        return _Parameter(lambda z: special.betaincinv(a, b, ndtr(z)), float(a / (a + b)))
    return _logit_normal(rng.uniform(-1.5, 1.5), rng.uniform(0.2, 0.8))


def _logit_normal(centre: float, sd: float) -> _Parameter:
    def of(z: np.ndarray) -> np.ndarray:
        return expit(centre + sd * z)

    return _Parameter(of, moments(of).value)


def _positive(rng: np.random.Generator, mean: float) -> _Parameter:
    if rng.random() < 0.5:
        shape = rng.uniform(2.0, 20.0)
        return _Parameter(lambda z: mean / shape * special.gammaincinv(shape, ndtr(z)), mean)
    sd = rng.uniform(0.2, 0.7)
    return _Parameter(lambda z: mean * np.exp(sd * z - sd**2 / 2), mean)


def _normal(rng: np.random.Generator, mean: float) -> _Parameter:
    sd = rng.uniform(0.1, 0.5)
    return _Parameter(lambda z: mean + sd * z, mean)


def sketch(rng: np.random.Generator) -> Sketch:
    build = choice(rng, _tree, _tree, _markov)
    while True:
        found = build(rng)
        # Decisions that nobody would change are left out: no value, no scale.
        if found is not None:
            return found


def _tree(rng: np.random.Generator) -> Sketch | None:
    options = int(rng.integers(2, 7))
    parameters = [_normal(rng, rng.uniform(0.1, 0.4))]
    rows = []  # of each option: success, benefit and cost, as a parameter's number or a constant
    for _ in range(options):
        row = []
        for one in (
            _probability(rng),
            _normal(rng, rng.uniform(0.6, 1.0)),
            _positive(rng, rng.uniform(0.5, 3.0)),
        ):
            if rng.random() < 0.7:
                parameters.append(one)
                row.append((len(parameters) - 1, 0.0))
            else:
                row.append((-1, one.mean))
        rows.append(row)
    if len(parameters) < 3:
        return None

    def pick(entry: tuple[int, float], values: list) -> np.ndarray | float:
        return entry[1] if entry[0] < 0 else values[entry[0]]

    def net(values: list) -> np.ndarray:
        columns = []
        for (success, benefit, cost), shift in zip(rows, shifts, strict=True):
            p = pick(success, values)
            worth = p * pick(benefit, values) + (1 - p) * values[0]
            columns.append(_WORTH * worth - pick(cost, values) + shift)
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    shifts = np.zeros(options)
    means = net([one.mean for one in parameters])
    shifts = rng.normal(size=options) * choice(rng, 0.3, 1.0) - means
    size = int(rng.integers(1, min(6, len(parameters) - 1) + 1))
    learned = sorted(rng.permutation(len(parameters))[:size].tolist())
    about = f"tree, {options} options, {size} of {len(parameters)} parameters learned"
    return _statement(rng, parameters, learned, net, about)


def _statement(
    rng: np.random.Generator,
    parameters: list[_Parameter],
    learned: list[int],
    net: Callable[[list], np.ndarray],
    about: str,
    known: Callable[[list], np.ndarray] | None = None,
) -> Sketch | None:
    """θ = the learned parameters, x = the others; `known` is J if means do not make it."""
    rest = [i for i in range(len(parameters)) if i not in learned]

    def law(which: list[int]) -> nq.Transport:
        def values(z: np.ndarray) -> np.ndarray:
            return np.stack([parameters[i].of(z[..., k]) for k, i in enumerate(which)], axis=-1)

        return written(values, len(which), len(which), base(rng))

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        values: list = [None] * len(parameters)
        for k, i in enumerate(learned):
            values[i] = theta[..., k]
        for k, i in enumerate(rest):
            values[i] = x[..., k]
        return net(values)

    def mean(u: np.ndarray, of: list[Callable[[np.ndarray], np.ndarray]]) -> np.ndarray:
        values: list = [one.mean for one in parameters]
        for k, i in enumerate(learned):
            values[i] = of[k](ndtri(u[:, k]))
        j = (known or net)(values)
        return np.concatenate([j.max(axis=-1, keepdims=True), j], axis=-1)

    plain = [parameters[i].of for i in learned]
    pilot = mean(np.random.default_rng(0).random((4096, len(learned))), plain)
    gain = pilot[:, 0] - pilot[:, 1 + int(pilot[:, 1:].mean(axis=0).argmax())]
    scale = float(gain.std())
    if not gain.mean() > 0.01 * pilot[:, 0].std():
        return None

    def truth() -> Truth:
        quick = list(map(tabulated, plain))
        return average(
            lambda u: mean(u, quick),
            len(learned),
            combine=lambda means: float(means[0] - means[1:].max()),
            scale=scale,
            most=19 if known is None else 18,
        )

    return Sketch(
        nq.NestedExpectation(
            outer=law(learned),
            inner=law(rest),
            g=g,
            f=lambda j: np.concatenate([j.max(axis=-1, keepdims=True), j], axis=-1),
            combine=lambda answers: answers[0] - answers[1:].max(),
        ),
        truth,
        about,
    )


def _markov(rng: np.random.Generator) -> Sketch | None:
    options, cycles = int(rng.integers(2, 7)), int(rng.integers(8, 21))
    discount = 0.97 ** np.arange(cycles)
    # Logit of falling ill, of dying when well, of dying when ill, then log risks of options 1, ….
    centre = np.array([logit(rng.uniform(0.05, 0.3)), logit(0.02), logit(rng.uniform(0.1, 0.4))])
    sd = rng.uniform(0.15, 0.5, 3)
    risk, risk_sd = rng.uniform(-0.9, -0.1, options - 1), rng.uniform(0.1, 0.4, options - 1)
    moves = [_Parameter(lambda z, i=i: centre[i] + sd[i] * z, centre[i]) for i in range(3)]
    moves += [
        _Parameter(lambda z, i=i: risk[i] + risk_sd[i] * z, risk[i]) for i in range(options - 1)
    ]
    prices = [_logit_normal(1.5, 0.3), _logit_normal(0.0, 0.4)]
    prices += [_positive(rng, rng.uniform(0.1, 0.5)), _positive(rng, rng.uniform(1.0, 3.0))]
    drug = _positive(rng, 1.0)
    dose = np.concatenate([[0.0], rng.uniform(0.3, 1.0, options - 1)])

    def occupancy(values: list, option: int) -> tuple[np.ndarray, np.ndarray]:
        """Discounted cycles spent well and ill."""
        extra = values[2 + option] if option else 0.0
        fall, die, die_ill = expit(values[0] + extra), expit(values[1]), expit(values[2])
        well, ill, times = 1.0, 0.0, [0.0, 0.0]
        for weight in discount:
            times = [times[0] + weight * well, times[1] + weight * ill]
            well, ill = well * (1 - die) * (1 - fall), well * (1 - die) * fall + ill * (1 - die_ill)
        return times[0], times[1]

    def worth(times: tuple, values: list, option: int) -> np.ndarray:
        well, ill = times
        u_well, u_ill, c_well, c_ill, cost = values[-5:]
        benefit = _WORTH * (u_well * well + u_ill * ill)
        return benefit - c_well * well - c_ill * ill - dose[option] * cost * well + shifts[option]

    def net(values: list) -> np.ndarray:
        columns = [worth(occupancy(values, d), values, d) for d in range(options)]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    parameters = [*moves, *prices, drug]
    shifts = np.zeros(options)
    means = net([one.mean for one in parameters])
    shifts = 0.3 * rng.normal(size=options) - means
    count = len(parameters)
    about = f"Markov, {options} options, {cycles} cycles, "
    if rng.random() < 0.5:
        learned = list(range(len(moves)))
        return _statement(rng, parameters, learned, net, about + f"{len(moves)} of {count} learned")
    learned = list(range(len(moves), count))
    spent = _mean_occupancies(moves, occupancy, options)

    def known(values: list) -> np.ndarray:
        columns = [worth(spent[d], values, d) for d in range(options)]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    return _statement(rng, parameters, learned, net, about + f"5 of {count} learned", known)


def _mean_occupancies(moves: list[_Parameter], occupancy, options: int) -> list[tuple]:
    """Expected cycles well and ill of each option, by Gauss–Hermite over four normals."""
    node, weight = np.polynomial.hermite_e.hermegauss(14)
    weight = weight / math.sqrt(2 * math.pi)
    z = np.meshgrid(*[node] * 4, indexing="ij")
    weights = np.prod(np.meshgrid(*[weight] * 4, indexing="ij"), axis=0)
    found = []
    for option in range(options):
        values: list = [one.of(z[i]) for i, one in enumerate(moves[:3])] + [0.0] * (options - 1)
        if option:
            values[2 + option] = moves[2 + option].of(z[3])
        found.append(tuple(float((weights * times).sum()) for times in occupancy(values, option)))
    return found
