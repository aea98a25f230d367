"""The joint process: closed forms, choice of points, coverage, stores, limits."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import binom, randint

import nestquad as nq
from nestquad.gp import ScoreKind, fit_integrated

WAVES = nq.NestedExpectation(
    nq.Normal(),
    nq.Normal(),
    lambda x, theta: np.sin(theta[..., 0] + x[..., 0]) + 0.3 * x[..., 0] * theta[..., 0],
    lambda j: np.maximum(j, 0.0),
)
# E max(e^{-1/2} sin θ, 0), θ standard normal, by the trapezoidal rule.
_GRID = np.linspace(-9.0, 9.0, 200_001)
_DENSITY = np.exp(-0.5 * _GRID**2) / np.sqrt(2.0 * np.pi)
WAVES_VALUE = np.trapezoid(np.maximum(np.exp(-0.5) * np.sin(_GRID), 0.0) * _DENSITY, _GRID)


def gauss(normal, n):
    """Nodes and weights of the law of a score."""
    if normal:
        nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    else:
        nodes, weights = np.polynomial.legendre.leggauss(n)
        nodes = np.sqrt(3.0) * nodes
    return nodes, weights / weights.sum()


def correlation(shape, a, b, lengthscale):
    r = np.abs(a[:, None] - b[None]) / lengthscale
    if shape == "gaussian":
        return np.exp(-0.5 * (r**2).sum(axis=-1))
    r = np.sqrt(5.0) * r
    return np.prod((1.0 + r + r**2 / 3.0) * np.exp(-r), axis=-1)


@pytest.mark.parametrize("shape", ["gaussian", "matern52"])
@pytest.mark.parametrize("normal", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("logarithm", [False, True])
def test_posterior_of_j_is_that_of_the_dense_process_averaged_over_x(shape, normal, logarithm):
    rng = np.random.default_rng(0)
    u = rng.uniform(0.02, 0.98, (24, 2))
    g = np.exp(0.5 * np.sin(3.0 * u[:, 0] + 2.0 * u[:, 1]))
    process = fit_integrated([ScoreKind(shape, normal, logarithm)], u, g, 1)
    p = process.gp.parameters
    theta = np.array([[-1.0], [0.2], [1.3]])
    # The process of g, or log g, on θ × nodes, from first principles.
    nodes, weights = gauss(normal[1], 200)
    y = np.log(g) if logarithm else g
    level, spread = y.mean(), y.std()
    z = process.gp.z
    covariance = p.signal * correlation(shape, z, z, p.lengthscale)
    covariance += (p.noise + 1e-13 * p.signal) * np.eye(24)
    factor = cho_factor(covariance, lower=True)
    reach = np.abs(z).max()
    trend = lambda at: np.column_stack([np.ones(len(at)), at / reach])  # noqa: E731
    functions = trend(z)
    normal_matrix = functions.T @ cho_solve(factor, functions)
    beta = np.linalg.solve(normal_matrix, functions.T @ cho_solve(factor, (y - level) / spread))
    alpha = cho_solve(factor, (y - level) / spread - functions @ beta)
    for t in range(3):
        at = np.column_stack([np.full(200, theta[t, 0]), nodes])
        k = p.signal * correlation(shape, at, z, p.lengthscale)
        h = level + spread * (k @ alpha + trend(at) @ beta)
        mass = weights * np.exp(h) if logarithm else weights
        mean = (weights * np.exp(h)).sum() if logarithm else weights @ h
        prior = p.signal * mass @ correlation(shape, at, at, p.lengthscale) @ mass
        cross, of_trend = mass @ k, mass @ trend(at)
        missing = of_trend - functions.T @ cho_solve(factor, cross)
        variance = prior - cross @ cho_solve(factor, cross)
        variance += missing @ np.linalg.solve(normal_matrix, missing)
        tolerance = 1e-6 if shape == "gaussian" else 1e-4  # Gauss rules see the kink of Matérn
        assert process.mean(theta)[t] == pytest.approx(mean, rel=tolerance)
        scale = spread**2 * p.signal * float(np.sum(mass)) ** 2
        found = process.sd(theta)[t] ** 2
        assert found == pytest.approx(spread**2 * variance, abs=10 * tolerance * scale)


def test_prior_functions_have_the_covariances_of_g_and_j():
    rng = np.random.default_rng(1)
    u = rng.uniform(0.1, 0.9, (16, 3))
    kind = ScoreKind("gaussian", (True, True, False))
    process = fit_integrated([kind], u, np.sin(4.0 * u).sum(axis=1), 1)
    theta = np.array([[-0.5], [0.7]])
    draws = [process.prior_functions(theta, 1, 4096, rng) for _ in range(600)]
    g, j = (np.concatenate(part, axis=1) for part in zip(*draws, strict=True))
    signal = process.gp.parameters.signal
    np.testing.assert_allclose(j @ g.T / 600, process.cross(theta), atol=0.2 * signal)
    np.testing.assert_allclose(
        (j**2).mean(axis=1), process.prior_variance(theta), rtol=0.2, atol=1e-3 * signal
    )


def test_chosen_points_are_better_than_a_sequence():
    def mean_error(method):
        runs = [nq.estimate(WAVES, method=method, budget=32, rng=seed) for seed in range(6)]
        return np.mean([abs(run.value - WAVES_VALUE) for run in runs])

    assert mean_error(nq.JointProcess()) < mean_error(nq.JointProcess(active=0.0))


def test_covers_and_is_not_wide():
    hits, halves, errors = [], [], []
    for seed in range(16):
        est = nq.estimate(WAVES, method="process", budget=32, rng=seed)
        errors.append(abs(est.value - WAVES_VALUE))
        halves.append(est.half_width)
        hits.append(errors[-1] <= halves[-1])
    assert binom.cdf(sum(hits), 16, 0.95) > 0.01
    assert np.median(halves) < 12 * np.sqrt(np.mean(np.square(errors)))


@pytest.mark.parametrize(
    ("name", "budget", "most"),
    [
        ("health", 64, 0.05),
        ("finance", 64, 0.08),
        ("rainforth", 64, 0.01),
        ("eig-linear", 40, 0.01),
    ],
)
def test_accuracy_of_auto_with_few_evaluations(name, budget, most):
    problem = nq.problems.get(name)
    estimates = [nq.estimate(problem, budget=budget, rng=seed) for seed in (0, 2)]
    assert {est.method for est in estimates} == {"process"}
    assert all(est.n_evaluations == budget for est in estimates)
    errors = [abs(est.value / problem.exact - 1.0) for est in estimates]
    assert np.median(errors) < most


def test_a_budget_of_forty_is_a_normal_request():
    seen = []
    est = nq.estimate(WAVES, budget=40, rng=0, progress=lambda done, *_: seen.append(done))
    assert est.status == "done"
    assert est.n_evaluations == 40
    assert [step.n_evaluations for step in est.trace] == [16, 20, 25, 32, 40]
    assert seen[0] == 1
    assert seen[-1] == 40
    assert nq.estimate(WAVES, budget=300, rng=0).method != "process"


def test_same_seed_same_bits_and_batches():
    first, again = (nq.estimate(WAVES, method="process", budget=30, rng=7) for _ in range(2))
    assert first.value == again.value
    assert np.array_equal(first.draws, again.draws)
    method = nq.JointProcess(first=12, batch=6)
    est = nq.estimate(WAVES, method=method, budget=30, rng=7)
    assert [step.n_evaluations for step in est.trace] == [12, 18, 24, 30]


def test_a_store_resumes_without_evaluating_again(tmp_path):
    calls = []

    def g(x, theta):
        calls.append(np.broadcast_shapes(x.shape, theta.shape)[:-1])
        return np.sin(theta[..., 0] + x[..., 0])

    problem = replace(WAVES, g=g)
    first = nq.estimate(problem, method="process", budget=24, rng=1, store=tmp_path)
    larger = nq.estimate(problem, method="process", budget=32, rng=1, store=tmp_path)
    assert larger.diagnostics["n_reused"] == 20  # batches of 16, 4 and 5; 4 were asked for before
    assert larger.value == nq.estimate(problem, method="process", budget=32, rng=1).value
    assert first.n_evaluations == 24


def test_plans_give_the_next_batch():
    plan = nq.plan(WAVES, budget=25, method=nq.JointProcess(first=16, batch=9), rng=0)
    assert len(plan) == 16
    values = [
        WAVES.g(x[None], theta[None])[0]
        for theta, x in (
            (row[:1], row[1:])
            for row in np.concatenate([np.concatenate(b, axis=1) for b in plan.blocks()])
        )
    ]
    batch = plan.next(values)
    assert batch is not None
    assert len(batch) == 9


def test_noise_is_fitted():
    def g(x, theta):
        noise = np.random.default_rng(crc32(x.tobytes())).standard_normal(
            np.broadcast_shapes(x.shape, theta.shape)[:-1]
        )
        return theta[..., 0] + x[..., 0] + 0.5 * noise

    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), g, lambda j: j**2, noisy=True)
    found = nq.conditional(problem, budget=100, method="process", rng=0)
    (sd,) = set(found.model.processes[0].gp.noise_sd)
    assert 0.35 < sd < 0.65
    est = nq.estimate(problem, budget=64, rng=0)
    assert est.method == "process"
    assert abs(est.value - 1.0) < 2 * est.half_width


def test_several_outputs_and_combine():
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: np.stack([theta[..., 0] + x[..., 0], 0.0 * x[..., 0]], axis=-1),
        lambda j: np.column_stack([j.max(axis=1), j]),
        combine=lambda i: i[0] - i[1:].max(),
    )
    est = nq.estimate(problem, budget=32, rng=0)
    assert abs(est.value - 1.0 / np.sqrt(2.0 * np.pi)) < max(0.02, est.half_width)


def test_constant_g_is_constant():
    problem = replace(WAVES, g=lambda x, theta: 0.0 * (x + theta)[..., 0] + 2.0)
    assert nq.estimate(problem, method="process", budget=20, rng=0).value == pytest.approx(2.0)


def test_refusals():
    sampled = replace(WAVES, inner=nq.Sampler(lambda n, rng: rng.standard_normal((n, 1)), dim=1))
    with pytest.raises(nq.InputError, match="transport of uniforms"):
        nq.estimate(sampled, method="process", budget=40, rng=0)
    for law in (randint(0, 3), nq.Empirical(np.arange(4.0)[:, None])):
        discrete = replace(WAVES, outer=law)
        with pytest.raises(nq.InputError, match="continuous"):
            nq.estimate(discrete, method="process", budget=40, rng=0)
        assert nq.estimate(discrete, budget=64, rng=0).method != "process"
    with pytest.raises(nq.InputError, match="at least 8"):
        nq.estimate(WAVES, method="process", budget=6, rng=0)
    with pytest.raises(nq.InputError, match="batch"):
        nq.JointProcess(batch=0)
    with pytest.raises(nq.InputError, match="share from 0 to 1"):
        nq.JointProcess(active=1.5)


def test_changes_beyond_its_claims_widen_a_process():
    learned = nq.conditional(WAVES, budget=32, method=nq.JointProcess(active=0.0), rng=0)
    model, value, sd = replace(learned.model, history=()), np.array([1.0]), np.array([0.1])
    assert model.excess(value, sd) == 1.0
    claims = tuple((n, value - 0.3, sd) for n in (8, 20, 25))
    # The turn of eight points is too long ago; one prior change of the size that was claimed.
    wider = replace(model, history=claims)
    assert wider.excess(value, sd) == pytest.approx(np.sqrt((2 * 9.0 + 1.0) / 3.0))
    assert wider.excess(value - 0.3, sd) == 1.0
    # Claims of no error count as the change itself, twice.
    none = replace(model, history=((25, value - 0.3, np.zeros(1)),))
    assert none.excess(value, sd) == pytest.approx(1.0 + 2.0 * 0.3 / 0.1)


def test_an_event_that_few_points_decide_has_an_interval():
    """P(J < 0) of a few percent: turns before one was seen claim no error."""
    problem = nq.NestedExpectation(
        nq.Independent(nq.Normal(), nq.Normal(1.0, 0.25)),
        nq.Normal(),
        lambda x, theta: 0.1 * theta[..., 0] + 2 - theta[..., 1] * (1 + 0.2 * x[..., 0] ** 2),
        lambda j: (j < 0) * 1.0,
    )
    for seed in range(3):
        low, high = nq.estimate(problem, budget=40, rng=seed).interval()
        assert low < high
