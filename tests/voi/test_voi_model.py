"""Value of information from a model: conditioning and answers against mathematics."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import voi_models as models
from scipy import stats

import nestquad as nq
from nestquad import voi
from nestquad.problems._health import _PARAMETERS


def health_benefit(p):
    years_1 = p["theta1"] * p["x5"] * p["x6"] + p["x7"] * p["x8"] * p["x9"]
    years_2 = p["theta2"] * p["x13"] * p["x14"] + p["x15"] * p["x16"] * p["x17"]
    cost_1 = p["x1"] + p["x2"] * p["x3"] * p["x4"]
    cost_2 = p["x10"] + p["x11"] * p["x12"] * p["x4"]
    return 1e4 * years_1 - cost_1, 1e4 * years_2 - cost_2


HEALTH = voi.Model(
    parameters={name: nq.Normal(*law) for name, law in _PARAMETERS.items()},
    net_benefit=health_benefit,
    correlations={("theta1", "theta2", "x6", "x14"): 0.6},
    name="health",
)


def difference(p):
    return 0.0, p["p1"] - p["p2"]


NORMALS = voi.Model({"p1": nq.Normal(1.0, 1.0), "p2": stats.norm(0.0, 2.0)}, difference)


@pytest.mark.parametrize(
    ("pars", "exact"), [(["theta1", "theta2"], 247.912048986428), (["x6", "x14"], 536.519571351423)]
)
def test_health(pars, exact):
    est = HEALTH.evppi(pars, tol=1.0, method="joint", rng=0)
    assert est.status == "converged"
    assert est.n_evaluations <= 20_000
    assert abs(est.value - exact) < 1.0


def test_health_is_the_shipped_problem():
    shipped, own = nq.problems.health(), HEALTH.problem(["theta1", "theta2"])
    u = np.random.default_rng(0).uniform(size=(4, 2))
    theta = shipped.outer_law.from_uniform(u)
    np.testing.assert_allclose(own.outer_law.from_uniform(u), theta)
    v = np.random.default_rng(1).uniform(size=(3, 17))
    mine, theirs = own.inner_law(theta).from_uniform(v), shipped.inner_law(theta).from_uniform(v)
    # Both are triangular transports of parameters in the same order.
    np.testing.assert_allclose(mine, theirs)
    at = theta[:, None, :]
    np.testing.assert_allclose(own.g(mine, at), shipped.g(theirs, at))


def test_two_normals():
    assert abs(NORMALS.evpi(tol=1e-3, rng=0).value - models.gain_of_knowing(1, np.sqrt(5))) < 2e-3
    for name, sd in (("p1", 1.0), ("p2", 2.0)):
        est = NORMALS.evppi(name, tol=2e-3, method="joint", rng=0)
        assert abs(est.value - models.gain_of_knowing(1.0, sd)) < 2e-3


def test_default_method_answers():
    est = NORMALS.evppi("p2", tol=0.02, rng=0)
    assert est.status == "converged"
    assert abs(est.value - models.gain_of_knowing(1.0, 2.0)) < 0.02


def test_evpi_error_bars():
    errors = []
    for seed in range(40):
        est = NORMALS.evpi(budget=2048, rng=seed)
        assert est.n_evaluations <= 2048
        errors.append((est.value - models.gain_of_knowing(1, np.sqrt(5))) / est.std_error)
    assert np.mean(np.abs(errors) < 1.96) >= 0.85


def test_conditioning_of_correlated_parameters_matches_rejection():
    model = voi.Model(
        {
            ("a", "b"): nq.Normal([1.0, 2.0], cov=[[1.0, 0.5], [0.5, 2.0]]),
            "c": nq.LogNormal(0.0, 0.5),
            "d": stats.gamma(2.0),
        },
        lambda p: (p["a"], p["b"] + p["c"] * p["d"]),
        correlations={("a", "c"): -0.4},
    )
    split = model.joint.split(["a"])
    _, table = model.sample(400_000, rng=0)
    near = table[(table.a - 1.7).abs() < 0.02]
    drawn = split.given(np.array([[1.7]]))
    values = split.values(drawn.sample(100_000, np.random.default_rng(1))[0], known=False)
    for name in ("b", "c", "d"):
        assert values[name].mean() == pytest.approx(near[name].mean(), abs=0.05)
        assert values[name].std() == pytest.approx(near[name].std(), rel=0.05)
    assert np.corrcoef(values["b"], values["c"])[0, 1] == pytest.approx(
        near[["b", "c"]].corr().iloc[0, 1], abs=0.04
    )


def test_a_correlated_lognormal_is_conditioned_like_its_logarithm():
    cov, names = [[0.25, 0.1], [0.1, 0.4]], ("a", "b")
    made = voi.Model({names: nq.LogNormal([0.0, 1.0], cov=cov)}, lambda p: (p["a"], p["b"]))
    split = made.joint.split(["a"])
    drawn = split.given(np.array([[0.3]])).sample(50_000, np.random.default_rng(1))[0]
    log = np.log(split.values(drawn, known=False)["b"])
    known = np.log(split.values(np.array([[0.3]]), known=True)["a"])[0]
    assert log.mean() == pytest.approx(1.0 + 0.4 * known, abs=0.02)
    assert log.var() == pytest.approx(0.4 - 0.04, rel=0.03)


def test_independent_parameters_share_one_inner_law():
    assert NORMALS.problem("p1").inner_is_shared
    assert not HEALTH.problem("theta1").inner_is_shared
    assert HEALTH.problem("x5").inner_is_shared


def test_blocks_are_learned_whole_or_refused():
    block = nq.Transport(lambda u: u**2, dim=2, out_dim=2)
    model = voi.Model(
        {("a", "b"): block, "c": nq.Uniform()}, lambda p: (p["a"] - p["b"], p["c"] - 0.4)
    )
    est = model.evppi(["a", "b"], tol=0.02, method="lsmc", rng=0)
    both = model.sample(200_000, rng=0)[1]
    informed = np.maximum(both.a - both.b, 0.1).mean()
    assert est.value == pytest.approx(informed - max((both.a - both.b).mean(), 0.1), abs=0.02)
    with pytest.raises(nq.UnsupportedError, match="b given a is not known"):
        model.evppi("a", tol=0.1)


def test_sample_is_a_table_for_the_other_functions():
    outputs, inputs = NORMALS.sample(4000, rng=0)
    row = voi.evppi(outputs, inputs, "p2").iloc[0]
    assert abs(row.evppi - models.gain_of_knowing(1.0, 2.0)) < 4 * row.se


def test_evsi():
    table = NORMALS.evsi(voi.NormalTrial("p2", sd=4.0), [4], n_runs=8000)
    # Prior variance 4, data variance 16 / 4: half of it will be known.
    exact = models.gain_of_knowing(1.0, np.sqrt(2.0))
    assert table.lower[0] <= exact <= table.upper[0]
    assert table.evsi[0] == pytest.approx(exact, abs=0.05)


def test_models_travel_to_workers():
    again = pickle.loads(pickle.dumps(HEALTH.problem(["theta1", "theta2"])))
    est = nq.estimate(again, budget=1024, method="joint", rng=0)
    assert est.value == HEALTH.evppi(["theta1", "theta2"], budget=1024, method="joint", rng=0).value


# Tables of runs.


def test_many_sets_share_one_table_of_runs():
    table = NORMALS.evppi(rng=0).set_index("pars")
    for name, sd in (("p1", 1.0), ("p2", 2.0)):
        assert abs(table.evppi[name] - models.gain_of_knowing(1.0, sd)) < 3 * table.se[name]
    sets = {"one": ["p1"], "both": ["p1", "p2"]}
    assert NORMALS.evppi(sets, rng=0, budget=2000).pars.tolist() == ["one", "both"]


def test_costs_and_effects_give_a_curve():
    model = voi.Model(
        {"e": nq.Normal(0.0, 1.0), "c": nq.Normal(1.0, 1.0)},
        costs_effects=lambda p: ((0.0, p["c"]), (0.0, p["e"])),
        wtp=2.0,
    )
    curve = model.evppi("e", wtp=[0.5, 1.0, 2.0], rng=0)
    exact = [models.gain_of_knowing(-1.0, k) for k in (0.5, 1.0, 2.0)]
    assert (np.abs(curve.evppi - exact) < 3 * curve.se).all()
    one = model.evppi("e", tol=5e-3, method="joint", rng=0)
    assert abs(one.value - exact[2]) < 5e-3
    evpi = model.evpi(tol=0.01, rng=0, wtp=1.0)
    assert abs(evpi.value - models.gain_of_knowing(-1.0, np.sqrt(2.0))) < 0.02
    outputs, _ = model.sample(100, rng=0)
    assert outputs.wtps == [2.0]


def test_derived_parameters_are_parameters():
    model = voi.Model(
        {"a": nq.Normal(1.0, 1.0), "b": nq.Normal(0.0, 1.0)},
        lambda p: (0.0, p["sum"]),
        derived={"sum": lambda p: p["a"] + p["b"]},
    )
    est = model.evppi("sum", rng=0)
    exact = models.gain_of_knowing(1.0, np.sqrt(2.0))
    assert est.method == "table"
    assert abs(est.value - exact) < 3 * est.std_error
    assert abs(model.evppi("a", tol=5e-3, method="joint", rng=0).value
               - models.gain_of_knowing(1.0, 1.0)) < 5e-3  # fmt: skip
    assert "sum" in model.sample(50, rng=0)[1]


def test_a_table_is_made_where_it_is_asked_for():
    est = HEALTH.evppi(["theta1", "theta2"], tol=30.0, method="table", rng=0)
    assert (est.method, est.status) == ("table", "converged")
    assert abs(est.value - 247.912) < 30.0
    nested = HEALTH.evppi(["theta1", "theta2"], tol=30.0, rng=0)
    assert nested.method != "table"
    assert nested.n_evaluations < est.n_evaluations
    assert abs(nested.value - 247.912) < 30.0


def test_time_is_kept(simulated):
    simulated.step = 0.01  # for each look at the clock
    est = NORMALS.evppi("p2", tol=1e-4, method="table", max_seconds=2.0, rng=0)
    assert est.status == "time"
    assert simulated.seconds < 4.0


TWO = {"a": nq.Normal(), "b": nq.Uniform()}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: voi.Model({}, difference), "a mapping from names to laws"),
        (lambda: voi.Model(TWO, 3), "a function"),
        (lambda: voi.Model({"a": nq.Normal([0, 0])}, difference), "a law of 2 coordinates"),
        (lambda: voi.Model({"a": nq.Normal(), ("a", "b"): nq.Normal([0, 0])}, difference), "twice"),
        (lambda: voi.Model(TWO, difference, {("a", "b"): 0.5}), "neither normal nor log-normal"),
        (lambda: voi.Model(TWO, difference, {("a", "c"): 0.5}), "expected one of"),
        (lambda: voi.Model(TWO, difference, {("a", "b"): 2}), "neither normal"),
        (lambda: voi.Model({"a": nq.Normal()}, difference, {"a": 0.1}), "two names or more"),
        (lambda: voi.Model({"a": nq.Normal()}, difference, [0.1]), "a mapping from tuples"),
        (
            lambda: voi.Model(
                {k: nq.Normal() for k in "abc"}, difference, {("a", "b"): 0.9, ("b", "c"): 0.9}
            ),
            "contradict each other",
        ),
        (lambda: NORMALS.evppi("p3", tol=1), "Did you mean"),
        (lambda: NORMALS.problem([["p1"], ["p2"]]), "one set"),
        (lambda: NORMALS.evppi(["p1", "p2"], tol=1), "Use model.evpi"),
        (lambda: NORMALS.evpi(), "neither a budget nor a tolerance"),
        (lambda: voi.Model(TWO, lambda p: p["a"]).evpi(tol=1), "at least two"),
        (lambda: voi.Model(TWO, lambda p: (0, p["x"])).evpi(tol=1), "KeyError"),
        (lambda: voi.Model(TWO, lambda p: (0.0, np.log(-p["b"]))).evpi(tol=1), "not finite"),
        (lambda: voi.Model(TWO, lambda p: np.ones((3, 2))).sample(10), "shape (3, 2)"),
    ],
)
def test_what_is_refused(call, words):
    with np.errstate(invalid="ignore"), pytest.raises(nq.NestquadError) as caught:
        call()
    assert words in str(caught.value)
