"""Greeks of measures of risk: derivatives of VaR, expected shortfall and P(J > c) in parameters.

With J' = dJ/dφ, dVaR/dφ = E[J' | J = VaR], dES/dφ = E[J' | J > VaR] (Hong and Liu 2009, Simulating
sensitivities of conditional value at risk) and dP(J > c)/dφ = p_J(c) E[J' | J = c] (Hong 2009,
Estimating quantile sensitivities). These are the conditional means of Euler contributions: J is the
sum of the outputs J'_1, …, J'_K and of the rest, J − Σ J'_k, to whose contributions they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._tangent_problem import TangentProblem, slope_rules
from nestquad._typing import Array
from nestquad.evaluate import Tangents
from nestquad.functionals import WeightedSample
from nestquad.result import Estimate
from nestquad.risk._contributions import OutputDraws, as_estimate
from nestquad.risk._method import RiskState
from nestquad.risk._rows import Tabular
from nestquad.risk._targets import Key, Targets, label

# Half-width of the window of a density, in standard deviations of J, as in `nestquad.sensitivity`.
_WINDOW = 0.5


@dataclass(frozen=True, eq=False)
class Greeks(Tabular):
    """Derivatives of measures of risk in parameters of the problem.

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
    density = np.array([_density(draw, c, width) for draw in law.samples])
    # Half the window shows its bias, and errors of Ĵ that oscillate.
    rough = density[0] - _density(law.center, c, 0.5 * width)
    density[1:] += rough * np.random.default_rng(7).standard_normal(len(density) - 1)
    means = np.stack([outputs.conditional(i, k, c)[0] for k in range(len(density))])
    return np.asarray(density[:, None] * means)


def _density(law: WeightedSample, c: float, width: float) -> float:
    """Density of J at c: slope of a cubic through eight values of the distribution function."""
    nodes, rule, *_ = slope_rules(4)
    changes = [law.exceedance(c - s * width) - law.exceedance(c + s * width) for s in nodes]
    return max(float(rule @ np.array(changes)) / width, 0.0)


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
