"""Maximum likelihood over several hyperparameters: the only optimizer of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nestquad._typing import Array
from nestquad.clock import tick

# Loss where there is no likelihood, such as a covariance that is not positive definite. L-BFGS-B
# steps back from large numbers, not from infinite ones.
FAILED = 1e26
# Gradient in the logarithms of hyperparameters below which a search ends at any tolerance.
_FLAT = 1e-3


def maximum_likelihood(
    loss: Callable[[Array], tuple[float, Array]],
    starts: Sequence[Array],
    bounds: Array,
    *,
    n_values: int,
    most_steps: int,
    tolerance: float = 3e-4,
) -> tuple[Array, float] | None:
    """Hyperparameters of least loss and that loss, by L-BFGS-B from the best of the starts.

    None if the loss is :data:`FAILED` everywhere it was looked at.

    Parameters
    ----------
    loss
        Negative log likelihood (with priors or penalties) and its gradient, for parameters (k,).
    starts, bounds
        Each start (k,) is moved into the bounds (k, 2). Equal bounds fix a parameter.
    n_values
        Observations: log likelihoods are of this size.
    tolerance
        The search ends with a step that gains less log likelihood than about this. Data tell gains
        of 2 apart; but steps along a ridge gain little, and many may follow.
    """
    from scipy.optimize import minimize  # a tenth of a second to import

    def timed(parameters: Array) -> tuple[float, Array]:
        tick()
        return loss(parameters)

    low, high = bounds.T
    inside = [np.clip(start, low, high) for start in starts]
    first = inside[0] if len(inside) == 1 else min(inside, key=lambda start: timed(start)[0])
    solution = minimize(
        timed,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": most_steps, "ftol": tolerance / n_values, "gtol": _FLAT},
    )
    return (solution.x, float(solution.fun)) if solution.fun < FAILED else None
