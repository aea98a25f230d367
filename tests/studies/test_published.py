"""Published problems: truths by other routes, and a page that says first where we lose."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from studies.published import cases, decisions, information, risk, study
from studies.published.problem import Printed, PublishedProblem
from studies.published.study import BudgetErrors, comparable, page_text, run_task
from studies.runner.ledger import Outcome, Run, Task


def test_closed_form_of_the_insurer_is_the_mean_of_its_losses():
    theta = np.array([-2.5, -1.0, 0.0, 1.5])
    x = np.random.default_rng(0).normal(size=(1, 200_000, 9))
    losses = risk.insurance_loss(x, theta[:, None, None])
    se = losses.std(axis=1) / math.sqrt(x.shape[1])
    assert (np.abs(losses.mean(axis=1) - risk.insurance_mean(theta)) < 4 * se).all()


def test_insurer_has_the_quantile_of_the_source():
    assert risk.insurance_mean(stats.norm.ppf(0.005)) == pytest.approx(252.75874, abs=1e-5)
    z = np.linspace(-4, -0.6, 200)
    assert (np.diff(risk.insurance_mean(z)) < 0).all()  # so the quantile of J is that of −θ
    upper = risk.insurance_mean(np.linspace(-0.6, 5, 200))
    assert upper.max() < 252


def test_calls_on_one_asset_by_quadrature():
    """J at the 10 % quantile of the price, with each call integrated over prices."""
    spot = 100 * math.exp((0.08 - 0.005) * 0.06 + 0.1 * math.sqrt(0.06) * stats.norm.ppf(0.1))
    time = 1 - 0.06

    def value(start, left, strike):
        law = stats.lognorm(0.1 * math.sqrt(left), scale=start * math.exp((0.05 - 0.005) * left))
        part = quad(lambda s: (s - strike) * law.pdf(s), strike, 400, epsabs=1e-11)[0]
        return math.exp(-0.05 * left) * part

    strikes = (90, 100, 110)
    loss = sum(value(100.0, 1.0, k) - value(spot, time, k) for k in strikes)
    assert risk.calls_exact(1) == pytest.approx(loss, abs=1e-7)


def test_calls_on_twenty_assets_by_other_points():
    results = [risk.calls_exact(20, 17, seed) for seed in (101, 102)]
    se = math.hypot(0.09 / math.sqrt(2), risk.CALLS_20_ERROR)
    assert abs(np.mean(results) - risk.CALLS_20_EXACT) < 4 * se


def test_quantile_and_exceedance_of_the_straddle():
    assert risk.straddle_exceedance(49.0) == pytest.approx(0.009827, abs=2e-6)
    assert risk.straddle_exceedance(48.913) == pytest.approx(0.01, abs=2e-5)
    rng = np.random.default_rng(1)
    spot = 100 * np.exp((0.05 - 0.045) * 0.25 + 0.15 * rng.normal(size=400_000))
    share = (risk.straddle_mean(spot) > 45).mean()
    assert risk.straddle_exceedance(45.0) == pytest.approx(share, abs=4e-4)


def test_option_by_quadrature():
    var, es = (cases()[name].exact for name in ("option-var", "option-es"))
    law = stats.chi2(1)
    assert law.sf(2 * var + 1) == pytest.approx(0.025)
    tail = quad(lambda s: 0.5 * (s - 1) * law.pdf(s), 2 * var + 1, 80)[0]
    assert es == pytest.approx(tail / 0.025, rel=1e-7)


@pytest.mark.parametrize(("limit", "tail"), [(0.859, 0.1), (1.221, 0.01), (1.390, 0.001)])
def test_thresholds_of_the_put_have_the_printed_probabilities(limit, tail):
    assert risk.put_loss_exceedance(limit) == pytest.approx(tail, rel=5e-3)


def test_error_of_nested_simulation_by_simulation():
    """The formula of bias and variance against quantiles of simulated nested samples."""
    n, t, z = 25, 4_000, stats.norm.ppf(0.9)
    rng = np.random.default_rng(2)
    j = rng.normal(size=(400, t)) + 3.0 / math.sqrt(n) * rng.normal(size=(400, t))
    result = np.sqrt(((np.quantile(j, 0.9, axis=1) - z) ** 2).mean())
    spread = math.sqrt(1 + 9 / n)
    variance = 0.09 * spread**2 / (t * stats.norm.pdf(z) ** 2)
    assert result == pytest.approx(math.hypot((spread - 1) * z, math.sqrt(variance)), rel=0.02)
    assert risk.nested_error(n * t, 0.9, 3.0) <= result * 1.02


def test_two_options_by_quadrature():
    normal = stats.norm()
    both = quad(lambda s: max(s, 0.0) * stats.norm(0, math.sqrt(2)).pdf(s), 0, 20)[0]
    one = quad(lambda s: max(s, 0.0) * normal.pdf(s), 0, 20)[0]
    assert cases()["two-options"].exact == pytest.approx(both - one, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "truth", "printed", "target"),
    [
        ("chemotherapy", decisions.CHEMOTHERAPY, 5.045, 0.01),
        ("chronic pain", decisions.CHRONIC_PAIN, 113.6, 0.2),
    ],
)
def test_decisions_agree_with_the_source_and_with_other_points(name, truth, printed, target):
    assert abs(truth[0] - printed) < 4 * math.hypot(truth[1], target)
    result = np.array([decisions.regret_truth(name, 14, seed) for seed in range(100, 104)])
    se = result.std(ddof=1) / 2
    assert abs(result.mean() - truth[0]) < 6 * math.hypot(se, truth[1])


def test_chemotherapy_is_linear_in_x_with_all_its_mass():
    rng = np.random.default_rng(3)
    theta = np.stack([law.rvs(50, random_state=rng) for law in decisions._CHEMO_OUTER], axis=-1)
    shares = decisions._chemo_occupancy(theta)
    np.testing.assert_allclose(np.sum(shares, axis=0), 1.0)
    x = rng.uniform(1, 2, size=(3, 50, 6))
    middle = decisions.chemotherapy_difference(0.5 * (x[0] + x[1]), theta)
    ends = [decisions.chemotherapy_difference(one, theta) for one in x[:2]]
    np.testing.assert_allclose(middle, np.mean(ends, axis=0))


def test_weeks_of_the_pain_model_add_up():
    rng = np.random.default_rng(4)
    x = np.stack([law.rvs(50, random_state=rng) for law in decisions._PAIN_INNER], axis=-1)
    for weeks in decisions._pain_weeks(x):
        np.testing.assert_allclose(np.sum(weeks, axis=0), 52.0)


def test_linear_gain_is_that_of_the_source():
    assert cases()["linear-gain"].exact == pytest.approx(4.457380, abs=1e-6)


def test_logistic_gain_by_other_nodes():
    assert information.logistic_gain(120) == pytest.approx(information.logistic_gain(200), abs=1e-9)


def test_pharmacokinetic_gain_by_other_points_and_nodes():
    result = np.array([information.pharmacokinetic_gain(8, s, nodes=13) for s in (100, 101, 102)])
    assert abs(result.mean() - information.PHARMACOKINETIC[0]) < 0.03


@pytest.mark.parametrize("name", list(cases()))
def test_every_case_says_what_it_is(name):
    case = cases()[name]
    assert case.source
    assert case.about
    assert case.measure
    assert math.isfinite(case.exact)
    assert case.printed
    assert list(case.budgets) == sorted(case.budgets)


@pytest.mark.parametrize("name", ["gaussian", "two-options", "straddle", "linear-gain"])
def test_a_case_runs(name):
    outcome = run_task(Task(name, "nestquad", 600.0, 0))
    assert outcome.status != "failed"
    assert outcome.evaluations <= 700
    assert outcome.error == pytest.approx(abs(outcome.value - cases()[name].exact))


def _runs(case: PublishedProblem, budget: int, errors, half=1.0):
    for seed, error in enumerate(errors):
        outcome = Outcome(
            abs(error),
            budget,
            value=case.exact + error,
            half_width=half,
            covered=float(abs(error) <= half),
            seconds=1.0,
        )
        yield Run.of(Task(case.name, "nestquad", budget, seed), outcome)


def test_rows_have_root_mean_square_errors():
    case = cases()["insurance"]
    errors = np.random.default_rng(5).normal(0, 2.0, size=400)
    row = BudgetErrors.of(case, list(_runs(case, 1_000, errors, half=1.96 * 2)))
    assert row.error == pytest.approx(math.sqrt((errors**2).mean()))
    # The standard error of a root-mean-square of n normal errors is σ / √(2n).
    assert row.error_se == pytest.approx(2 / math.sqrt(800), rel=0.2)
    assert not row.undercovers
    assert BudgetErrors.of(case, list(_runs(case, 1_000, errors, half=2.0))).undercovers


def test_page_says_first_where_we_lose():
    case = cases()["insurance"]
    rng = np.random.default_rng(6)
    runs = [*_runs(case, 1_000, rng.normal(0, 3, 40), 6.0)]
    runs += _runs(case, 8_192, rng.normal(0, 9, 40), 18.0)
    text = page_text([case], runs)
    first, _, rest = text.partition("## Summary")
    assert "LSMC prints an error of 5.1 at 8,190 evaluations; ours has" in first
    # The cheapest of the printed errors that no budget of ours reaches.
    assert "2.2 by LSMC at 520,000 evaluations; ours has" in first
    assert "multilevel (ML2R)" in rest
    assert "252.75874" in rest


def test_comparable_rows_have_no_more_evaluations():
    rows = [BudgetErrors(n, 1.0, 0.1, 1.0, 1.0, 2.0, 20) for n in (1_000, 10_000)]
    assert comparable(rows, Printed("a", 5_000, 1.0)).evaluations == 1_000
    assert comparable(rows, Printed("a", 500, 1.0)) is None
    assert comparable(rows, Printed("a", math.nan)) is None


def test_a_group_of_rows_is_run_again_and_the_others_stay(tmp_path, monkeypatch):
    ran = []

    def run(task):
        ran.append(task)
        return Outcome(0.1, task.size, value=2.1, half_width=0.3, covered=1.0)

    monkeypatch.setattr(study, "run_task", run)
    page = study.report(["gaussian", "option-var"], 3, tmp_path, 0)
    assert len(ran) == 3 * sum(len(cases()[name].budgets) for name in ("gaussian", "option-var"))
    before, all_runs = page.read_text("utf-8"), list(ran)
    ran.clear()
    study.report(["gaussian"], 3, tmp_path, 0, fresh=True, budgets=[1000.0])
    assert ran == [one for one in all_runs if one.problem == "gaussian" and one.goal == 1000.0]
    assert page.read_text("utf-8") == before
