"""Posterior of J: errors of models made by hand are found and covered, and nothing else is."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import norm

import nestquad as nq
from nestquad.accuracy import size_of
from nestquad.evaluate import Design, Evaluations, Evaluator
from nestquad.methods._events import unreached_errors
from nestquad.methods.learned import Evidence, Pairs, _posterior, draw_bias, draw_variances
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._discrepancy import Scores
from nestquad.methods.learned._evidence import Check, LearnedDesign, check_grid
from nestquad.methods.learned._model import DenseSet, ModelOfJ, Paths, sketch_points
from nestquad.methods.learned._posterior import (
    PathEffects,
    PosteriorOfJ,
    crossed_shift,
    shape_errors,
    student_factor,
)
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
    """Ĵ = a + b θ₁ + c θ₂ with a claimed error, and with or without g's dependence on x.

    Its paths are random multiples of θ₁ and θ₂ of the claimed size. `deleted` is the size of the
    changes of the slope of θ₁ by four deleted groups, where the paths expect `claimed`.
    """

    dim, n_points, cost = 2, 64, 4
    sketch = design = None

    def __init__(self, a=0.0, b=1.0, c=0.5, claimed=0.01, knows_x=True, deleted=None):
        self.a, self.b, self.c, self.claimed, self.knows_x = a, b, c, claimed, knows_x
        self.deleted = deleted
        uniform = sketch_points(2, 2048)
        self.sketch = DenseSet(uniform, np.ones(2048), self.mean(uniform))

    def mean(self, uniform):
        z = ndtri(uniform)
        return (self.a + self.b * z[:, 0] + self.c * z[:, 1])[:, None]

    def sd(self, uniform):
        return np.full((len(uniform), 1), self.claimed)

    def at(self, uniform, inner, *, cautious=False):
        return self.mean(uniform) + (NOISE * ndtri(inner) if self.knows_x else 0.0)

    def paths(self, n_paths, rng):
        z = ndtri(self.sketch.uniform)

        def slopes(*shape):
            return self.claimed * (rng.standard_normal((*shape, 2)) @ z.T / np.sqrt(2.0))[..., None]

        observed, expected = np.zeros((0, 2048, 1)), np.zeros((0, n_paths, 2048, 1))
        if self.deleted is not None:
            changes = self.deleted * rng.standard_normal((4, 2)) / np.sqrt(2.0)
            observed, expected = (changes @ z.T)[..., None], slopes(4, n_paths)
        return Paths(slopes(n_paths), observed, expected)

    def residuals(self):
        raise NotImplementedError

    def describe(self):
        return {"notes": []}

    @property
    def off(self):
        """Error of Ĵ: its norm is the root mean square over θ."""
        return np.array([self.a, self.b - 1.0, self.c - 0.5])

    def error(self, f):
        """Error of the answer: E f(Ĵ) − E f(J)."""
        return expected(f, self.a, np.hypot(self.b, self.c)) - expected(f, 0.0, np.hypot(1, 0.5))


def linear_j(uniform):
    return ndtri(uniform) @ np.array([[1.0], [0.5]])


def check_of(f, model, seed=0, n=400, problem=None):
    """A check of n evaluations, where f is sensitive as the model sees it, and the average."""
    problem = problem or linear(f)
    stream = Stream.from_rng(seed)
    average = DenseAverage(problem, True, stream)
    design = LearnedDesign.of(Design(()), (check_grid(average, model, n, stream.child(7)),))
    return Check.of(Evaluations(Evaluator(problem, keep=True), design), design), average


def draws_of(f, model, seed=0, n=400, check=True, problem=None):
    """Draws of E f(J) less E f(Ĵ)."""
    fresh, average = check_of(f, model, seed, n, problem)
    rng = np.random.default_rng(seed)

    def functional(j):
        return average.f(j).mean(axis=0)

    effects = PathEffects(model, functional)
    posterior = PosteriorOfJ(model, fresh if check else None, rng)
    return posterior.draws(functional, effects.calibration(rng)).values[:, 0]


FUNCTIONS = [square, excess, exceeds]
WRONG = {
    "constant": {"a": 0.3},
    "slope": {"b": 0.8, "c": 0.4},
    "coordinate": {"c": 0.0},
    "all of it": {"a": -0.2, "b": 1.2, "c": 0.0},
}


@pytest.mark.parametrize("f", FUNCTIONS)
def test_an_exact_model_that_claims_no_error_has_none(f):
    for seed in range(5):
        assert np.abs(draws_of(f, Hand(claimed=0.0), seed)).max() < 1e-5
        check, _ = check_of(f, Hand(claimed=0.0), seed)
        assert check.unexplained_share(Hand()) == 0.0


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("knows_x", [True, False])
def test_fresh_pairs_find_an_error_of_the_answer(f, wrong, knows_x):
    """The model claims a hundredth; the interval of the draws has its true error all the same."""
    model = Hand(**WRONG[wrong], knows_x=knows_x, deleted=0.01)
    exact, covered, centers = -model.error(f), [], []
    for seed in range(12):
        low, middle, high = np.quantile(draws_of(f, model, seed), [0.025, 0.5, 0.975])
        covered.append(low - 0.01 <= exact <= high + 0.01)
        centers.append(middle)
    # A hundred times the error that a model claims, of which noise of x hides a part, is too much.
    assert np.mean(covered) >= (0.5 if wrong == "all of it" and not knows_x else 0.75)
    # The variance of J given Ĵ corrects the answer of a model that misses a coordinate.
    if wrong == "coordinate":
        assert np.median(centers) == pytest.approx(exact, rel=0.25)
    # Neither noise of x nor other coordinates hide the bias, which then corrects the answer; the
    # bias of the square is known to a third only, and widens the interval.
    if knows_x and wrong == "constant" and f is not square:
        assert np.median(centers) == pytest.approx(exact, abs=0.35 * abs(exact) + 0.05)


def test_a_bias_is_known_as_well_as_its_pairs_show():
    """A constant bias of 0.05 behind noise of 0.5: the standard error of 2,048 residuals."""
    rng = np.random.default_rng(0)
    law = Scores.of(rng.standard_normal(2000), np.ones(2000))
    s, middle = rng.standard_normal(1024), np.abs(law.z) < 1.0
    r = 0.05 + 0.5 * rng.standard_normal((1024, 2))
    pairs = Pairs(s, r, np.ones(1024), np.full(1024, 0.1**2))
    b = draw_bias(law, Evidence(pairs, law(s), 1e-12), 200, rng)[1:, middle]
    assert abs(b.mean() - r.mean()) < 0.5 / np.sqrt(2048)
    assert 0.5 * 0.5 / np.sqrt(2048) < b.mean(axis=1).std() < 3.0 * 0.5 / np.sqrt(2048)


def shape_size(f, base, sd, smooth):
    """Error of E f(J) by the shape of J − Ĵ, of standard deviation sd, and an exponential one."""
    rng = np.random.default_rng(1)
    share = np.full(len(base), 1.0 / len(base))
    normal = base + sd * rng.standard_normal(base.shape)
    skewed = base + sd * (rng.standard_exponential(base.shape) - 1.0)
    (error,) = shape_errors(f(normal), f(base), f(base), share, smooth=smooth)
    return error, abs(f(skewed).mean() - f(normal).mean())


def test_the_unknown_shape_of_the_discrepancy_counts():
    """Ĵ is standard normal, and J − Ĵ has variance 1/4: normal, or exponential less its mean.

    Pairs cannot tell which of the two holds; E max(J − c, 0) differs by two deviations at most.
    """
    base = np.random.default_rng(0).standard_normal((200_000, 1))
    sd, change = shape_size(excess, base, 0.5, smooth=False)
    assert 0.05 * sd < change < 2.0 * sd
    assert shape_size(excess, base, 0.0, smooth=False)[0] == 0.0
    # An output on which f hardly depends is not known at all, and does not matter.
    both = np.concatenate([base, 1e-9 * base], axis=1)
    moved = both + [0.05, 1.0] * np.random.default_rng(1).standard_normal(both.shape)
    share = np.full(len(base), 1.0 / len(base))
    f = [excess(j[:, :1] + 1e-9 * j[:, 1:]) for j in (moved, both, both)]
    assert shape_errors(*f, share, smooth=False)[0] < 0.02 * excess(base).mean()


# From v to v/100 the bound falls as v^{1/2} times the share of the variance of f to its power; that
# share is of the order of v, or of v^{1/2} at a jump.
@pytest.mark.parametrize(
    ("f", "smooth", "power"), [(square, True, 1.0), (excess, False, 0.5), (exceeds, False, 0.25)]
)
def test_the_error_by_the_shape_falls_with_the_order_of_smoothness(f, smooth, power):
    base = np.random.default_rng(0).standard_normal((400_000, 1)) + LIMIT
    (large, change), (small, _) = (shape_size(f, base, sd, smooth) for sd in (0.2, 0.02))
    assert change < 2.0 * large
    assert small / large == pytest.approx(10.0 ** -(1.0 + 2.0 * power), rel=0.5)


class Evidence3(Hand):
    """J = exp(a + b θ₁ + c θ₂), and g = J times a log-normal variable of mean one."""

    logarithmic = True

    def mean(self, uniform):
        return np.exp(4.0 * super().mean(uniform))

    def sd(self, uniform):
        return self.claimed * self.mean(uniform)

    def at(self, uniform, inner, *, cautious=False):
        return self.mean(uniform)

    def paths(self, n_paths, rng):
        drawn = super().paths(n_paths, rng)
        return Paths(drawn.errors * self.sketch.j, drawn.observed, drawn.expected)


def test_errors_of_a_model_of_log_j_are_relative():
    """J runs over e^{±12}: pairs find a factor of it, and no absolute error where it is tiny."""

    def tilted(x, theta):
        j = np.exp(4.0 * (theta[..., 0] + 0.5 * theta[..., 1]))
        return j * np.exp(NOISE * x[..., 0] - 0.5 * NOISE**2)

    problem = nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(), tilted, np.log)
    for a, exact in ((0.0, 0.0), (0.05, -0.2)):
        covered, widths = [], []
        for seed in range(10):
            drawn = draws_of(np.log, Evidence3(a=a), seed, problem=problem)
            low, high = np.quantile(drawn, [0.025, 0.975])
            covered.append(low <= exact <= high)
            widths.append(high - low)
        assert np.mean(covered) >= 0.8
        assert np.median(widths) < 0.5


@pytest.mark.parametrize("spread", [1.0, 0.1])
def test_cross_fitting_is_weighed_by_its_precision(spread):
    """Draws have mean and deviation 1, and four changes mean 3: the mean of both, by precision."""
    values = 1.0 + np.random.default_rng(0).standard_normal((40_000, 1))
    changes = 3.0 + spread * np.array([[-1.0], [-1.0], [1.0], [1.0]])
    error = (student_factor(3.0) * spread) ** 2 / 3.0
    (shift,) = crossed_shift(values, np.array([1.0]), changes)
    assert shift == pytest.approx(2.0 / (1.0 + error), rel=0.02)


def test_noise_of_the_model_hardly_raises_a_maximum(monkeypatch):
    """J is normal with deviation 0.1 behind the noise of x; the answer is E max(J, 0)."""
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(4)),
        nq.Normal(np.zeros(4)),
        lambda x, theta: 0.05 * theta.sum(axis=-1) + np.sin(3.0 * x).sum(axis=-1) * x[..., 0],
        lambda j: np.maximum(j - 3.0 * np.exp(-4.5), 0.0),
    )
    exact = 0.1 / np.sqrt(2.0 * np.pi)

    def bias():
        answers = [nq.estimate(problem, method="joint", budget=600, rng=k).value for k in range(12)]
        return np.mean(answers) - exact

    crossed = bias()
    monkeypatch.setattr(_posterior, "DEFAULT", replace(_posterior.DEFAULT, crossed=False))
    assert abs(crossed) < 0.7 * bias()


def test_student_factors_are_ratios_of_quantiles():
    assert student_factor(np.inf) == pytest.approx(1.0)
    assert student_factor(4.0) == pytest.approx(2.7764451 / 1.9599640, rel=1e-6)


@pytest.mark.parametrize("deleted", [0.001, 0.01, 0.1])
def test_deleted_groups_calibrate_the_paths(deleted):
    """Draws without pairs have the size of the observed changes, and a little of the claim."""
    sizes = [
        draws_of(square, Hand(claimed=0.01, deleted=deleted), seed, check=False).std()
        for seed in range(20)
    ]
    # E (Ĵ + e)² changes by 2 E[Ĵ e] = 2 (b e₁ + c e₂), e of variance deleted²/2 each.
    shared = _posterior.DEFAULT.unshown**2 * 0.01 / deleted
    exact = 2.0 * deleted * np.sqrt((1.0 + 0.25) / 2.0 * (1.0 + shared))
    # Four groups know a logarithm of a variance to about 0.7.
    assert 0.4 * exact < np.median(sizes) < 2.5 * exact


# Of two models, the better one is kept.


# Two independent x at a θ tell noise in x from errors of J.


def test_noise_in_x_is_no_error_of_j_and_roughness_in_theta_is():
    blind, rough = Hand(claimed=0.1, knows_x=False), Hand(c=0.0, claimed=0.5)
    # Both leave residuals with a standard deviation of 0.5, as both expect.
    shares = []
    for model in (blind, rough):
        checks = [check_of(square, model, seed)[0] for seed in range(20)]
        shares.append(np.median([check.unexplained_share(model) for check in checks]))
    assert shares[0] < 0.01
    # Of Var J = 5/4, ¼ is left; less a standard error.
    assert shares[1] == pytest.approx(0.2, abs=0.05)


# Events that nothing has reached.


def never(limit):
    return lambda j: (j > limit) + 0.0


def events_of(f, model, seed=0, n=400, problem=None):
    check, average = check_of(f, model, seed, n, problem)
    answers = average.f(model.sketch.j).mean(axis=0)
    return NORMAL_95 * size_of(unreached_errors(model, check, average, answers))


@pytest.mark.parametrize("n", [200, 1000])
def test_an_event_within_reach_of_the_errors_is_bounded_by_three_over_n(n):
    """Ĵ = θ₁/10 has never exceeded 1.5, and its error has a standard deviation of 0.5."""
    f, model = never(1.5), Hand(b=0.1, c=0.0)
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(0.0, NOISE),
        lambda x, theta: 0.1 * theta[..., 0] + 0.5 * theta[..., 1] + x[..., 0],
        f,
    )
    exact = ndtr(-1.5 / np.hypot(0.1, 0.5))
    for seed in range(5):
        half = events_of(f, model, seed, n, problem)
        # All points count: those of the fit, and those of the pairs.
        assert half == pytest.approx(3.0 / (n // 2 + model.n_points), rel=0.3)
        assert half > exact


@pytest.mark.parametrize("limit", [6.0, 60.0])
def test_an_event_far_beyond_the_errors_is_hardly_possible(limit):
    f = never(limit)
    sizes = {c: events_of(f, Hand(c=c)) / NORMAL_95 for c in (0.5, 0.49, 0.3)}
    # J itself may reach so far, by Cantelli's inequality; errors add to that.
    assert 0.0 < sizes[0.5] < 1.1 / limit**2
    assert sizes[0.49] < 1.1 * sizes[0.3]
    assert sizes[0.3] < 3.0 / 200


def test_frequent_events_need_no_bound():
    assert events_of(exceeds, Hand(c=0.0)) == 0.0


def test_a_bias_of_small_values_is_seen_beside_large_noise():
    # Ĵ = 0.1 where J = 0 with little noise, and large noise where Ĵ is large.
    rng, m = np.random.default_rng(0), 256
    s = np.sort(rng.uniform(0.0, 1.0, m))
    low = s < 0.6
    noise = np.where(low, 0.02, 1.0)[:, None] * rng.standard_normal((m, 2))
    r = noise - np.where(low, 0.1, 0.0)[:, None]
    law = Scores.of(s, np.ones(m))
    seen = Evidence(Pairs(s, r, np.ones(m), np.full(m, 1e-4)), law(s), 1e-12)
    b = draw_bias(law, seen, 200, rng)
    assert np.median(b[0][s < 0.5]) == pytest.approx(-0.1, abs=0.02)


def test_the_variance_is_at_least_the_mean_product_less_a_standard_error():
    # One θ in twenty has an error of 1; the model claims 1e-4 everywhere.
    rng, m = np.random.default_rng(1), 400
    s = rng.uniform(0.0, 1.0, m)
    error = (rng.random(m) < 0.05).astype(float)
    r = error[:, None] + 0.3 * rng.standard_normal((m, 2))
    products = r[:, 0] * r[:, 1]
    lowest = products.mean() - products.std() / np.sqrt(m)
    law = Scores.of(np.sort(s), np.ones(m))
    seen = Evidence(Pairs(s, r, np.ones(m), np.full(m, 1e-8)), law(s), 1e-12)
    v = draw_variances(law, seen, np.zeros(m), 64, rng)
    assert lowest > 0.02
    assert v.mean(axis=1).min() > 0.8 * lowest
