"""Checks by fresh draws: errors of models made by hand are found, and nothing else is."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import norm

import nestquad as nq
from nestquad.accuracy import size_of
from nestquad.estimate import Loop
from nestquad.evaluate import Design, Evaluations, Evaluator
from nestquad.methods import Goal, as_method
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._check import Check, Examination, LearnedDesign, check_grid
from nestquad.methods.learned._model import DenseSet, ModelOfJ, sketch_points
from nestquad.points import Stream
from nestquad.result import NORMAL_95

LIMIT, NOISE = 0.8, 0.5  # place of the kink and the jump; standard deviation of g in x


def g(x, theta):
    return theta[..., 0] + 0.5 * theta[..., 1] + x[..., 0]


def square(j):
    return j**2


def excess(j):
    return np.maximum(j - LIMIT, 0.0)


def exceeds(j):
    return (j > LIMIT) + 0.0


def expected(f, mean, sd):
    """E f of a normal J."""
    if f is square:
        return mean**2 + sd**2
    z = (mean - LIMIT) / sd
    return ndtr(z) if f is exceeds else sd * (z * ndtr(z) + norm.pdf(z))


def linear(f):
    """J = θ₁ + θ₂/2, normal with variance 5/4."""
    return nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(0.0, NOISE), g, f)


class Hand(ModelOfJ):
    """Ĵ = a + b θ₁ + c θ₂ with a claimed error, and with or without g's dependence on x."""

    dim, n_points, cost = 2, 64, 4
    sketch = design = paths = refitted = describe = residuals = None

    def __init__(self, a=0.0, b=1.0, c=0.5, claimed=0.01, knows_x=True):
        self.a, self.b, self.c, self.claimed, self.knows_x = a, b, c, claimed, knows_x
        uniform = sketch_points(2, 2048)
        self.sketch = DenseSet(uniform, np.ones(2048), self.mean(uniform))

    def mean(self, uniform):
        z = ndtri(uniform)
        return (self.a + self.b * z[:, 0] + self.c * z[:, 1])[:, None]

    def sd(self, uniform):
        return np.full((len(uniform), 1), self.claimed)

    def at(self, uniform, inner, *, cautious=False):
        return self.mean(uniform) + (NOISE * ndtri(inner) if self.knows_x else 0.0)

    def expected_rms(self):
        return np.array([np.hypot(self.claimed, 0.0 if self.knows_x else NOISE)])

    @property
    def off(self):
        """Error of Ĵ: its norm is the root mean square over θ."""
        return np.array([self.a, self.b - 1.0, self.c - 0.5])

    def error(self, f):
        """Of the answer: E f(Ĵ) − E f(J)."""
        return expected(f, self.a, np.hypot(self.b, self.c)) - expected(f, 0.0, np.hypot(1, 0.5))


Hand.__abstractmethods__ = frozenset()


def checked(f, model, seed=0, n=400, problem=None):
    """A check of n evaluations where f is sensitive as the model sees it, and the confrontation."""
    problem = problem or linear(f)
    stream = Stream.from_rng(seed)
    average = DenseAverage(problem, True, stream)
    design = LearnedDesign.of(Design(()), (check_grid(average, model, n, stream.child(7)),))
    check = Check.of(Evaluations(Evaluator(problem, keep=True), design), design)
    answers = average.f(model.sketch.j).mean(axis=0)
    return check, Examination(check, model, average, answers)


def verdict(f, model, seed=0, n=400):
    return checked(f, model, seed, n)[1].verdict()


