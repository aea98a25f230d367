"""Lengthscales against definitions written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.spatial.distance import pdist

from nestquad.gp import fit_lengthscale, median_lengthscale
from nestquad.kernels import Matern


@pytest.fixture(name="rng")
def fixed_rng():
    """The same numbers for each test, in whatever order they run."""
    return np.random.default_rng(4)


def gaussian_process(kernel, nodes, columns, seed=0):
    gram = kernel(nodes, nodes) + 1e-10 * np.eye(len(nodes))
    return np.linalg.cholesky(gram) @ np.random.default_rng(seed).standard_normal(
        (len(nodes), columns)
    )


# The median heuristic


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 1), (6, 2), (101, 3)])
def test_median_is_that_of_all_pairs(n, d, rng):
    nodes = rng.standard_normal((n, d))
    assert median_lengthscale(nodes) == pytest.approx(np.median(pdist(nodes)), rel=1e-12)


def test_median_of_an_even_number_of_pairs_lies_between_the_middle_two():
    nodes = np.array([[0.0], [1.0], [3.0], [7.0]])  # 1, 2, 3, 4, 6, 7
    assert median_lengthscale(nodes) == pytest.approx(3.5)


def test_median_of_one_node_is_usable():
    assert median_lengthscale(np.zeros((1, 2))) > 0
    assert median_lengthscale(np.zeros((5, 2))) > 0


def test_median_of_many_nodes_stays_close_to_that_of_all(rng):
    nodes = rng.random((2000, 2))
    assert median_lengthscale(nodes) == pytest.approx(np.median(pdist(nodes)), rel=0.1)


# Restricted likelihood


def contrasts_likelihood(kernel, nodes, values):
    """The likelihood of N - 1 contrasts that no constant can change, amplitude profiled out."""
    n, m = values.shape
    basis = null_space(np.ones((1, n)))
    covariance = basis.T @ kernel(nodes, nodes) @ basis
    y = basis.T @ values
    quadratic = np.sum(y * np.linalg.solve(covariance, y))
    freedom = m * (n - 1)
    return -0.5 * (
        m * np.linalg.slogdet(covariance).logabsdet + freedom * np.log(quadratic / freedom)
    )


def test_likelihoods_of_kernels_are_those_of_contrasts(rng):
    nodes = rng.random((25, 2))
    values = gaussian_process(Matern(1.5, 0.4), nodes, 3)
    fits = [fit_lengthscale(kernel, [(nodes, values)]) for kernel in (Matern(0.5), Matern(2.5))]
    ours = np.diff([likelihood for _, likelihood in fits])
    reference = np.diff([contrasts_likelihood(kernel, nodes, values) for kernel, _ in fits])
    # It is interpolated, and equal up to a constant that has nothing to do with the kernel.
    np.testing.assert_allclose(ours, reference, atol=1.0)


# The lengthscale


@pytest.mark.parametrize("nu", [1.5, 2.5])
@pytest.mark.parametrize("truth", [0.1, 0.3])
@pytest.mark.parametrize("start", [0.2, 2.0])
def test_likelihood_finds_the_lengthscale_of_a_sample(nu, truth, start, rng):
    nodes = rng.random((80, 1))
    values = gaussian_process(Matern(nu, truth), nodes, 20)
    fitted, _ = fit_lengthscale(Matern(nu, start), [(nodes, values)])
    assert fitted.lengthscale == pytest.approx(truth, rel=0.3)  # a rough optimum is enough
    assert fitted.nu == nu


def test_what_it_returns_beats_its_neighbours(rng):
    nodes = rng.random((60, 1))
    values = gaussian_process(Matern(1.5, 0.4), nodes, 5)
    fitted, _ = fit_lengthscale(Matern(1.5, 1.0), [(nodes, values)])
    best = contrasts_likelihood(fitted, nodes, values)
    for factor in (0.6, 1.7):
        other = fitted.with_lengthscale(fitted.lengthscale * factor)
        assert contrasts_likelihood(other, nodes, values) < best


def test_level_and_scale_of_the_values_do_not_matter(rng):
    nodes = rng.random((50, 1))
    values = gaussian_process(Matern(1.5, 0.3), nodes, 3)
    plain, _ = fit_lengthscale(Matern(1.5), [(nodes, values)])
    moved, _ = fit_lengthscale(Matern(1.5), [(nodes, 1e4 * values + 1e5)])
    assert moved.lengthscale == pytest.approx(plain.lengthscale, rel=0.02)


def test_groups_are_pooled():
    truth = Matern(1.5, 0.3)
    groups = []
    for seed in range(12):
        nodes = np.random.default_rng(seed).random((30, 1))
        groups.append((nodes, gaussian_process(truth, nodes, 1, seed=100 + seed)))
    pooled, _ = fit_lengthscale(Matern(1.5), groups)
    assert pooled.lengthscale == pytest.approx(0.3, rel=0.25)


def test_ratios_of_lengthscales_are_kept(rng):
    nodes = rng.random((60, 2))
    values = gaussian_process(Matern(1.5, [0.2, 0.8]), nodes, 10)
    fitted, _ = fit_lengthscale(Matern(1.5, [1.0, 4.0]), [(nodes, values)])
    assert fitted.lengthscale[1] / fitted.lengthscale[0] == pytest.approx(4.0)
    assert fitted.lengthscale[0] == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize("values", [np.full((20, 2), 3.0), np.zeros((20, 1)), np.zeros((20, 0))])
def test_constants_teach_nothing(values, rng):
    kernel = Matern(1.5, 0.7)
    assert fit_lengthscale(kernel, [(rng.random((20, 1)), values)])[0] == kernel
