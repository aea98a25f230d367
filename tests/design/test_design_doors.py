"""Comparison, search, sequence, utilities, Pyro models, command line and report."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from test_design_gain import SD, line, line_gain, line_mean

import nestquad as nq
from nestquad import design
from nestquad.cli import main
from studies.design import problems

FEW = {"simulations": 4096}


def test_designs_are_compared_with_common_random_numbers():
    designs = np.linspace(0.0, 2.0, 5)
    found = design.compare(line(), designs, budget=5000, rng=0, **FEW)
    assert found.best == 4
    assert np.abs(found.values - line_gain(designs)).max() < 0.01
    assert found.prob_best.sum() == pytest.approx(1.0)
    assert found.prob_best[4] > 0.99
    assert np.linalg.eigvalsh(found.covariance)[0] > -1e-12
    ahead = found.difference(4, 0)
    assert abs(ahead.value - (line_gain(2.0) - line_gain(0.0))) < ahead.half_width + 0.005
    assert found.n_evaluations <= 5000
    frame = found.to_frame()
    assert list(frame["design"]) == ["0", "0.5", "1", "1.5", "2"]
    assert json.loads(found.to_json())["best"] == 4
    assert "P(best)" in str(found)


def test_differences_of_designs_are_better_known_than_values():
    designs = [1.0, 1.05]
    runs = [design.compare(line(), designs, budget=1000, rng=seed, **FEW) for seed in range(6)]
    for found in runs:
        ahead = found.difference(1, 0)
        assert ahead.std_error <= max(0.3 * found.estimates[0].std_error, 1e-4)
        assert abs(ahead.value - (line_gain(1.05) - line_gain(1.0))) < 1.5 * ahead.half_width
    assert "<table" in runs[0]._repr_html_()


def test_counts_keep_their_own_components():
    # With those of a design in the middle, draws missed half of the posteriors: bars of 0.3.
    case = problems.case("psychometric")
    designs = [case.design + x for x in (0.0, 0.5, 1.0)]
    found = design.compare(case.experiment, designs, budget=6000, rng=2, simulations=32_768)
    assert abs(found.values[0] - case.exact) <= found.estimates[0].half_width
    assert max(float(est.std_error) for est in found.estimates) < 0.03


@pytest.mark.parametrize("seed", [0, 2])
def test_few_simulations_are_no_disagreement_of_routes(recwarn, seed):
    # Of 512 or 1,024 simulations each, means of log q have errors that were not counted.
    drug = problems._drug(2)
    truth = np.array([1.2, 0.09, 21.0])
    times = [np.array(pair) for pair in [(0.5, 1.0), (0.5, 6.0), (1.0, 12.0), (6.0, 12.0)]]
    sequence = design.Sequential(drug, particles=1024, rng=seed)
    for _ in range(3):
        chosen = sequence.next(times, simulations=1024)
        sequence.tell(chosen, problems._concentration(truth, chosen))
    assert not any("disagree" in str(one.message) for one in recwarn)


def test_other_criteria_share_random_numbers():
    def payoff(theta):
        return np.stack([theta.sum(axis=-1), np.zeros(theta.shape[:-1])], axis=-1)

    def reduced(d):
        return (1 + d**2) / (1 + d**2 + SD**2)

    def decided(d):
        return (1 + d) / np.sqrt(2 * np.pi * (1 + d**2 + SD**2))

    decision = partial(design.decision_value, payoff=payoff)
    for criterion, exact in ((design.variance_reduction, reduced), (decision, decided)):
        found = design.compare(line(), [1.0, 1.1], criterion=criterion, budget=1000, rng=0, **FEW)
        ahead = found.difference(1, 0)
        assert abs(ahead.value - (exact(1.1) - exact(1.0))) < 1.5 * ahead.half_width
        assert ahead.std_error <= 0.4 * found.estimates[0].std_error


def test_compared_designs_count_every_likelihood():
    counted = 0

    def counting(y, theta, d):
        nonlocal counted
        found = line().log_prob(y, theta, d)
        counted += found.size
        return found

    found = design.compare(
        line(log_prob=counting, target=[1]), [1.0, 1.2], budget=1500, rng=0, **FEW
    )
    assert found.n_evaluations == counted <= 1500


def test_lower_bounds_are_called_so(tmp_path):
    found = design.compare(line(log_prob=None), [0.0, 2.0], rng=0, **FEW)
    assert found.best == 1
    assert "lower bound" in str(found)
    assert found.to_dict()["quantity"] == "lower bound"
    assert found.plot().get_xlabel() == "lower bound of the expected gain"
    page = design.write_design_report(tmp_path / "page.html", found).read_text(encoding="utf-8")
    assert "<th>lower bound" in page or "lower bound</th>" in page
    assert "need not have the largest gain" in page


def test_a_simulator_alone_is_optimized_without_a_budget():
    best = design.optimize(line(log_prob=None), [(0.0, 2.0)], rng=0, **FEW)
    assert best.design[0] > 1.9
    assert best.n_evaluations == 0
    assert best.estimate.status == "lower bound"


def test_the_best_of_thirteen_designs_is_chosen():
    experiment, times, exact = problems.blood_times()
    assert np.sort(exact)[-1] - np.sort(exact)[-2] > 0.02  # no tie
    found = design.compare(experiment, times, budget=20_000, rng=0, simulations=16_384)
    assert exact.max() - exact[found.best] <= 0.01
    assert found.n_evaluations <= 20_000
    halves = np.array([est.half_width for est in found.estimates])
    assert np.mean(np.abs(found.values - exact) <= halves + 3e-4) >= 0.9


def test_the_best_design_in_a_box_is_found():
    # A bump: the response is steepest at 0.7.
    bump = design.Experiment(
        prior=nq.Normal(),
        log_prob=lambda y, t, d: -0.5 * ((y - np.exp(-4 * (d - 0.7) ** 2) * t) / 0.2)[..., 0] ** 2,
        simulate=lambda t, e, d: np.exp(-4 * (d - 0.7) ** 2) * t + 0.2 * e,
        noise=nq.Normal(),
    )
    found = design.optimize(bump, [(0.0, 2.0)], budget=4000, rng=0, **FEW)
    assert abs(found.design[0] - 0.7) < 0.1
    exact = 0.5 * np.log(1 + np.exp(-8 * (found.design[0] - 0.7) ** 2) / 0.04)
    assert abs(found.estimate.value - exact) < 0.01
    assert found.n_evaluations <= 4000
    assert 0.5 * np.log(26.0) - exact <= found.regret < 0.2
    assert "designs tried" in str(found)
    assert "likely" in found._repr_html_()


def test_candidates_may_be_words():
    slopes = {"flat": 0.1, "steep": 3.0, "middle": 1.0}
    words = design.Experiment(
        prior=nq.Normal(),
        log_prob=lambda y, t, d: -0.5 * (y - slopes[d] * t)[..., 0] ** 2,
        simulate=lambda t, e, d: slopes[d] * t + e,
        noise=nq.Normal(),
    )
    found = design.optimize(words, candidates=list(slopes), budget=2500, rng=0, **FEW)
    assert found.design == "steep"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 4000}, "bounds: got both or neither"),
        ({"bounds": [(1.0, 0.0)], "budget": 4000}, "low < high"),
        ({"bounds": [(0.0, 1.0)], "budget": 100}, "budget: got 100"),
        ({"candidates": [1.0], "budget": 4000}, "at least two"),
        ({"candidates": "steep", "budget": 4000}, "candidates: got 'steep'"),
        ({"bounds": [(0.0, np.nan)], "budget": 4000}, "finite"),
        ({"bounds": "box", "budget": 4000}, "bounds: got 'box'"),
        ({"bounds": [(0.0, 1.0)]}, "budget: got None"),
    ],
)
def test_wrong_searches_are_refused(settings, message):
    with pytest.raises(nq.InputError, match=message):
        design.optimize(line(), **settings)


def test_a_sequence_ends_at_the_conjugate_posterior():
    sequence, truth = design.Sequential(line(), rng=0), np.array([0.3, -1.0])
    for i in range(3):
        chosen = sequence.next([-2.0, 0.0, 2.0], simulations=1024)
        assert abs(chosen) == 2.0 or i > 0
        sequence.tell(chosen, line_mean(truth, chosen) + 0.1)
    rows = np.array([[1.0, d] for d, _ in sequence.data])
    y = np.array([one[0] for _, one in sequence.data])
    cov = np.linalg.inv(np.eye(2) + rows.T @ rows / SD**2)
    law = sequence.posterior
    assert np.abs(law.mean() - cov @ rows.T @ y / SD**2).max() < 0.03
    spread = np.sqrt(law.weights @ (law.samples - law.mean()) ** 2)
    assert np.abs(spread / np.sqrt(np.diag(cov)) - 1).max() < 0.06
    assert sequence.comparison is not None
    assert sequence.n_evaluations > 3 * sequence.particles


def test_a_surprising_result_is_taken_in_by_degrees():
    sharp = line(
        log_prob=lambda y, t, d: -0.5 * ((y - line_mean(t, d)) / 0.01)[..., 0] ** 2,
        prior=nq.Normal(np.zeros(2)),
    )
    sequence = design.Sequential(sharp, rng=0)
    sequence.tell(0.0, [2.5])
    law = sequence.posterior
    assert abs(law.mean()[0] - 2.5) < 0.01
    assert abs(law.samples[:, 1].std() - 1.0) < 0.1
    for wrong in ([np.nan], [1.0, 2.0], "much"):
        with pytest.raises(nq.InputError, match=r"y: got .*finite data"):
            sequence.tell(0.0, wrong)
    with pytest.raises(nq.InputError, match="Check units"):
        sequence.tell(0.0, [1e6])
    assert "posterior mean" in sequence._repr_html_()


def test_variance_reduction_and_decisions_have_closed_forms():
    left = design.variance_reduction(line(), 1.0, budget=4000, rng=0, **FEW)
    assert abs(left.value - 2 / 2.25) <= left.half_width < 0.05
    one = design.variance_reduction(line(target=1), 1.0, budget=4000, rng=0, **FEW)
    assert abs(one.value - 1 / 2.25) <= one.half_width < 0.05
    # The sum of the parameters, or nothing: E max(m, 0) of a normal posterior mean m.
    worth = design.decision_value(
        line(),
        1.0,
        lambda t: np.stack([t.sum(axis=-1), np.zeros(t.shape[:-1])], axis=-1),
        budget=4000,
        rng=0,
        **FEW,
    )
    assert abs(worth.value - np.sqrt(4 / 2.25 / (2 * np.pi))) <= worth.half_width < 0.1
    with pytest.raises(nq.InputError, match="payoff"):
        design.decision_value(line(), 1.0, lambda t: t[..., 0], budget=1000)


def test_the_error_of_the_prior_variance_is_in_the_interval():
    # Posteriors are as wide for all data, so that nothing else is uncertain.
    noise = 0.05
    experiment = design.Experiment(
        nq.Normal(0.0, 2.0),
        lambda y, theta, d: -0.5 * ((y - theta) / noise)[..., 0] ** 2,
        lambda theta, e, d: theta + noise * e,
        nq.Normal(),
    )
    est = design.variance_reduction(experiment, None, budget=2000, rng=0, **FEW)
    assert abs(est.value - 16 / (4 + noise**2)) <= est.half_width < 0.01


def test_pyro_models_become_experiments():
    pyro, torch = pytest.importorskip("pyro"), pytest.importorskip("torch")
    dist = pyro.distributions

    def model(d):
        with pyro.plate_stack("plate", d.shape[:-1]):
            a = pyro.sample("a", dist.Normal(torch.zeros((), dtype=torch.double), 1.0))
            b = pyro.sample("b", dist.Normal(torch.zeros((), dtype=torch.double), 1.0))
            pyro.sample("y", dist.Normal(a + b * d[..., 0], SD))

    whole = design.from_pyro(model, ["y"], ["a", "b"])
    est = design.eig(whole, [1.0], budget=1000, rng=0, **FEW)
    assert abs(est.value - line_gain(1.0)) < 0.01
    slope = design.from_pyro(model, "y", "b")
    est = design.eig(slope, [1.0], budget=1000, rng=0, **FEW)
    assert abs(est.value - 0.5 * np.log(2.25 / 1.25)) < 0.01
    with pytest.raises(nq.InputError, match="targets"):
        design.from_pyro(model, "y", "c")


def test_pyro_counts_and_positive_parameters():
    pyro, torch = pytest.importorskip("pyro"), pytest.importorskip("torch")
    dist = pyro.distributions

    def coins(d):
        with pyro.plate_stack("plate", d.shape[:-1]):
            p = pyro.sample("p", dist.Beta(torch.ones((), dtype=torch.double), 1.0))
            pyro.sample("y", dist.Binomial(3, p))

    est = design.eig(design.from_pyro(coins, "y"), [0.0], budget=2000, rng=0, **FEW)
    # A uniform prior makes all counts equally likely: H(y) − E H(y | p).
    p, w = np.polynomial.legendre.leggauss(60)
    p, w = (p + 1) / 2, w / 2
    table = (
        np.array([1, 3, 3, 1]) * p[:, None] ** np.arange(4) * (1 - p[:, None]) ** (3 - np.arange(4))
    )
    exact = np.log(4) + w @ (table * np.log(table)).sum(axis=1)
    assert abs(est.value - exact) <= est.half_width < 0.03


FILE = """
import numpy as np
import nestquad as nq
from nestquad import design