FUNCTIONS = [square, excess, exceeds]
WRONG = {
    "constant": {"a": 0.3},
    "slope": {"b": 0.8, "c": 0.4},
    "coordinate": {"c": 0.0},
    "all of it": {"a": -0.2, "b": 1.2, "c": 0.0},
}


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("claimed", [0.0, 0.01])
def test_an_exact_model_is_not_widened(f, claimed):
    for seed in range(5):
        found = verdict(f, Hand(claimed=claimed), seed)
        assert found.factor == 1.0
        assert found.share == 0.0
        assert size_of(found.parts["check"]) < 1e-9
        assert size_of(found.parts["events"]) < 1e-9


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("knows_x", [True, False])
def test_the_effect_of_an_error_is_found(f, wrong, knows_x):
    """The correction that residuals ask for is the error of the answer, but for noise."""
    model = Hand(**WRONG[wrong], knows_x=knows_x)
    effects, spreads = zip(
        *(checked(f, model, seed)[1]._effects() for seed in range(12)), strict=True
    )
    effects, spreads = np.array(effects)[:, 0], np.array(spreads)[:, 0]
    exact = -model.error(f)
    assert abs(effects.mean() - exact) < 4.0 * effects.std() / np.sqrt(12) + 0.02 * abs(exact)
    # The bootstrap knows the noise of the draws. The 2,048 θ at which the effect is felt have a
    # sampling error too: the slope of f, up to three here, times the error of J, over √2048.
    felt = 3.0 / np.sqrt(2048) * np.linalg.norm(model.off)
    assert np.mean(np.abs(effects - exact) < 2.0 * np.hypot(spreads, felt)) >= 0.75


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_bar_is_widened_by_the_error_of_the_answer(f, wrong):
    model = Hand(**WRONG[wrong])
    sizes = [size_of(verdict(f, model, seed).parts["check"]) for seed in range(12)]
    error = abs(model.error(f))
    # With the factor 1 + share, the part of the variance of J that is surely unexplained.
    assert 0.7 * error < np.median(sizes) < 2.5 * error + 0.02
    # The truth is in the interval that these parts alone make.
    assert np.mean(np.array(sizes) * NORMAL_95 > error) >= 0.8


@pytest.mark.parametrize("wrong", WRONG)
def test_the_factor_is_that_of_the_errors_to_the_expected_ones(wrong):
    model = Hand(**WRONG[wrong], claimed=0.05)
    found = [verdict(square, model, seed).factor for seed in range(12)]
    assert np.median(found) == pytest.approx(np.linalg.norm(model.off) / 0.05, rel=0.25)


def test_claims_that_are_kept_widen_nothing():
    """An error of the size that the model itself expects."""
    model = Hand(a=0.05, claimed=0.06)
    for f in FUNCTIONS:
        for seed in range(5):
            found = verdict(f, model, seed)
            assert found.factor == 1.0
            # Nothing surprising: no more than the known effect itself.
            assert size_of(found.parts["check"]) <= 1.1 * abs(model.error(f)) + 0.003


# Of two models, the better one is kept.


@pytest.mark.parametrize("knows_x", [True, False])
@pytest.mark.parametrize("f", [square, exceeds])
def test_the_better_model_is_kept(f, knows_x):
    good, bad = Hand(a=0.05, knows_x=knows_x), Hand(a=0.1, c=0.0, knows_x=knows_x)
    kept = [checked(f, good, seed, 200)[0].unrefuted([good, bad]) for seed in range(40)]
    assert np.mean([0 in k for k in kept]) >= 0.95
    assert np.mean([1 in k for k in kept]) <= 0.1


def test_equal_models_are_both_kept():
    model = Hand()
    # Errors along (1, ½) and across it: mirror images for draws that depend on J alone.
    along, across = 0.2 * np.array([[1.0, 0.5], [-0.5, 1.0]]) / np.hypot(1.0, 0.5)
    left, right = (Hand(b=1.0 + e[0], c=0.5 + e[1]) for e in (along + across, along - across))
    kept = [checked(square, model, seed, 200)[0].unrefuted([left, right]) for seed in range(60)]
    # Scores differ by more than 1.5 standard errors in 13 % of all cases.
    assert np.mean([len(k) == 2 for k in kept]) >= 0.7
    check, _ = checked(square, model)
    assert check.unrefuted([model]) == [0]
    assert check.unrefuted([left, left, left]) == [0, 1, 2]


def test_a_control_variate_of_one_model_serves_all():
    """Noise in x is explained by one model, and the score is that of Ĵ alone."""
    blunt, sharp = Hand(a=0.02, knows_x=False), Hand(c=0.35, knows_x=True)
    kept = [checked(square, blunt, seed, 200)[0].unrefuted([blunt, sharp]) for seed in range(20)]
    assert np.mean([k == [0] for k in kept]) >= 0.9


