"""Euler contributions: parts of VaR and expected shortfall by output of g, which add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import optional_module
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._method import RiskState
from nestquad.risk._targets import Kind, Targets

# Predictions of outputs that memory holds, and rows at a time.
_NUMBERS, _ROWS = 1 << 22, 1 << 12
# Standard deviations of J around a quantile over which outputs are averaged, less their slope.
_NEAR = 0.15


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

    def __str__(self) -> str:
        lines = [f"{'measure':<12}{'output':<20}{'contribution':>14}{'±':>10}{'share':>8}"]
        for row in self.rows():
            half = NORMAL_95 * row["std_error"]
            lines.append(
                f"{row['measure']:<12}{row['output'][:19]:<20}{row['value']:>14.5g}{half:>10.2g}"
                f"{row['share']:>8.1%}"
            )
        return "\n".join(lines)


def contributions_of(
    state: RiskState, targets: Targets, estimate: Estimate, names: Sequence[str]
) -> Contributions:
    """Contributions under the corrected law of the sum."""
    found: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
    tool = _Tool(state)
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


class _Tool:
    """What contributions to all measures share."""

    def __init__(self, state: RiskState) -> None:
        self.law, self.weights = state.laws[0], state.draws.weights
        dense, parts = state.dense, state.parts
        assert parts is not None
        assert dense.owner is not None
        # Some at random where memory is short: every other point of a lattice is a bad lattice.
        most = max(_NUMBERS // state.draws.values.shape[2], 1 << 14)
        some = np.arange(len(dense.j))
        if len(some) > most:
            some = np.sort(np.random.default_rng(0).choice(some, most, replace=False))
        self.node, self.owner = self.law.node[some], dense.owner[some]
        self.dense = dense.weights[some]
        blocks = np.array_split(dense.uniform[some], -(-len(some) // _ROWS))
        self.j = np.concatenate([parts.mean(block) for block in blocks])
        self.residuals = state.draws.residuals(parts)
        self.s = state.model.mean(state.draws.uniform)[:, 0]

    def estimate(self, kind: Kind, level: float, value: float, error: float) -> tuple[Array, Array]:
        """Contributions (p,), and directions of their errors (p, ·).

        J_k given that J is at its quantile or beyond it is what a ridge of each output predicts on
        average over such θ, plus the mean residual of such pairs. What then lacks of the measure
        belongs to outputs as their J_k vary with J: in scenarios that are near, by predictions, and
        in what Ĵ does not explain, by residuals.
        """
        law, width = self.law, 0.0
        if kind == "var":
            width = _NEAR * float(np.sqrt(law.variance))
            nodes = law.near(value, width)
        else:
            nodes = law.beyond(float(law.quantile(level, slice(0, 1))[0]))
        # How much a θ of each node counts.
        count = nodes / np.maximum(law.weights, 1e-300)
        predicted, by_replicate, slopes = self._predicted(count)
        near = self.weights * np.interp(self.s, law.s, count)
        near = near / max(float(near.sum()), 1e-300)
        mean = self.residuals.mean(axis=1)
        residual = near @ mean
        mixed = width**2 / max(width**2 + float(nodes @ law.v[0]), 1e-300)
        share = mixed * slopes + (1.0 - mixed) * self._shares(near)
        best = predicted + residual
        best = best + (value - best.sum()) * share
        away = np.concatenate([near[:, None] * (mean - residual), by_replicate])
        away = away - away.sum(axis=1)[:, None] * share
        sizes, axes = np.linalg.eigh(away.T @ away)
        return best, np.column_stack([axes * np.sqrt(np.maximum(sizes, 0.0)), share * error])

    def _predicted(self, count: Array) -> tuple[Array, Array, Array]:
        """Mean (p,) of the outputs that the ridge predicts, its error (R, p), slopes in the sum."""
        owner, weights = self.owner, self.dense * count[self.node]
        n = int(owner.max()) + 1
        total = np.bincount(owner, weights, n)
        sums = np.stack([np.bincount(owner, weights * one, n) for one in self.j.T], axis=1)
        mean = sums.sum(axis=0) / max(float(total.sum()), 1e-300)
        away = self.j - mean
        slopes = weights * away.sum(axis=1) @ away
        slopes = slopes / slopes.sum() if slopes.sum() > 0 else np.full(len(mean), 1 / len(mean))
        # Linearized ratio, as replicates have few θ in the tail.
        lacks = (sums - total[:, None] * mean) / max(float(total.mean()), 1e-300)
        return mean, lacks / np.sqrt(n * max(n - 1.0, 1.0)), slopes

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
