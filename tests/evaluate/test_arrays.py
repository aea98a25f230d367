"""Points as JAX arrays or PyTorch tensors, for a g that is written in them."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq
from nestquad.evaluate import call_in_library

LIBRARIES = {"jax": "jax.numpy", "torch": "torch"}


def _problem(library, g, **how):
    return nq.NestedExpectation(
        outer=nq.Normal(),
        inner=lambda theta: nq.Normal(theta, 1.0),
        g=g,
        f=lambda j: j,
        exact=2.0,
        arrays=library,
        **how,
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_g_receives_arrays_of_its_library(library):
    module = pytest.importorskip(LIBRARIES[library])
    kinds, sizes = set(), set()

    def g(x, theta):
        kinds.update((type(x).__module__.split(".")[0], type(theta).__module__.split(".")[0]))
        sizes.update((str(x.dtype), str(theta.dtype)))
        return module.square(x[..., 0]) + 0.0 * theta[..., 0]

    method = nq.NQMC(n_outer=32, n_inner=16)
    answer = nq.estimate(_problem(library, g), method=method, rng=3)
    plain = nq.estimate(
        _problem("numpy", lambda x, theta: x[..., 0] ** 2 + 0.0 * theta[..., 0]),
        method=method,
        rng=3,
    )
    assert kinds <= {"torch", "jaxlib", "jax"}
    assert all("float64" in name for name in sizes)
    np.testing.assert_allclose(answer.value, plain.value, rtol=1e-14)


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_point_at_a_time(library):
    module = pytest.importorskip(LIBRARIES[library])
    problem = _problem(library, lambda x, theta: module.square(x[0]), vectorized=False)
    answer = nq.estimate(problem, method=nq.NMC(n_outer=16, n_inner=4), rng=0)
    assert np.isfinite(answer.value)


def test_tensors_share_memory_and_are_not_written_to():
    torch = pytest.importorskip("torch")
    x, theta = np.arange(6.0).reshape(1, 3, 2), np.zeros((1, 1, 1))
    x.flags.writeable = False
    places = []
    call_in_library("torch", lambda a, b: places.append(a.data_ptr()), x, theta)
    assert places == [x.ctypes.data]
    with pytest.raises(nq.EvaluationError, match="wrote to its arguments"):
        call_in_library("torch", lambda a, b: a.mul_(2.0), np.ones((1, 2, 1)), theta)
    writing = _problem("torch", lambda a, b: torch.square(a.add_(1.0)[..., 0]))
    with pytest.raises(nq.EvaluationError, match="wrote to its arguments"):
        nq.estimate(writing, method=nq.NMC(n_outer=4, n_inner=4), rng=0)


def test_jax_arrays_share_aligned_memory():
    pytest.importorskip("jax")
    # Views at every offset of 8 bytes within 64: at least one of them is aligned for XLA.
    memory = np.zeros(64)
    shared = []
    for offset in range(8):
        x = memory[offset : offset + 16].reshape(1, 16, 1)

        def g(a, b, x=x):
            shared.append(a.unsafe_buffer_pointer() == x.ctypes.data)

        call_in_library("jax", g, x, np.zeros((1, 1, 1)))
    assert any(shared)


def test_a_library_that_is_unknown_or_missing(monkeypatch):
    with pytest.raises(nq.InputError, match="arrays"):
        _problem("cupy", lambda x, theta: x[..., 0])
    monkeypatch.setattr("nestquad.problem.find_spec", lambda name: None)
    with pytest.raises(nq.MissingExtraError, match="jax"):
        _problem("jax", lambda x, theta: x[..., 0])
