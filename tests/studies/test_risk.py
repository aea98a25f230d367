"""Random problems of risk: closed-form J against inner means, truths by routes of their own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

import nestquad as nq
from studies import risk
from studies.families._truth import Sum
from studies.risk._truth import ChiSquare, Dense, OnALine, truths

EVERY = risk.families()
EVEN = (0, 2)


def inner_values(problem, theta, n, seed=0):
    """Values of g at n draws of x for each theta: Sobol points where the law allows them."""
    law = problem.inner_law(theta)
    if law.has_transport:
        log2 = int(np.log2(n))
        x = law.from_uniform(qmc.Sobol(law.base_dim, rng=seed).random_base2(log2))
    else:
        x = law.sample(n, seed)
    x = x if x.ndim == 3 else np.broadcast_to(x, (len(theta), *x.shape))
    return np.asarray(problem.g(x, theta[:, None, :]))


def closed_form(law, z):
    """J at the normals that drive theta."""
    if isinstance(law, ChiSquare):
        return law.scale * (np.square(z).sum(axis=1) - law.d)
    if isinstance(law, OnALine):
        return law.h(z[:, 0])
    if not isinstance(law.total, Sum):
        return law.total(z)
    return law.total(z @ np.linalg.cholesky(law.total.correlation).T)


@pytest.mark.parametrize("seed", EVEN)
@pytest.mark.parametrize("family", EVERY)
def test_the_closed_form_of_j_is_the_mean_of_the_loss(family, seed):
    made = risk.sketch(family, seed)
    z = np.random.default_rng(1).standard_normal((5, made.problem.outer_law.base_dim))
    theta = made.problem.outer_law.from_normal(z)
    values = inner_values(made.problem, theta, 2**13)
    # Independent draws at worst: Sobol points are better.
    error = values.std(axis=1) / np.sqrt(values.shape[1])
    assert (np.abs(values.mean(axis=1) - closed_form(made.law, z)) <= 4.5 * error).all()


@pytest.mark.parametrize("family", EVERY)
def test_a_seed_makes_the_same_case_and_another_seed_another(family):
    one = risk.sketch(family, 4)
    risk.sketch.cache_clear()
    again, other = risk.sketch(family, 4), risk.sketch(family, 6)
    theta = one.problem.outer_law.sample(4, 0)
    assert np.array_equal(theta, again.problem.outer_law.sample(4, 0))
    assert np.array_equal(*(inner_values(s.problem, theta, 4) for s in (one, again)))
    assert one.levels == again.levels != other.levels


@pytest.mark.parametrize("family", EVERY)
def test_truths_are_kept_in_order_and_accurate(family):
    assert not risk.missing([family], range(0, 11, 2))
    for seed in range(0, 11, 2):
        truth = risk.truth(family, seed)
        assert list(truth) == list(risk.MEASURES)
        low, middle, high = (truth[f"VaR {p}"].value for p in ("95", "99", "99.9"))
        assert 0 < low < middle < high
        assert low < truth["ES 97.5"].value < high
        for name, nominal in (("P 1", 0.01), ("P 0.1", 0.001)):
            assert 0.7 < truth[name].value / nominal < 1.4
            assert truth[name].error <= 0.03 * truth[name].value
        assert (
            max(truth[name].error / truth[name].value for name in truth if "P" not in name) < 4e-3
        )


def test_a_drawn_case_tells_its_family_seed_and_parity():
    case = risk.case_of("book5-2")
    assert case.problem.name == "book5-2"
    assert case.problem.tags == ("book5", "even")
    assert case.truth == risk.draw("book5", 2).truth
    assert not risk.draw("book5-sampled", 0).problem.inner_law(np.ones((1, 5))).has_transport
    with pytest.raises(nq.InputError, match="family"):
        risk.draw("nothing", 0)


def test_dense_truths_agree_with_fourier_series():
    made = risk.sketch("book5-exotic", 0)
    for name, level in made.levels.items():
        truth, series = risk.truth("book5-exotic", 0)[name], made.law.total.exceedance(level)
        assert abs(truth.value - series.value) <= 2 * truth.error + series.error
    # ES is q + E max(J − q, 0)/(1 − p) for any q that is nearly the quantile.
    q = float(np.quantile(made.law.total.draws(15), 0.975))
    excess, truth = made.law.total.excess(q), risk.truth("book5-exotic", 0)["ES 97.5"]
    assert truth.value == pytest.approx(q + excess.value / 0.025, rel=2e-3)


def test_truths_on_a_line_agree_with_a_fine_grid():
    made, n = risk.sketch("book1", 2), 200_000
    j = np.sort(made.law.h(stats.norm.ppf((np.arange(n) + 0.5) / n)))
    truth = risk.truth("book1", 2)
    assert truth["VaR 99"].value == pytest.approx(j[int(0.99 * n)], rel=1e-3)
    assert truth["VaR 99.9"].value == pytest.approx(j[int(0.999 * n)], rel=2e-3)
    assert truth["ES 97.5"].value == pytest.approx(j[int(0.975 * n) :].mean(), rel=1e-4)
    assert truth["P 1"].value == pytest.approx((j > made.levels["P 1"]).mean(), rel=2e-3)


def test_tails_of_claims_agree_with_fourier_series():
    made, truth = risk.sketch("insurer", 2), risk.truth("insurer", 2)["P 0.1"]
    series = made.law.total.exceedance(made.levels["P 0.1"])
    assert abs(truth.value - series.value) <= 2 * truth.error + series.error


def test_sums_that_are_normal_have_normal_measures(monkeypatch):
    monkeypatch.setattr("studies.risk._truth._LOG2", 15)
    total = Sum((lambda z: z + 1.0, lambda z: 2.0 * z), np.array([0.5, 0.8]))
    law = stats.norm(1.0, np.sqrt(1 + 4 + 4 * 0.4))
    line = stats.norm(1.0, 3.0)
    for found, exact in (
        (Dense(total), law),
        (OnALine(lambda z: 1.0 - 3.0 * z), line),
    ):
        for p in (0.95, 0.999):
            tail = exact.mean() + exact.std() * stats.norm.pdf(stats.norm.ppf(p)) / (1 - p)
            for (value, error), wanted in (
                (found.quantile(p), exact.ppf(p)),
                (found.shortfall(p), tail),
                (found.exceedance(exact.ppf(p)), 1 - p),
            ):
                assert abs(value - wanted) <= 1.6 * error + 1e-6 * abs(wanted)
                assert error <= 0.05 * abs(wanted)


def test_the_model_problem_against_samples():
    law, rng = ChiSquare(0.02, 3), np.random.default_rng(0)
    j = np.sort(0.02 * (np.square(rng.standard_normal((400_000, 3))).sum(axis=1) - 3))
    found = truths(law, {"P 1": 0.165, "P 0.1": 0.26})
    assert found["VaR 99"].value == pytest.approx(np.quantile(j, 0.99), rel=0.01)
    assert found["ES 97.5"].value == pytest.approx(j[390_000:].mean(), rel=0.01)
    assert found["P 1"].value == pytest.approx((j > 0.165).mean(), rel=0.05)
