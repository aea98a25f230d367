"""Certificates: right on average whatever the model says, and the same under every executor."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri, stdtrit
from scipy.stats import norm

import nestquad as nq
from nestquad.accuracy import degrees_of_freedom, tail_shape
from nestquad.evaluate import Evaluator
from nestquad.methods import Certificate, ModelOfJ
from nestquad.points import Stream

LIMIT = 0.8  # of the kink and the jump


def g(x, theta):
    return theta[..., 0] + x[..., 0]


def square(j):
    return j**2


def excess(j):
    return np.maximum(j - LIMIT, 0.0)


def exceeds(j):
    return (j > LIMIT) + 0.0


def twice(j):
    return np.stack([j, j**2], axis=1)


# J = θ is normal: E J² = 1, E max(J - c, 0) = φ(c) - c (1 - Φ(c)), P(J > c) = 1 - Φ(c).
EXACT = {
    square: 1.0,
    excess: norm.pdf(LIMIT) - LIMIT * ndtr(-LIMIT),
    exceeds: ndtr(-LIMIT),
}


def linear(f, combine=None):
    inner = nq.Normal(0.0, 0.5)
    return nq.NestedExpectation(nq.Normal(0.0, 1.0), inner, g, f, combine)


class Shifted(ModelOfJ):
    """A model that is wrong by a constant, and has no opinion of x."""

    def __init__(self, off, tilt=1.0):
        self.off, self.tilt = off, tilt

    dim, n_points, cost = 1, 8, 1024
    sketch = design = None
    paths = describe = None

    def mean(self, uniform):
        return self.tilt * ndtri(uniform) + self.off

    def sd(self, uniform):
        return np.full((len(uniform), 1), 0.05)

    def at(self, uniform, inner, *, cautious=False):
        return self.mean(uniform)

    def residuals(self):
        return np.zeros((8, 1))  # none: the pilot has to speak


Shifted.__abstractmethods__ = frozenset()


def certified(problem, model, seed, n=2000):
    certificate = Certificate(Evaluator(problem), Stream.from_rng(seed), model)
    certificate.draw(n)
    return certificate.estimate()


@pytest.mark.parametrize("f", [square, excess, exceeds])
@pytest.mark.parametrize(("off", "tilt"), [(0.5, 1.0), (-0.3, 0.8)])
def test_a_wrong_model_does_no_harm_on_average(f, off, tilt):
    problem, n = linear(f), 40
    found = [certified(problem, Shifted(off, tilt), seed) for seed in range(n)]
    values = np.array([one.value for one in found])
    mean, error = values.mean(), values.std() / np.sqrt(n)
    allowed = 4.0 * error
    if f is exceeds:  # levels end, and the bias that is left is bounded
        allowed += np.mean([one.diagnostics["error_parts"]["levels"] for one in found])
    assert abs(mean - EXACT[f]) < allowed
    # The model's own answer is far outside.
    assert abs(found[0].diagnostics["model_answers"][0] - EXACT[f]) > allowed
    held = [abs(one.value - EXACT[f]) <= one.half_width for one in found]
    assert np.mean(held) >= 0.85  # of 40 with a probability of .95: 34 or more in 99.9 %


def test_without_a_model_the_estimate_is_plain():
    found = [certified(linear(square), None, seed, 4000) for seed in range(20)]
    values = np.array([one.value for one in found])
    assert abs(values.mean() - 1.0) < 4.0 * values.std() / np.sqrt(20)
    assert np.mean([abs(one.value - 1.0) <= one.half_width for one in found]) >= 0.8


def test_sampled_laws_have_certificates():
    problem = nq.NestedExpectation(
        nq.Sampler(lambda n, rng: rng.standard_normal((n, 1)), dim=1),
        nq.Normal(0.0, 0.5),
        g,
        square,
    )
    est = nq.estimate(problem, budget=8000, certify=True, rng=0)
    assert abs(est.certified.value - 1.0) <= 2.0 * est.certified.half_width < 1.0


def test_the_front_door_shares_the_budget():
    problem = nq.problems.finance()
    est = nq.estimate(problem, budget=6000, certify=True, rng=0)
    assert est.n_evaluations <= 6000
    assert 0 < est.certified.n_evaluations < est.n_evaluations
    assert abs(est.certified.value - problem.exact) <= 2.0 * est.certified.half_width
    assert set(est.certified.diagnostics["error_parts"]) >= {"average", "draws", "levels"}
    assert f"certified {est.certified.summary}" in str(est)
    assert "certified" in est._repr_html_()
    assert est.to_dict()["certified"]["value"] == est.certified.value
    assert nq.estimate(problem, budget=6000, rng=0).certified is None


def test_a_tolerance_is_met_by_the_certified_interval():
    problem = nq.problems.finance()
    est = nq.estimate(problem, tol=0.05, certify=True, rng=0, method="joint")
    assert est.status == "converged"
    assert est.certified.half_width <= 0.05
    assert abs(est.certified.value - problem.exact) <= 0.1
    short = nq.estimate(problem, tol=1e-4, budget=4000, certify=True, rng=0, method="joint")
    assert short.status == "budget"
    assert short.n_evaluations <= 4000


def test_executors_and_stores_change_no_bit(tmp_path):
    problem = linear(excess)
    options = {"budget": 3000, "certify": True, "rng": 3}
    alone = nq.estimate(problem, **options)
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2) as processes:
        for executor in (threads, processes):
            other = nq.estimate(problem, executor=executor, **options)
            assert other.certified.value == alone.certified.value
            assert other.certified.std_error == alone.certified.std_error
    first = nq.estimate(problem, store=tmp_path / "store", **options)
    again = nq.estimate(problem, store=tmp_path / "store", **options)
    assert first.certified.value == again.certified.value == alone.certified.value
    assert again.diagnostics["n_reused"] == again.n_evaluations


def test_combine_goes_through():
    variance = linear(twice, lambda answers: answers[1] - answers[0] ** 2)
    est = nq.estimate(variance, budget=4000, certify=True, rng=1)
    assert abs(est.certified.value - 1.0) <= est.certified.half_width < 0.5


def test_a_logarithm_stays_in_its_domain():
    # J = exp(θ + ½) > 0: E log J = ½.
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: np.exp(theta[..., 0] + x[..., 0]), np.log
    )
    found = nq.estimate(problem, budget=8000, certify=True, rng=0, method="lsmc").certified
    assert abs(found.value - 0.5) <= found.half_width < 0.5


def test_jumps_that_no_draw_reached_are_bounded():
    never = nq.NestedExpectation(nq.Normal(), nq.Normal(0.0, 0.01), g, lambda j: (j > 6.0) + 0.0)
    found = nq.estimate(never, budget=4000, certify=True, rng=0, method="joint").certified
    # The rule of three for some thousand draws.
    assert 1e-4 < found.half_width < 0.1


def test_small_budgets_are_refused_and_sizes_doubled():
    problem = nq.problems.finance()
    with pytest.raises(nq.InputError, match="certify"):
        nq.estimate(problem, budget=500, certify=True)
    fixed = nq.estimate(problem, method=nq.NMC(n_outer=50, n_inner=20), certify=True, rng=0)
    assert fixed.certified.n_evaluations >= 500


def test_few_large_draws_have_few_degrees_of_freedom():
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((1, 4000))
    assert 3000 < degrees_of_freedom([normal]) < 5000
    assert degrees_of_freedom([normal * (rng.random((1, 4000)) < 0.001)]) < 10
    # Pareto tails of index 1.5, and normal ones.
    assert tail_shape(rng.random((20_000, 1)) ** (-1 / 1.5)) == pytest.approx(1 / 1.5, rel=0.3)
    assert tail_shape(rng.standard_normal((20_000, 1))) < 0.25


def test_intervals_at_other_levels_have_the_quantiles_of_student():
    few = nq.Estimate(1.0, 0.1, 10, 5, 2, "certificate", dof=3.0)
    low, high = few.interval(0.95)
    assert (high - low) / 2 == pytest.approx(few.half_width)
    ratio = (few.interval(0.99)[1] - 1.0) / few.half_width
    assert ratio == pytest.approx(stdtrit(3.0, 0.995) / stdtrit(3.0, 0.975))
    many = replace(few, dof=np.inf)
    assert many.interval(0.5)[1] == pytest.approx(1.0 + 0.1 * norm.ppf(0.75))
