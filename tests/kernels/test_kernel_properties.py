"""What holds for every kernel: positive definite, immutable, compared by value."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from nestquad.kernels import (
    Anova,
    Gaussian,
    Matern,
)

lengthscales = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)
products = st.one_of(
    st.builds(Matern, st.sampled_from([0.5, 1.5, 2.5, 3.5]), lengthscales),
    st.builds(Gaussian, lengthscales),
)
kernels = st.one_of(
    products,
    st.builds(Anova, products, st.integers(1, 4), st.floats(0.1, 3.0)),
)
nodes = arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=st.floats(0.0, 1.0))


@settings(max_examples=150, deadline=None)
@given(kernel=kernels, x=nodes)
def test_gram_matrices_are_positive_semidefinite(kernel, x):
    gram = kernel(x, x)
    assert_array_equal(gram.shape, (len(x), len(x)))
    np.testing.assert_allclose(gram, gram.T, rtol=1e-12, atol=1e-12 * np.abs(gram).max())
    np.testing.assert_allclose(np.diagonal(gram), 1.0, rtol=1e-12)
    eigenvalues = np.linalg.eigvalsh((gram + gram.T) / 2)
    assert eigenvalues[0] >= -1e-12 * max(eigenvalues[-1], 1e-300)


@settings(max_examples=100, deadline=None)
@given(kernel=kernels, lengthscale=lengthscales)
def test_with_lengthscale_changes_only_that(kernel, lengthscale):
    changed = kernel.with_lengthscale(lengthscale)
    assert type(changed) is type(kernel)
    np.testing.assert_array_equal(
        changed.lengthscale, np.broadcast_to(lengthscale, np.shape(changed.lengthscale))
    )
    assert changed.with_lengthscale(lengthscale) == changed
    assert changed.smoothness(2) == kernel.smoothness(2)


@settings(max_examples=100, deadline=None)
@given(kernel=kernels)
def test_equal_by_value(kernel):
    scale = np.array([0.3, 0.7])
    first, second = kernel.with_lengthscale(scale), kernel.with_lengthscale(scale.copy())
    assert first == second
    assert hash(first) == hash(second)
    assert first != kernel.with_lengthscale(scale * 2.0)
    assert first != "a kernel"
    assert len({first, second}) == 1


def test_kernels_of_other_types_or_parameters_differ():
    different = [
        Matern(0.5),
        Matern(1.5),
        Matern(1.5, [1.0]),
        Matern(1.5, [[1.0]]),
        Gaussian(),
        Anova(Gaussian(), 1),
        Anova(Gaussian(), 2),
        Anova(Gaussian(), 2, 0.5),
    ]
    assert len(set(different)) == len(different)


def test_kernels_are_immutable_and_keep_their_own_lengthscale():
    scale = np.array([1.0, 2.0])
    kernel = Matern(1.5, scale)
    scale[0] = 5.0
    np.testing.assert_array_equal(kernel.lengthscale, [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        kernel.lengthscale[0] = 3.0
    with pytest.raises(FrozenInstanceError):
        kernel.nu = 0.5


def test_kernels_survive_pickling():
    kernel = Anova(Matern(1.5, [0.2, 3.0]), 2)
    assert pickle.loads(pickle.dumps(kernel)) == kernel


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Matern(1.5), 3.0),
        (Gaussian(), np.inf),
        (Anova(Matern(1.5), 2), 2.5),
    ],
)
def test_smoothness_in_three_coordinates(kernel, expected):
    assert kernel.smoothness(3) == expected
