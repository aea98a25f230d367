"""Portfolios: losses of some outputs of g, and what a position adds, from the same evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad._checks import listed, shown
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.result import Estimate
from nestquad.risk._contributions import Contributions, contributions_of
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._exposure import weighted_sum
from nestquad.risk._method import RiskState, TailSampling
from nestquad.risk._targets import label, part_of


@dataclass(frozen=True, eq=False)
class Source:
    """Evaluations behind a report with their analysis; a pickled report has none.

    Attributes
    ----------
    method, state
        The method, and its last state.
    estimate
        Measures of all losses.
    names
        Names of the outputs of g.
    """

    method: TailSampling
    state: RiskState
    estimate: Estimate
    names: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def of_outputs(self, groups: Sequence[Sequence[int]]) -> Source:
        """The analysis of other sums of outputs, beside that of all."""
        method = replace(self.method, groups=tuple(map(tuple, groups)))
        turn = method.analyze(self.state.evaluations)
        return replace(self, method=method, state=turn.state, estimate=turn.estimate)

    def line(self, line: int) -> tuple[Estimate, LossDistribution, Contributions | None]:
        """Measures, law and contributions of one loss: of all outputs (line 0), or of a group."""
        targets, k = self.method.targets, len(self.method.targets.keys)
        estimate = part_of(self.estimate, np.arange(line * k, (line + 1) * k))
        chosen = self.method.groups[line - 1] if line else range(len(self.names))
        law, shares = self.state.laws[line], None
        if self.state.parts is not None and law.pairs is not None and len(chosen) > 1:
            names = {self.names[i]: i for i in chosen}
            shares = contributions_of(self.state, targets, estimate, names, line)
        return estimate, LossDistribution(law), shares

    def combined(self, weights: Array) -> dict[str, Estimate]:
        """Weighted sums (L,) over losses of each measure.

        Draws of all losses have the same bootstrap weights of pairs, so that their errors go
        together.
        """
        keys, n = self.method.targets.keys, len(weights)
        found = {}
        for i, key in enumerate(keys):
            mine = part_of(self.estimate, np.arange(i, n * len(keys), len(keys)))
            found[label(*key)] = weighted_sum(mine, weights)
        return found


def positions(argument: str, names: Any, known: Sequence[str], expected: str) -> tuple[int, ...]:
    """Positions of named outputs, a single name or several."""
    given = [names] if isinstance(names, str) else listed(argument, names, expected)
    if not given or len({*given}) < len(given) or not {*given} <= {*known}:
        raise InputError(argument, shown(names), expected)
    return tuple(known.index(name) for name in given)


def groups_of(portfolios: Any, outputs: Sequence[Any] | None) -> dict[str, tuple[int, ...]]:
    """Positions of outputs by portfolio."""
    if portfolios is None:
        return {}
    expected = "a mapping from names to names of outputs, such as {'macro': ['rates', 'fx']}"
    if outputs is None or not isinstance(portfolios, Mapping) or not portfolios:
        advice = "Outputs have names by outputs=[…]."
        raise InputError("portfolios", shown(portfolios), expected, advice)
    return {
        str(name): positions("portfolios", members, outputs, f"{name!r}: {expected}")
        for name, members in portfolios.items()
    }
