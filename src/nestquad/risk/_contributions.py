"""Euler contributions to VaR and expected shortfall, and derivatives of measures in parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from nestquad._tangent_problem import TangentProblem, slope_rules
from nestquad._typing import Array
from nestquad.evaluate import Tangents
from nestquad.functionals import WeightedSample
from nestquad.plots import INK, axes_or_new, series_styles
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._method import RiskState
from nestquad.risk._rows import Tabular
from nestquad.risk._targets import Key, Kind, Targets, label

# Predictions of outputs that memory holds, and rows at a time.
_NUMBERS, _ROWS = 1 << 22, 1 << 12
# Standard deviations of J around a quantile over which outputs are averaged, less their slope.
_NEAR = 0.15


@dataclass(frozen=True, eq=False)
class Contributions(Tabular):
    """Contributions of positions, desks or lines to VaR and expected shortfall.

    That to VaR is E[J_k | J = VaR], that to shortfall E[J_k | J > VaR]: the derivative of the
    measure in the size of the position, by Euler's theorem, so that they add up to the measure.

    Attributes
    ----------
    names
        Of the outputs of g.
    var, es
        By level, an `Estimate` with one value for each output.
    """

    names: tuple[str, ...]
    var: Mapping[float, Estimate]
    es: Mapping[float, Estimate]

    def rows(self) -> list[dict[str, Any]]:
        """One for each measure and output, the largest contribution first."""
        out = []
        for measure, found in (("VaR", self.var), ("ES", self.es)):
            for level, each in found.items():
                values, errors = np.atleast_1d(each.value), np.atleast_1d(each.std_error)
                for k in np.argsort(-values, kind="stable"):
                    share = float(values[k] / values.sum()) if values.sum() else np.nan
                    row = {"measure": f"{measure} {100 * level:g} %", "output": self.names[k]}
                    numbers = {"value": float(values[k]), "std_error": float(errors[k])}
                    out.append({**row, **numbers, "share": share})
        return out

    def plot(self, ax: Any = None, most: int = 12) -> Any:
        """Draw the contributions to the last measure as bars with 95 % intervals; returns the axes.

        Of many outputs, the ones with the largest shares.
        """
        ax = axes_or_new(ax)
        rows = sorted(self.rows()[-len(self.names) :], key=lambda row: -abs(row["value"]))[:most]
        rows.sort(key=lambda row: row["value"])
        halves = [NORMAL_95 * row["std_error"] for row in rows]
        ax.barh(
            [row["output"] for row in rows],
            [row["value"] for row in rows],
            xerr=[half if np.isfinite(half) else 0.0 for half in halves],
            color=series_styles(1)[0].color,
            ecolor=INK,
            capsize=3,
            height=0.6,
        )
        ax.axvline(0.0, color=INK, linewidth=0.8)
        ax.set_xlabel(f"contribution to {rows[0]['measure']}")
        return ax


def contributions_of(
    state: RiskState, targets: Targets, estimate: Estimate, names: Mapping[str, int], line: int = 0
) -> Contributions:
    """Contributions of outputs, by name and number, under the corrected law of their sum."""
    chosen = np.eye(state.draws.values.shape[2])[:, [*names.values()]]
    found: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
    outputs = OutputDraws(state, targets, line, chosen)
    for i, (kind, level) in enumerate(targets.keys):
        if kind in found:
            found[kind][level] = as_estimate(outputs.draws(i, estimate), estimate)
    return Contributions(tuple(names), found["var"], found["es"])


class OutputDraws:
    """Outputs J_k given that the loss J is at a level or beyond it, in each draw of the law.

    E[J_k | Ĵ, J] is E[J_k | Ĵ] + β_k (J − E[J | Ĵ]). The first is what a ridge of each output
    predicts over dense θ, plus mean residuals of pairs in bins of Ĵ; β_k is a ratio of products of
    residuals of independent draws, in which the noise of x cancels. All are recomputed with the
    bootstrap weights of each draw of the law, the first row being the central law.

    Shapes
    ------
    matrix (P, p): combinations of the P outputs of g that add up to the loss.
    """

    def __init__(self, state: RiskState, targets: Targets, line: int, matrix: Array) -> None:
        self.law, self.targets, dense, parts = state.laws[line], targets, state.dense, state.parts
        law, pairs = self.law, self.law.pairs
        assert parts is not None
        assert dense.owner is not None
        assert pairs is not None
        # Some at random where memory is short: every other point of a lattice is a bad lattice.
        most, some = max(_NUMBERS // len(matrix), 1 << 14), np.arange(len(dense.j))
        if len(some) > most:
            some = np.sort(np.random.default_rng(0).choice(some, most, replace=False))
        n, sets = len(law.s), int(dense.owner.max()) + 1
        cell = dense.owner[some] * n + law.node[some]
        blocks = np.array_split(dense.uniform[some], -(-len(some) // _ROWS))
        j = np.concatenate([parts.mean(block) @ matrix for block in blocks])
        weights = dense.weights[some]
        sums = [np.bincount(cell, weights * each, sets * n) for each in (np.ones(1), *j.T)]
        # Mass, and mass times predicted outputs, by replicate and node (R, n, 1 + p).
        self.cells = np.stack(sums, axis=1).reshape(sets, n, -1)
        draws = state.draws
        predicted = parts.mean(draws.uniform) @ matrix
        self.seen = law.evidence(pairs)
        self.observed = pairs.mean_of(
            draws.residuals(parts) @ matrix + predicted[:, None]
        )  # J_k of each pair by either draw, (m, 2, p)
        self.predicted = pairs.mean_of(predicted)
        # Given scenarios are no sample: their pairs have no bootstrap.
        self.chances = law.bootstrap[1] if law.scatter else np.ones((len(law.b), len(self.seen.z)))
        self.column = np.clip(np.searchsorted(law.z, self.seen.z), 0, n - 1)
        self.near = law.dependence(targets)[:, self.column]
        self.means = [self._means(k) for k in range(len(law.samples))]

    def _means(self, k: int) -> Array:
        """E[J_k | Ĵ] (n, p) at the nodes."""
        law, bins = self.law, self.seen.bins
        cells = np.tensordot(law.bootstrap[0][k], self.cells, 1)
        there = cells[:, 0] > 0  # memory may have left out all θ of a node
        if not there.all():
            at = np.arange(len(there))
            cells = np.stack([np.interp(at, at[there], one[there]) for one in cells.T], axis=1)
        means = cells[:, 1:] / cells[:, :1]
        weights = self.seen.pairs.weights * self.chances[k]
        away = self.observed.mean(axis=1) - self.predicted
        total = np.maximum(np.bincount(bins, weights), 1e-300)
        lacks = np.stack([np.bincount(bins, weights * one) for one in away.T]) / total
        places = np.bincount(bins, self.seen.z) / np.bincount(bins)
        means = means + np.stack([np.interp(law.z, places, one) for one in lacks], axis=1)
        return np.asarray(means)

    def _known(self, k: int) -> Array:
        """E[J_k | Ĵ] (n, p), and of given scenarios E[J_k | their own draws]."""
        law, means = self.law, self.means[k]
        if not law.steps:
            return means
        node, observed = self.seen.pairs.node, self.observed
        assert law.trust is not None
        assert node is not None
        means = means.copy()
        means[node] += law.trust[:, None] * (observed.mean(axis=1) - means[node])
        if k:  # noise of x: half-differences have its covariance
            sign = np.sqrt(law.trust) * np.random.default_rng(k).standard_normal(len(node))
            means[node] += 0.5 * sign[:, None] * (observed[:, 0] - observed[:, 1])
        return means

    def _slopes(self, i: int, k: int, w: Array) -> Array:
        """β (p,) for a measure with weights w (n,) of nodes, of sum one.

        Products of residuals are shrunk to slopes of E[J_k | Ĵ] in Ĵ by their standard errors.
        """
        law, means = self.law, self.means[k]
        along = w * (law.s - w @ law.s)
        prior = along @ means
        prior = prior / prior.sum() if prior.sum() > 0 else np.full(len(prior), 1.0 / len(prior))
        pairs = self.seen.pairs.weights * self.chances[k] * self.near[i]
        pairs = pairs / max(float(pairs.sum()), 1e-300)
        away = self.observed - means[self.column][:, None]
        total = away.sum(axis=2)
        products = 0.5 * (away[:, 0] * total[:, 1:] + away[:, 1] * total[:, :1])
        cross = pairs @ products
        error = float(np.linalg.norm(pairs[:, None] * (products - cross)))
        weight = error + max(-2.0 * float(cross.sum()), 0.0)
        return np.asarray((cross + weight * prior) / max(float(cross.sum()) + weight, 1e-300))

    def conditional(self, i: int, k: int, c: float | None = None) -> tuple[Array, Array, float]:
        """E[J_k | J = q] or E[J_k | J > q] (p,) in draw k of the law, β, and the measure.

        The loss q is a quantile, or c. At a quantile it is a local linear fit (Fan 1993, Local
        linear regression smoothers and their minimax efficiencies).
        """
        law, (kind, level) = self.law.samples[k], self.targets.keys[i]
        q = law.quantile(level) if c is None else c
        measure, w = q, law.weights / law.weights.sum()
        if kind == "es":
            measure, w = law.shortfall(level), np.where(law.j > q, w, 0.0)
            w = w if w.any() else 1.0 * (law.j >= law.j.max())
        else:
            t = (law.j - q) / (_NEAR * np.sqrt(self.law.variance + self.law.unexplained))
            w = w * np.exp(-0.5 * t**2)
            w = w if w.any() else 1.0 * (np.abs(t) <= np.abs(t).min())
            mean, square = w @ t / w.sum(), w @ t**2 / w.sum()
            if square > mean**2 + 1e-12:
                w = w * (square - mean * t)
        at = np.arange(len(w)) // (len(w) // len(self.law.s))
        w = np.bincount(at, w / w.sum(), len(self.law.s))
        found, slopes = w @ self._known(k), self._slopes(i, k, np.maximum(w, 0.0))
        found = found + (measure - found.sum()) * slopes
        if not self.law.steps:
            found = found + self._bent(kind, q, k, slopes)
        return found, slopes, measure

    def _bent(self, kind: Kind, q: float, k: int, slopes: Array) -> Array:
        """Outputs (p,) beyond β (J − E[J | Ĵ]) at a loss q or beyond it; their sum is zero.

        Where J jumps, outputs are not linear in J given Ĵ. One draw of a pair says where J is, the
        other has the outputs, so that the noise of x is in one of them alone.
        """
        law, pairs, near = self.law, self.seen.pairs, kind != "es"
        weights = pairs.weights * self.chances[k]
        b, v = law.b[k][self.column], law.v[k][self.column] + 1e-300
        trust = v / (v + 2.0 * self.seen.pair_noise)
        least = _NEAR**2 * (law.variance + law.unexplained) if near else 1e-300

        def chance(mean: Array, variance: Array) -> Array:
            t = (mean - q) / np.sqrt(variance)
            return np.exp(-0.5 * t**2) / np.sqrt(variance) if near else ndtr(t)

        found, total = np.zeros(len(slopes)), 1e-300
        for view in (0, 1):
            mean = pairs.s + b + trust * (pairs.r[:, view] - b)
            seen = weights * chance(mean, (1.0 - trust) * v + least)
            rest = self.observed[:, 1 - view] - self.means[k][self.column]
            rest = rest - rest.sum(axis=1)[:, None] * slopes
            found += (seen - weights * chance(pairs.s + b, v + least)) @ rest
            total += float(seen.sum())
        return found / total

    def draws(self, i: int, whole: Estimate) -> Array:
        """Contributions (1 + K, p) to a measure, which add up to it and to its draws."""
        each = [self.conditional(i, k) for k in range(len(self.means))]
        found, measures = np.stack([one[0] for one in each]), np.array([one[2] for one in each])
        value = float(np.atleast_1d(whole.value)[i])
        assert whole.draws is not None
        lacks = np.concatenate([[value], whole.draws.reshape(len(found) - 1, -1)[:, i]]) - measures
        return np.asarray(found + lacks[:, None] * each[0][1])


def as_estimate(found: Array, like: Estimate) -> Estimate:
    """Estimate of central answers (first row) with draws of them, (1 + K, …)."""
    fields = ("problem", "n_evaluations", "n_outer", "n_inner", "method", "status")
    return Estimate.from_draws(found[0], found[1:], **{k: getattr(like, k) for k in fields})


# Half-width of the window of a density, in standard deviations of J, as in `nestquad.sensitivity`.
_WINDOW = 0.5


@dataclass(frozen=True, eq=False)
class Greeks(Tabular):
    """Derivatives of measures of risk in parameters of the problem.

    With J' = dJ/dφ, dVaR/dφ = E[J' | J = VaR], dES/dφ = E[J' | J > VaR] (Hong and Liu 2009,
    Simulating sensitivities of conditional value at risk) and dP(J > c)/dφ = p_J(c) E[J' | J = c]
    (Hong 2009, Estimating quantile sensitivities): conditional means, as Euler contributions are,
    of the outputs J'_1, …, J'_K and J − Σ J'_k, whose sum is J.

    Attributes
    ----------
    parameters
        Values of the parameters by name.
    measures
        Estimates by measure, (kind, level), and name of the parameter, of its shape.
    """

    parameters: Mapping[str, float | Array]
    measures: Mapping[Key, Mapping[str, Estimate]]

    @property
    def var(self) -> Mapping[float, Mapping[str, Estimate]]:
        """dVaR/dφ by level and name."""
        return self._of("var")

    @property
    def es(self) -> Mapping[float, Mapping[str, Estimate]]:
        """dES/dφ by level and name."""
        return self._of("es")

    @property
    def exceed(self) -> Mapping[float, Mapping[str, Estimate]]:
        """dP(J > c)/dφ by threshold c and name."""
        return self._of("exceed")

    def _of(self, kind: str) -> dict[float, Mapping[str, Estimate]]:
        return {level: slopes for (k, level), slopes in self.measures.items() if k == kind}

    def rows(self) -> list[dict[str, Any]]:
        """One for each measure and component of a parameter."""
        rows = []
        for key, slopes in self.measures.items():
            for name, slope in slopes.items():
                values, errors = np.asarray(slope.value), np.asarray(slope.std_error)
                for at in np.ndindex(*values.shape):
                    index = f"[{', '.join(map(str, at))}]" if at else ""
                    names = {"measure": label(*key), "parameter": name + index}
                    numbers = {"value": float(values[at]), "std_error": float(errors[at])}
                    rows.append({**names, **numbers})
        return rows


def greeks_of(
    state: RiskState, targets: Targets, estimate: Estimate, joint: TangentProblem
) -> Greeks:
    """Derivatives of all measures under the corrected law of J."""
    tangents, p = joint.tangents, joint.f.n_outputs
    n = len(tangents.active)
    matrix = np.zeros((p * (1 + n), n + 1))
    for k in range(n):
        matrix[p + k :: n, k] = 1.0  # outputs of g come before active components
    matrix[:p, n] = 1.0
    matrix[:, n] -= matrix[:, :n].sum(axis=1)
    outputs = OutputDraws(state, targets, 0, matrix)
    found: dict[Key, Mapping[str, Estimate]] = {}
    for i, key in enumerate(targets.keys):
        slopes = _exceedance(outputs, i) if key[0] == "exceed" else outputs.draws(i, estimate)
        found[key] = _by_name(slopes[:, :n], tangents, estimate)
    named = tangents.family.named(np.array(tangents.phi))
    parameters = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
    return Greeks(parameters, found)


def _exceedance(outputs: OutputDraws, i: int) -> Array:
    """Scaled derivatives (1 + K, p) of P(J > c): a density times a mean, in each draw."""
    law, c = outputs.law, float(outputs.targets.keys[i][1])
    width = _WINDOW * float(np.sqrt(law.variance + law.unexplained))
    density = np.array([_density(draw, c, width)[0] for draw in law.samples])
    # Other rules, and half the window, show its bias, jumps, and errors of Ĵ that oscillate.
    others = [*_density(law.center, c, width), *_density(law.center, c, 0.5 * width)]
    rough = np.abs(density[0] - others).max()
    density[1:] += rough * np.random.default_rng(7).standard_normal(len(density) - 1)
    means = np.stack([outputs.conditional(i, k, c)[0] for k in range(len(density))])
    return np.asarray(density[:, None] * means)


def _density(law: WeightedSample, c: float, width: float) -> list[float]:
    """Density of J at c: slopes of the distribution function by all rules."""
    (nodes, *rules), here = slope_rules(4), law.exceedance(c)
    changes = [here - law.exceedance(c + s * width) for s in nodes]
    changes += [law.exceedance(c - s * width) - here for s in nodes]
    return [max(float(rule @ np.array(changes)) / width, 0.0) for rule in rules]


def _by_name(slopes: Array, tangents: Tangents, estimate: Estimate) -> dict[str, Estimate]:
    """Estimates of the shapes of the parameters, from scaled derivatives of active components."""
    scale, active = np.array(tangents.scale), list(tangents.active)
    whole = np.zeros((len(slopes), len(tangents.phi)))
    whole[:, active] = slopes / scale[active]
    out, start, family = {}, 0, tangents.family
    for name, shape, size in zip(family.names, family.shapes, family.sizes, strict=True):
        mine = whole[:, start : start + size]
        out[name] = as_estimate(mine.reshape(len(mine), *shape), estimate)
        start += size
    return out
