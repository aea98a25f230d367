"""Matérn-1/2 on a line in O(N): the same weights as the dense solve."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from nestquad.distributions import Empirical, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError
from nestquad.kernels import Matern
from nestquad.points import Sobol, Stream
from nestquad.rules import kernel_rule, prefix_rules

LAWS = {
    "unit": Uniform(),
    "box": Uniform(-2.0, 5.0),
    "normal": Normal(),
    "wide": Normal(1.0, 3.0),
}


def dense(kernel, law, nodes, exact):
    """Weights, worst-case error and variance from the Cholesky factor of the whole matrix."""
    factor = cho_factor(kernel(nodes, nodes))
    mean = mean_embedding(kernel, law, nodes)
    weights, one = cho_solve(factor, mean), cho_solve(factor, np.ones(len(nodes)))
    if exact == "constant":
        weights = weights + one * (1 - weights.sum()) / one.sum()
    gram_weights = kernel(nodes, nodes) @ weights
    squared = float(double_embedding(kernel, law)) - 2 * weights @ mean + weights @ gram_weights
    return weights, np.sqrt(max(squared, 0.0))


def nodes_for(law, n, seed=0):
    u = Sobol().uniforms(Stream.from_rng(seed), 1, (0, 1), (0, n))[0]
    return law.from_uniform(u)


@pytest.mark.parametrize(
    ("lengthscale", "exact"), [(0.05, "none"), (0.05, "constant"), (0.5, "constant")]
)
@pytest.mark.parametrize("law", LAWS)
def test_equals_dense_at_2000_unsorted_nodes(law, lengthscale, exact):
    law, kernel = LAWS[law], Matern(0.5, lengthscale)
    nodes = nodes_for(law, 2000)
    assert (np.diff(nodes[:, 0]) < 0).any(), "the order of the nodes has to matter"
    rule = kernel_rule(kernel, law, nodes, exact=exact)
    weights, worst = dense(kernel, law, nodes, exact)
    np.testing.assert_allclose(rule.weights, weights, rtol=0, atol=1e-9)
    assert rule.worst_case_error == pytest.approx(worst, rel=1e-4)
    assert rule.ridge == 0.0


@pytest.mark.parametrize("exact", ["none", "constant"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("law", LAWS)
def test_equals_dense_at_a_few_nodes(law, n, exact):
    law, kernel = LAWS[law], Matern(0.5, 0.7)
    nodes = law.from_uniform(np.array([[0.7], [0.2], [0.4]]))[:n]
    rule = kernel_rule(kernel, law, nodes, exact=exact)
    weights, worst = dense(kernel, law, nodes, exact)
    np.testing.assert_allclose(rule.weights, weights, atol=1e-13)
    assert rule.worst_case_error == pytest.approx(worst, rel=1e-9)


def test_nodes_outside_the_box():
    kernel, nodes = Matern(0.5, 0.4), np.array([[1.7], [0.5], [-0.3], [0.9]])
    rule = kernel_rule(kernel, Uniform(), nodes, exact="none")
    np.testing.assert_allclose(rule.weights, dense(kernel, Uniform(), nodes, "none")[0], atol=1e-13)


def test_atoms():
    law = Empirical(np.random.default_rng(0).random((30, 1)))
    nodes = np.random.default_rng(1).random((12, 1))
    rule = kernel_rule(Matern(0.5, 0.4), law, nodes)
    np.testing.assert_allclose(
        rule.weights, dense(Matern(0.5, 0.4), law, nodes, "constant")[0], atol=1e-12
    )


@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
def test_weights_on_a_box_are_positive_whatever_the_lengthscale(lengthscale):
    nodes = np.random.default_rng(5).random((5000, 1))  # gaps down to 1e-8
    weights = kernel_rule(Matern(0.5, lengthscale), Uniform(), nodes).weights
    assert weights.min() > 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_long_lengthscale_is_the_trapezoidal_rule():
    x = np.sort(np.random.default_rng(2).random(50))
    gaps = np.diff(x)
    trapezoid = np.zeros(50)
    trapezoid[:-1] += gaps / 2
    trapezoid[1:] += gaps / 2
    trapezoid[[0, -1]] += [x[0], 1 - x[-1]]  # constant beyond the last nodes
    rule = kernel_rule(Matern(0.5, 1e7), Uniform(), x[:, None])
    np.testing.assert_allclose(rule.weights, trapezoid, atol=1e-7)


@pytest.mark.parametrize(
    ("law", "exact", "error"), [("unit", np.sin(1.0), 1e-9), ("normal", np.exp(-0.5), 5e-6)]
)
def test_a_hundred_thousand_nodes(law, exact, error):  # dense weights would need 80 GB
    n = 10**5
    u = np.random.default_rng(0).permutation((np.arange(n) + 0.5) / n)
    nodes = LAWS[law].from_uniform(u[:, None])
    rule = kernel_rule(Matern(0.5, 0.3), LAWS[law], nodes)
    assert rule.integrate(np.cos(nodes[:, 0])) == pytest.approx(exact, abs=error)


def test_worst_case_error_on_a_box_has_a_closed_form():
    # Between neighbours the process is a bridge, whose integral has variance 2ℓ²(δ - 2 tanh δ/2);
    # beyond the last node it is free.
    n, ell = 1000, 0.3
    x = (np.arange(n) + 0.5) / n
    delta, end = 1 / n / ell, 0.5 / n / ell
    bridge = 2 * ell**2 * (delta - 2 * np.tanh(delta / 2))
    free = ell**2 * (2 * (end + np.expm1(-end)) - np.expm1(-end) ** 2)
    rule = kernel_rule(Matern(0.5, ell), Uniform(), x[:, None], exact="none")
    assert rule.posterior_variance == pytest.approx((n - 1) * bridge + 2 * free, rel=1e-5)


def test_a_batch_of_laws_and_lengthscales_is_the_rules_one_by_one():
    low, scales = np.array([[0.0], [-1.0]]), np.array([[0.4], [0.7]])
    nodes = np.random.default_rng(0).random((2, 50, 1))
    by_set = prefix_rules(Matern(0.5, scales), Uniform(low, 1.0), nodes, [50, 25])
    for i, rules in enumerate(by_set):
        for rule, n in zip(rules, (50, 25), strict=True):
            alone = kernel_rule(Matern(0.5, scales[i]), Uniform(low[i], 1.0), nodes[i, :n])
            np.testing.assert_array_equal(rule.weights, alone.weights)
            assert rule.posterior_variance == alone.posterior_variance


def test_many_nodes_of_other_kernels_are_refused_with_advice():
    nodes = np.random.default_rng(0).random((30_000, 1))
    with pytest.raises(InputError, match=r"Matern\(0.5\)"):
        kernel_rule(Matern(1.5), Uniform(), nodes)


def test_a_law_of_another_dimension_is_refused():
    with pytest.raises(InputError):
        kernel_rule(Matern(0.5), Uniform(dim=2), np.array([[0.2], [0.7]]))