def test_scores_do_not_depend_on_units():
    check, _ = checked(square, Hand())
    large = Check(check.uniform, check.weights, check.inner, 1e200 * check.values)

    class Large(Hand):
        def mean(self, uniform):
            return 1e200 * super().mean(uniform)

        def at(self, uniform, inner, *, cautious=False):
            return self.mean(uniform) + 1e200 * NOISE * ndtri(inner)

    pairs = [(Hand(a=0.05), Hand(c=0.0)), (Large(a=0.05), Large(c=0.0))]
    assert check.unrefuted(pairs[0]) == large.unrefuted(pairs[1]) == [0]


# Two independent x at a θ tell noise in x from errors of J.


def test_noise_in_x_is_no_error_of_j_and_roughness_in_theta_is():
    blind, rough = Hand(claimed=0.1, knows_x=False), Hand(c=0.0, claimed=0.5)
    noise = [verdict(square, blind, seed) for seed in range(20)]
    structure = [verdict(square, rough, seed) for seed in range(20)]
    # Both leave residuals with a standard deviation of 0.5, as both expect.
    for found in (noise, structure):
        assert np.median([one.ratio for one in found]) == pytest.approx(1.0, abs=0.35)
    assert np.median([one.share for one in noise]) < 0.01
    # Of Var J = 5/4, ¼ is left; less a standard error.
    assert np.median([one.share for one in structure]) == pytest.approx(0.2, abs=0.05)
    parts = [np.median([size_of(o.parts["check"]) for o in found]) for found in (noise, structure)]
    assert parts[1] > 4.0 * parts[0]
    assert parts[1] > 0.8 * abs(rough.error(square))


# Events that nothing has reached.


def never(limit):
    return lambda j: (j > limit) + 0.0


@pytest.mark.parametrize("n", [200, 1000])
def test_an_event_within_reach_of_the_errors_is_bounded_by_three_over_m(n):
    """Ĵ = θ₁/10 has never exceeded 1.5, and its error has a standard deviation of 0.5."""
    f, model = never(1.5), Hand(b=0.1, c=0.0)
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(0.0, NOISE),
        lambda x, theta: 0.1 * theta[..., 0] + 0.5 * theta[..., 1] + x[..., 0],
        f,
    )
    m = n // 2
    exact = ndtr(-1.5 / np.hypot(0.1, 0.5))
    for seed in range(5):
        _, examination = checked(f, model, seed, n, problem)
        half = NORMAL_95 * size_of(examination.verdict().parts["events"])
        assert half == pytest.approx(3.0 / m, rel=0.3)
        assert half > exact


@pytest.mark.parametrize("limit", [6.0, 60.0])
def test_an_event_far_beyond_the_errors_is_hardly_possible(limit):
    f = never(limit)
    sizes = {c: size_of(verdict(f, Hand(c=c)).parts["events"]) for c in (0.5, 0.49, 0.3)}
    # J itself may reach so far, by Cantelli's inequality; errors add to that.
    assert 0.0 < sizes[0.5] < 1.1 / limit**2
    assert sizes[0.49] < 1.1 * sizes[0.3]
    assert sizes[0.3] < 3.0 / 200


def test_frequent_events_need_no_bound():
    assert size_of(verdict(exceeds, Hand(c=0.0)).parts["events"]) == 0.0


# Fresh draws of the methods themselves.


