"""Euler contributions: parts of VaR and expected shortfall by output of g, which add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from nestquad._typing import Array
from nestquad.errors import optional_module
from nestquad.plots import INK, axes_or_new, series_styles
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._method import RiskState
from nestquad.risk._targets import Kind, Targets

# Predictions of outputs that memory holds, and rows at a time.
_NUMBERS, _ROWS = 1 << 22, 1 << 12
# Standard deviations of J around a quantile over which outputs are averaged, less their slope.
_NEAR = 0.15
# Trust below which draws are not multiplied further: it would be chance.
_LEAST = 0.3


@dataclass(frozen=True, eq=False)
class Contributions:
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
            for level, one in found.items():
                values, errors = np.atleast_1d(one.value), np.atleast_1d(one.std_error)
                for k in np.argsort(-values, kind="stable"):
                    out.append(
                        {
                            "measure": f"{measure} {100 * level:g} %",
                            "output": self.names[k],
                            "value": float(values[k]),
                            "std_error": float(errors[k]),
                            "share": float(values[k] / values.sum()) if values.sum() else np.nan,
                        }
                    )
        return out

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; needs the extra ``frames``."""
        return optional_module("pandas", "to_frame", "frames").DataFrame(self.rows())

    def plot(self, ax: Any = None, most: int = 12) -> Any:
        """Draw the contributions to the last measure as bars with 95 % intervals; returns the axes.

        Of many outputs, those with the largest ones.
        """
        ax = axes_or_new(ax)
        rows = self.rows()[-len(self.names) :]
        kept = sorted(
            sorted(rows, key=lambda row: -abs(row["value"]))[:most], key=lambda r: r["value"]
        )
        halves = [NORMAL_95 * row["std_error"] for row in kept]
        ax.barh(
            [row["output"] for row in kept],
            [row["value"] for row in kept],
            xerr=[half if np.isfinite(half) else 0.0 for half in halves],
            color=series_styles(1)[0].color,
            ecolor=INK,
            capsize=3,
            height=0.6,
        )
        ax.axvline(0.0, color=INK, linewidth=0.8)
        ax.set_xlabel(f"contribution to {kept[0]['measure']}")
        return ax

    def cells(self) -> list[tuple[str, str, str, str, str]]:
        """The rows as text, with half-widths of 95 % intervals."""
        return [
            (
                row["measure"],
                row["output"],
                f"{row['value']:.5g}",
                f"{NORMAL_95 * row['std_error']:.2g}",
                f"{row['share']:.1%}",
            )
            for row in self.rows()
        ]

    def __str__(self) -> str:
        head = ("measure", "output", "contribution", "±", "share")
        return "\n".join(
            f"{measure:<12}{output[:19]:<20}{value:>14}{half:>10}{share:>8}"
            for measure, output, value, half, share in (head, *self.cells())
        )


def contributions_of(
    state: RiskState,
    targets: Targets,
    estimate: Estimate,
    names: Mapping[str, int],
    line: int = 0,
) -> Contributions:
    """Contributions of outputs, by name and number, under the corrected law of their sum."""
    found: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
    tool = Conditioned(state, line, [*names.values()])
    both = np.stack([np.atleast_1d(estimate.value), np.atleast_1d(estimate.std_error)], axis=1)
    for (kind, level), (value, error) in zip(targets.keys, both, strict=True):
        if kind in found:
            best, errors = tool.estimate(kind, level, float(value), float(error))
            found[kind][level] = Estimate.from_directions(
                best,
                errors,
                problem=estimate.problem,
                n_evaluations=estimate.n_evaluations,
                n_outer=estimate.n_outer,
                n_inner=estimate.n_inner,
                method=estimate.method,
                status=estimate.status,
            )
    return Contributions(tuple(names), found["var"], found["es"])


