"""The jackknife removes a bias of order 1/N."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq

# E log E[exp(s x) | θ] = s²/2: a logarithm of a noisy mean is biased downwards.
PROBLEM = nq.NestedExpectation(
    outer=nq.Normal(),
    inner=nq.Normal(),
    g=lambda x, theta: np.exp(x[..., 0] + theta[..., 0]),
    f=np.log,
    exact=0.5,
)


def mean_error(**settings):
    sizes = {"n_outer": 4096, "n_inner": 16}
    found = [nq.estimate(PROBLEM, method=nq.NMC(**sizes, **settings), rng=s) for s in range(4)]
    return np.mean([est.value for est in found]) - 0.5, found


def test_the_bias_of_a_logarithm_is_removed():
    plain, _ = mean_error()
    less, found = mean_error(jackknife=True)
    assert plain < -0.03
    assert abs(less) < 0.4 * abs(plain)
    assert all(abs(est.value - 0.5) <= est.half_width for est in found)


def test_shared_points_are_refused():
    with pytest.raises(nq.InputError, match="jackknife"):
        nq.NKQ(jackknife=True)
    with pytest.raises(nq.InputError, match="independent"):
        nq.NQMC(jackknife=True, sharing="shared")