def log_prob(y, theta, d):
    mean = theta[..., :1] + theta[..., 1:] * d
    return -0.5 * (((y - mean) / 0.5) ** 2).sum(axis=-1)

experiment = design.Experiment(
    prior=nq.Normal(np.zeros(2)),
    log_prob=log_prob,
    simulate=lambda theta, e, d: theta[..., :1] + theta[..., 1:] * d + 0.5 * e,
    noise=nq.Normal(np.zeros(2)),
)
"""


def test_the_command_compares_designs(tmp_path, capsys):
    (tmp_path / "line_trial.py").write_text(FILE)
    table = tmp_path / "designs.csv"
    table.write_text("name,first,second\nnear,-0.1,0.1\nfar,-1,1\n")
    page = tmp_path / "design.html"
    command = ["design", f"{tmp_path}/line_trial.py:experiment", "--designs", str(table)]
    settings = ["--budget", "1500", "--simulations", "4096", "--seed", "0"]
    assert main([*command, *settings, "--report", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"] == 1
    assert abs(found["designs"][1]["value"] - np.log(9.0)) < 0.01
    text = page.read_text(encoding="utf-8")
    assert "far" in text
    assert "<img" in text
    assert main([*command]) == 2
    assert "--budget" in capsys.readouterr().err
    for text, message in (
        ("a\nx\n", "rows of numbers"),
        ("a,b\n1,2\n3\n", "1 cells in row 2"),
        ("a,b\n", "without designs"),
    ):
        table.write_text(text)
        assert main([*command, *settings]) == 2
        assert message in capsys.readouterr().err
    table.unlink()
    assert main([*command, *settings]) == 2
    assert "not a file" in capsys.readouterr().err
