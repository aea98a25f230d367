"""Kernel weights against plain linear algebra, brute-force sums and Gaussian processes."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.distributions import Empirical, Independent, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError
from nestquad.kernels import Anova, Gaussian, Matern
from nestquad.points import Sobol, Stream
from nestquad.rules import Jitter, equal_weights, kernel_rule, prefix_rules

RNG = np.random.default_rng(20)
EXACT = ("none", "constant")

# Nodes spread out and lengthscales short beside their gaps, so that np.linalg.solve can be trusted.
KERNELS_AND_LAWS = {
    "matern12": (Matern(0.5, 0.2), Uniform(-1.0, 2.0)),
    "matern32": (Matern(1.5, 0.1), Uniform()),
    "matern52": (Matern(2.5, [0.3, 0.2]), Uniform(0.0, [1.0, 2.0])),
    "matern72": (Matern(3.5, 0.5), Normal(0.5, 2.0)),
    "gaussian": (Gaussian(0.4), Normal([0.0, 1.0], [1.0, 0.5])),
    "correlated": (Gaussian(0.5), Normal(cov=[[1.0, 0.6], [0.6, 2.0]])),
    "anova": (Anova(Matern(1.5, 0.3), order=2), Uniform(dim=4)),
    "independent": (Matern(1.5, 0.3), Independent(Normal(), Uniform())),
    "empirical": (Matern(1.5, 0.2), Empirical(RNG.random((40, 1)))),
}


@pytest.fixture(name="rng")
def fixed_rng():
    """The same numbers for each test, in whatever order they run."""
    return np.random.default_rng(22)


def spread_out(law, n=8):
    points = Sobol().uniforms(Stream.from_rng(3), law.base_dim, (0, 1), (0, n))[0]
    return law.from_uniform(points) + 1e-3 * RNG.random((n, 1))  # no two alike, off the support


CASES = {
    name: (
        kernel,
        law,
        spread_out(law),
    )
    for name, (kernel, law) in KERNELS_AND_LAWS.items()
}


def moments(exact):
    return np.ones(0 if exact == "none" else 1)


def functions(exact, nodes):
    return np.ones((len(nodes), 0 if exact == "none" else 1))


def bordered_solve(gram, mean, basis, targets):
    """Minimise wᵀKw - 2wᵀμ subject to Bᵀw = m, straight from the Lagrange conditions."""
    k = basis.shape[1]
    matrix = np.block([[gram, basis], [basis.T, np.zeros((k, k))]])
    return np.linalg.solve(matrix, np.concatenate([mean, targets]))[: len(gram)]


@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("name", CASES)
def test_weights_solve_the_constrained_least_squares_problem(name, exact):
    kernel, law, nodes = CASES[name]
    gram, mean = kernel(nodes, nodes), mean_embedding(kernel, law, nodes)
    assert np.linalg.cond(gram) < 1e6, "the reference needs a well-conditioned case"
    rule = kernel_rule(kernel, law, nodes, exact=exact)
    expected = bordered_solve(gram, mean, functions(exact, nodes), moments(exact))
    assert rule.ridge <= 1.1e-12 * np.mean(np.diagonal(gram))
    np.testing.assert_allclose(rule.weights, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(functions(exact, nodes).T @ rule.weights, moments(exact), atol=1e-11)


def test_unconstrained_weights_do_not_sum_to_one():
    # Otherwise the tests of exactness would prove nothing.
    kernel, law, nodes = CASES["matern32"]
    assert abs(kernel_rule(kernel, law, nodes, exact="none").weights.sum() - 1.0) > 0.01


def test_a_number_is_lambda_and_the_ridge_is_n_lambda():
    kernel, law, nodes = CASES["matern52"]
    rule = kernel_rule(kernel, law, nodes, regularization=0.01, exact="none")
    n = len(nodes)
    expected = np.linalg.solve(
        kernel(nodes, nodes) + n * 0.01 * np.eye(n), mean_embedding(kernel, law, nodes)
    )
    assert rule.ridge == pytest.approx(n * 0.01)
    np.testing.assert_allclose(rule.weights, expected, atol=1e-12)


@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("kernel", [Matern(0.5, 0.2), Matern(1.5, 0.3), Gaussian(0.2)])
def test_batched_laws_and_lengthscales_give_each_row_its_own_rule(kernel, exact, rng):
    # The second law lies inside the first: whoever mixes up their boxes is found out.
    low, high = np.array([[-5.0], [0.0], [0.2]]), np.array([[3.0], [1.0], [4.0]])
    law = Uniform(low, high)
    nodes = law.from_uniform(rng.random((3, 10, 1)))
    lengthscales = np.array([[0.5], [0.1], [0.3]])
    batched = prefix_rules(kernel.with_lengthscale(lengthscales), law, nodes, [10], exact=exact)
    for i, (rule,) in enumerate(batched):
        single = kernel_rule(
            kernel.with_lengthscale(float(lengthscales[i, 0])),
            Uniform(low[i], high[i]),
            nodes[i],
            exact=exact,
        )
        np.testing.assert_allclose(rule.weights, single.weights, atol=1e-10)
        assert rule.worst_case_error == pytest.approx(single.worst_case_error, rel=1e-6)
        assert rule.posterior_variance == pytest.approx(single.posterior_variance, rel=1e-6)


@pytest.mark.parametrize("kernel", [Matern(0.5, 0.3), Matern(1.5, 0.3)])
def test_rules_of_prefixes_are_the_rules_of_the_prefixes(kernel, rng):
    nodes = rng.random((20, 1))
    (rules,) = prefix_rules(kernel, Uniform(), nodes[None], (20, 10, 5))
    for rule, size in zip(rules, (20, 10, 5), strict=True):
        np.testing.assert_array_equal(rule.nodes, nodes[:size])
        alone = kernel_rule(
            kernel, Uniform(), nodes[:size], regularization=rule.ridge / size or Jitter()
        )
        np.testing.assert_allclose(rule.weights, alone.weights, atol=1e-11)


def test_integrate_sums_and_checks_shapes(rng):
    rule = kernel_rule(*CASES["matern52"])
    values = rng.random((8, 3))
    np.testing.assert_allclose(
        rule.integrate(values), sum(w * v for w, v in zip(rule.weights, values, strict=True))
    )
    assert rule.integrate(values[:, 0]).shape == ()
    with pytest.raises(InputError, match="8 nodes"):
        rule.integrate(values[:5])


def test_equal_weights_are_the_mean(rng):
    nodes, values = rng.random((7, 2)), rng.random(7)
    rule = equal_weights(nodes)
    assert rule.integrate(values) == pytest.approx(values.mean())
    assert rule.sum_abs_weights == pytest.approx(1.0)


def test_one_node_gets_all_the_weight():
    assert kernel_rule(Matern(1.5), Uniform(), [[0.3]]).weights == pytest.approx([1.0])
    alone = kernel_rule(Matern(1.5), Uniform(), [[0.3]], exact="none")
    assert alone.weights == pytest.approx(mean_embedding(Matern(1.5), Uniform(), [[0.3]]))


@pytest.mark.parametrize("exact", ["none", "constant"])
@pytest.mark.parametrize("name", CASES)
def test_no_other_weights_do_better(name, exact, rng):
    kernel, law, nodes = CASES[name]
    rule = kernel_rule(kernel, law, nodes, exact=exact)
    gram, mean = kernel(nodes, nodes), mean_embedding(kernel, law, nodes)
    double = float(double_embedding(kernel, law))

    def squared_error(w):
        return double - 2 * w @ mean + w @ gram @ w

    best = squared_error(rule.weights)
    assert rule.worst_case_error**2 == pytest.approx(best, rel=1e-6)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        for _ in range(20):
            step = rng.standard_normal(len(nodes)) * size / len(nodes)
            if exact == "constant":
                step -= step.mean()
            assert squared_error(rule.weights + step) > best
