"""Functionals of weighted samples against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import norm

from nestquad.functionals import WeightedSample

_N = 1 << 14
_NORMAL = WeightedSample(ndtri((np.arange(_N) + 0.5) / _N), np.ones(_N))


@pytest.mark.parametrize("p", [0.01, 0.5, 0.95, 0.99])
def test_normal_law(p):
    q = norm.ppf(p)
    assert _NORMAL.quantile(p) == pytest.approx(q, abs=1e-5)
    assert _NORMAL.exceedance(q) == pytest.approx(1.0 - p, abs=1e-6)
    assert _NORMAL.excess(q) == pytest.approx(norm.pdf(q) - q * (1.0 - p), abs=1e-5)
    assert _NORMAL.shortfall(p) == pytest.approx(norm.pdf(q) / (1.0 - p), rel=2e-4)


def test_means_and_weights():
    law = WeightedSample(np.array([3.0, 1.0]), np.array([1.0, 3.0]))
    assert law.mean() == 1.5
    assert law.mean(np.square) == 3.0


def test_an_atom_is_a_jump():
    """Half of the mass at 0, the other half uniform on (0, 1)."""
    n = 1000
    j = np.concatenate([np.zeros(n), (np.arange(n) + 0.5) / n])
    law = WeightedSample(j, np.ones(2 * n))
    assert law.exceedance(0.0) == pytest.approx(0.5, abs=1e-12)
    assert law.exceedance(-1e-9) > 0.999
    assert law.quantile(0.3) == 0.0
    assert law.quantile(0.75) == pytest.approx(0.5, abs=1e-3)
    assert law.shortfall(0.5) == pytest.approx(0.5, abs=1e-3)


def test_steps_have_nothing_between_them():
    law = WeightedSample(np.array([2.0, 1.0, 3.0]), np.ones(3), steps=True)
    assert [law.quantile(p) for p in (0.2, 1 / 3, 0.34, 0.9)] == [1.0, 1.0, 2.0, 3.0]
    assert [law.exceedance(c) for c in (0.0, 1.5, 2.0, 3.0)] == pytest.approx([1, 2 / 3, 1 / 3, 0])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=20),
    st.booleans(),
    st.floats(0.01, 0.99),
)
def test_distribution_function_and_quantiles_agree(values, steps, p):
    """P(J ≤ q) ≥ p at the p-quantile q, whatever the ties; shortfall is at least the quantile."""
    law = WeightedSample(np.array(values, dtype=float), np.ones(len(values)), steps)
    q = law.quantile(p)
    assert 1.0 - law.exceedance(q) >= p - 1e-8
    assert law.shortfall(p) >= q
    places = np.linspace(-4, 4, 33)
    assert (np.diff([law.exceedance(c) for c in places]) <= 1e-12).all()
