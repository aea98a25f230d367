"""Seconds instead of evaluations: plain rules for a cheap g, learning for an expensive one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from nestquad import clock, limits, risk
from nestquad.clock import LEARNING, AnalysisCost, TimePlan
from nestquad.evaluate import Evaluations, Evaluator
from nestquad.methods import Goal, start_plan
from nestquad.methods._candidate import Candidate
from nestquad.points import Stream

PROBLEM = nq.problems.finance()
LEARNED = ("joint", "ckq", "mlkq")


@pytest.fixture
def simulated(simulated, monkeypatch):
    """The simulated clock with analyses of lattices and regressions that take time on it, too."""
    for method in (nq.JointLattice, nq.LSMC, nq.CKQ, nq.JointProcess):

        def analyze(method, evaluations, last=None, learned=method.analyze):
            simulated.wait(LEARNING.fixed + 1e-5 * evaluations.design.n_evaluations)
            return learned(method, evaluations, last)

        monkeypatch.setattr(method, "analyze", analyze)
    monkeypatch.setattr(clock, "benchmark", lambda: LEARNING.reference)
    return simulated


def forecast(est):
    (note,) = [note for note in est.diagnostics["notes"] if note.startswith("an evaluation takes")]
    return note


def test_a_cheap_g_is_answered_by_a_plain_rule(simulated):
    est = nq.estimate(simulated.slow(PROBLEM, 1e-7), tol=0.05, rng=0)
    assert est.status == "converged"
    assert abs(est.value - PROBLEM.exact) <= 0.05
    assert est.method == "nqmc"
    assert "nqmc promises" in forecast(est)


def test_an_expensive_g_is_learned_with_fewer_evaluations(simulated):
    cheap = nq.estimate(PROBLEM, tol=0.1, rng=0, method="nqmc")
    slow = nq.estimate(simulated.slow(PROBLEM, 0.005), tol=0.1, rng=0)
    assert cheap.status == slow.status == "converged"
    assert slow.method in LEARNED
    assert slow.n_evaluations < cheap.n_evaluations
    assert abs(slow.value - PROBLEM.exact) <= 0.1
    takes = float(forecast(slow).split()[3])
    assert takes == pytest.approx(0.005, rel=0.1)


def test_a_forecast_is_the_cost_model():
    plan = TimePlan(dim=10.0, seconds_of_g=1e-3, factor=2.0)
    cost = plan.cost
    expected = 2.0 * (cost.fixed + 10.0 * 500 * (cost.point + 40 * cost.product)) + 0.1
    assert plan.seconds(500, 40, 100) == pytest.approx(expected)
    assert plan.seconds(500, 40, 100, fitted=False) < expected
    # The largest number that fits: one more would not.
    most = plan.largest(lambda n: plan.seconds(n, 0, n), 5.0, 1e9)
    assert plan.fits(plan.seconds(most, 0, most), 5.0)
    assert not plan.fits(plan.seconds(most + 1, 0, most + 1), 5.0)
    assert plan.largest(lambda n: plan.seconds(n, 0, n), 5.0, 7) == 7
    assert plan.largest(lambda n: plan.seconds(n, 0, n), 0.1, 1e9) == 0


def test_a_turn_corrects_the_forecast_of_the_next():
    plan = TimePlan(dim=10.0, seconds_of_g=1e-3, factor=1.0)
    slower = plan.corrected(3.0 * plan.cost.seconds(500, 40, 10.0) + 0.1, 500, 40, 100)
    assert slower.factor == pytest.approx(3.0)
    assert slower.seconds(500, 40, 0) == pytest.approx(3.0 * plan.seconds(500, 40, 0))
    # A turn that took nothing halves it at most.
    assert plan.corrected(0.0, 500, 40, 100).factor == 0.5


@pytest.mark.parametrize(("seconds", "cost"), [(1.0, 1e-4), (3.0, 1e-3), (10.0, 1e-2), (30.0, 0.1)])
def test_time_alone_is_a_request(seconds, cost, simulated):
    est = nq.estimate(simulated.slow(PROBLEM, cost), max_seconds=seconds, rng=0)
    assert simulated.seconds < 1.1 * seconds + 0.3
    assert est.status in ("time", "limit", "unreliable")
    assert abs(est.value - PROBLEM.exact) < 2.0 * est.half_width
    assert forecast(est).count("±") == len(est.candidates)


def test_time_is_used_as_well_as_by_a_budget(simulated):
    problem = simulated.slow(PROBLEM, 2e-3)
    timed = nq.estimate(problem, max_seconds=5.0, rng=0)
    assert len(timed.trace) <= 8
    for budget in (700, 1000, 1400, 2000):  # the largest that ends in time
        begin = simulated.seconds
        found = nq.estimate(problem, budget=budget, rng=0)
        if simulated.seconds - begin > 5.0:
            break
        best = found
    assert timed.n_evaluations >= 0.6 * best.n_evaluations
    # Lattices double, so that a little less time may be half of the points: half-widths of 1,024
    # and 1,536 points differ by a factor of five on this problem.
    assert timed.half_width <= 5.0 * best.half_width


def test_a_moment_is_too_short_to_learn(simulated):
    est = nq.estimate(simulated.slow(PROBLEM, 1e-7), max_seconds=0.1, rng=0)
    assert est.method == "nqmc"
    assert set(est.candidates) == {"nqmc"}
    assert not any("pairs" in note for note in est.diagnostics["notes"])
    # By a million of evaluations and not by the first few hundred.
    assert est.half_width < 0.01 * est.sample.spread


def test_a_slow_g_is_left_to_the_joint_process(simulated):
    est = nq.estimate(simulated.slow(PROBLEM, 0.02), max_seconds=2.0, rng=0)
    assert est.method == "process"
    assert est.trace[0].n_evaluations == 4
    # Each step doubles the points at least, but for the last: few analyses, and all time is used.
    assert len(est.trace) <= 6
    assert 60 <= est.n_evaluations <= 100
    assert abs(est.value - PROBLEM.exact) < est.half_width


@pytest.mark.parametrize("name", ["finance", "health", "rainforth"])
def test_no_fixed_budget_that_fits_is_better(name, simulated):
    problem, ratios = simulated.slow(nq.problems.get(name), 2e-3), []
    for seconds in (1.0, 2.0):
        begin = simulated.seconds
        timed = nq.estimate(problem, max_seconds=seconds, rng=0)
        assert simulated.seconds - begin < 1.1 * seconds + 0.3
        best = np.inf
        for n in 250 * seconds * np.sqrt(2.0) ** np.arange(3):
            begin = simulated.seconds
            found = nq.estimate(problem, budget=int(n), rng=0)
            if simulated.seconds - begin <= seconds:
                best = min(best, found.half_width)
        # A budget has a larger average of f(Ĵ); below a millionth all answers are equally good.
        least = 1e-6 * abs(problem.exact)
        ratios.append(max(timed.half_width, least) / max(best, least))
    # Half-widths of budgets that differ by a tenth scatter by a factor of two.
    assert np.exp(np.mean(np.log(ratios))) <= 1.2
    assert max(ratios) <= 2.0


def test_more_time_is_a_narrower_interval(simulated):
    problem = simulated.slow(PROBLEM, 2e-3)
    halves = [nq.estimate(problem, max_seconds=s, rng=0).half_width for s in (1.0, 3.0, 10.0)]
    assert halves == sorted(halves, reverse=True)


@pytest.mark.parametrize("at", [10, 100, 3_000])
def test_one_slow_call_does_not_end_the_estimation(at, simulated):
    held = []

    def g(x, theta):
        before, values = simulated.seconds, PROBLEM.g(x, theta)
        simulated.wait(1e-6 * values.size)
        if not held and before + 1e-6 * values.size >= at * 1e-6:
            held.append(simulated.wait(1.0))
        return values

    est = nq.estimate(replace(PROBLEM, g=g), max_seconds=3.0, rng=0)
    assert simulated.seconds > 2.0
    assert est.n_evaluations > 500_000


def test_a_budget_beyond_the_time_has_an_answer(simulated):
    problem = simulated.slow(PROBLEM, 1e-6)
    est = nq.estimate(problem, budget=10_000_000, max_seconds=0.4, rng=0, method="joint")
    assert simulated.seconds < 0.8
    assert est.half_width < 0.5


def test_time_is_not_ended_by_the_limit_without_time(simulated, monkeypatch):
    constant = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: np.broadcast_to(1.0, x.shape[:-1])
    )
    monkeypatch.setattr(limits, "KEPT_EVALUATIONS", 1 << 24)
    est = nq.estimate(constant, max_seconds=60.0, method="nqmc", rng=0)
    assert est.n_evaluations == 1 << 24


def test_time_alone_with_an_expensive_g(simulated):
    est = nq.estimate(simulated.slow(PROBLEM, 0.002), max_seconds=3.0, rng=0)
    assert simulated.seconds < 3.6
    assert est.method in LEARNED
    assert est.n_evaluations <= 1500


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
def test_a_learner_takes_one_large_step(method, simulated):
    est = nq.estimate(simulated.slow(PROBLEM, 1e-3), method=method, max_seconds=4.0, rng=0)
    assert simulated.seconds < 1.1 * 4.0 + 0.3
    assert len(est.trace) <= 5
    assert est.n_evaluations > 800


@pytest.mark.parametrize("seconds", [1.0, 3.0, 10.0])
def test_measures_of_risk_in_time(seconds, simulated, monkeypatch):
    analyzed = risk._method.TailSampling.analyze

    def analyze(method, evaluations, last=None):
        begin = simulated.seconds
        turn = analyzed(method, evaluations, last)
        # The time of g, and of the cost model.
        n = evaluations.design.learning.n_evaluations
        m = evaluations.design.n_evaluations - n
        simulated.seconds += AnalysisCost().seconds(n, m, 2.5)
        plan = turn.state.time.corrected(simulated.seconds - begin, n, m, 0)
        return replace(turn, state=replace(turn.state, time=plan))

    monkeypatch.setattr(risk._method.TailSampling, "analyze", analyze)
    normal = nq.NestedExpectation(
        nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    )
    report = risk.measure(simulated.slow(normal, 1e-4), var=0.99, max_seconds=seconds, rng=0)
    assert simulated.seconds < 1.1 * seconds + 0.3
    assert len(report.estimate.trace) <= 6
    assert report.estimate.n_evaluations > 500 * seconds
    assert abs(report.var[0.99].value - 2.3263) < 0.02


def test_progress_says_how_long_it_will_take(simulated):
    seen = []
    nq.estimate(
        simulated.slow(PROBLEM, 1e-3),
        max_seconds=8.0,
        rng=0,
        progress=lambda done, total, message: seen.append(message),
    )
    said = [message for message in seen if message.startswith("about")]
    assert said
    assert all(" s, ± " in message and " %: " in message for message in said)
    assert float(said[-1].split()[1]) == pytest.approx(simulated.seconds, rel=0.5)


def test_without_any_request_all_four_are_named():
    with pytest.raises(nq.InputError) as caught:
        nq.estimate(PROBLEM)
    for word in ("budget=", "tol=", "max_seconds=", "n_outer="):
        assert word in str(caught.value)


def test_with_a_budget_the_way_does_not_depend_on_time(simulated):
    for goal in ({"budget": 1200}, {"budget": 4000, "tol": 0.05}):
        fast = nq.estimate(PROBLEM, rng=3, **goal)
        slow = nq.estimate(simulated.slow(PROBLEM, 1e-4), rng=3, **goal)
        with ThreadPoolExecutor(2) as pool:
            shared = nq.estimate(PROBLEM, rng=3, executor=pool, **goal)
        assert fast.value == slow.value == shared.value
        assert fast.std_error == slow.std_error == shared.std_error
        assert fast.n_evaluations == slow.n_evaluations
        assert not [
            note for note in slow.diagnostics["notes"] if note.startswith("an evaluation takes")
        ]


def test_a_plain_rule_that_auto_chose_has_the_bits_of_its_method(simulated):
    chosen = nq.estimate(simulated.slow(PROBLEM, 1e-7), max_seconds=0.1, rng=3)
    sizes = {"n_outer": chosen.n_outer, "n_inner": chosen.n_inner}
    assert nq.estimate(PROBLEM, method=nq.NQMC(**sizes), rng=3).value == chosen.value


def test_time_goes_on_where_nothing_has_varied_yet(simulated):
    rare = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: (x[..., 0] > 3.5) * 1.0,
        lambda j: (j - 0.5).clip(0.0),
    )
    est = nq.estimate(simulated.slow(rare, 1e-7), max_seconds=0.25, rng=0)
    assert est.half_width < 1e-3


def test_regression_competes_where_g_is_cheap(simulated):
    cheap = nq.estimate(simulated.slow(nq.problems.health(), 1e-5), max_seconds=0.5, rng=0)
    assert "lsmc" in cheap.candidates
    slow = nq.estimate(simulated.slow(nq.problems.health(), 1e-3), max_seconds=2.0, rng=0)
    assert "lsmc" not in slow.candidates


def test_time_goes_to_theta_where_the_average_is_the_error():
    problem, goal = nq.problems.health(), Goal(Stream.from_rng(0), 2000)
    method = nq.JointLattice()
    evaluator = Evaluator(problem, keep=True)
    design = method.plan(problem, goal)
    turn = method.analyze(Evaluations(evaluator, design))
    time = start_plan(problem, turn, 1e-6)
    candidate = Candidate(method, turn, time, seconds=0.25, paces=(1e-4,))
    finer = method.plan(problem, replace(goal, adaptive=True), replace(turn, final=True))
    assert finer.n_evaluations == design.n_evaluations
    assert candidate.takes(finer) == 1.0
    again = method.analyze(Evaluations(evaluator, finer), turn)
    before, after = (one.estimate.diagnostics["error_parts"]["average"] for one in (turn, again))
    assert after <= before