def learned(method, problem, budget=2048, seed=0, **options):
    loop = Loop(
        as_method(method), Goal(Stream.from_rng(seed), budget), Evaluator(problem, **options)
    )
    loop.evaluator.keep = True
    loop.run()
    return loop


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
@pytest.mark.parametrize("f", [excess, exceeds])
def test_draws_are_fresh_and_weighted(method, f):
    loop = learned(method, linear(f))
    turn = loop.last
    check, design = turn.state.check, turn.design
    assert check.n_draws == Design(design.checks).n_evaluations >= 256
    assert turn.estimate.diagnostics["check"]["n_draws"] == check.n_draws
    evaluations = Evaluations(loop.evaluator, design)
    for level in range(len(design.learning.grids)):
        outer = evaluations.outer(level)
        distance = np.abs(check.uniform[:, None] - outer.uniform[None, :]).max(axis=2)
        assert distance.min() > 0.0
    assert check.weights.max() <= 2.0 + 1e-9
    assert check.weights.min() > 0.0
    error = check.weights.std() / np.sqrt(len(check.weights))
    assert abs(check.weights.mean() - 1.0) < 4.0 * error
    # Two x at a θ, independent and of their law; half of the θ where f is sensitive.
    flat = check.inner.reshape(-1)
    assert np.unique(flat).size == flat.size
    assert abs(np.corrcoef(check.inner[:, 0, 0], check.inner[:, 1, 0])[0, 1]) < 4 / np.sqrt(
        len(flat)
    )
    theta = ndtri(check.uniform)
    for h, exact in ((theta[:, 0], 0.0), (theta[:, 1] ** 2, 1.0), (flat[::2], 0.5)):
        terms = check.weights * h
        assert abs(terms.mean() - exact) < 4.5 * terms.std() / np.sqrt(len(terms)) + 1e-3
    values = g(NOISE * ndtri(check.inner), theta[:, None])
    np.testing.assert_allclose(check.values[:, :, 0], values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc", "auto"])
def test_the_same_seed_gives_the_same_bits_whoever_evaluates(method, tmp_path):
    problem, options = linear(excess), {"method": method, "budget": 1500, "rng": 4}
    alone = nq.estimate(problem, **options)
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2) as processes:
        others = [
            nq.estimate(problem, executor=executor, **options) for executor in (threads, processes)
        ]
    others += [nq.estimate(problem, store=tmp_path / "store", **options) for _ in range(2)]
    assert {one.value for one in others} == {alone.value}
    assert {one.std_error for one in others} == {alone.std_error}
    # The second run of a store evaluates nothing.
    assert others[-2].diagnostics["n_reused"] == 0
    assert others[-1].diagnostics["n_reused"] == others[-1].n_evaluations == alone.n_evaluations
    assert nq.estimate(problem, **{**options, "rng": 5}).value != alone.value


# Budgets that are too small to learn from.
LEAST = {"lsmc": 16, "ckq": 16}


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc", "auto"])
@pytest.mark.parametrize("f", [excess, exceeds])
def test_budgets_are_kept(method, f):
    for budget in (16, 64, 100, 500, 1000, 2048, 4096, 5000):
        calls = []

        def counted(x, theta, calls=calls):
            values = g(x, theta)
            calls.append(values.size)
            return values

        problem = nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(0.0, NOISE), counted, f)
        if budget <= LEAST.get(method, 0):
            with pytest.raises(nq.InputError, match="budget"):
                nq.estimate(problem, budget=budget, method=method, rng=0)
            assert not calls
            continue
        est = nq.estimate(problem, budget=budget, method=method, rng=0)
        assert sum(calls) == est.n_evaluations <= budget
        # Most of it is spent, and from a few hundred on some of it on a check.
        assert est.n_evaluations >= 0.5 * budget
        if budget >= 500 and est.method in ("joint", "ckq", "lsmc"):
            draws = est.diagnostics["check"]["n_draws"]
            assert 32 <= draws <= 0.3 * budget


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
@pytest.mark.parametrize("goal", [{"budget": 1200}, {"tol": 0.05, "budget": 20_000}])
def test_a_check_by_hand_comes_in_a_later_block(method, goal):
    problem = linear(excess)
    block, blocks = nq.plan(problem, method=method, rng=0, **goal), []
    while block is not None:
        theta, x = (np.concatenate(part) for part in zip(*block.blocks(), strict=True))
        values = g(x, theta)
        found = nq.analyze(block, values)
        blocks.append((block, found))
        block = block.next(values)
    assert "check" not in blocks[0][1].diagnostics
    assert blocks[0][1].status == "open"
    last, est = blocks[-1]
    draws = est.diagnostics["check"]["n_draws"]
    assert 0 < draws < est.n_evaluations == sum(len(block) for block, _ in blocks)
    called = nq.estimate(problem, method=method, rng=0, **goal)
    assert (called.value, called.std_error, called.status) == (
        est.value,
        est.std_error,
        est.status,
    )
    # Two rows in a row have the same θ and another x.
    theta, x = (np.concatenate(part) for part in zip(*last.blocks(), strict=True))
    fresh = slice(len(theta) - 32, None)
    np.testing.assert_array_equal(theta[fresh][::2], theta[fresh][1::2])
    assert (x[fresh][::2] != x[fresh][1::2]).all()
