"""The linear system behind kernel weights, solved by Cholesky factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, NumericalError
from nestquad.kernels import Kernel
from nestquad.rules._cholesky import Factor, Factorizer
from nestquad.rules._guard import Jitter, Regularization, Schedule, scheduled_lambda
from nestquad.rules._rule import Rule

__all__ = ["DenseSystem", "upper_gram"]

_BLOCK = 128


def upper_gram(kernel: Kernel, nodes: Array) -> Array:
    """Gram matrices (T, N, N) of nodes (T, N, d), of which only the upper triangle is made.

    That is all that a Cholesky factorisation reads, and evaluating the kernel is half its cost.
    """
    count, n, _ = nodes.shape
    if n <= _BLOCK:
        return kernel(nodes, nodes)
    out = np.zeros((count, n, n))
    for start in range(0, n, _BLOCK):
        out[:, start : start + _BLOCK, start:] = kernel(
            nodes[:, start : start + _BLOCK], nodes[:, start:]
        )
    return out


@dataclass(frozen=True)
class DenseSystem:
    """All that the weights of one node set depend on.

    Shapes
    ------
    nodes (N, d), gram (N, N) of which the upper triangle counts, and whose memory the factor
    takes over, mean (N,), functions (N, k) with their moments (k,).
    """

    nodes: Array
    gram: Array
    mean: Array
    double: float
    functions: Array
    moments: Array

    def factorized(self, regularization: Regularization, smoothness: float) -> tuple[Factor, float]:
        """The factor of the regularised Gram matrix, and the ridge that it took."""
        n, dim = self.nodes.shape
        scale = float(np.mean(np.diagonal(self.gram)))
        if isinstance(regularization, Schedule) and not np.isfinite(smoothness):
            regularization = Jitter()
        if isinstance(regularization, Jitter):
            return self._guarded(regularization, scale, Factorizer(self.gram))
        if isinstance(regularization, Schedule):
            lam = scheduled_lambda(regularization.grid[0], n, smoothness, dim)
        elif isinstance(regularization, int | float | np.number) and regularization >= 0:
            lam = float(regularization)
        else:
            raise InputError(
                "regularization", repr(regularization), "a number λ ≥ 0, a Jitter or a Schedule"
            )
        factorize = Factorizer(self.gram)
        factor = factorize(n * lam)
        if factor is not None:
            return factor, n * lam
        # Too little for this matrix: hand over to the guard, from where the request left off.
        start = min(max(n * lam / scale, Jitter().start), 0.5)
        return self._guarded(Jitter(start, limit=np.inf), scale, factorize)

    def _guarded(self, jitter: Jitter, scale: float, factorize: Factorizer) -> tuple[Factor, float]:
        relative, tamest = jitter.start, None
        while relative < 1.0:
            factor = factorize(relative * scale)
            if factor is not None:
                tamest = factor, relative * scale
                if np.abs(self._weights(factor, self.nodes.shape[0])[0]).sum() <= jitter.limit:
                    break
            relative *= 10.0
        if tamest is None:
            raise NumericalError(
                f"The Gram matrix of {self.nodes.shape[0]} nodes is not positive definite even "
                "with a ridge as large as its diagonal. Check that the kernel is positive definite "
                "on these nodes."
            )
        return tamest  # where no ridge tames the weights, sum_abs_weights says so

    def rule(self, factor: Factor, ridge: float, size: int) -> Rule:
        """The rule on the first `size` nodes."""
        weights, variance, image = self._weights(factor, size)
        # The image is (K + ridge) w, known from the equations that w solves.
        worst = self.double - 2.0 * float(weights @ self.mean[:size]) + float(weights @ image)
        worst -= ridge * float(weights @ weights)
        # Rounding leaves differences of order eps × double: below that nothing is known.
        floor = np.finfo(float).eps * abs(self.double)
        return Rule(
            self.nodes[:size],
            weights,
            ridge,
            factor.condition(),
            float(np.sqrt(max(worst, floor))),
            float(max(variance, floor)),
        )

    def _weights(self, factor: Factor, size: int) -> tuple[Array, float, Array]:
        """Optimal weights subject to exactness, the posterior variance, and K w with the ridge."""
        mean, functions = self.mean[:size], self._functions(size)
        if size < self.nodes.shape[0]:
            factor = factor.leading(size)
        solved = factor.solve(np.column_stack([mean, functions]))
        weights, inverse_functions = solved[:, 0], solved[:, 1:]
        variance = self.double - float(mean @ weights)
        if not functions.shape[1]:
            return weights, variance, mean
        missing = self.moments[: functions.shape[1]] - functions.T @ weights
        coefficients = np.linalg.solve(functions.T @ inverse_functions, missing)
        return (
            weights + inverse_functions @ coefficients,
            variance + float(missing @ coefficients),
            mean + functions @ coefficients,
        )

    def _functions(self, size: int) -> Array:
        """What the first `size` nodes integrate exactly, (size, k)."""
        functions = self.functions[:size]
        wanted = functions.shape[1]
        if wanted < 2 or np.linalg.matrix_rank(functions) == wanted:
            return functions
        if size < self.nodes.shape[0]:
            return functions[:, :1]  # too few nodes of a larger rule: constants are what is left
        raise InputError(
            "exact",
            f"{wanted} functions to integrate exactly on {size} nodes",
            "fewer functions than nodes, and nodes that do not lie in a plane",
            "Use exact='constant' or more nodes.",
        )
