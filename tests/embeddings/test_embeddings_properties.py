"""What holds for every embedding, whatever the kernel and the law."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nestquad.distributions import Empirical, Independent, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Anova, Gaussian, Matern

positive = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)
reals = st.floats(-50.0, 50.0)
stationary = st.one_of(
    st.builds(Matern, st.sampled_from([0.5, 1.5, 2.5, 3.5]), positive),
    st.builds(Gaussian, positive),
)
kernels = st.one_of(
    stationary,
    st.builds(Anova, stationary, st.integers(1, 3), st.floats(0.1, 3.0)),
)
lines = st.one_of(
    st.builds(lambda low, width: Uniform(low, low + width), reals, positive),
    st.builds(lambda loc, sd: Normal(loc, sd=sd), reals, positive),
    st.builds(lambda t: Empirical(t), arrays(np.float64, (3, 1), elements=reals)),
)
laws = st.builds(Independent, lines, lines)
offsets = arrays(
    np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=st.floats(-3.0, 3.0)
)


def extended_gram(kernel, law, x):
    """The Gram matrix of the evaluations at x and of the integral."""
    mean = mean_embedding(kernel, law, x)
    corner = double_embedding(kernel, law)
    return np.block([[kernel(x, x), mean[:, None]], [mean[None, :], corner]])


@settings(max_examples=200, deadline=None)
@given(kernel=kernels, law=laws, scale=positive, offset=offsets)
def test_evaluations_and_integral_have_a_covariance(kernel, law, scale, offset):
    # Whatever the nodes and weights, the squared worst-case error is not negative.
    median = law.from_uniform(np.full((1, law.base_dim), 0.5))
    x = median + scale * offset
    gram = extended_gram(kernel, law, x)
    assert np.isfinite(gram).all()
    eigenvalues = np.linalg.eigvalsh(gram)
    assert eigenvalues[0] >= -1e-13 * len(gram) * max(eigenvalues[-1], 1.0)
    assert (gram[:, -1] >= 0).all()
    assert (gram[:, -1] <= 1 + 1e-14).all()  # a kernel of at most 1 has a mean of at most 1


@settings(max_examples=100, deadline=None)
@given(kernel=stationary, loc=reals, width=positive, power=st.integers(-20, 20), offset=offsets)
def test_units_do_not_matter(kernel, loc, width, power, offset):
    # A power of two changes no digit of any number, so the answer must not change either.
    unit, x = 2.0**power, loc + width * offset[:, :1]
    stretched = kernel.with_lengthscale(kernel.lengthscale * unit)
    for law, other in (
        (Uniform(loc, loc + width), Uniform(loc * unit, (loc + width) * unit)),
        (Normal(loc, sd=width), Normal(loc * unit, sd=width * unit)),
    ):
        mean, moved = mean_embedding(kernel, law, x), mean_embedding(stretched, other, x * unit)
        np.testing.assert_allclose(moved, mean, rtol=1e-14)
        np.testing.assert_allclose(
            double_embedding(stretched, other), double_embedding(kernel, law), rtol=1e-14
        )
