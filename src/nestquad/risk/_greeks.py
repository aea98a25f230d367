"""Greeks of measures of risk: derivatives of VaR, expected shortfall and P(J > c) in parameters.

With J' = dJ/dφ, dVaR/dφ = E[J' | J = VaR], dES/dφ = E[J' | J > VaR] (Hong and Liu 2009, Simulating
sensitivities of conditional value at risk) and dP(J > c)/dφ = p_J(c) E[J' | J = c] (Hong 2009,
Estimating quantile sensitivities). These are the conditional means of Euler contributions: J is the
sum of the outputs J'_1, …, J'_K and of the rest, J − Σ J'_k, to whose contributions they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad._tangent_problem import TangentProblem, slope_rules, with_tangents
from nestquad._typing import Array
from nestquad.errors import InputError, optional_module
from nestquad.estimate import check_limits
from nestquad.evaluate import Tangents
from nestquad.functionals import WeightedSample
from nestquad.methods import ModelOfJ
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._contributions import Conditioned
from nestquad.risk._method import RiskState
from nestquad.risk._targets import Key, Targets, label

# Half-width of the window of a density, in standard deviations of J, as in `nestquad.sensitivity`.
_WINDOW = 0.5


@dataclass(frozen=True, eq=False)
class Greeks:
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
                values, errors = np.ravel(slope.value), np.ravel(slope.std_error)
                places = np.ndindex(*np.shape(slope.value))
                for at, value, error in zip(places, values, errors, strict=True):
                    index = f"[{', '.join(map(str, at))}]" if at else ""
                    rows.append(
                        {
                            "measure": label(*key),
                            "parameter": name + index,
                            "value": float(value),
                            "std_error": float(error),
                        }
                    )
        return rows

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; needs the extra ``frames``."""
        return optional_module("pandas", "to_frame", "frames").DataFrame(self.rows())

    def cells(self) -> list[tuple[str, str, str, str]]:
        """The rows as text, with half-widths of 95 % intervals."""
        return [
            (
                row["measure"],
                row["parameter"],
                f"{row['value']:.5g}",
                f"{NORMAL_95 * row['std_error']:.2g}",
            )
            for row in self.rows()
        ]

    def __str__(self) -> str:
        head = ("measure", "parameter", "derivative", "±")
        return "\n".join(
            f"{measure:<12}{name[:19]:<20}{value:>14}{half:>10}"
            for measure, name, value, half in (head, *self.cells())
        )


def loss_with_tangents(
    make_problem: Any,
    parameters: Mapping[str, Any],
    budget: int | None,
) -> tuple[TangentProblem, int | None]:
    """The problem whose outputs are losses and then their derivatives, and points for a budget."""
    check_limits(budget, None, None, None)
    if isinstance(make_problem, NestedExpectation):
        raise InputError(
            "problem",
            "a problem, with sensitivities",
            "a function of the parameters that returns a problem",
            "For instance risk.measure(book, sensitivities={'vol': 0.2}) with def book(vol).",
        )
    joint = with_tangents(make_problem, parameters, budget=budget)
    return joint, None if budget is None else (budget - joint.n_spent) // joint.tangents.cost


def tangent_loss(joint: TangentProblem) -> NestedExpectation:
    """Problem without f on driving variables, with the outputs (g, dg/dφ)."""
    return replace(joint.problem(), f=None, combine=None)


@dataclass(frozen=True, eq=False)
class _Outputs:
    """Linear combinations of the outputs of a model, as a model of them."""

    parts: ModelOfJ
    matrix: Array

    def mean(self, uniform: Array) -> Array:
        return np.asarray(self.parts.mean(uniform) @ self.matrix)

    def at(self, uniform: Array, inner: Array) -> Array:
        return np.asarray(self.parts.at(uniform, inner) @ self.matrix)


def combined(state: RiskState, matrix: Array) -> RiskState:
    """The state with linear combinations (P, m) of its outputs in place of them."""
    assert state.parts is not None
    draws = replace(state.draws, values=state.draws.values @ matrix)
    parts: Any = _Outputs(state.parts, matrix)
    return replace(state, parts=parts, draws=draws)


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
    tool = Conditioned(combined(state, matrix), 0, range(n + 1))
    found: dict[Key, Mapping[str, Estimate]] = {}
    pairs = np.stack([np.atleast_1d(estimate.value), np.atleast_1d(estimate.std_error)], axis=1)
    for (kind, level), (value, error) in zip(targets.keys, pairs, strict=True):
        if kind == "exceed":
            slope, errors = _exceedance(tool, level)
        else:
            slope, errors = tool.estimate(kind, level, float(value), float(error))
        found[(kind, level)] = _by_name(slope[:n], errors[:n], tangents, estimate)
    named = tangents.family.named(np.array(tangents.phi))
    parameters = {k: v if np.ndim(v) else float(v) for k, v in named.items()}
    return Greeks(parameters, found)


def _exceedance(tool: Conditioned, c: float) -> tuple[Array, Array]:
    """Scaled derivatives of P(J > c) and directions of their errors: a density times a mean."""
    law = tool.law
    probability = float(np.clip(law.center.exceedance(c), 1e-6, 1.0 - 1e-6))
    mean, errors = tool.estimate("var", 1.0 - probability, c, 0.0)
    width = _WINDOW * float(np.sqrt(law.variance + law.weights @ law.v[0]))
    center = _density(law.center, c, width)
    drawn = np.array([_density(draw, c, width) for draw in law.draws])
    spread = law.student * float(np.sqrt(np.mean((drawn - center) ** 2)))
    # Half the window shows its bias, and errors of Ĵ that oscillate.
    rough = abs(center - _density(law.center, c, 0.5 * width))
    return center * mean, np.column_stack([center * errors, np.hypot(spread, rough) * mean])


def _density(law: WeightedSample, c: float, width: float) -> float:
    """Density of J at c: slope of a cubic through eight values of the distribution function."""
    nodes, rule, _ = slope_rules(4)
    changes = [law.exceedance(c - s * width) - law.exceedance(c + s * width) for s in nodes]
    return max(float(rule @ np.array(changes)) / width, 0.0)


def _by_name(
    slope: Array, errors: Array, tangents: Tangents, estimate: Estimate
) -> dict[str, Estimate]:
    """Estimates of the shapes of the parameters, from scaled derivatives of active components."""
    k, scale, active = len(tangents.phi), np.array(tangents.scale), list(tangents.active)
    values, directions = np.zeros(k), np.zeros((k, errors.shape[1]))
    values[active] = slope / scale[active]
    directions[active] = errors / scale[active][:, None]
    out, start = {}, 0
    family = tangents.family
    for name, shape, size in zip(family.names, family.shapes, family.sizes, strict=True):
        some = slice(start, start + size)
        start += size
        out[name] = Estimate.from_directions(
            values[some].reshape(shape),
            directions[some],
            problem=estimate.problem,
            n_evaluations=estimate.n_evaluations,
            n_outer=estimate.n_outer,
            n_inner=estimate.n_inner,
            method=estimate.method,
            status=estimate.status,
        )
    return out
