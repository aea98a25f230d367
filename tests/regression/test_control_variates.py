"""Control variates: exactness on polynomials, cross-fitting."""

import numpy as np
import pytest

from nestquad.regression import fit_controls
from nestquad.regression._control_variates import tiers


@pytest.mark.parametrize("score", ["uniform", "normal"])
@pytest.mark.parametrize("dim_x", [1, 3, 17])
@pytest.mark.parametrize("dim_theta", [1, 10])
def test_tiers_count_their_terms_and_leave_values_for_each(score, dim_x, dim_theta):
    for n_values in (60, 1000):
        for tier in tiers(dim_x, dim_theta, n_values, score):
            terms = tier.terms(dim_x, dim_theta)
            assert len(set(terms)) == len(terms) == tier.count(dim_x, dim_theta)
            assert 8 * len(terms) <= n_values
            assert all(x for x, _ in terms)  # no term is in θ alone: its mean would not be zero


def test_a_polynomial_is_explained_by_controls_and_its_mean_comes_out_exact():
    rng = np.random.default_rng(0)
    uniform, outer = rng.random((16, 32, 2)), rng.random((16, 1))
    x, theta = 2 * uniform - 1, 2 * outer[:, None, 0] - 1
    g = 0.7 + theta + 2.0 * x[..., 0] + theta * x[..., 1] + (x[..., 0] ** 2 - 1 / 3)
    controls = fit_controls(uniform, outer, g[..., None], [("uniform", "uniform")])
    weights = np.full((1, 1, 32), 1 / 32)
    j = g.mean(axis=1) - controls.integrals(uniform, weights, outer)[0, :, 0]
    np.testing.assert_allclose(j, 0.7 + theta[:, 0], atol=1e-9)
    fitted = np.stack([controls.values(uniform[t], outer[t], t) for t in range(16)])[..., 0]
    np.testing.assert_allclose(fitted + j[:, None], g, atol=1e-8)


def test_coefficients_of_a_row_do_not_know_its_values():
    rng = np.random.default_rng(1)
    uniform, outer = rng.random((16, 16, 1)), rng.random((16, 1))
    g = np.sin(5 * uniform[..., :1]) + 0.1 * rng.standard_normal((16, 16, 1))
    other = g.copy()
    other[::4] += 1e-4 * rng.standard_normal(other[::4].shape)  # the rows of the first fold
    pair = [("uniform", "uniform")]
    one, two = (fit_controls(uniform, outer, v, pair) for v in (g, other))
    assert one.terms == two.terms
    np.testing.assert_allclose(one.coefficients[0], two.coefficients[0], rtol=1e-9)
    assert not np.allclose(one.coefficients[1], two.coefficients[1], rtol=1e-9)
