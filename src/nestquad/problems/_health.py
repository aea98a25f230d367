"""Health economics: value of information about parameters of a treatment decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nestquad._checks import choice
from nestquad._typing import Array
from nestquad.distributions import Normal
from nestquad.problem import NestedExpectation, best_and_each, value_of_information

# The 19 parameters under the paper's names: mean and standard deviation.
_PARAMETERS = {
    "x1": (1000.0, 1.0),  # treatment 1: cost of treatment
    "x2": (0.1, 0.02),  # probability of admissions
    "x3": (5.2, 1.0),  # days in hospital
    "x4": (400.0, 200.0),  # both treatments: cost of a day
    "x5": (0.3, 0.1),  # utility change if response
    "x6": (3.0, 0.5),  # duration of response
    "x7": (0.25, 0.1),  # probability of side effects
    "x8": (-0.1, 0.02),  # utility change if side effect
    "x9": (0.5, 0.2),  # duration of side effects
    "x10": (1500.0, 1.0),  # treatment 2: cost of treatment
    "x11": (0.08, 0.02),  # probability of admissions
    "x12": (6.1, 1.0),  # days in hospital
    "x13": (0.3, 0.05),  # utility change if response
    "x14": (3.0, 1.0),  # duration of response
    "x15": (0.2, 0.05),  # probability of side effects
    "x16": (-0.1, 0.02),  # utility change if side effect
    "x17": (0.5, 0.2),  # duration of side effects
    "theta1": (0.7, 0.1),  # probability of responding to treatment 1
    "theta2": (0.8, 0.1),  # probability of responding to treatment 2
}
_CORRELATED = ("theta1", "theta2", "x6", "x14")
_CORRELATION = 0.6
_WILLINGNESS_TO_PAY = 1e4  # for one quality-adjusted year of life

# Parameters learned, exact value of learning them, and name of the problem.
_VARIANTS = {
    "responses": (("theta1", "theta2"), 247.912048986428, "health"),
    "durations": (("x6", "x14"), 536.519571351423, "health-durations"),
}


def health(known: str = "responses") -> NestedExpectation:
    """Expected value of partial perfect information in the paper's health-economics model.

    Brennan, Kharroubi, O'Hagan and Chilcott (2007), Calculating partial expected value of perfect
    information via Monte Carlo sampling algorithms.

    Two treatments, 19 jointly Gaussian parameters. If two of them were known (θ), one would choose
    the treatment with the larger J_c(θ); without them, the larger mean decides. The answer is
    E[max(J_1, J_2)] − max(E J_1, E J_2), from two outputs and three expectations.

    Parameters
    ----------
    known
        ``"responses"``: the two probabilities of responding, as in the paper;
        ``"durations"``: the two durations of response, x_6 and x_14, instead.

    Notes
    -----
    The answers are 247.912 (responses) and 536.520 (durations). The paper prints 538 for the
    responses, which is close to the value for the durations. The inner law is conditional on both
    θ: θ_1, θ_2, x_6 and x_14 are all correlated.

    Shapes: d_θ = 2, d_x = 17; g returns (…, 2), f returns (T, 3).

    Examples
    --------
    >>> from nestquad.problems import health
    >>> health().exact, health("durations").exact
    (247.912048986428, 536.519571351423)
    """
    choice("known", known, _VARIANTS)
    learned, exact, name = _VARIANTS[known]
    mean, cov = _moments(learned)
    return NestedExpectation(
        outer=Normal(mean, cov=cov),
        inner=_GivenKnown(learned),
        g=_NetBenefit(learned),
        f=best_and_each,
        combine=value_of_information,
        exact=exact,
        name=name,
        tags=("kinked", "high-dimensional", "several-outputs"),
        smoothness=(math.inf, (1.0, math.inf, math.inf)),
    )


def _moments(names: tuple[str, ...]) -> tuple[Array, Array]:
    mean, sd = np.array([_PARAMETERS[name] for name in names]).T
    related = np.array([name in _CORRELATED for name in names])
    correlation = np.where(np.outer(related, related), _CORRELATION, 0.0)
    np.fill_diagonal(correlation, 1.0)
    return mean, correlation * np.outer(sd, sd)


def _unknown(known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in _PARAMETERS if name not in known)


@lru_cache
def _regression(known: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """Intercept (17,), slope (17, 2) and covariance (17, 17) of the unknown given the known."""
    unknown = _unknown(known)
    mean, cov = _moments(unknown + known)
    n = len(unknown)
    slope = np.asarray(np.linalg.solve(cov[n:, n:], cov[n:, :n]), dtype=float).T
    remaining = cov[:n, :n] - slope @ cov[n:, :n]
    # Rounding leaves the two triangles a few units apart in the last place.
    return mean[:n] - slope @ mean[n:], slope, (remaining + remaining.T) / 2


@dataclass(frozen=True)
class _GivenKnown:
    known: tuple[str, ...]

    def __call__(self, theta: Array) -> Normal:
        intercept, slope, cov = _regression(self.known)
        # Not a matrix product: BLAS rounds a row differently in chunks of different sizes, and the
        # same seed has to give the same bits however the work was cut.
        first, second = slope.T
        return Normal(intercept + theta[:, :1] * first + theta[:, 1:] * second, cov=cov)


@dataclass(frozen=True)
class _NetBenefit:
    """Monetary net benefit of both treatments, (…, 2)."""

    known: tuple[str, ...]

    def __call__(self, x: Array, theta: Array) -> Array:
        v = dict(zip(_unknown(self.known), np.moveaxis(x, -1, 0), strict=True))
        v.update(zip(self.known, np.moveaxis(theta, -1, 0), strict=True))
        years_1 = v["theta1"] * v["x5"] * v["x6"] + v["x7"] * v["x8"] * v["x9"]
        years_2 = v["theta2"] * v["x13"] * v["x14"] + v["x15"] * v["x16"] * v["x17"]
        cost_1 = v["x1"] + v["x2"] * v["x3"] * v["x4"]
        cost_2 = v["x10"] + v["x11"] * v["x12"] * v["x4"]
        return np.stack(
            (_WILLINGNESS_TO_PAY * years_1 - cost_1, _WILLINGNESS_TO_PAY * years_2 - cost_2),
            axis=-1,
        )
