"""Several coordinates, batches, and kernels and laws made of others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from embedding_reference import normal_mean, uniform_mean
from numpy.testing import assert_allclose
from scipy.integrate import quad

from nestquad.distributions import (
    Empirical,
    Independent,
    LogNormal,
    Normal,
    Sampler,
    Transport,
    Uniform,
)
from nestquad.embeddings import double_embedding, mean_embedding, supported_pairs
from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels import (
    Anova,
    Gaussian,
    Matern,
    ProductKernel,
)

RNG = np.random.default_rng(11)
SCALES = np.array([0.2, 1.0, 4.0])
MIXED = Independent(Uniform(-1.0, 2.0), Normal(0.5, sd=2.0), Uniform(0.0, 0.3))
X = np.column_stack([RNG.uniform(-2, 3, 7), RNG.normal(0, 3, 7), RNG.uniform(-0.2, 0.5, 7)])


def factor_means(kernels):
    """One-dimensional integrals of the kernels under the coordinates of MIXED, at X."""
    return [
        np.array([uniform_mean(kernels[0], SCALES[0], -1.0, 2.0, t) for t in X[:, 0]]),
        np.array([normal_mean(kernels[1], SCALES[1], 0.5, 2.0, t) for t in X[:, 1]]),
        np.array([uniform_mean(kernels[2], SCALES[2], 0.0, 0.3, t) for t in X[:, 2]]),
    ]


def quadrature_nodes(n=24):
    """A tensor rule that integrates smooth functions under MIXED to rounding: nodes, weights."""
    u, wu = np.polynomial.legendre.leggauss(n)
    z, wz = np.polynomial.hermite_e.hermegauss(4 * n)
    axes = [(-1 + 1.5 * (u + 1), wu / 2), (0.5 + 2 * z, wz / wz.sum()), (0.15 * (u + 1), wu / 2)]
    grid = np.meshgrid(*(a for a, _ in axes), indexing="ij")
    weights = axes[0][1][:, None, None] * axes[1][1][:, None] * axes[2][1]
    return np.stack([g.ravel() for g in grid], axis=-1), weights.ravel()


@pytest.mark.parametrize("base", [Matern(0.5), Matern(2.5), Gaussian()], ids=repr)
def test_products_of_independent_coordinates(base):
    factors = factor_means([base.with_lengthscale(s) for s in SCALES])
    kernel = base.with_lengthscale(SCALES)
    assert_allclose(mean_embedding(kernel, MIXED, X), np.prod(factors, axis=0), rtol=1e-10)
    anova = mean_embedding(Anova(kernel, 2, 0.5), MIXED, X)
    a, b, c = (0.5 * f for f in factors)
    expected = (1 + a + b + c + a * b + b * c + a * c) / (1 + 1.5 + 0.75)
    assert_allclose(anova, expected, rtol=1e-10)


SMOOTH = Gaussian([1.5, 2.0, 0.7])
COMBINED = [
    SMOOTH,
    Anova(SMOOTH, 2, 0.7),
]


@pytest.mark.parametrize("kernel", COMBINED, ids=repr)
def test_combinations_against_a_tensor_rule_of_the_whole_kernel(kernel):
    t, w = quadrature_nodes()
    assert_allclose(mean_embedding(kernel, MIXED, X), kernel(X, t) @ w, rtol=1e-10)
    assert_allclose(
        double_embedding(kernel, MIXED), w @ mean_embedding(kernel, MIXED, t), rtol=1e-10
    )


def test_doubles_multiply_and_add():
    pairs = zip(SCALES, MIXED.laws, strict=True)
    doubles = [double_embedding(Matern(1.5, scale), law) for scale, law in pairs]
    kernel = Matern(1.5, SCALES)
    assert_allclose(double_embedding(kernel, MIXED), np.prod(doubles), rtol=1e-14)
    first_order = double_embedding(Anova(kernel, 1), MIXED)
    assert_allclose(first_order, (1 + np.sum(doubles)) / 4, rtol=1e-14)


BATCHED = [
    Uniform(RNG.normal(size=(4, 2)), 3.0 + RNG.random((4, 2))),
    Normal(RNG.normal(size=(4, 2)), sd=0.1 + RNG.random((4, 2))),
    Normal(
        RNG.normal(size=(4, 2)),
        cov=np.array([[1.0, 0.5], [0.5, 2.0]]) * np.arange(1, 5)[:, None, None],
    ),
    Independent(Uniform(RNG.normal(size=(4, 1)), 4.0), Normal(0.0, sd=2.0)),
    Empirical(RNG.normal(size=(4, 6, 2)), RNG.random((4, 6))),
]


def single(law, t):
    """The t-th law of a batch."""
    if isinstance(law, Uniform):
        return Uniform(law.low[t], law.high[t])
    if isinstance(law, Independent):
        return Independent(*(part if part.batch is None else single(part, t) for part in law.laws))
    if isinstance(law, Empirical):
        return Empirical(law.samples[t], law.weights[t])
    if law.cov is not None:
        return Normal(law.loc[t], cov=law.cov[t])
    return Normal(law.loc[t], sd=law.sd[t])


@pytest.mark.parametrize("lengthscale", [0.5, [0.5, 2.0], np.exp(RNG.normal(size=(4, 2)))], ids=str)
@pytest.mark.parametrize(
    ("base", "law"),
    [(Gaussian(), law) for law in BATCHED]
    + [(Matern(1.5), law) for law in BATCHED if getattr(law, "cov", None) is None],
    ids=lambda value: type(value).__name__,
)
def test_a_batch_of_laws_is_the_laws_one_by_one(law, lengthscale, base):
    kernel = base.with_lengthscale(lengthscale)
    own, shared = RNG.normal(size=(4, 5, 2)), RNG.normal(size=(5, 2))
    mean, double = mean_embedding(kernel, law, own), double_embedding(kernel, law)
    for nodes in (shared, shared[None]):
        assert mean_embedding(kernel, law, nodes).shape == (4, 5)
    assert mean.shape == (4, 5)
    assert double.shape == (4,)
    for t in range(4):
        scale = lengthscale[t] if np.ndim(lengthscale) == 2 else lengthscale
        one, law_t = base.with_lengthscale(scale), single(law, t)
        assert_allclose(mean[t], mean_embedding(one, law_t, own[t]), rtol=1e-13)
        assert_allclose(
            mean_embedding(kernel, law, shared)[t], mean_embedding(one, law_t, shared), rtol=1e-13
        )
        assert_allclose(double[t], double_embedding(one, law_t), rtol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Matern(1.5, np.ones((4, 2))), Uniform(dim=2)),
        (Gaussian(np.ones((4, 2))), Normal(cov=[[1.0, 0.5], [0.5, 1.0]])),
        (Anova(Gaussian(np.ones((4, 1))), 1), Uniform(dim=2)),
    ],
)
def test_a_batch_on_either_side_has_the_full_shape(kernel, law):
    x = RNG.random((3, 2))
    assert mean_embedding(kernel, law, x).shape == (4, 3)
    assert double_embedding(kernel, law).shape == (4,)


@pytest.mark.parametrize("lengthscale", [[1e-3, 2e-3], [0.5, 1.0], [1e3, 50.0]], ids=str)
@pytest.mark.parametrize("cov", [[[1.0, 0.8], [0.8, 2.0]], [[1.0, 2.0], [2.0, 4.0]]], ids=str)
def test_gaussian_kernel_under_full_covariance(lengthscale, cov):
    # In coordinates that make both quadratic forms diagonal the integral is a product of lines,
    # each integrated numerically with the kernel of one coordinate.
    kernel, law = Gaussian(lengthscale), Normal([0.3, -0.2], cov=cov)
    scale = np.array(lengthscale)
    variances, rotation = np.linalg.eigh(np.array(cov) / np.outer(scale, scale))
    variances = np.maximum(variances, 0.0)
    x = law.loc + np.array([[0.0, 0.0], [0.5, -1.0], [3.0, 4.0]]) * np.minimum(scale, 1.0)
    expected = []
    for point in x:
        r = rotation.T @ ((point - law.loc) / scale)
        factors = [
            normal_mean(Gaussian(), 1.0, 0.0, np.sqrt(v), t) if v > 1e-12 else np.exp(-(t**2) / 2)
            for v, t in zip(variances, r, strict=True)
        ]
        expected.append(np.prod(factors))
    assert_allclose(mean_embedding(kernel, law, x), expected, rtol=1e-9)
    twice = Normal([0.3, -0.2], cov=2 * np.array(cov))
    assert_allclose(
        double_embedding(kernel, law), mean_embedding(kernel, twice, law.loc[None])[0], rtol=1e-13
    )


def test_full_covariance_against_a_rule_in_the_plane():
    law, kernel = Normal([0.3, -0.2], cov=[[1.0, 0.8], [0.8, 2.0]]), Gaussian([1.0, 2.0])
    z, w = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.outer(w, w).ravel() / w.sum() ** 2
    t = law.from_normal(grid)
    x = np.array([[0.0, 0.0], [3.0, -4.0]])
    assert_allclose(mean_embedding(kernel, law, x), kernel(x, t) @ weights, rtol=1e-10)
    double = weights @ mean_embedding(kernel, law, t)
    assert_allclose(double_embedding(kernel, law), double, rtol=1e-10)


@pytest.mark.parametrize("order", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.5, 1e3])
@pytest.mark.parametrize("correlation", [-0.95, 0.6])
def test_matern_kernel_under_two_correlated_normals(order, lengthscale, correlation):
    """Against adaptive quadrature of the conditional integral over the other coordinate."""
    sd = np.array([0.7, 1.3])
    cov = np.outer(sd, sd) * np.array([[1.0, correlation], [correlation, 1.0]])
    law, kernel = Normal(np.array([0.2, -0.4]), cov=cov), Matern(order, lengthscale)
    x = np.array([[0.2, -0.4], [0.5, 0.1], [-1.5, 2.0]])
    result = mean_embedding(kernel, law, x)
    slope, rest = cov[0, 1] / cov[1, 1], np.sqrt(cov[0, 0] - cov[0, 1] ** 2 / cov[1, 1])
    for node, value in zip(x, result, strict=True):

        def inside(t, node=node):
            """Coordinate 2 given; the first one integrated in closed form."""
            given = Normal(np.array([0.2 + slope * (t + 0.4)]), sd=rest)
            first = mean_embedding(kernel.coordinate(0, 2), given, node[:1, None])[0]
            second = kernel.coordinate(1, 2).evaluate(node[1:, None], np.array([[t]]))[0, 0]
            return first * second * np.exp(-0.5 * ((t + 0.4) / sd[1]) ** 2)

        low, high = -0.4 - 9 * sd[1], -0.4 + 9 * sd[1]
        decays = (-40, -8, -2, 0, 2, 8, 40)
        bend = -0.4 + (node[0] - 0.2) / slope
        ends = {low, high, -0.4, *(node[1] + k * lengthscale for k in decays)}
        ends |= {bend + k * s / abs(slope) for k in decays for s in (lengthscale, rest)}
        ends = sorted(e for e in ends if low <= e <= high)
        parts = [quad(inside, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in pairwise(ends)]
        exact = sum(parts) / (sd[1] * np.sqrt(2 * np.pi))
        assert value == pytest.approx(exact, rel=1e-9, abs=1e-16)


def test_matern_double_under_two_correlated_normals_is_the_mean_of_the_mean():
    law = Normal(np.array([0.2, -0.4]), cov=np.array([[0.5, 0.4], [0.4, 1.7]]))
    kernel = Matern(0.5, 0.8)
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.outer(weight, weight).ravel() / weight.sum() ** 2
    points = law.loc + z @ np.linalg.cholesky(law.cov).T
    average = weight @ mean_embedding(kernel, law, points)
    assert float(double_embedding(kernel, law)) == pytest.approx(average, rel=1e-6)


def test_three_correlated_coordinates_of_a_matern_kernel_are_refused():
    cov = np.eye(3) + 0.3
    with pytest.raises(UnsupportedError, match="correlated coordinates"):
        mean_embedding(Matern(0.5), Normal(np.zeros(3), cov=cov), np.zeros((1, 3)))


def test_a_diagonal_covariance_is_independent():
    x = RNG.normal(size=(5, 2))
    diagonal, plain = Normal(1.0, cov=np.diag([1.0, 4.0])), Normal(1.0, sd=[1.0, 2.0])
    for kernel in (Matern(2.5), Gaussian([0.3, 3.0])):
        assert_allclose(mean_embedding(kernel, diagonal, x), mean_embedding(kernel, plain, x))
        assert_allclose(double_embedding(kernel, diagonal), double_embedding(kernel, plain))


def test_a_correlated_block_beside_other_coordinates():
    block = Normal(cov=[[1.0, 0.8], [0.8, 2.0]])
    law, scale = Independent(Uniform(), block), np.array([0.5, 1.0, 2.0])
    x = RNG.random((4, 3))
    expected = mean_embedding(Gaussian(0.5), Uniform(), x[:, :1]) * mean_embedding(
        Gaussian(scale[1:]), block, x[:, 1:]
    )
    assert_allclose(mean_embedding(Gaussian(scale), law, x), expected, rtol=1e-14)


def test_correlated_lognormals_are_refused():
    law = LogNormal(cov=[[1.0, 0.8], [0.8, 2.0]])
    with pytest.raises(UnsupportedError, match="correlated"):
        mean_embedding(Gaussian(), law, np.ones((3, 2)))


@pytest.mark.parametrize(
    "kernel",
    [
        Matern(1.5, 0.5),
        Anova(Gaussian(), 2),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_anything_under_samples(kernel, monkeypatch):
    law = Empirical(RNG.normal(size=(9, 2)), RNG.random(9))
    x = RNG.normal(size=(4, 2))
    mean = kernel(x, law.samples) @ law.weights
    double = law.weights @ kernel(law.samples, law.samples) @ law.weights
    for block in (2**22, 5):  # in one piece, and in several
        monkeypatch.setattr("nestquad.limits.KERNEL_NUMBERS", block)
        assert_allclose(mean_embedding(kernel, law, x), mean, rtol=1e-13)
        assert_allclose(double_embedding(kernel, law), double, rtol=1e-13)


def test_samples_beside_other_laws():
    samples = Empirical(RNG.random((5, 2)), RNG.random(5))
    law = Independent(samples, Uniform())
    kernel, x = Matern(0.5, [0.1, 1.0, 3.0]), RNG.random((4, 3))
    expected = (Matern(0.5, [0.1, 1.0])(x[:, :2], samples.samples) @ samples.weights) * (
        mean_embedding(Matern(0.5, 3.0), Uniform(), x[:, 2:])
    )
    assert_allclose(mean_embedding(kernel, law, x), expected, rtol=1e-13)


@dataclass(frozen=True, eq=False)
class Unknown(ProductKernel):
    lengthscale: float = 1.0

    def smoothness(self, dim):
        return 1.0

    def univariate(self, x, y):
        return np.minimum(x[..., :, None], y[..., None, :])


@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Matern(1.5), LogNormal(0.0, 1.0)),
        (Gaussian(), Independent(Normal(), LogNormal(0.0, 1.0))),
        (Matern(1.5), Normal(cov=np.eye(3) + 0.3)),
        (Matern(1.5), Normal(cov=[[0.0, 0.0], [0.0, 1.0]])),
        (Anova(Gaussian(), 2), Normal(cov=[[1.0, 0.5], [0.5, 1.0]])),
        (Anova(Gaussian(), 2), Independent(Uniform(), Normal(cov=[[1.0, 0.5], [0.5, 1.0]]))),
        (Matern(1.5), Transport(lambda u: u**2, dim=1, out_dim=1)),
        (Gaussian(), Transport(lambda u: u**2, dim=2, out_dim=2)),
        (Gaussian(), Sampler(lambda n, rng: rng.random((n, 2)), dim=2)),
        (Unknown(), Uniform()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pairs_without_closed_form_say_what_there_is(kernel, law):
    x = np.full((2, law.dim), 0.5)
    for call in (lambda: mean_embedding(kernel, law, x), lambda: double_embedding(kernel, law)):
        with pytest.raises(UnsupportedError) as caught:
            call()
        message = str(caught.value)
        assert "Matern on Uniform; " in message
        assert "any kernel on Empirical" in message
        assert "Transport" in message
        assert "from_uniform" in message


def test_gaussian_under_a_constant_coordinate():
    x = np.array([[0.5, 1.0], [2.0, -3.0]])
    line = mean_embedding(Gaussian(), Normal(), x[:, 1:])
    got = mean_embedding(Gaussian(), Normal(cov=[[0.0, 0.0], [0.0, 1.0]]), x)
    assert_allclose(got, np.exp(-0.5 * x[:, 0] ** 2) * line, rtol=1e-14)


def test_supported_pairs_work():
    laws = {"Uniform": Uniform(), "Normal": Normal(), "Empirical": Empirical([[0.5]])}
    kernels = {
        "Matern": Matern(1.5),
        "Gaussian": Gaussian(),
    }
    plain = [pair for pair in supported_pairs() if pair[0] in kernels and pair[1] in laws]
    assert len(plain) == 4
    for kernel, law in plain:
        assert 0 < double_embedding(kernels[kernel], laws[law]) <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_embedding(Gaussian(), Uniform(), np.zeros((2, 2))), "as the law has, 1"),
        (lambda: mean_embedding(Gaussian(), Uniform(), np.zeros(2)), r"\(..., n, d\)"),
        (lambda: mean_embedding(Gaussian(), Uniform(), [[np.inf]]), "finite"),
        (lambda: mean_embedding(Gaussian(), "uniform", np.zeros((2, 1))), "a law of nestquad"),
        (
            lambda: mean_embedding(Gaussian(), Normal(np.zeros((3, 1))), np.zeros((2, 4, 1))),
            "same T",
        ),
        (lambda: mean_embedding(Gaussian([1.0, 2.0]), Uniform(dim=3), np.zeros((1, 3))), "each of"),
        (lambda: double_embedding(Gaussian([1.0, 2.0]), Uniform(dim=3)), "each of the 3"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
