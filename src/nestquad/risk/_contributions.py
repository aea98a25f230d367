"""Euler contributions: parts of VaR and expected shortfall by output of g, which add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array, Indices
from nestquad.errors import optional_module
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._method import RiskState
from nestquad.risk._targets import Kind, Targets

# Predictions of outputs that memory holds, bootstrap samples of the pairs, rows at a time.
_NUMBERS, _BOOTSTRAP, _ROWS = 1 << 22, 64, 1 << 12
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
    """Contributions under the corrected law of the sum.

    J_k given Ĵ is what a ridge of each output predicts on average over θ with that Ĵ, plus the
    smoothed residuals of the pairs. The rest J − m(Ĵ) belongs to outputs as their residuals vary
    with those of the sum. What the outputs lack of m(Ĵ) is shared in the same proportions.
    """
    found: dict[Kind, dict[float, Estimate]] = {"var": {}, "es": {}}
    tool = _Tool(state)
    both = np.stack([np.atleast_1d(estimate.value), np.atleast_1d(estimate.std_error)], axis=1)
    for (kind, level), (value, error) in zip(targets.keys, both, strict=True):
        if kind in found:
            found[kind][level] = tool.estimate(kind, level, float(value), float(error), estimate)
    return Contributions(tuple(names), found["var"], found["es"])


class _Tool:
    """What contributions to all measures share."""

    def __init__(self, state: RiskState) -> None:
        self.law, self.state = state.laws[0], state
        dense, parts = state.dense, state.parts
        assert parts is not None
        assert dense.owner is not None
        self.rng = np.random.default_rng(0)
        # Some at random where memory is short: every other point of a lattice is a bad lattice.
        most = max(_NUMBERS // state.values.shape[2], 1 << 14)
        some = np.arange(len(dense.j))
        if len(some) > most:
            some = np.sort(self.rng.choice(some, most, replace=False))
        self.node, self.owner, self.weights = (
            self.law.node[some],
            dense.owner[some],
            dense.weights[some],
        )
        blocks = np.array_split(dense.uniform[some], -(-len(self.node) // _ROWS))
        self.j = np.concatenate([parts.mean(block) for block in blocks])
        views = [parts.at(state.coordinates, state.inner[:, k]) for k in (0, 1)]
        self.residuals = state.values - np.stack(views, axis=1)

    def estimate(
        self, kind: Kind, level: float, value: float, error: float, whole: Estimate
    ) -> Estimate:
        law = self.law
        if kind == "var":
            width = _NEAR * float(np.sqrt(law.variance))
            node_weights = law.near(value, width)
            rest = value - float(node_weights @ law.m[0])
        else:
            width, c = 0.0, float(law.quantile(level, slice(0, 1))[0])
            node_weights = law.beyond(c)
            rest = float(node_weights @ law.residual_beyond(c))
        # How much a θ of each node counts.
        count = node_weights / np.maximum(law.weights, 1e-300)
        everyone = np.arange(len(self.residuals))
        predicted, by_replicate, slopes = self._predicted(count)
        # The rest J − m belongs to scenarios that are near, or to what Ĵ does not explain.
        v = float(node_weights @ law.v[0])
        self.slopes, self.mixed = slopes, width**2 / max(width**2 + v, 1e-300)
        best = self._of(everyone, node_weights, rest, predicted)
        draws = [
            self._of(self.rng.integers(len(everyone), size=len(everyone)), node_weights, rest, None)
            for _ in range(_BOOTSTRAP)
        ]
        reference = self._of(everyone, node_weights, rest, None)
        errors = [(np.array(draws) - reference).T / np.sqrt(_BOOTSTRAP), by_replicate.T]
        errors.append(slopes[:, None] * error)  # of the measure itself
        return Estimate.from_directions(
            best,
            np.concatenate(errors, axis=1),
            problem=whole.problem,
            n_evaluations=whole.n_evaluations,
            n_outer=whole.n_outer,
            n_inner=whole.n_inner,
            method=whole.method,
            status=whole.status,
        )

    def _predicted(self, count: Array) -> tuple[Array, Array, Array]:
        """Mean (p,) of the outputs that the ridge predicts, its error (R, p), slopes in the sum."""
        weights = self.weights * count[self.node]
        n = int(self.owner.max()) + 1
        total = np.bincount(self.owner, weights, n)
        sums = np.stack([np.bincount(self.owner, weights * one, n) for one in self.j.T], axis=1)
        mean = sums.sum(axis=0) / max(float(total.sum()), 1e-300)
        away = self.j - mean
        slopes = weights * away.sum(axis=1) @ away
        slopes = slopes / slopes.sum() if slopes.sum() > 0 else np.full(len(mean), 1 / len(mean))
        if n < 2:
            return mean, np.zeros((1, len(mean))), slopes
        # Linearized ratio, as replicates have few θ in the tail.
        lacks = (sums - total[:, None] * mean) / max(float(total.mean()), 1e-300)
        return mean, (lacks - lacks.sum(axis=1)[:, None] * slopes) / np.sqrt(n * (n - 1.0)), slopes

    def _of(self, rows: Indices, weights: Array, rest: float, predicted: Array | None) -> Array:
        """Contributions (p,) by resampled pairs; without `predicted`, less what does not change."""
        law, state, smoother = self.law, self.state, self.law.smoother
        assert smoother is not None
        times = np.bincount(rows, minlength=len(state.weights))
        bins, w = smoother.bins, smoother.weights * times
        total = np.maximum(np.bincount(bins, w), 1e-300)
        r = self.residuals
        mean = r.mean(axis=1)
        smooth = np.stack(
            [
                np.interp(
                    law.z, smoother.places, smoother.matrix @ (np.bincount(bins, w * one) / total)
                )
                for one in mean.T
            ],
            axis=1,
        )
        share = self.mixed * self.slopes + (1.0 - self.mixed) * self._shares(w)
        own = weights @ smooth + rest * share
        if predicted is None:
            return np.asarray(own)
        found = predicted + own
        lacking = float(weights @ law.m[0]) + rest - float(found.sum())
        return np.asarray(found + lacking * share)

    def _shares(self, w: Array) -> Array:
        """Regression of the outputs' J_k on J given Ĵ: products of residuals, shrunk to noise."""
        r = self.residuals
        away = r - (w @ r.mean(axis=1) / w.sum())
        total = away.sum(axis=2)
        cross = 0.5 * w @ (away[:, 0] * total[:, 1:] + away[:, 1] * total[:, :1]) / w.sum()
        noise = w @ (away.mean(axis=1) ** 2) / w.sum()
        noise = noise / max(float(noise.sum()), 1e-300)
        prior = float(np.sqrt(w @ (total[:, 0] * total[:, 1]) ** 2 / w.sum() / len(w)))
        # Of sum one; the noise is at least half of it.
        weight = prior + max(-2.0 * float(cross.sum()), 0.0)
        return np.asarray((cross + weight * noise) / max(float(cross.sum()) + weight, 1e-300))