class Conditioned:
    """Means of outputs given that J is at a level or beyond it, for all measures."""

    def __init__(self, state: RiskState, line: int, columns: Sequence[int]) -> None:
        self.law, dense, parts = state.laws[line], state.dense, state.parts
        assert parts is not None
        assert dense.owner is not None
        # Some at random where memory is short: every other point of a lattice is a bad lattice.
        most = max(_NUMBERS // state.draws.values.shape[2], 1 << 14)
        some = np.arange(len(dense.j))
        if len(some) > most:
            some = np.sort(np.random.default_rng(0).choice(some, most, replace=False))
        n, sets = len(self.law.s), int(dense.owner.max()) + 1
        cell = dense.owner[some] * n + self.law.node[some]
        blocks = np.array_split(dense.uniform[some], -(-len(some) // _ROWS))
        j = np.concatenate([parts.mean(block)[:, columns] for block in blocks])
        weights = dense.weights[some]
        sums = [np.bincount(cell, weights * one, sets * n) for one in (np.ones(1), *j.T)]
        # Mass, and mass times predicted outputs, by replicate and node (R, n, 1 + p).
        self.cells = np.stack(sums, axis=1).reshape(sets, n, -1)
        pairs = self.law.pairs
        assert pairs is not None
        self.residuals = pairs.mean_of(state.draws.residuals(parts)[:, :, columns])
        self.outputs = pairs.mean_of(parts.mean(state.draws.uniform)[:, columns])
        self.pairs = pairs.by_scenario()
        # Weights of pairs, and of a Bayesian bootstrap of them, as in the draws of the law.
        chance = np.random.default_rng(0).standard_exponential((len(self.law.b), len(self.outputs)))
        chance[0] = 1.0
        self.weights = self.pairs.weights * chance
        self.weights /= self.weights.sum(axis=1)[:, None]
        # J given Ĵ at the pairs, and the trust in one half of the draws of each.
        law = self.law
        at = np.clip(np.searchsorted(law.s, self.pairs.s), 0, len(law.s) - 1)
        self.b, self.v, self.spread = law.b[:, at], law.v[:, at], law.spread[at]
        self.mean = self.pairs.s + self.b
        self.trust = np.zeros(len(at))
        if law.scatter is not None:
            trust = np.empty(len(at))
            trust[law.scatter.order] = law.scatter.trust(law.v[0])
            self.trust = trust / (2.0 - trust)
        self.laws = (law.center, *law.draws)

    def estimate(self, kind: Kind, level: float, value: float, error: float) -> tuple[Array, Array]:
        """Contributions (p,), and directions of their errors (p, ·).

        J_k given that J is at its quantile or beyond it is what a ridge of each output predicts on
        average over such θ, plus the mean residual of such pairs, by the best correction of the law
        and by each draw of it. Which θ are such is said by Ĵ, and at pairs by their draws. What
        then lacks of the measure belongs to outputs as their J_k vary with J given Ĵ, which
        residuals show.
        """
        law = self.law
        width = _NEAR * float(np.sqrt(law.variance))
        c = np.array([one.quantile(level) for one in self.laws])
        measure = c if kind == "var" else np.array([one.shortfall(level) for one in self.laws])

        def counted(mean: Array, variance: Array) -> Array:
            """How much a θ counts, by each draw, if its J is normal."""
            size = np.sqrt(variance + (width**2 if kind == "var" else 0.0) + 1e-300)
            t = (mean - c[:, None]) / size
            return np.asarray(np.exp(-0.5 * t**2) / size if kind == "var" else ndtr(t))

        count = counted(law.s + law.b, law.v + law.spread)
        total = count @ self.cells.sum(axis=0) / self.cells[:, :, 0].sum()
        predicted = total[:, 1:] / np.maximum(total[:, :1], 1e-300)
        before = counted(self.mean, self.v + self.spread)
        near = self.weights * before
        mass, sums = total[:, 0].copy(), total[:, 1:] + near @ self.residuals.mean(axis=1)
        by_model = sums[0] / max(float(mass[0]), 1e-300)
        near /= np.maximum(near.sum(axis=1), 1e-300)[:, None]
        for half in (0, 1):
            # J of a θ by one half of its draws, its outputs by the other: noise is not in both.
            mean = self.mean + self.trust * (self.pairs.r[:, half] - self.b)
            after = counted(mean, (1.0 - self.trust) * self.v + self.spread)
            more = 0.5 * self.weights * (after - before)
            mass += more.sum(axis=1)
            sums += more @ (self.outputs + self.residuals[:, 1 - half])
        best = sums / np.maximum(mass, 1e-300)[:, None]
        # What draws show beside noise is a part of what there is to see: the trust in them.
        trust = float(near[0] @ self.trust)
        hidden = (1.0 - trust) / max(trust, _LEAST) * (best[:1] - by_model)
        share = self._shares(near[0])
        if kind == "var":
            # Within a window J varies with Ĵ, and outputs as they are predicted to.
            weights = count[0] * self.cells.sum(axis=0)[:, 0]
            mixed = width**2 / max(width**2 + float(weights @ law.v[0] / weights.sum()), 1e-300)
            share = mixed * self._slopes(count[0], predicted[0]) + (1.0 - mixed) * share
        unsure = self._moved(kind, float(c[0]), width)
        best = best + (measure - best.sum(axis=1))[:, None] * share
        drawn = (best[1:] - best[0]) / np.sqrt(len(best) - 1.0)
        away = np.concatenate([self._dense_error(count[0], predicted[0]), unsure, hidden])
        away = away - away.sum(axis=1)[:, None] * share
        away = np.concatenate([away, drawn])
        sizes, axes = np.linalg.eigh(away.T @ away)
        # The rest of the error of the measure.
        rest = np.sqrt(max(error**2 - float(((measure[1:] - measure[0]) ** 2).mean()), 0.0))
        directions = np.column_stack([axes * np.sqrt(np.maximum(sizes, 0.0)), share * rest])
        return best[0] + (value - measure[0]) * share, directions

    def _dense_error(self, count: Array, mean: Array) -> Array:
        """Errors (R, p) of the average over dense θ: a linearized ratio by replicate."""
        sums = np.einsum("n,rnp->rp", count, self.cells)
        total, n = sums[:, :1], len(sums)
        lacks = (sums[:, 1:] - total * mean) / max(float(total.mean()), 1e-300)
        return np.asarray(lacks / np.sqrt(n * max(n - 1.0, 1.0)))

    def _moved(self, kind: Kind, c: float, width: float) -> Array:
        """Errors (·, p) of the contributions by θ that Ĵ has on the wrong side of the level.

        J − Ĵ moves θ across the level, and with them outputs that differ from those of other θ with
        that Ĵ. To first order that is the mean of a kernel at the level times residual times such a
        difference. Its prior is of the size of √v; residuals show it with the noise of x, too
        much to correct by it.
        """
        law, pairs = self.law, self.pairs
        b, v, spread = (np.interp(pairs.s, law.s, one) for one in (law.b[0], law.v[0], law.spread))
        size = np.sqrt(v + spread + width**2)
        t = (pairs.s + b - c) / size
        kernel = np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * size)
        mass = kernel if kind == "var" else ndtr(t)
        if kind == "var":
            kernel = -kernel * t / size
        w = pairs.weights / max(float(pairs.weights @ mass), 1e-300)
        basis = np.stack([np.ones(len(t)), t], axis=1)
        root = np.sqrt(pairs.weights * np.abs(kernel))[:, None]
        fit = np.linalg.lstsq(root * basis, root * self.outputs, rcond=None)[0]
        other = self.outputs - basis @ fit
        each = (w * kernel * (pairs.r.mean(axis=1) - b))[:, None] * other
        prior = (np.abs(w * kernel) * np.sqrt(v)) @ np.abs(other)
        noise = (each**2).sum(axis=0)
        gain = prior**2 / np.maximum(prior**2 + noise, 1e-300)
        return np.concatenate([gain * each.sum(axis=0, keepdims=True), np.sqrt(gain) * each])

    def _slopes(self, count: Array, mean: Array) -> Array:
        """Regression of predicted outputs on their sum, over nodes."""
        cells = self.cells.sum(axis=0)
        away = cells[:, 1:] - cells[:, :1] * mean
        slopes = (count * away.sum(axis=1) / np.maximum(cells[:, 0], 1e-300)) @ away
        total = float(slopes.sum())
        return np.asarray(slopes / total if total > 0 else np.full(len(mean), 1 / len(mean)))

    def _shares(self, w: Array) -> Array:
        """Regression of the outputs' J_k on J given Ĵ: products of residuals, shrunk to noise."""
        r = self.residuals
        away = r - w @ r.mean(axis=1)
        total = away.sum(axis=2)
        cross = 0.5 * w @ (away[:, 0] * total[:, 1:] + away[:, 1] * total[:, :1])
        noise = w @ (away.mean(axis=1) ** 2)
        noise = noise / max(float(noise.sum()), 1e-300)
        prior = float(np.linalg.norm(w * total[:, 0] * total[:, 1]))
        # Of sum one; the noise is at least half of it.
        weight = prior + max(-2.0 * float(cross.sum()), 0.0)
        return np.asarray((cross + weight * noise) / max(float(cross.sum()) + weight, 1e-300))
