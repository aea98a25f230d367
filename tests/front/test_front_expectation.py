"""A single expectation by kernel quadrature, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import nestquad as nq


def x0(function):
    return lambda x: function(x[:, 0])


CASES = {
    "exp on the interval": (x0(np.exp), nq.Uniform(), np.e - 1, 1e-5),
    "cos on a box": (x0(np.cos), nq.Uniform(-1.0, 2.0), (np.sin(2) + np.sin(1)) / 3, 1e-4),
    "square of a normal": (x0(np.square), nq.Normal(1.0, 2.0), 5.0, 0.02),
    "cos of a normal": (x0(np.cos), nq.Normal(), np.exp(-0.5), 1e-3),
    "lognormal": (x0(np.sqrt), nq.LogNormal(0.2, 0.5), np.exp(0.1 + 0.03125), 2e-3),
    "kink": (x0(lambda x: np.abs(x - 0.3)), nq.Uniform(), 0.29, 1e-4),
    "gamma of scipy": (x0(np.sin), stats.gamma(2.0), 0.5, 0.02),
    "product": (lambda x: x[:, 0] * x[:, 1] ** 2, nq.Uniform(dim=2), 1 / 6, 1e-4),
    "correlated": (
        lambda x: x[:, 0] * x[:, 1],
        nq.Normal(cov=[[1.0, 0.5], [0.5, 1.0]]),
        0.5,
        0.05,
    ),
    "six dimensions": (lambda x: x.sum(axis=1) ** 2, nq.Uniform(dim=6), 9.5, 0.05),
    "atoms": (x0(np.square), nq.Empirical([[0.0], [1.0], [4.0]], [0.5, 0.25, 0.25]), 4.25, 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_closed_forms(name):
    h, law, truth, tolerance = CASES[name]
    est = nq.expectation(h, law, budget=200, rng=0)
    assert est.value == pytest.approx(truth, abs=tolerance)
    assert 0 < est.std_error < 0.1 * max(abs(truth), 1.0)
    assert est.n_evaluations == 200
    assert est.sample.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "wanted"),  # half-width over the error
    [("exp on the interval", 104), ("cos on a box", 110), ("square of a normal", 7.0),
     ("cos of a normal", 4.2), ("lognormal", 7.3), ("kink", 18), ("product", 58), ("atoms", 5.5)],
)  # fmt: skip
def test_error_bars_cover(name, wanted):
    h, law, truth, _ = CASES[name]
    runs = [nq.expectation(h, law, budget=60, rng=seed) for seed in range(20)]
    covered = [low <= truth <= high for low, high in (run.interval() for run in runs)]
    assert np.mean(covered) >= 0.85
    errors = np.array([run.value for run in runs]) - truth
    width = np.median([run.half_width for run in runs]) / np.sqrt(np.mean(errors**2))
    assert wanted / 1.5 < width < 1.5 * wanted


@pytest.mark.parametrize("points", ["iid", "sobol", "lattice"])
def test_any_points(points):
    est = nq.expectation(x0(np.exp), nq.Uniform(), budget=64, points=points, rng=1)
    assert est.value == pytest.approx(np.e - 1, abs=2e-3)


def test_several_functions_at_once():
    def h(x):
        return np.stack([x[:, 0], np.exp(x[:, 0]), np.ones(len(x))], axis=1)

    est = nq.expectation(h, nq.Uniform(), budget=64, rng=0)
    np.testing.assert_allclose(est.value, [0.5, np.e - 1, 1.0], atol=1e-3)
    assert est.std_error.shape == (3,)
    assert est.std_error[2] < 1e-12  # constants are exact
    assert est.covariance.shape == (3, 3)


def test_native_space_and_given_points():
    nodes = np.linspace(-4, 4, 30)[:, None]
    est = nq.expectation(
        x0(np.cos),
        nq.Normal(),
        budget=30,
        points=nq.Given(nodes, space="native"),
        recipe=nq.KernelQuadrature(nq.Gaussian(1.0), space="native", lengthscale="fixed"),
    )
    np.testing.assert_array_equal(est.sample.theta, nodes)
    assert est.value == pytest.approx(np.exp(-0.5), abs=1e-4)


def test_given_native_points_inside_the_cube_are_not_mistaken_for_uniforms():
    nodes = np.array([[0.1], [0.3], [0.6], [0.9]])
    est = nq.expectation(
        x0(np.cos),
        nq.Normal(),
        budget=4,
        points=nq.Given(nodes, space="native"),
        recipe=nq.KernelQuadrature(nq.Gaussian(1.0), space="native", lengthscale="fixed"),
    )
    np.testing.assert_array_equal(est.sample.theta, nodes)


def test_many_nodes_on_a_line():  # dense weights would need 20 GB
    recipe = nq.KernelQuadrature(nq.Matern(0.5, 0.5), space="uniform", lengthscale="fixed")
    est = nq.expectation(x0(np.exp), nq.Uniform(), budget=50_000, recipe=recipe, rng=0)
    assert est.value == pytest.approx(np.e - 1, abs=1e-8)


def test_a_law_without_a_transport_is_refused():
    law = nq.Sampler(lambda n, rng: rng.normal(2.0, 1.0, (n, 1)), dim=1)
    with pytest.raises(nq.InputError, match="sampled"):
        nq.expectation(x0(np.square), law, budget=60, rng=0)


def test_seeds():
    values = [nq.expectation(x0(np.exp), nq.Uniform(), budget=20, rng=s).value for s in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("budget", [3, 0, -5, 10.5, np.inf, np.nan, "8", None])
def test_bad_budgets(budget):
    with pytest.raises(nq.InputError, match="budget"):
        nq.expectation(x0(np.exp), nq.Uniform(), budget=budget)


def test_as_many_values_as_coordinates_are_several_outputs():
    assert nq.expectation(lambda x: x, nq.Uniform(dim=2), budget=16, rng=0).value.shape == (2,)


@pytest.mark.parametrize(
    ("h", "message"),
    [
        (lambda x: x[:5, 0], r"shape \(5,\).*expected \(16,\)"),
        (lambda x: x[:, 0] * np.nan, "h returned nan"),
        (lambda x: x[:, 0] * 1j, "complex"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_bad_functions(h, message):
    with pytest.raises(nq.EvaluationError, match=message):
        nq.expectation(h, nq.Uniform(), budget=16, rng=0)


def test_a_batch_of_laws_is_refused():
    with pytest.raises(nq.InputError, match="law"):
        nq.expectation(x0(np.exp), nq.Uniform(np.zeros((3, 1)), 1.0), budget=16)
