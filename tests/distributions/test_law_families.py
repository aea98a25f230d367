"""Uniform, Normal, LogNormal, MultivariateT and Independent against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import ndtr, ndtri

from nestquad.distributions import (
    Independent,
    LogNormal,
    MultivariateT,
    Normal,
    Uniform,
    _families,
    as_law,
)
from nestquad.errors import InputError, NumericalError

# So many tests of samples need a small level; 4000 draws keep them sharp.
FALSE_ALARM = 1e-6
GRID = ((np.arange(2000) + 0.5) / 2000)[:, None]
FAMILIES = [
    pytest.param(Uniform(-2.0, 3.0), stats.uniform(-2.0, 5.0), id="uniform"),
    pytest.param(Normal(1.0, sd=0.5), stats.norm(1.0, 0.5), id="normal"),
    pytest.param(Normal(1.0, cov=[[0.25]]), stats.norm(1.0, 0.5), id="normal cov"),
    pytest.param(LogNormal(0.3, 0.8), stats.lognorm(0.8, scale=np.exp(0.3)), id="lognormal"),
    pytest.param(LogNormal(0.3, cov=[[0.64]]), stats.lognorm(0.8, scale=np.exp(0.3)), id="cov"),
]


def _finite_difference(log_density, x, step=1e-5):
    """Central differences of the log density, coordinate by coordinate."""
    gradient = np.empty_like(x)
    for j in range(x.shape[-1]):
        shift = np.zeros(x.shape[-1])
        shift[j] = step
        gradient[..., j] = (log_density(x + shift) - log_density(x - shift)) / (2 * step)
    return gradient


@pytest.mark.parametrize(("law", "reference"), FAMILIES)
def test_an_even_grid_reproduces_the_cdf(law, reference):
    x = law.from_uniform(GRID)
    np.testing.assert_allclose(reference.cdf(x), GRID, rtol=1e-12)
    # The distance of an even grid to its own law is 1/(2n), as small as it can be.
    assert stats.kstest(x[:, 0], reference.cdf).statistic == pytest.approx(1 / 4000, rel=1e-9)


@pytest.mark.parametrize(("law", "reference"), FAMILIES)
def test_samples_have_the_law(law, reference):
    x = law.sample(4000, np.random.default_rng(11))[:, 0]
    assert stats.kstest(x, reference.cdf).pvalue > FALSE_ALARM


@settings(max_examples=50, deadline=None)
@given(
    root=arrays(float, (3, 3), elements=st.floats(-2, 2)),
    mean=arrays(float, 3, elements=st.floats(-5, 5)),
)
def test_a_full_covariance_is_reproduced(root, mean):
    cov = root @ root.T + 0.1 * np.eye(3)
    law = Normal(mean, cov=cov)
    origin = law.from_normal(np.zeros((1, 3)))
    np.testing.assert_array_equal(origin[0], mean)
    # The transport is affine, so unit vectors give the columns of its matrix.
    matrix = (law.from_normal(np.eye(3)) - origin).T
    np.testing.assert_allclose(matrix @ matrix.T, cov, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(matrix, np.tril(matrix))
    np.testing.assert_allclose(law.chol @ law.chol.T, cov, rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    root=arrays(float, (4, 2), elements=st.floats(-3, 3).filter(lambda v: v == 0 or abs(v) > 1e-2))
)
@example(root=np.array([[1.0, 0.0625], [0.4375, 0.0], [2.0, 0.375], [0.25, 2.0]]))
@example(root=np.array([[1.0, 0.0625], [0.5, 0.0], [2.0, 0.375], [0.5, 2.0]]))
def test_a_singular_covariance_is_fine(root):
    cov = root @ root.T
    if not cov.any():
        return
    law = Normal(cov=cov)
    scale = np.abs(cov).max()
    np.testing.assert_allclose(law.chol @ law.chol.T, cov, atol=1e-9 * scale)
    np.testing.assert_array_equal(law.chol, np.tril(law.chol))
    assert (np.diagonal(law.chol) >= 0).all()


def test_singular_and_regular_covariances_in_one_batch():
    cov = np.array([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[4.0, 0.0], [0.0, 0.0]]])
    law = Normal(np.zeros((3, 2)), cov=cov)
    np.testing.assert_allclose(law.chol @ np.swapaxes(law.chol, 1, 2), cov, atol=1e-14)
    np.testing.assert_array_equal(law.chol[0], Normal(cov=cov[0]).chol)
    x = law.from_normal(np.random.default_rng(0).normal(size=(8, 2)))
    np.testing.assert_allclose(x[1, :, 0], x[1, :, 1], rtol=1e-12)
    np.testing.assert_allclose(x[2, :, 1], 0.0, atol=1e-14)


def test_correlated_coordinates_have_their_marginals_on_sobol_points():
    cov = np.array([[2.0, 1.0, 0.3], [1.0, 1.0, 0.0], [0.3, 0.0, 0.5]])
    law = Normal([1.0, 0.0, -1.0], cov=cov)
    u = stats.qmc.Sobol(3, rng=3).random(4096)
    x = law.from_uniform(np.clip(u, 1e-9, 1 - 1e-9))
    for direction in [*np.eye(3), np.array([1.0, -2.0, 0.5])]:
        marginal = stats.norm(direction @ law.loc, np.sqrt(direction @ cov @ direction))
        assert stats.kstest(x @ direction, marginal.cdf).statistic < 0.006
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.02)


def test_a_correlated_lognormal_is_the_exponential_of_a_normal():
    mean, cov = (
        np.array([0.1, -0.2, 0.0]),
        np.array([[0.3, 0.1, 0], [0.1, 0.2, -0.1], [0, -0.1, 1]]),
    )
    law = LogNormal(mean, cov=cov)
    x = law.sample(4000, np.random.default_rng(4))
    for direction in [*np.eye(3), np.array([1.0, -2.0, 0.5])]:
        marginal = stats.norm(direction @ mean, np.sqrt(direction @ cov @ direction))
        assert stats.kstest(np.log(x) @ direction, marginal.cdf).pvalue > FALSE_ALARM
    diagonal = LogNormal(mean, cov=np.diag([0.04, 0.09, 1.0]))
    u = np.random.default_rng(0).uniform(size=(9, 3))
    np.testing.assert_allclose(
        diagonal.from_uniform(u), LogNormal(mean, [0.2, 0.3, 1.0]).from_uniform(u), rtol=1e-14
    )


@pytest.mark.parametrize("df", [1.5, 4.0, 30.0])
def test_a_student_law_against_scipy(df):
    loc, shape = np.array([1.0, -1.0, 0.5]), np.array([[2.0, 1, 0.3], [1, 1, 0], [0.3, 0, 0.5]])
    law, reference = MultivariateT(loc, shape, df), stats.multivariate_t(loc, shape, df)
    u = stats.qmc.Sobol(3, rng=3).random(4096)
    x = law.from_uniform(np.clip(u, 1e-9, 1 - 1e-9))
    # Every direction is a univariate Student t variable with the same degrees of freedom.
    for direction in [*np.eye(3), np.array([1.0, -2.0, 0.5])]:
        marginal = stats.t(df, direction @ loc, np.sqrt(direction @ shape @ direction))
        assert stats.kstest(x @ direction, marginal.cdf).statistic < 0.01
    # So is the distance from the center, squared, as a ratio of chi-squares.
    centred = x - loc
    distance = (centred * np.linalg.solve(shape, centred.T).T).sum(axis=1) / 3
    assert stats.kstest(distance, stats.f(3, df).cdf).statistic < 0.01
    converted = as_law(reference)
    assert isinstance(converted, MultivariateT)
    np.testing.assert_array_equal(converted.from_uniform(u[1:9]), law.from_uniform(u[1:9]))


def test_a_student_law_in_one_coordinate_is_its_quantile_function():
    x = MultivariateT(1.0, [[4.0]], 3.0).from_uniform(GRID)
    np.testing.assert_allclose(x, stats.t(3.0, 1.0, 2.0).ppf(GRID), rtol=1e-9)


def test_a_uniform_never_leaves_its_box():
    rng = np.random.default_rng(0)
    low = rng.normal(size=(6000, 1)) * 10.0 ** rng.integers(-3, 3, size=(6000, 1))
    width = rng.uniform(0.0, 1.0, size=low.shape) * 10.0 ** rng.integers(-12, 3, size=low.shape)
    high = low + width + 1e-12
    high[:2000] = (
        np.abs(high[:2000]) * 1e-16
    )  # far smaller than the width: rounding is at its worst
    low[:2000] = -np.abs(low[:2000])
    u = np.array([[5e-324], [0.3], [np.nextafter(1.0, 0.0)]])
    x = Uniform(low, high).from_uniform(u)
    assert (x >= low[:, None]).all()
    assert (x <= high[:, None]).all()
    np.testing.assert_array_equal(Uniform().from_uniform(u), u)


def test_shared_uniforms_are_inverted_once(monkeypatch):
    inverted = []

    def counting(u):
        inverted.append(u.size)
        return ndtri(u)

    monkeypatch.setattr(_families, "ndtri", counting)
    theta = np.linspace(-1, 1, 40)[:, None]
    u = GRID[None]
    for law in (LogNormal(theta, 0.2), Normal(theta), Normal(theta, cov=[[2.0]])):
        inverted.clear()
        assert law.from_uniform(u).shape == (40, 2000, 1)
        assert inverted == [2000]


def test_independent_deals_out_the_driving_variables():
    theta = np.array([[0.0], [1.0]])
    law = Independent(Uniform(0.0, 2.0), Normal(theta, sd=3.0), Normal(cov=np.eye(2)))
    assert (law.dim, law.base_dim, law.batch) == (4, 4, 2)
    u = np.random.default_rng(0).uniform(size=(2, 7, 4))
    x = law.from_uniform(u)
    np.testing.assert_array_equal(x[..., 0], 2 * u[..., 0])
    np.testing.assert_array_equal(x[..., 1], 3 * ndtri(u[..., 1]) + theta)
    np.testing.assert_array_equal(x[..., 2:], ndtri(u[..., 2:]))


def test_independent_takes_nested_ones_apart():
    inner = Independent(Uniform(), Normal(dim=2))
    law = Independent(inner, LogNormal())
    assert [type(part) for part in law.laws] == [Uniform, Normal, LogNormal]
    assert law.dim == 4
    assert Independent(Normal(), LogNormal()).base == "normal"
    assert law.base == "uniform"


def test_independent_marginals_on_sobol_points():
    law = Independent(Uniform(-1, 1), LogNormal(0.0, 0.5))
    u = np.clip(stats.qmc.Sobol(2, rng=1).random(4096), 1e-9, 1 - 1e-9)
    x = law.from_uniform(u)
    assert stats.kstest(x[:, 0], stats.uniform(-1, 2).cdf).statistic < 0.002
    assert stats.kstest(x[:, 1], stats.lognorm(0.5).cdf).statistic < 0.002
    levels = ndtr(np.log(x[:, 1]) / 0.5)
    below = np.mean((x[:, 0] < 0.2) & (levels < 0.7))
    assert below == pytest.approx(0.6 * 0.7, abs=2e-3)


def test_a_batch_of_one_is_shared():
    law = Independent(Normal([[1.0]]), Normal(np.zeros((3, 1))))
    assert law.batch == 3
    assert law.from_uniform(np.full((3, 2, 2), 0.5)).shape == (3, 2, 2)
    assert Normal(np.zeros((3, 2)), cov=np.eye(2)[None]).cov.shape == (3, 2, 2)
    assert Normal(np.zeros((1, 2)), cov=np.tile(np.eye(2), (3, 1, 1))).loc.shape == (3, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normal(0.0, sd=0.0), "sd: got 0 at index"),
        (lambda: Normal(0.0, sd=[1.0, -2.0]), r"sd: got -2 at index \[1\]"),
        (lambda: LogNormal(0.0, -1.0), "sd: got -1"),
        (lambda: Normal(np.nan), "mean: got a value that is not finite"),
        (lambda: Normal(0.0, sd=np.inf), "sd: got a value that is not finite"),
        (lambda: Normal([0.0, np.inf]), r"index \[1\]"),
        (lambda: Normal(0.0, sd=1.0, cov=[[1.0]]), "sd and cov: got both"),
        (lambda: Normal([1.0, 2.0], sd=[1.0, 1.0, 1.0]), r"\(2,\) and \(3,\)"),
        (lambda: Normal([1.0, 2.0], dim=3), "with dim=3"),
        (lambda: Normal([1.0, 2.0], dim=1), "with dim=1"),
        (lambda: Normal(np.zeros((3, 2)), sd=np.ones((2, 2))), r"\(3, 2\) and \(2, 2\)"),
        (lambda: Normal(np.zeros((1, 2, 3))), r"mean: got shape \(1, 2, 3\)"),
        (lambda: Normal([]), "empty"),
        (lambda: Normal("a"), "real numbers"),
        (lambda: Normal(1j), "real numbers"),
        (lambda: Normal(dim=0), "dim: got 0"),
        (lambda: Normal(cov=2.0), "For independent coordinates give sd"),
        (lambda: Normal(cov=np.ones((2, 3))), r"cov: got shape \(2, 3\)"),
        (lambda: Normal(cov=np.eye(2), dim=3), "dim: got 3"),
        (lambda: Normal([1.0, 2.0, 3.0], cov=np.eye(2)), r"mean: got shapes \(3,\)"),
        (lambda: Normal(np.zeros((2, 2)), cov=np.tile(np.eye(2), (3, 1, 1))), r"\[2, 3\]"),
        (lambda: Normal(cov=[[1.0, np.nan], [0.0, 1.0]]), "cov: got a value that is not finite"),
        (lambda: Normal(cov=[[1.0, 0.5], [0.4, 1.0]]), r"\[0, 1\] = 0.5 and \[1, 0\] = 0.4"),
        (lambda: Normal(cov=[[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
        (
            lambda: Normal(cov=[np.eye(2), [[1.0, 2.0], [2.0, 1.0]]]),
            "in batch item 1, a matrix whose smallest eigenvalue is -1",
        ),
        (lambda: Normal(cov=[np.eye(2), [[1.0, 0.2], [0.1, 1.0]]]), "in batch item 1, entries"),
        (lambda: Normal(cov=np.zeros((2, 2))), "not zero"),
        (lambda: Normal(cov=-np.eye(2)), "smallest eigenvalue is -1"),
        (lambda: LogNormal(0.0, sd=1.0, cov=[[1.0]]), "sd and cov: got both"),
        (lambda: LogNormal([1.0, 2.0, 3.0], cov=np.eye(2)), r"mean: got shapes \(3,\)"),
        (lambda: MultivariateT(0.0, np.eye(2), -1.0), "df: got -1.0"),
        (lambda: MultivariateT(0.0, np.eye(2), [3.0, 4.0]), "df: got"),
        (lambda: MultivariateT(0.0, 2.0, 3.0), r"shape: got shape \(\)"),
        (lambda: MultivariateT([0.0] * 3, np.eye(2), 3.0), r"loc: got shapes \(3,\)"),
        (lambda: MultivariateT(0.0, [[1.0, 2.0], [2.0, 1.0]], 3.0), "shape: got a matrix whose"),
        (lambda: Uniform(1.0, 1.0), "low < high"),
        (lambda: Uniform([0.0, 3.0], [1.0, 2.0]), r"low = 3, high = 2 at index \[1\]"),
        (lambda: Uniform(-1e308, 1e308), "wider than the largest float"),
        (lambda: Uniform(-np.inf, 0.0), "not finite"),
        (lambda: Independent(), "at least one law"),
        (lambda: Independent(3.0), r"laws\[0\]"),
        (
            lambda: Independent(Normal(np.zeros((2, 1))), Normal(np.zeros((3, 1)))),
            r"batches of \[2, 3\] laws",
        ),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_rounding_in_a_covariance_is_forgiven():
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(6, 3))
    cov = factor @ factor.T
    cov[0, 1] *= 1 + 1e-15
    law = Normal(cov=cov)
    np.testing.assert_array_equal(law.cov, law.cov.T)
    np.testing.assert_allclose(law.chol @ law.chol.T, cov, atol=1e-7)


def test_an_overflowing_lognormal_is_an_error_not_an_infinity():
    with pytest.raises(NumericalError, match="largest float"):
        LogNormal(700.0, 10.0).from_uniform([[0.5], [0.99]])
    # An underflow is a zero, which is right to within the smallest float.
    assert LogNormal(-800.0, 1.0).from_uniform([[0.5]])[0, 0] == 0.0
