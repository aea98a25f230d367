"""Weights on normal nodes, against the mathematics they claim to follow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from scipy.special import ndtr
from scipy.stats import norm, ortho_group

import nestquad as nq
from nestquad.botorch import normal_rule
from nestquad.botorch._weights import _least_squares, _on_simplex, _spline


def sobol(dim, n=64, seed=0):
    return draw_sobol_normal_samples(d=dim, n=n, seed=seed, dtype=torch.double).numpy()


def hermite(dim, n=30):
    """Gauss–Hermite nodes and weights of the standard normal law in one or two dimensions."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    w = w / w.sum()
    if dim == 1:
        return x[:, None], w
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(w, w).ravel()


@pytest.mark.parametrize("dim", [1, 2])
def test_the_spline_kernel_has_mean_zero_and_only_its_linear_part_sees_linear_functions(dim):
    grid, law = hermite(dim)
    some = sobol(dim, 3)
    gram = _spline(np.concatenate([some, grid]))[:3, 3:]  # three nodes against the law
    np.testing.assert_allclose(gram @ law, 0.0, atol=5e-4 * np.abs(gram).max() ** 0.5)
    # E[Z k(z, Z)] is that of z · Z, which is z, whatever the spline's own scale.
    np.testing.assert_allclose((gram * law) @ grid, some, atol=5e-3)


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 40])
def test_the_spline_kernel_is_positive_definite_and_blind_to_rotations(dim):
    nodes = sobol(dim)
    gram = _spline(nodes)
    assert np.linalg.eigvalsh(gram).min() > -1e-10 * np.trace(gram)
    if dim > 1:
        turned = nodes @ ortho_group.rvs(dim, random_state=0)
        np.testing.assert_allclose(_spline(turned), gram, atol=1e-8 * np.abs(gram).max())


@pytest.mark.parametrize("kernel", ["spline", "matern12", "matern32", nq.Matern(2.5, 0.7)])
@pytest.mark.parametrize(("dim", "n"), [(1, 16), (1, 17), (2, 64), (3, 1), (6, 32), (64, 16)])
def test_weights_are_non_negative_and_sum_to_one(kernel, dim, n):
    rule = normal_rule(sobol(dim, n, seed=dim), kernel)
    assert rule.weights.shape == (n,)
    assert rule.weights.min() >= 0.0
    assert rule.weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert rule.n_zero == np.sum(rule.weights == 0.0)
    assert 1.0 <= rule.effective_size <= n * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_are_the_minimum_over_the_simplex(seed):
    # Where Σw = 1 and w ≥ 0, the minimum of w'Aw has one gradient on all positive weights and no
    # smaller one where a weight is zero; for a convex function that is enough.
    nodes = sobol(1, 64, seed)
    gram = _spline(nodes)
    rule = normal_rule(nodes)
    matrix = gram + rule.regularization * np.mean(np.diagonal(gram)) * np.eye(64)
    gradient = matrix @ rule.weights
    positive = rule.weights > 0
    np.testing.assert_allclose(gradient[positive], gradient[positive].mean(), rtol=1e-6)
    assert gradient[~positive].min(initial=np.inf) >= gradient[positive].mean() * (1 - 1e-6)
    assert rule.worst_case_error == pytest.approx(np.sqrt(rule.weights @ gram @ rule.weights))
    assert rule.equal_weights_error == pytest.approx(np.sqrt(gram.mean()))
    assert rule.worst_case_error < rule.equal_weights_error


def test_both_ways_to_the_minimum_agree():
    rng = np.random.default_rng(0)
    for _ in range(50):  # wild matrices, where the nodes first left out are often the wrong ones
        half = rng.standard_normal((12, 12)) + 1.5
        matrix = half.T @ half + 1e-6 * np.eye(12)
        weights, other = _on_simplex(matrix), _least_squares(matrix)
        np.testing.assert_allclose(weights, other / other.sum(), atol=1e-7)


def test_bounds_bind_where_they_must():
    # Two nodes close together next to a third: without bounds one of the pair would be negative.
    matrix = np.array([[1.0, 1.1, 0.1], [1.1, 1.3, 0.1], [0.1, 0.1, 1.0]])
    assert np.linalg.solve(matrix, np.ones(3)).min() < 0
    weights = _on_simplex(matrix)
    grid = np.array([(a, b, 1 - a - b) for a in np.linspace(0, 1, 201)
                     for b in np.linspace(0, 1 - a, 201)])  # fmt: skip
    values = np.einsum("ni,ij,nj->n", grid, matrix, grid)
    assert weights @ matrix @ weights <= values.min() + 1e-12
    assert weights[1] == 0.0


def test_a_kernel_on_the_uniforms_gives_the_rule_of_nestquad():
    # No weight is at its bound here, and constants are exact: the same minimum, written twice.
    kernel, nodes = nq.Matern(0.5, 1.0), sobol(2, 32)
    rule = normal_rule(nodes, kernel)
    other = nq.rules.kernel_rule(
        kernel,
        nq.Uniform(0.0, 1.0, dim=2),
        ndtr(nodes),
        regularization=rule.regularization * _centered_diagonal(kernel, nodes) / 32,
    )
    np.testing.assert_allclose(rule.weights, other.weights, atol=1e-12)


def _centered_diagonal(kernel, nodes):
    law, u = nq.Uniform(0.0, 1.0, dim=nodes.shape[1]), ndtr(nodes)
    mean = nq.embeddings.mean_embedding(kernel, law, u)
    return 1.0 - 2.0 * mean.mean() + float(nq.embeddings.double_embedding(kernel, law))


def test_improvements_are_integrated_twice_as_well_as_by_equal_weights():
    thresholds = np.linspace(-2, 2, 41)
    exact = norm.pdf(thresholds) - thresholds * ndtr(-thresholds)
    plain, weighted = [], []
    for seed in range(40):
        nodes = sobol(1, 32, seed + 900)
        values = np.maximum(nodes - thresholds, 0.0)
        plain.append(np.abs(values.mean(axis=0) - exact))
        weighted.append(np.abs(normal_rule(nodes).weights @ values - exact))
    assert np.mean(weighted) < np.mean(plain) / 4


def test_many_dimensions_have_nearly_equal_weights():
    weights = normal_rule(sobol(64, 32)).weights
    assert np.abs(32 * weights - 1).max() < 0.2


def test_rules_are_kept():
    nodes = sobol(2, 16)
    assert normal_rule(nodes) is normal_rule(nodes.copy())
    assert not normal_rule(nodes).weights.flags.writeable


def test_bad_input_is_named():
    with pytest.raises(nq.InputError, match=r"kernel.*'spline'"):
        normal_rule(sobol(1), "splin")
    with pytest.raises(nq.InputError, match="nodes"):
        normal_rule(np.zeros(3))
    with pytest.raises(nq.InputError, match="not finite"):
        normal_rule(np.array([[0.0], [np.nan]]))
    with pytest.raises(nq.NumericalError, match="distinct"):
        _on_simplex(np.array([[1.0, 2.0], [2.0, 1.0]]))
