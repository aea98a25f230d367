"""Verdicts on made-up data: where a claim holds, where it does not, and where nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import power_law

from studies.paper import verdicts
from studies.paper.ablation import best_are, similar, worse_than
from studies.paper.conditional import decay
from studies.paper.curves import Cost, Curve, fit_exponent
from studies.paper.dimension import crossing, gap_closes
from studies.paper.errata import agrees, bias
from studies.paper.rates import ranking
from studies.paper.synthetic import fastest
from studies.paper.tails import bound_holds, heaviness, tail
from studies.paper.theory import Trial, keeps_pace

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("r", "status"), [(1.0, "holds"), (0.6, "holds better"), (1.5, "does not hold")]
)
def test_exponent(r, status):
    result = verdicts.exponent("claim", power_law(r), 1.0, "r = 1")
    assert result.status == status
    assert float(result.measured.removeprefix("r = ")) == pytest.approx(r, rel=0.05)


def test_a_smaller_exponent_of_a_rival_is_no_praise():
    fast = power_law(0.6)
    rival = verdicts.exponent("claim", fast, 1.0, "r = 1", faster="does not hold")
    assert rival.status == "does not hold"
    assert "better" in rival.measured
    slow = verdicts.exponent("claim", power_law(1.5), 1.0, "r = 1", faster="does not hold")
    assert slow.status == "does not hold"
    assert "better" not in slow.measured
    assert verdicts.exponent("claim", fast, 1.0, "bound", faster="holds").status == "holds"


def test_exponent_of_two_sizes_or_of_noise_is_not_told():
    two = power_law(1.0, costs=(1e2, 1e3))
    assert verdicts.exponent("claim", two, 1.0, "").status == "cannot tell"
    noise = power_law(3.0, noise=1.5, replicates=8, seed=3)
    assert verdicts.exponent("claim", noise, 3.0, "").status == "cannot tell"


def test_errors_that_do_not_fall_have_no_exponent():
    assert fit_exponent([10, 100, 1000], [1.0, 2.0, 4.0]) == np.inf
    rising = Curve(np.array([1e2, 1e3, 1e4]), tuple(np.full(9, e) for e in (1.0, 2.0, 4.0)))
    assert verdicts.exponent("claim", rising, 1.0, "").status == "does not hold"


def test_outperforms():
    good, bad = power_law(1.0), power_law(1.0, scale=3.0, seed=1)
    assert verdicts.outperforms("", good, bad, "").status == "holds"
    assert verdicts.outperforms("", bad, good, "").status == "does not hold"
    assert verdicts.outperforms("", good, power_law(1.0, seed=2), "").status == "cannot tell"
    crossing_lines = verdicts.outperforms("", power_law(1.0, scale=30.0), power_law(3.0), "")
    assert crossing_lines.status == "does not hold"
    assert "smaller" in crossing_lines.reason
    assert crossing_lines.measured.count(" at ") == 2  # at which costs
    elsewhere = power_law(1.0, costs=(1e7, 1e8))
    assert verdicts.outperforms("", good, elsewhere, "").status == "cannot tell"


def test_somewhere_needs_more_than_one_cell():
    good, bad = power_law(1.0), power_law(1.0, scale=3.0, seed=1)
    same = power_law(1.0, seed=2)
    better = verdicts.somewhere("", {"a": (good, bad), "b": (bad, good)}, "")
    assert better.status == "holds"
    cells = len(good.costs)
    assert better.measured == (
        f"clearly smaller in {cells} of {2 * cells} cells, clearly larger in {cells}"
    )
    assert verdicts.somewhere("", {"a": (bad, good)}, "").status == "does not hold"
    assert verdicts.somewhere("", {"a": (same, good)}, "").status == "cannot tell"


def test_sensitivity_stands_beside_the_verdict():
    one, other = (verdicts.exponent("claim", power_law(r), 1.0, "") for r in (1.0, 1.5))
    result = verdicts.with_sensitivity(one, "otherwise", other)
    assert (result.claim, result.status) == ("claim", "holds")
    assert result.sensitivity == f"otherwise: {other.measured} (does not hold)"


def test_improvement_is_measured_at_the_largest_common_cost():
    ours, theirs = power_law(1.0, costs=(1e2, 1e3, 1e4)), power_law(1.0, scale=10.0, seed=1)
    result = verdicts.improvement("", ours, theirs)
    assert (result.status, result.met) == ("ours", None)
    assert "smaller" in result.measured
    assert "10,000" in result.reason
    assert "larger" in verdicts.improvement("", theirs, ours).measured


def test_cost_of_an_error_and_how_it_is_known():
    curve = power_law(1.0, noise=0.0)
    inside, beyond, before = curve.cost_of(1e-3), curve.cost_of(1e-7), curve.cost_of(0.5)
    assert (inside.how, beyond.how, before.how) == ("measured", "extrapolated", "at most")
    assert inside.evaluations == pytest.approx(1e3, rel=1e-6)
    assert beyond.evaluations == pytest.approx(1e7, rel=1e-6)
    assert before.evaluations == 1e2


def test_ranking():
    costs = {
        name: Cost(n, "measured")
        for name, n in {
            "NKQ": 1e3,
            "NKQ (QMC)": 1e3,
            "NMC": 1e5,
            "NQMC": 500,
            "MLMC": 2e4,
            "ours (auto)": 100,
        }.items()
    }
    result = ranking("finance", 0.01, costs)
    assert result.status == "holds"
    assert "fewer still" in result.reason
    assert ranking("finance", 0.01, costs, "NKQ (QMC)").status == "does not hold"  # beside NQMC
    worse = {**costs, "NKQ": Cost(5e4, "extrapolated")}
    assert ranking("finance", 0.01, worse).status == "does not hold"
    assert "NKQ ≈ 50,000" in ranking("finance", 0.01, worse).measured
    both = {**worse, "MLMC": Cost(2e4, "extrapolated")}
    assert ranking("finance", 0.01, both).status == "cannot tell"
    alike = {**costs, "NKQ": Cost(1.8e4, "measured")}
    assert ranking("finance", 0.01, alike).status == "cannot tell"


def test_fastest_split():
    curves = {"a": power_law(1.0), "b": power_law(2.0, seed=1), "c": power_law(3.0, seed=2)}
    assert fastest("", curves, "a").status == "holds"
    assert fastest("", curves, "c").status == "does not hold"
    assert fastest("", {**curves, "d": power_law(1.0, seed=4)}, "a").status == "cannot tell"
    assert fastest("", {**curves, "d": power_law(1.0, seed=4)}, "a", ("d",)).status == "holds"


def in_dimensions(values, seed=0):
    rng = np.random.default_rng(seed)
    errors = tuple(v * np.exp(0.2 * rng.standard_normal(60)) for v in values)
    return Curve(np.arange(1.0, len(values) + 1), errors)


def test_dimension():
    nmc = in_dimensions([1.0, 1.0, 1.0])
    closing, widening = in_dimensions([0.01, 0.2, 0.9], 1), in_dimensions([0.5, 0.1, 0.01], 1)
    assert gap_closes(closing, nmc).status == "holds"
    assert gap_closes(widening, nmc).status == "does not hold"
    assert crossing("NKQ", in_dimensions([0.01, 0.2, 0.5], 1), nmc).measured == "no crossing"
    assert crossing("NKQ", in_dimensions([0.1, 1.0, 3.0], 1), nmc).measured == "d = 3"


def test_ablation():
    small, large = power_law(1.0), power_law(1.0, scale=3.0)
    assert worse_than("", large, small).status == "holds"
    assert worse_than("", small, large).status == "does not hold"
    curves = {"a": small, "b": power_law(1.0, scale=1.2), "c": large}
    assert best_are("", curves, ("a", "b")).status == "holds"
    assert best_are("", curves, ("b", "c")).status == "does not hold"


def test_similar_is_neither_much_better_nor_much_worse():
    matern = power_law(1.0)
    for scale, status in ((1.5, "holds"), (30.0, "does not hold"), (0.03, "does not hold")):
        assert similar(power_law(1.0, scale=scale), matern).status == status


def test_decay():
    sizes = (8, 16, 32, 64)
    assert decay("", power_law(0.5, costs=sizes), 2.0, "").status == "holds"
    assert decay("", power_law(0.3, costs=sizes), 2.0, "").status == "holds better"
    bound = decay("", power_law(0.3, costs=sizes), 2.0, "", faster="holds")
    assert bound.status == "holds"
    assert decay("", power_law(1.0, costs=sizes), 2.0, "").status == "does not hold"


def test_tails_of_known_laws():
    assert heaviness(RNG.standard_exponential(200_000), draws=5).value == pytest.approx(
        1.0, abs=0.05
    )
    assert heaviness(np.abs(RNG.standard_normal(5_000))).high < 1
    heavy = tail("heavy", RNG.standard_exponential(5_000) ** 4)
    assert float(heavy.measured.split()[0]) > 2
    assert heavy.status == "ours"


def test_bound_needs_one_constant_for_all_sizes():
    def errors(n, power):
        return n**-power * np.log(n) ** 3 * RNG.standard_exponential(2_000)

    assert bound_holds({n: errors(n, 2.0) for n in (10, 30, 100)}).status == "holds"
    assert bound_holds({n: errors(n, 3.0) for n in (10, 30, 100)}).status == "holds"
    assert bound_holds({n: errors(n, 1.0) for n in (10, 30, 100)}).status == "does not hold"


@pytest.mark.parametrize(
    ("constant", "power", "status"),
    [
        (5, 1.0, "holds"),
        (5, 1.6, "holds better"),
        (100, 1.6, "holds"),  # faster, but the last error is 3 Δ
        (5, 0.5, "does not hold"),
    ],
)
def test_keeps_pace(constant, power, status):
    trials = [
        Trial(delta, constant * delta**power * np.exp(0.1 * RNG.standard_normal(50)))
        for delta in (0.1, 0.03, 0.01, 0.003)
    ]
    assert keeps_pace("synthetic", "NKQ", trials).status == status


def test_errata():
    assert agrees("", 3.077, 3.0736514, "").status == "does not hold"
    assert agrees("", 0.4115, 121 / 294, "").status == "holds"
    around = 3.0 + 0.1 * RNG.standard_normal(40)
    assert bias(around - around.mean() + 3.5, 3.0, 100).measured.startswith("+0.500 ± 0.0")
