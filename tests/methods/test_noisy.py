"""A g that is random by itself."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq


def noisy_problem(seed, noise=1.0, **options):
    """E θ² for a standard normal θ, from values of θ with noise as large as θ."""
    rng = np.random.default_rng(1000 + seed)

    def g(x, theta):
        shape = np.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        return x[..., 0] + noise * rng.standard_normal(shape)

    return nq.NestedExpectation(
        nq.Normal(), lambda theta: nq.Normal(theta, 0.3), g, np.square,
        **{"exact": 1.0, "noisy": True, **options},
    )  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "nqmc", "nkq", "ckq", "mlkq", "lsmc"])
def test_bars_include_the_noise(method):
    for seed in range(0, 6, 2):
        est = nq.estimate(noisy_problem(seed), budget=1000, method=method, rng=seed)
        assert abs(est.value - 1.0) < 2 * est.half_width
        assert est.half_width > 0.05  # 1,000 values with this noise allow no less


def test_auto_leaves_models_of_single_points_out():
    est = nq.estimate(noisy_problem(0), budget=1000, rng=0)
    assert "joint" not in est.candidates
    assert "ckq" in est.candidates


def test_noise_that_is_shared_by_points_is_refused():
    rng = np.random.default_rng(0)
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(),
        lambda x, theta: theta[..., 0] + rng.standard_normal(theta.shape[:-1]),
        noisy=True,
    )  # fmt: skip
    with pytest.raises(nq.EvaluationError, match="a value for each"):
        nq.estimate(problem, budget=100, method="nmc", rng=0)


@pytest.mark.slow
def test_coverage_under_noise():
    runs = [nq.estimate(noisy_problem(s), budget=1000, rng=s) for s in range(0, 120, 2)]
    covered = sum(abs(est.value - 1.0) <= est.half_width for est in runs)
    assert covered >= 54  # of 60; fewer have probability 0.03 at 95 %
    assert np.sqrt(np.mean([(est.value - 1.0) ** 2 for est in runs])) < 0.1
