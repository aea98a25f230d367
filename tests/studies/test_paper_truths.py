"""Truths by plain quadrature agree with closed forms and with the shipped problems."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq
from studies.paper import truths


def test_finance():
    assert truths.finance_answer() == pytest.approx(nq.problems.finance().exact, abs=1e-11)


def test_finance_j_is_the_mean_of_g():
    problem = nq.problems.finance()
    theta = np.array([[80.0], [130.0]])
    u = (np.arange(400_000)[:, None] + 0.5) / 400_000
    x = problem.inner_law(theta).from_uniform(np.broadcast_to(u, (2, *u.shape)))
    means = problem.g(x, theta[:, None, :]).mean(axis=1)
    np.testing.assert_allclose(means, [truths.finance_j(80.0), truths.finance_j(130.0)], atol=1e-3)


@pytest.mark.parametrize("known", ["responses", "durations"])
def test_health(known):
    assert truths.evppi(known) == pytest.approx(nq.problems.health(known).exact, abs=1e-3)


def test_released_health_model_by_simulation():
    """The same model drawn as the released code draws it: u·L, each arm given its own θ."""
    factor = np.linalg.cholesky([[0.01, 0.006], [0.006, 0.01]])
    theta = np.array([0.7, 0.8]) + np.random.default_rng(0).standard_normal((400_000, 2)) @ factor
    first = 3e3 * theta[:, 0] * (3.0 + 3.0 * (theta[:, 0] - 0.7)) - 1333.0
    second = 3e3 * theta[:, 1] * (3.0 + 6.0 * (theta[:, 1] - 0.8)) - 1795.2
    value = np.maximum(first, second).mean() - max(first.mean(), second.mean())
    assert truths.released_evppi() == pytest.approx(value, abs=6.0)
    assert truths.released_evppi() == pytest.approx(524.07, abs=0.01)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_closed_form_belongs_to_sums_of_powers(dim):
    exact = nq.problems.synthetic(dim).exact
    assert truths.norms_answer(dim, 2.5, 2.5) == pytest.approx(exact, rel=1e-10)
    if dim > 1:
        assert abs(truths.norms_answer(dim, 4.0, 2.0) - exact) > 0.01
