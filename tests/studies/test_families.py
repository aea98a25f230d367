"""Families of random problems: exact values by routes of their own, shapes, seeds, the study."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import qmc

from studies import families
from studies.__main__ import main
from studies.families import _truth
from studies.families._books import _Option
from studies.families._decisions import _mean_of_largest, _occupancy, _partial_moments
from studies.families._insurance import _gamma, _lognormal, _pareto, _student
from studies.families._nested import smooth_mean, tail
from studies.families._truth import Sum, average, crossings, moments

NORMAL = stats.norm()
EVERY = families.families()
EVEN = (0, 2)


def inner_mean(problem, theta, u):
    """E[g | θ] by an average over points u of x."""
    x = problem.inner_law(theta).from_uniform(u)
    x = x if x.ndim == 3 else x[None]
    values = np.asarray(problem.g(x, theta[:, None, :]))
    return np.broadcast_to(values, (len(theta), len(u), *values.shape[2:])).mean(axis=1)


def nested(problem, log2_outer, log2_inner):
    """Plain nested quasi-Monte Carlo on the definition, and the spread of f(J)."""
    outer = qmc.Sobol(problem.outer_law.base_dim, rng=1).random_base2(log2_outer)
    inner = qmc.Sobol(problem.inner_base_dim, rng=2).random_base2(log2_inner)
    rows = [
        problem.apply_f(inner_mean(problem, problem.outer_law.from_uniform(part), inner))
        for part in np.split(outer, max(len(outer) * len(inner) // 2**18, 1))
    ]
    image = np.concatenate(rows)
    return float(problem.finish(image.mean(axis=0))), float(image[:, 0].std())


@pytest.mark.parametrize("seed", EVEN)
@pytest.mark.parametrize("family", EVERY)
def test_laws_and_functions_have_the_stated_shapes(family, seed):
    problem = families.sketch(family, seed).problem
    theta = problem.outer_law.sample(5, 0)
    law = problem.inner_law(theta)
    x = law.sample(3, 0)
    x = x if x.ndim == 3 else np.broadcast_to(x, (5, *x.shape))
    values = np.asarray(problem.g(x, theta[:, None, :]))
    assert theta.shape == (5, problem.outer_law.dim)
    assert x.shape == (5, 3, law.dim)
    assert values.shape[:2] == (5, 3)
    assert np.isfinite(values).all()
    assert problem.apply_f(values.mean(axis=1)).shape[0] == 5


@pytest.mark.parametrize("family", EVERY)
def test_a_seed_makes_the_same_problem_and_another_seed_another(family):
    families.sketch.cache_clear()
    one = families.sketch(family, 4)
    families.sketch.cache_clear()
    again, other = families.sketch(family, 4), families.sketch(family, 5)
    theta = one.problem.outer_law.sample(4, 0)
    assert np.array_equal(theta, again.problem.outer_law.sample(4, 0))
    assert one.about == again.about != other.about
    assert families.truth(family, 4) == families.truth(family, 4)
    assert families.truth(family, 4).value != families.truth(family, 5).value
    if family != "noisy":
        x = one.problem.inner_law(theta).sample(3, 0)
        values = [np.asarray(s.problem.g(x, theta[:, None, :])) for s in (one, again)]
        assert np.array_equal(*values)


@pytest.mark.parametrize("family", EVERY)
def test_exact_values_are_kept_and_accurate(family):
    assert not families.missing([family], range(11))
    for seed in range(11):
        truth = families.truth(family, seed)
        assert truth.scale > 0
        assert truth.error <= 1e-4 * truth.scale
        if family == "rare":
            assert truth.error <= 1e-3 * abs(truth.value)


def test_a_drawn_problem_tells_its_family_seed_and_parity():
    problem = families.draw("rough", 3)
    assert problem.name == "rough-3"
    assert problem.tags == ("rough", "odd")
    assert problem.exact == families.problem_of("rough-3").exact
    assert families.code("rough") != families.code("rare")
    with pytest.raises(Exception, match="family"):
        families.draw("nothing", 0)


# Rare events want more points than a quick test has.
QUICK = [(f, s) for f in EVERY if f != "rare" for s in EVEN]


@pytest.mark.parametrize(("family", "seed"), QUICK)
def test_brute_force_on_the_definition_agrees(family, seed):
    problem, truth = families.draw(family, seed), families.truth(family, seed)
    answer, spread = nested(problem, 11, 9)
    # Sobol points are better than independent ones; the bias of 512 inner points is a per cent.
    assert abs(answer - truth.value) <= 2 * spread / math.sqrt(2**11) + 0.02 * truth.scale


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 20, 2))
@pytest.mark.parametrize("family", EVERY)
def test_brute_force_with_many_points_agrees(family, seed):
    problem, truth = families.draw(family, seed), families.truth(family, seed)
    answer, spread = nested(problem, 14, 13)
    assert abs(answer - truth.value) <= 2.5 * spread / 2**7 + 0.01 * truth.scale


# The tools that exact values are made with.


def test_moments_on_a_line_against_adaptive_quadrature():
    found = moments(lambda z: np.abs(np.sin(7 * z) - 0.3), crossings(lambda z: np.sin(7 * z) - 0.3))
    density = stats.norm.pdf(z := np.linspace(-9, 9, 4_000_001))
    wanted = np.trapezoid(np.abs(np.sin(7 * z) - 0.3) * density, z)
    assert found.value == pytest.approx(wanted, abs=1e-9)
    assert found.error < 1e-12


def test_rare_exceedances_keep_their_digits():
    found = _truth.exceedance(lambda z: np.exp(z) + z, math.exp(5.0) + 5.0)
    assert found.value == pytest.approx(NORMAL.sf(5.0), rel=1e-9)
    two_sided = _truth.exceedance(np.square, 16.0)
    assert two_sided.value == pytest.approx(2 * NORMAL.sf(4.0), rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_tails_of_sums_that_are_normal(n):
    rng = np.random.default_rng(n)
    sizes, loadings = rng.uniform(0.5, 2.0, n), rng.uniform(-0.5, 0.9, n)
    total = Sum(tuple(lambda z, a=a: a * z + 1.0 for a in sizes), loadings)
    sd = math.sqrt(sizes @ total.correlation @ sizes)
    t = 2.5
    exceeds, beyond = total.exceedance(n + t * sd), total.excess(n + t * sd)
    assert exceeds.value == pytest.approx(NORMAL.sf(t), rel=2e-5)
    assert abs(exceeds.value - NORMAL.sf(t)) <= exceeds.error + 1e-8
    loss = sd * (NORMAL.pdf(t) - t * NORMAL.sf(t))
    assert beyond.value == pytest.approx(loss, rel=2e-5)
    assert total.square().value == pytest.approx(sd**2 + n**2, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_nested_tails_of_sums_that_are_normal(n):
    rng = np.random.default_rng(n)
    sizes, loadings = rng.uniform(-2.0, 2.0, n), rng.uniform(-0.5, 0.9, n)
    total = Sum(tuple(lambda z, a=a: a * z + 1.0 for a in sizes), loadings)
    sd = math.sqrt(sizes @ total.correlation @ sizes)
    for t in (0.0, 2.5):
        loss = sd * (NORMAL.pdf(t) - t * NORMAL.sf(t))
        assert tail(total, n + t * sd, False).value == pytest.approx(NORMAL.sf(t), rel=1e-9)
        assert tail(total, n + t * sd, True).value == pytest.approx(loss, rel=1e-9)
    found = smooth_mean(total, np.square)
    assert found.value == pytest.approx(sd**2 + n**2, rel=1e-12)
    assert found.scale == pytest.approx(math.sqrt(2 * sd**4 + 4 * n**2 * sd**2), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_nested_tails_of_sums_with_turning_points(n):
    # Minus a sum of squares is largest inside, and its tail is that of χ².
    total, law = Sum((lambda z: -(z**2),) * n, np.zeros(n)), stats.chi2(n)
    level = float(law.ppf(0.1))
    assert tail(total, -level, False).value == pytest.approx(0.1, rel=1e-9)
    beyond = level * 0.1 - n * stats.chi2(n + 2).cdf(level)
    assert tail(total, -level, True).value == pytest.approx(beyond, rel=1e-9)


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_nested_tails_against_series_and_grids(n):
    parts = (lambda z: np.exp(0.4 * z), lambda z: z**2 - 0.5 * z, lambda z: np.cos(2 * z))[:n]
    total = Sum(parts, np.array([0.3, 0.6, -0.4])[:n])
    level = float(np.quantile(total.draws(14), 0.9))
    for other, is_excess in ((total.exceedance, False), (total.excess, True)):
        found = tail(total, level, is_excess)
        assert found.value == pytest.approx(other(level).value, rel=5e-5)
        assert found.error <= 1e-9 * found.value


@pytest.mark.slow
def test_tails_of_sums_with_kinks_and_turning_points():
    parts = (np.exp, lambda z: np.maximum(z, 0.0), lambda z: z**2 - 0.5 * z)
    total = Sum(parts, np.array([0.3, 0.6, -0.4]))
    z = NORMAL.ppf(qmc.Sobol(3, rng=3).random_base2(19))
    j = total(z @ np.linalg.cholesky(total.correlation).T)
    level = float(np.quantile(j, 0.98))
    assert total.exceedance(level).value == pytest.approx((j > level).mean(), rel=4e-3)
    assert total.excess(level).value == pytest.approx(np.maximum(j - level, 0).mean(), rel=4e-3)


def test_dense_averages_know_their_error():
    # E max of two standard normals is 1/√π.
    found = average(lambda u: NORMAL.ppf(u).max(axis=1), 2, log2=12, most=14)
    gap = abs(found.value - 1 / math.sqrt(math.pi))
    assert gap <= 2 * found.error
    assert found.error < 1e-4


KINDS = ("call", "put", "digital", "down-and-out call", "up-and-out put")


@pytest.mark.parametrize("kind", KINDS)
def test_option_prices_are_means_of_payoffs(kind):
    option = _Option(kind, 1.0, 100.0, 88.0 if "down" in kind else 112.0)
    spot, sd = 97.0, 0.25
    law = stats.lognorm(sd, scale=spot * math.exp(-(sd**2) / 2))

    def paid(price):
        alive = option.survival(spot, price, sd) if option.has_barrier else 1.0
        return float(option.payoff(price) * alive * law.pdf(price))

    ends = (1e-9, 88.0, 100.0, 112.0, 600.0)
    wanted = sum(quad(paid, a, b, limit=200)[0] for a, b in itertools.pairwise(ends))
    assert float(option.price(np.array(spot), sd)) == pytest.approx(wanted, rel=1e-6)


def test_survival_between_two_prices_by_simulated_paths():
    option, sd, steps = _Option("down-and-out call", 1.0, 100.0, 90.0), 0.25, 2000
    rng, start, end = np.random.default_rng(0), math.log(100.0), math.log(105.0)
    walk = np.cumsum(rng.normal(size=(4000, steps)) * sd / math.sqrt(steps), axis=1)
    time = np.arange(1, steps + 1) / steps
    bridge = start + walk - time * (walk[:, -1:] - (end - start))
    # Discrete paths miss some crossings: the barrier moves out by 0.58 of a step.
    barrier = math.log(90.0) + 0.5826 * sd / math.sqrt(steps)
    simulated = (bridge.min(axis=1) > barrier).mean()
    exact = float(option.survival(np.array(100.0), np.array(105.0), sd))
    assert simulated == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("claim", [_gamma, _lognormal, _pareto, _student])
def test_stop_loss_of_claims_by_their_quantiles(claim):
    one = claim(np.random.default_rng(1))
    for level in (0.4, 0.9):
        k = float(one.quantile(np.array(level)))
        # E max(y − k, 0) = ∫ max(q(u) − k, 0) du, in log(1 − u) for the tail.
        wanted = quad(
            lambda t, k=k: (float(one.quantile(np.array(-math.expm1(-t)))) - k) * math.exp(-t),
            -math.log1p(-level),
            33.0,
            limit=500,
        )[0]
        assert float(one.stop_loss(np.array(k))) == pytest.approx(wanted, rel=1e-3)


def _drawn(family, words):
    """The first even seed whose problem is described with these words."""
    return next(
        seed
        for seed in range(0, 400, 2)
        if all(word in families.sketch(family, seed).about for word in words)
    )


def test_linear_evidence_is_the_entropy_of_the_data():
    seed = _drawn("experiments", ("linear", "2 measurements", "log evidence"))
    made = families.sketch("experiments", seed)
    y = made.problem.outer_law.sample(400_000, 0)
    entropy = stats.multivariate_normal([0, 0], np.cov(y.T)).entropy()
    assert made.truth().value == pytest.approx(-entropy, abs=0.01)


def test_binomial_evidence_by_adaptive_quadrature():
    seed = _drawn("experiments", ("binomial", "1 coefficients", "1 doses", "log evidence"))
    made = families.sketch("experiments", seed)
    law, g = made.problem.inner_law(np.zeros((1, 1))), made.problem.g
    mean, sd = float(law.loc[0]), float(law.sd[0])
    total = value = 0.0
    for y in range(20):
        theta = np.array([[float(y)]])
        with np.errstate(all="ignore"):
            if not np.isfinite(float(g(np.array([[0.3]]), theta)[0])):
                break
        evidence = quad(
            lambda b, t=theta: float(g(np.array([[b]]), t)[0]) * stats.norm.pdf(b, mean, sd),
            mean - 9 * sd,
            mean + 9 * sd,
            limit=200,
        )[0]
        if total > 1 - 1e-9:
            break
        total, value = total + evidence, value + evidence * math.log(evidence)
    assert total == pytest.approx(1.0, abs=1e-9)
    assert made.truth().value == pytest.approx(value, abs=1e-8)


def test_information_gain_of_binary_answers_is_at_most_their_entropy():
    for seed in (s for s in range(0, 40, 2)):
        made = families.sketch("experiments", seed)
        if "logistic" in made.about and "gain" in made.about:
            doses = int(made.about.split(" doses")[0].rsplit(" ", 1)[1])
            assert 0 < made.truth().value < doses * math.log(2)


def test_rough_regimes_against_a_sum_over_them_on_a_grid():
    # One normal index: θ on a fine grid of its drivers, J by many points of x.
    seed = _drawn("rough", ("coins", "1 regimes", "excess"))
    made = families.sketch("rough", seed)
    assert nested(made.problem, 10, 12)[0] == pytest.approx(made.truth().value, abs=0.01)


def test_rare_events_have_the_probability_that_is_said():
    seed = _drawn("rare", ("exceedance", "one index"))
    made = families.sketch("rare", seed)
    said = float(made.about.split("probability ")[1].split(" ")[0])
    assert made.truth().value == pytest.approx(said)
    seed = _drawn("rare", ("loss", "dimensions, f"))
    made = families.sketch("rare", seed)
    said = float(made.about.split("probability ")[1].split(" ")[0])
    rng = np.random.default_rng(0)
    theta = made.problem.outer_law.sample(400_000, rng)
    x = made.problem.inner_law(theta[:1]).sample(400_000, rng)[None]
    hits = made.problem.g(x.reshape(-1, 1, x.shape[-1]), theta[:, None, :]) > 0
    assert hits.mean() == pytest.approx(said, rel=5 / math.sqrt(400_000 * said))


def test_powers_of_sums_of_waves_in_one_dimension():
    # The moment generating functions against a grid of θ and x for a small sum.
    seed = _drawn("smooth", ("power 2", "uniform", "waves"))
    made = families.sketch("smooth", seed)
    answer, spread = nested(made.problem, 13, 10)
    truth = made.truth()
    assert answer == pytest.approx(truth.value, abs=0.02 * truth.scale)
    assert spread == pytest.approx(truth.scale, rel=0.03)


KINKED = ("options on 1", "options on 3", "basket of 3", "shock", "distance", "larger of two")


@pytest.mark.parametrize("words", KINKED)
def test_closed_forms_of_kinked_problems_by_the_definition(words):
    made = families.sketch("kinks", _drawn("kinks", (words,)))
    truth, (answer, spread) = made.truth(), nested(made.problem, 12, 11)
    assert abs(answer - truth.value) <= 2 * spread / 2**6 + 0.005 * truth.scale


def test_exact_values_of_kinks_have_nine_digits():
    assert not families.missing(["kinks"], range(80))
    for seed in range(80):
        truth = families.truth("kinks", seed)
        assert truth.error <= 1e-9 * truth.scale


def test_noise_has_mean_zero_and_no_seed():
    for seed in EVEN:
        problem = families.sketch("noisy", seed).problem
        theta = problem.outer_law.sample(2, 0)
        x = problem.inner_law(theta).sample(50, 0)
        x = x if x.ndim == 3 else np.broadcast_to(x, (2, *x.shape))
        values = [np.asarray(problem.g(x, theta[:, None, :])) for _ in range(2)]
        assert not np.array_equal(*values)


def test_the_largest_of_lines_by_adaptive_quadrature():
    rng = np.random.default_rng(4)
    start, slope = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))
    slope[:2, 1:3] = 0.0  # two options that do not depend on the parameter
    found = _mean_of_largest(start, slope, _partial_moments(np.exp))
    z = np.linspace(-8, 8, 400_001)
    for a, b, value in zip(start, slope, found, strict=True):
        lines = a[:, None] + b[:, None] * np.exp(z)
        wanted = np.trapezoid(lines.max(axis=0) * NORMAL.pdf(z), z)
        assert value == pytest.approx(wanted, abs=1e-7)


def test_geometric_sums_are_the_markov_loop():
    values = [np.array([-2.0, -1.0]), np.array([-4.0, -3.5]), np.array([-1.0, -2.0]), -0.5]
    well, ill = _occupancy(values, 1, 12)
    fall, die, die_ill = expit(values[0] - 0.5), expit(values[1]), expit(values[2])
    for k in range(2):
        move = np.array(
            [[(1 - die[k]) * (1 - fall[k]), (1 - die[k]) * fall[k]], [0.0, 1 - die_ill[k]]]
        )
        state = np.array([1.0, 0.0])
        times = sum(0.97**t * state @ np.linalg.matrix_power(move, t) for t in range(12))
        assert (well[k], ill[k]) == pytest.approx(tuple(times), rel=1e-12)


def test_a_tree_with_one_learned_parameter_by_dense_values_of_it():
    seed = _drawn("decisions", ("tree", " 1 of "))
    made = families.sketch("decisions", seed)
    u = (np.arange(4096) + 0.5)[:, None] / 4096
    x = qmc.Sobol(made.problem.inner_base_dim, rng=0).random_base2(11)
    j = inner_mean(made.problem, made.problem.outer_law.from_uniform(u), x)
    answer = float(j.max(axis=1).mean() - j.mean(axis=0).max())
    truth = made.truth()
    assert answer == pytest.approx(truth.value, abs=0.01 * truth.scale)


def test_the_study_runs_once_and_tells_the_parity(tmp_path, capsys):
    line = ["families", "--families", "rough,smooth", "--seeds", "0-1", "--parity", "even"]
    line += ["--budgets", "300", "--tolerances", "0.5", "--methods", "auto,nqmc", "--runs", "1"]
    line += ["--out", str(tmp_path), "--jobs", "0"]
    assert main(line) == 0
    assert "8 runs to do, 0 finished" in capsys.readouterr().err
    page = (tmp_path / "families_even.md").read_text(encoding="utf-8")
    assert "these numbers are no report" in page
    assert "rough" in page
    assert "smooth-1" not in page
    assert (tmp_path / "figures" / "bench_families_even.png").exists()
    assert main(line) == 0
    assert "0 runs to do, 8 finished" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no odd seeds"):
        main(["families", "--seeds", "0"])
    with pytest.raises(SystemExit, match="cannot read"):
        main(["families", "--seeds", "a-b"])
