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
from scipy.special import expit, logit, ndtr, ndtri, roots_legendre

import nestquad as nq
from studies.families._sketch import Sketch, base, choice, written
from studies.families._truth import Truth, average, moments, tabulated
from studies.quadrature import normal_density

_WORTH = 10.0  # of one unit of benefit, in units of cost
_DISCOUNT = 0.97  # of a cycle


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
    multilinear: bool = True,
) -> Sketch | None:
    """θ = the learned parameters, x = the others; `known` is J if means do not make it.

    `multilinear`: J is linear in each learned parameter.
    """
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
        if not multilinear:
            return average(
                lambda u: mean(u, quick),
                len(learned),
                combine=lambda means: float(means[0] - means[1:].max()),
                scale=scale,
                most=19,
            )
        # J is linear in each learned parameter: the one that matters most is integrated exactly,
        # and what is left is smooth in the others.
        means: list = [one.mean for one in parameters]
        best = int((known or net)(means).argmax())
        last = max(range(len(learned)), key=lambda k: _influence(known or net, means, learned[k],
                                                                 plain[k]))  # fmt: skip
        others = [k for k in range(len(learned)) if k != last]
        moments_of = _partial_moments(plain[last])

        def gain(z: np.ndarray) -> np.ndarray:
            values = list(means)
            for column, k in enumerate(others):
                values[learned[k]] = quick[k](z[:, column])
            values[learned[last]] = np.zeros(len(z))
            start = (known or net)(values)
            values[learned[last]] = np.ones(len(z))
            slope = (known or net)(values) - start
            own = start[:, best] + slope[:, best] * means[learned[last]]
            return _mean_of_largest(start, slope, moments_of) - own

        if not others:
            return Truth(float(gain(np.zeros((1, 0)))[0]), 1e-9 * scale, scale)
        found = _tensor(gain, len(others)) if len(others) <= 3 else None
        # Options that do not depend on that parameter may still cross each other: a kink.
        if found is None or found.error > 2e-6 * scale:
            found = average(lambda u: gain(ndtri(u)), len(others), scale=scale)
        return Truth(found.value, found.error + 1e-9 * scale, scale)

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


def _tensor(h: Callable[[np.ndarray], np.ndarray], dim: int) -> Truth:
    """Mean of a smooth h over normals (n, dim), dim ≤ 3, by a product of Gauss rules."""
    values = []
    for order in {1: (600, 900), 2: (120, 180), 3: (40, 56)}[dim]:
        node, weight = roots_legendre(order)
        weight = weight * normal_density(8.0 * node)
        z = np.stack(np.meshgrid(*[8.0 * node] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
        weights = np.prod(np.meshgrid(*[weight / weight.sum()] * dim, indexing="ij"), axis=0)
        values.append(float(weights.ravel() @ (image := h(z))))
    spread = math.sqrt(float(weights.ravel() @ (image - values[1]) ** 2))
    return Truth(values[1], 3 * abs(values[1] - values[0]), spread)


def _influence(
    net: Callable[[list], np.ndarray],
    means: list,
    which: int,
    of: Callable[[np.ndarray], np.ndarray],
) -> float:
    """How far differences between options move with one parameter, the others at their means."""
    values = list(means)
    values[which] = of(np.array([-1.0, 1.0]))
    j = net(values)
    return float(np.ptp(j[1] - j[0]))


Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _partial_moments(of: Callable[[np.ndarray], np.ndarray]) -> Moments:
    """P(v ≤ t) and E[v; v ≤ t] of a parameter v, increasing in its normal, as functions of t."""
    z = np.linspace(-8.0, 8.0, 400_001)
    v = of(z)
    mass = v * normal_density(z) * (z[1] - z[0])
    below = np.concatenate([[0.0], np.cumsum((mass[1:] + mass[:-1]) / 2)])

    def at(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        where = np.interp(t, v, z)
        share = np.where(t <= v[0], 0.0, np.where(t >= v[-1], 1.0, ndtr(where)))
        return share, np.interp(where, z, below)

    return at


def _mean_of_largest(start: np.ndarray, slope: np.ndarray, moments_of: Moments) -> np.ndarray:
    """E max_d (start_d + slope_d v), (N,): each line is largest on one interval of v.

    Shapes
    ------
    start, slope (N, D).
    """
    total = np.zeros(len(start))
    options = start.shape[1]
    for d in range(options):
        low, high = np.full(len(start), -np.inf), np.full(len(start), np.inf)
        for e in range(options):
            if e == d:
                continue
            steeper, gap = slope[:, d] - slope[:, e], start[:, e] - start[:, d]
            with np.errstate(divide="ignore", invalid="ignore"):
                cross = gap / steeper
            low = np.where(steeper > 0, np.maximum(low, cross), low)
            high = np.where(steeper < 0, np.minimum(high, cross), high)
            hidden = (steeper == 0) & ((gap > 0) | ((gap == 0) & (e < d)))
            high = np.where(hidden, -np.inf, high)
        share, part = (a - b for a, b in zip(moments_of(high), moments_of(low), strict=True))
        total += np.where(low < high, start[:, d] * share + slope[:, d] * part, 0.0)
    return total


def _markov(rng: np.random.Generator) -> Sketch | None:
    options, cycles = int(rng.integers(2, 7)), int(rng.integers(8, 21))
    discount = _DISCOUNT ** np.arange(cycles)
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
        about += f"{len(moves)} of {count} learned"

        def quick(values: list) -> np.ndarray:
            columns = [worth(_occupancy(values, d, cycles), values, d) for d in range(options)]
            return np.stack(np.broadcast_arrays(*columns), axis=-1)

        return _statement(rng, parameters, learned, net, about, quick, multilinear=False)
    learned = list(range(len(moves), count))
    spent = _mean_occupancies(moves, occupancy, options)

    def known(values: list) -> np.ndarray:
        columns = [worth(spent[d], values, d) for d in range(options)]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    return _statement(rng, parameters, learned, net, about + f"5 of {count} learned", known)


def _occupancy(values: list, option: int, cycles: int) -> tuple[np.ndarray, np.ndarray]:
    """Discounted cycles spent well and ill, by geometric sums: many times faster than a loop."""
    extra = values[2 + option] if option else 0.0
    fall, die, die_ill = expit(values[0] + extra), expit(values[1]), expit(values[2])
    stay, stay_ill = (1 - die) * (1 - fall), 1 - die_ill
    # Equal rates would divide by zero; so small a change does not matter.
    stay_ill = np.where(np.abs(stay - stay_ill) < 1e-5, stay - 1e-5, stay_ill)

    def total(rate: np.ndarray, count: int) -> np.ndarray:
        return (1 - (_DISCOUNT * rate) ** count) / (1 - _DISCOUNT * rate)

    ill = (total(stay, cycles) - total(stay_ill, cycles)) / (stay - stay_ill)
    return total(stay, cycles), (1 - die) * fall * ill


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
