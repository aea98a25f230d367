"""Low-rank weights against dense algebra, and the test for an exponential rate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad

from nestquad import Matern
from nestquad.distributions import Uniform
from nestquad.rules import kernel_rule
from studies.paper.curves import Curve
from studies.paper.remarks import (
    analytic,
    effective_rank,
    exponential,
    full_weights,
    keeps_error,
    nystrom_weights,
    pivoted_weights,
)

KERNEL = Matern(1.5, 0.3)


def test_full_weights_are_the_librarys():
    nodes = np.random.default_rng(0).random((20, 1))
    rule = kernel_rule(KERNEL, Uniform(), nodes, regularization=1e-4, exact="none")
    ours = full_weights(KERNEL, nodes, 20 * 1e-4, 20, np.random.default_rng(1))
    np.testing.assert_allclose(ours, rule.weights, rtol=1e-8)


@pytest.mark.parametrize("weights", [nystrom_weights, pivoted_weights])
def test_low_rank_weights_of_full_rank_are_the_full_ones(weights):
    nodes = np.random.default_rng(0).random((20, 1))
    rng = np.random.default_rng(1)
    full = full_weights(KERNEL, nodes, 1e-3, 20, rng)
    np.testing.assert_allclose(weights(KERNEL, nodes, 1e-3, 20, rng), full, rtol=1e-6)
    assert np.abs(weights(KERNEL, nodes, 1e-3, 3, rng) - full).max() > 1e-3


def test_effective_rank_has_the_order_of_the_spectrum():
    """Σ σ / (σ + λ) for σ_m = m⁻⁴ is π/(2√2) λ^(-1/4) up to a constant."""
    for n in (1000, 10_000):
        lam = n**-4.0 * np.log(n) ** 6
        sigma = np.arange(1.0, 1e5) ** -4
        count = (sigma / (sigma + lam)).sum()
        assert count / effective_rank(n) == pytest.approx(np.pi / (2 * np.sqrt(2)), rel=0.02)


def test_exact_value_of_the_analytic_problem():
    """I = E exp(−(x − θ)²/2 − (y − θ)²/2), integrated over x and y for each θ."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    theta, weights = (nodes + 1) / 2, weights / 2
    inner = [
        dblquad(lambda x, y, t=t: np.exp(-0.5 * (x - t) ** 2 - 0.5 * (y - t) ** 2), 0, 1, 0, 1)[0]
        for t in theta
    ]
    assert analytic().exact == pytest.approx(weights @ inner, rel=1e-12)


@pytest.mark.parametrize(
    ("decay", "status"),
    [(lambda n: np.exp(-n), "holds"), (lambda n: n**-6.0, "does not hold")],
)
def test_exponential_or_algebraic(decay, status):
    rng, n = np.random.default_rng(0), np.array([4.0, 6, 8, 10, 12, 14, 16])
    errors = tuple(decay(m) * np.exp(0.5 * rng.standard_normal(60)) for m in n)
    assert exponential("", Curve(n**2, errors)).status == status


def test_keeps_error():
    full = np.random.default_rng(0).exponential(size=200)
    assert keeps_error("", 1.1 * full, full, 0.1).status == "holds"
    assert keeps_error("", 3.0 * full, full, 0.1).status == "does not hold"
