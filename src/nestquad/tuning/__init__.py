"""The choice of λ_0."""

from nestquad.tuning._regularization import best_lambda0

__all__ = ["best_lambda0"]
