"""A quadrature rule: nodes and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError

Exactness = Literal["none", "constant", "linear"]
"""Polynomials that a rule integrates exactly, whatever the kernel."""


@dataclass(frozen=True)
class Rule:
    """Weights at given nodes, with diagnostics.

    Attributes
    ----------
    nodes
        Where the integrand is evaluated, (N, d).
    weights
        One weight a node, (N,).
    ridge
        Ridge on the diagonal of the Gram matrix (N λ in the paper); 0 for equal weights.
    condition
        Estimated condition number of the regularised Gram matrix; 1 for equal weights, NaN for
        Matérn-1/2 on a line, which needs no such matrix.
    worst_case_error
        Largest error over the unit ball of the kernel's space; NaN for equal weights.
    posterior_variance
        Variance of the integral given the values, for an integrand of unit amplitude; NaN for
        equal weights.
    """

    nodes: Array
    weights: Array
    ridge: float = 0.0
    condition: float = 1.0
    worst_case_error: float = float("nan")
    posterior_variance: float = float("nan")

    @property
    def sum_abs_weights(self) -> float:
        """Σ|w|: how much noise in the values is amplified; 1 for positive weights."""
        return float(np.abs(self.weights).sum())

    def integrate(self, values: Array) -> Array:
        """Σ w_n h(x_n) for values (N,) or (N, p)."""
        values = np.asarray(values, dtype=float)
        if values.shape[:1] != self.weights.shape:
            raise InputError(
                "values",
                f"an array of shape {values.shape}",
                f"one value for each of the {self.weights.size} nodes, shape "
                f"({self.weights.size},) or ({self.weights.size}, p)",
            )
        return np.asarray(np.tensordot(self.weights, values, axes=(0, 0)))


def equal_weights(nodes: Array) -> Rule:
    """The Monte Carlo and quasi-Monte Carlo rule: 1/N at each node.

    Examples
    --------
    >>> import numpy as np
    >>> equal_weights(np.array([[0.25], [0.75]])).integrate(np.array([1.0, 3.0]))
    array(2.)
    """
    n = nodes.shape[0]
    return Rule(nodes, np.full(n, 1.0 / n))
