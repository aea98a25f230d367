"""How much is regularised, when, and that it is said."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import nestquad as nq
from nestquad.distributions import Empirical, Uniform
from nestquad.embeddings import mean_embedding
from nestquad.errors import InputError
from nestquad.kernels import Gaussian, Matern
from nestquad.rules import Jitter, Schedule, factorize, kernel_rule, scheduled_lambda


def wild_nodes(kernel, n, limit):
    """The first iid node set on which the smallest ridge gives weights beyond the limit."""
    for seed in range(300):
        nodes = np.random.default_rng(seed).random((n, 1))
        if sum_abs(kernel, nodes, 1e-12) > limit:
            return nodes
    raise AssertionError("no wild node set found")


def sum_abs(kernel, nodes, ridge):
    """Σ|w| of weights exact on constants, by an eigendecomposition instead of Cholesky."""
    values, vectors = np.linalg.eigh(kernel(nodes, nodes))
    inverse = (vectors / (values + ridge)) @ vectors.T
    mean = mean_embedding(kernel, Uniform(), nodes)
    w, one = inverse @ mean, inverse.sum(axis=1)
    return np.abs(w + one * (1 - w.sum()) / one.sum()).sum()


@pytest.mark.parametrize(("kernel", "n"), [(Matern(1.5, 0.5), 8), (Gaussian(0.3), 10)])
@pytest.mark.parametrize("limit", [1.5, 2.0, 5.0])
def test_the_ridge_rises_until_the_weights_are_tame_and_no_further(kernel, n, limit):
    nodes = wild_nodes(kernel, n, 2 * limit)
    rule = kernel_rule(kernel, Uniform(), nodes, regularization=Jitter(limit=limit))
    assert rule.sum_abs_weights <= limit
    assert rule.weights.sum() == pytest.approx(1.0)
    steps = np.log10(rule.ridge / 1e-12)
    assert steps == pytest.approx(round(steps), abs=1e-6)
    assert round(steps) >= 1
    assert rule.sum_abs_weights == pytest.approx(sum_abs(kernel, nodes, rule.ridge), rel=1e-3)
    assert sum_abs(kernel, nodes, rule.ridge / 10) > limit, "a smaller ridge would have done"


def test_tame_weights_keep_the_smallest_ridge():
    nodes = (np.arange(16)[:, None] + 0.5) / 16
    rule = kernel_rule(Matern(1.5, 0.5), Uniform(), nodes)
    assert rule.ridge == pytest.approx(1e-12)
    assert rule.sum_abs_weights == pytest.approx(1.0)


class Louder(Matern):
    """A million times the variance."""

    def evaluate(self, x, y):
        return 1e6 * super().evaluate(x, y)


def test_the_ridge_is_relative_to_the_scale_of_the_kernel():
    kernel = Matern(1.5, 0.5)
    nodes = wild_nodes(kernel, 8, 4.0)
    law = Empirical((np.arange(64)[:, None] + 0.5) / 64)
    plain = kernel_rule(kernel, law, nodes)
    scaled = kernel_rule(Louder(1.5, 0.5), law, nodes)
    assert scaled.ridge == pytest.approx(1e6 * plain.ridge)
    np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-6, atol=1e-9)
    assert scaled.worst_case_error == pytest.approx(1e3 * plain.worst_case_error, rel=1e-6)


def test_matrices_that_do_not_factorize_get_a_larger_ridge():
    nodes = np.linspace(0.01, 0.99, 60)[:, None]
    kernel = Gaussian(3.0)  # numerically of rank 10 or so
    assert factorize(kernel(nodes, nodes), 0.0) is None
    for asked in (Jitter(), 0.0):
        rule = kernel_rule(kernel, Uniform(), nodes, regularization=asked)
        assert rule.ridge > 0
        assert rule.integrate(np.cos(nodes[:, 0])) == pytest.approx(np.sin(1.0), abs=1e-5)


def test_estimates_report_the_ridge_and_the_weights():
    points = nq.Given(wild_nodes(Matern(1.5, 0.5), 8, 10.0))
    recipe = nq.KernelQuadrature(Matern(1.5, 0.5), space="uniform", lengthscale="fixed")
    method = nq.NKQ(n_outer=16, inner_points=points, inner=recipe, sharing="shared")
    est = nq.estimate(nq.problems.synthetic(), method=method, rng=0)
    inner = est.diagnostics["inner"]
    expected = kernel_rule(Matern(1.5, 0.5), Uniform(), points.points)
    assert inner["ridge"] == pytest.approx(expected.ridge)
    assert inner["sum_abs_weights"] == pytest.approx(expected.sum_abs_weights)
    if expected.ridge > 1e-6:
        assert any("ridge" in note for note in est.diagnostics["notes"])


@pytest.mark.parametrize(("lambda0", "n", "s", "d"), [(1.0, 100, 2.0, 1), (0.01, 64, 1.5, 2)])
def test_schedule_is_the_theorem(lambda0, n, s, d):
    expected = lambda0 * n ** (-2 * s / d) * np.log(n) ** ((2 * s + 2) / d)
    assert scheduled_lambda(lambda0, n, s, d) == pytest.approx(expected, rel=1e-12)
    kernel, nodes = Matern(s - d / 2, 0.3), np.random.default_rng(0).random((n, d))
    rule = kernel_rule(
        kernel, Uniform(dim=d), nodes, regularization=Schedule((lambda0,)), exact="none"
    )
    assert rule.ridge == pytest.approx(n * expected)
    weights = np.linalg.solve(
        kernel(nodes, nodes) + n * expected * np.eye(n),
        mean_embedding(kernel, Uniform(dim=d), nodes),
    )
    np.testing.assert_allclose(rule.weights, weights, atol=1e-10)


@pytest.mark.parametrize("d", [1, 3, 17])
def test_schedule_starts_below_lambda0_and_falls(d):
    values = [scheduled_lambda(0.1, n, d / 2 + 0.5, d) for n in (4, 16, 64, 256, 1024)]
    assert all(0 < v <= 0.1 for v in values)
    assert all(a > b for a, b in pairwise(values[1:]))


def test_infinite_smoothness_has_no_schedule_and_falls_back_to_the_guard():
    nodes = np.random.default_rng(0).random((10, 1))
    scheduled = kernel_rule(Gaussian(0.3), Uniform(), nodes, regularization=Schedule())
    guarded = kernel_rule(Gaussian(0.3), Uniform(), nodes, regularization=Jitter())
    np.testing.assert_array_equal(scheduled.weights, guarded.weights)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Jitter(start=0.0), "start"),
        (lambda: Jitter(limit=1.0), "limit"),
        (lambda: Schedule(()), "grid"),
        (lambda: Schedule((0.1, -1.0)), "grid"),
        (lambda: rule_of(regularization=-1.0), "regularization"),
        (lambda: rule_of(regularization=np.nan), "regularization"),
        (lambda: rule_of(regularization="auto"), "regularization"),
        (lambda: rule_of(exact="quadratic"), "exact"),
        (lambda: rule_of([[0.1], [0.5], [0.1]]), "nodes"),
        (lambda: rule_of([[0.1], [np.nan]]), "nodes"),
        (lambda: rule_of([0.1, 0.2]), "nodes"),
        (lambda: rule_of(np.empty((0, 1))), "nodes"),
        (lambda: kernel_rule(Matern(1.5), Uniform(), np.arange(20_001.0)[:, None]), "nodes"),
    ],
)
def test_bad_input(make, argument):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.argument == argument


def rule_of(nodes=((0.2,), (0.7,)), law=None, exact="constant", regularization=None):
    law = Uniform() if law is None else law
    return kernel_rule(Matern(1.5), law, nodes, exact=exact, regularization=regularization)


@pytest.mark.parametrize("kernel", [Matern(0.5), Matern(1.5), Gaussian()])
def test_duplicates_are_named(kernel):
    nodes = np.array([[0.3], [0.1], [0.5], [0.1], [-0.0], [0.0]])
    with pytest.raises(InputError, match=r"rows 4 and 5, 2 pair") as caught:
        kernel_rule(kernel, Uniform(), nodes)
    assert "distinct" in str(caught.value)
