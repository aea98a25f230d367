"""Whatever goes in, what comes out is an answer or an error of ours that says what to do."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq

NESTED = ("nmc", "nqmc", "nkq")


def problem(g=None, f=None, outer=None, inner=None, **options):
    return nq.NestedExpectation(
        nq.Uniform() if outer is None else outer,
        (lambda theta: nq.Normal(theta, 1.0)) if inner is None else inner,
        (lambda x, theta: x[..., 0] + theta[..., 0]) if g is None else g,
        f,
        **options,
    )


def refuse(call, *words, kind=nq.InputError):
    """The call raises an error of ours whose text has all these words."""
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, nq.NestquadError)
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    return caught.value


# g

WRONG_G = {
    "too few rows": (lambda x, theta: x[:-1, ..., 0], "shape", "expected"),
    "keeps coordinates": (lambda x, theta: np.stack([x, x], axis=-1), "shape", "expected"),
    "scalar": (lambda x, theta: 1.0, "shape ()", "expected"),
    "sum over everything": (lambda x, theta: np.sum(x), "shape ()"),
    "mean over points": (lambda x, theta: x[..., 0].mean(axis=1), "shape", "x[..., 0]"),
    "x[:, 0]": (lambda x, theta: x[:, 0], "x[..., 0]"),
    "x[:, 0] and theta[:, 0]": (lambda x, theta: x[:, 0] + theta[:, 0], "x[..., 0]"),
    "x[0]": (lambda x, theta: x[0] * theta[..., 0], "x[..., 0]"),
    "complex": (lambda x, theta: x[..., 0] * 1j, "complex", "real"),
    "object": (lambda x, theta: x[..., 0].astype(object), "object", "real"),
    "text": (lambda x, theta: "no", "str", "real"),
    "nothing": (lambda x, theta: None, "NoneType", "real"),
    "dictionary": (lambda x, theta: {"value": 1}, "dict", "real"),
    "ragged": (lambda x, theta: [[1.0], [1.0, 2.0]], "list", "real"),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("method", NESTED)
@pytest.mark.parametrize("name", WRONG_G)
def test_g_of_a_wrong_kind(name, method, shared):
    g, *words = WRONG_G[name]
    inner = nq.Uniform() if shared else None
    refuse(
        lambda: nq.estimate(problem(g, inner=inner), budget=1000, method=method, rng=0),
        "g r",  # g returned, or g raised
        *words,
        kind=nq.EvaluationError,
    )


def test_a_lost_axis_is_found_even_where_g_is_often_zero():
    # A payoff that is 0 at most points looks the same at two of them.
    def g(x, theta):
        return np.maximum(x[:, 0] - 0.7, 0.0)

    for seed in range(10):
        refuse(
            lambda s=seed: nq.estimate(
                problem(g, inner=nq.Uniform()), method=nq.NMC(16, 16), rng=s
            ),
            "x[..., 0]",
            kind=nq.EvaluationError,
        )


@pytest.mark.parametrize("method", NESTED)
@pytest.mark.parametrize("inner", [nq.Uniform(), None])
def test_g_may_ignore_either_variable(method, inner):
    only_theta = problem(lambda x, theta: theta[..., 0], inner=inner)
    assert nq.estimate(only_theta, budget=4000, method=method, rng=0).value == pytest.approx(
        0.5, abs=0.1
    )
    only_x = problem(lambda x, theta: x[..., 0], inner=inner)
    assert nq.estimate(only_x, budget=4000, method=method, rng=0).value == pytest.approx(
        0.5, abs=0.1
    )


@pytest.mark.parametrize("inner", [nq.Uniform(), None])
@pytest.mark.parametrize("only", ["x", "theta"])
def test_points_that_g_gets_again_are_counted(only, inner):
    got = 0

    def g(x, theta):
        nonlocal got
        got += np.broadcast(x[..., 0], theta[..., 0]).size
        return x[..., 0] if only == "x" else theta[..., 0]

    est = nq.estimate(problem(g, inner=inner), budget=4000, method="nqmc", rng=0)
    again = est.diagnostics.get("n_checked", 0)
    assert got == est.n_evaluations + again
    assert again <= 0.02 * est.n_evaluations


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", NESTED)
def test_one_value_of_g_that_is_not_finite(method, bad):
    def g(x, theta):
        return np.where((x[..., 0] > 0.9) & (theta[..., 0] > 0.8), bad, 1.0)

    error = refuse(
        lambda: nq.estimate(problem(g, inner=nq.Uniform()), budget=2000, method=method, rng=0),
        f"g returned {bad}",
        "theta = [",
        "x = [",
        "finite",
        kind=nq.EvaluationError,
    )
    assert error.x[0] > 0.9
    assert error.theta[0] > 0.8


@pytest.mark.parametrize("method", NESTED)
@pytest.mark.parametrize("shared", [True, False])
def test_g_that_raises_at_one_point(method, shared):
    def g(x, theta):
        bad = (x[..., 0] > 0.8) & (theta[..., 0] > 0.7)
        if bad.any():
            raise ArithmeticError("the model diverged")
        return x[..., 0] + theta[..., 0]

    inner = nq.Uniform() if shared else (lambda theta: nq.Uniform(0.0, 0.5 + theta))
    error = refuse(
        lambda: nq.estimate(problem(g, inner=inner), budget=2000, method=method, rng=0),
        "g raised",
        "ArithmeticError",
        "the model diverged",
        "theta = [",
        "x = [",
        kind=nq.EvaluationError,
    )
    assert error.x[0] > 0.8
    assert error.theta[0] > 0.7
    assert isinstance(error.__cause__, ArithmeticError)


@pytest.mark.parametrize("which", ["x", "theta"])
def test_g_that_writes_to_its_arguments(which):
    # A rule on native space works on the same x afterwards: its nodes would be wrong.
    def g(x, theta):
        (x if which == "x" else theta)[..., 0] -= 1.0
        return x[..., 0] + theta[..., 0]

    recipe = nq.KernelQuadrature(nq.Matern(1.5), space="native")
    for method in (nq.NMC(8, 8), nq.NKQ(8, 8, inner=recipe)):
        refuse(
            lambda m=method: nq.estimate(problem(g), method=m, rng=0),
            "read-only",
            kind=nq.EvaluationError,
        )


def test_g_that_raises_only_on_blocks():
    def g(x, theta):
        if x.shape[1] > 1:
            raise ValueError("one point at a time")
        return x[..., 0] + theta[..., 0]

    refuse(
        lambda: nq.estimate(problem(g), budget=100, method="nmc", rng=0),
        "one point at a time",
        "shape",
        kind=nq.EvaluationError,
    )


def test_completed_evaluations_are_counted():
    class Fails:
        calls = points = 0

        def __call__(self, x, theta):
            self.calls += 1
            if self.calls > 2:
                raise RuntimeError("third call")
            values = x[..., 0] + theta[..., 0]
            self.points += values.size
            return values

    g = Fails()
    error = refuse(
        lambda: nq.estimate(problem(g), method=nq.NMC(300, 1000), rng=0),
        "evaluations had finished",
        kind=nq.EvaluationError,
    )
    assert 0 < error.n_completed == g.points


# f and combine

WRONG_F = {
    "scalar": (lambda j: j.max(), "shape ()", "expected"),
    "too long": (lambda j: np.append(j, 1.0), "shape", "expected"),
    "three axes": (lambda j: j[:, None, None], "shape"),
    "complex": (lambda j: j * 1j, "complex", "real"),
    "object": (lambda j: j.astype(object), "object"),
    "nan": (lambda j: j * np.nan, "nan", "J ="),
    "infinite": (lambda j: j / 0.0, "inf"),
    "raises": (lambda j: j["no"], "f raised", "shape"),
}


@pytest.mark.parametrize("method", NESTED)
@pytest.mark.parametrize("name", WRONG_F)
def test_f_of_a_wrong_kind(name, method):
    f, *words = WRONG_F[name]
    refuse(
        lambda: nq.estimate(problem(f=f), budget=1000, method=method, rng=0),
        "f r",
        *words,
        kind=nq.EvaluationError,
    )


def test_a_logarithm_of_a_negative_number_names_its_theta():
    shifted = problem(lambda x, theta: theta[..., 0] - 0.5 + 0 * x[..., 0], np.log)
    error = refuse(
        lambda: nq.estimate(shifted, budget=1000, method="nmc", rng=0),
        "f returned",
        "theta",
        "J =",
        "logarithm",
        kind=nq.EvaluationError,
    )
    assert error.theta[0] <= 0.5


def test_halves_outside_the_domain_of_f_do_not_stop_the_estimate():
    # Of N = 4 draws a half is often 0, where the logarithm is not finite; the whole never is.
    jumps = problem(
        lambda x, theta: np.where(x[..., 0] < 0.25, 4.0 + theta[..., 0], 0.0),
        np.log,
        inner=nq.Uniform(),
    )
    given = nq.Given((np.arange(4)[:, None] + 0.5) / 4)
    for cls in (nq.NMC, nq.NQMC):
        est = nq.estimate(jumps, method=cls(64, inner_points=given, sharing="shared"), rng=0)
        assert np.isfinite(est.value)
        assert 0.1 < est.std_error < np.inf, "half of the points say nothing: a large error bar"


@pytest.mark.parametrize(
    ("combine", "word"),
    [
        (lambda answers: answers[7], "combine raised IndexError"),
        (lambda answers: answers[0] * 1j, "combine returned complex"),
        (lambda answers: "no", "combine returned"),
        (lambda answers: np.ones((2, 2)), "combine returned"),
        (lambda answers: np.nan * answers[0], "combine returned"),
    ],
)
def test_combine_of_a_wrong_kind(combine, word):
    refuse(
        lambda: nq.estimate(problem(combine=combine), budget=400, rng=0),
        word,
        kind=nq.EvaluationError,
    )


def test_combine_is_never_called_with_made_up_answers():
    def ratio(answers):
        assert (answers > 0.5).all()
        return answers[0] / answers[1]

    two = problem(
        lambda x, theta: np.stack(
            np.broadcast_arrays(1 + theta[..., 0], 2 + 0 * x[..., 0] * theta[..., 0]), -1
        ),
        combine=ratio,
    )
    est = nq.estimate(two, budget=2000, rng=0)
    assert est.value == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("argument", ["g", "f", "combine"])
def test_callables_have_to_be(argument):
    options = {"g": lambda x, theta: x[..., 0], argument: 3}
    error = refuse(lambda: nq.NestedExpectation(nq.Uniform(), nq.Uniform(), **options), "callable")
    assert error.argument == argument


# Laws

WRONG_LAWS = {
    "zero sd": (lambda: nq.Normal(0.0, 0.0), "sd", "positive"),
    "negative sd": (lambda: nq.LogNormal(0.0, -1.0), "sd", "positive"),
    "negative sd of one theta": (lambda: nq.Normal(np.zeros((3, 1)), [[1.0], [-1.0], [1.0]]), "sd"),
    "empty box": (lambda: nq.Uniform(1.0, 1.0), "low", "high"),
    "nan": (lambda: nq.Normal(np.nan), "mean"),
    "not positive semidefinite": (lambda: nq.Normal(cov=[[1.0, 2.0], [2.0, 1.0]]), "cov", "-1"),
    "not symmetric": (lambda: nq.Normal(cov=[[1.0, 0.5], [0.0, 1.0]]), "cov", "symmetric"),
    "sd and cov": (lambda: nq.Normal(sd=1.0, cov=[[1.0]]), "sd", "cov"),
    "negative weights": (lambda: nq.Empirical([[0.0], [1.0]], [1.0, -1.0]), "weights"),
}


@pytest.mark.parametrize("name", WRONG_LAWS)
def test_wrong_laws(name):
    make, *words = WRONG_LAWS[name]
    refuse(make, *words, "expected")


def test_a_wrong_law_at_some_theta_is_our_error_too():
    shrinking = problem(inner=lambda theta: nq.Normal(0.0, theta - 0.5))
    refuse(lambda: nq.estimate(shrinking, budget=400, rng=0), "sd", "positive")


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: problem(outer=3.0), "outer"),
        (lambda: problem(outer=nq.Normal(np.zeros((5, 1)))), "outer"),
        (lambda: problem(outer=nq.Normal), "outer"),
        (lambda: problem(inner=3.0), "inner"),
        (lambda: problem(inner=nq.Normal(np.zeros((5, 1)))), "inner"),
        (lambda: nq.estimate(problem(inner=lambda theta: 3.0), budget=100), "inner(theta)"),
        (lambda: nq.estimate(problem(inner=lambda theta: nq.Normal), budget=100), "inner(theta)"),
        (
            lambda: nq.estimate(problem(inner=lambda theta: nq.Normal(theta[:3])), budget=100),
            "inner(theta)",
        ),
        (
            lambda: nq.estimate(problem(inner=lambda theta: nq.Normal(theta[:, 0])), budget=100),
            "inner(theta)",
        ),
        (
            lambda: nq.estimate(
                problem(inner=lambda theta: nq.Independent(nq.Uniform(), nq.Normal(theta[:, 0]))),
                budget=100,
            ),
            "inner(theta)",
        ),
    ],
)
def test_laws_in_the_wrong_place(make, argument):
    assert refuse(make, "expected").argument == argument


@pytest.mark.parametrize("method", ["nqmc", "nkq"])
@pytest.mark.parametrize("role", ["outer", "inner"])
def test_samples_only_where_a_transport_is_needed(role, method):
    law = nq.Sampler(lambda n, rng: rng.random((n, 1)), dim=1)
    sampled = problem(**{role: law})
    text = str(refuse(lambda: nq.estimate(sampled, budget=400, method=method), role, "Transport"))
    assert "nmc" in text
    assert np.isfinite(nq.estimate(sampled, budget=400, method="nmc", rng=0).value)


def test_duplicate_nodes_of_a_discrete_law():
    law = nq.Empirical([[0.0], [1.0], [2.0]])
    recipe = nq.KernelQuadrature(nq.Matern(1.5), space="native")
    refuse(
        lambda: nq.estimate(problem(inner=law), method=nq.NKQ(16, 16, inner=recipe), rng=0),
        "duplicate",
        "distinct",
    )
    on_uniforms = nq.estimate(problem(inner=law), method=nq.NKQ(32, 32), rng=0)
    assert on_uniforms.value == pytest.approx(1.5, abs=0.3)


def test_a_kernel_without_an_embedding_for_the_law():
    recipe = nq.KernelQuadrature(nq.Matern(1.5), space="native")
    lognormal = problem(inner=lambda theta: nq.LogNormal(theta, 0.2))
    text = str(
        refuse(
            lambda: nq.estimate(lognormal, method=nq.NKQ(16, 16, inner=recipe), rng=0),
            "Matern",
            kind=nq.UnsupportedError,
        )
    )
    assert "Transport" in text or "uniform" in text


# Sizes, budgets, names

WRONG_CALLS = {
    "one outer point": (lambda: nq.NKQ(n_outer=1), "n_outer", "1", "at least 2"),
    "one inner point": (lambda: nq.NMC(n_inner=1), "n_inner", "1", "at least 2"),
    "no inner point": (lambda: nq.NQMC(n_inner=0), "n_inner", "at least 2"),
    "half a point": (lambda: nq.NKQ(n_outer=2.5), "n_outer", "2.5", "integer"),
    "one given point": (
        lambda: nq.estimate(problem(), budget=100, method=nq.NMC(outer_points=nq.Given([[0.5]]))),
        "outer_points",
        "at least 2",
    ),
    "unknown points": (lambda: nq.NKQ(outer_points="sobel"), "sobel", "Did you mean 'sobol'"),
    "unknown sharing": (lambda: nq.NKQ(sharing="some"), "sharing", "some", "shared"),
    "empty pool": (lambda: nq.NKQ(sharing=0), "sharing", "at least 1"),
    "unknown space": (lambda: nq.KernelQuadrature(space="unifrom"), "space", "unifrom"),
    "unknown lengthscale": (lambda: nq.KernelQuadrature(lengthscale="mean"), "lengthscale"),
    "unknown exactness": (lambda: nq.KernelQuadrature(exact="cubic"), "exact", "constant"),
    "kernel class": (lambda: nq.KernelQuadrature(nq.Matern), "kernel"),
    "kernel name": (lambda: nq.KernelQuadrature("matern"), "kernel", "Matern"),
    "order of a Matern": (lambda: nq.Matern(1.0), "nu", "1.5"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_settings(name):
    make, *words = WRONG_CALLS[name]
    refuse(make, *words)


WRONG_GOALS = {
    "nothing": ({}, "budget", "tol"),
    "too small a budget": ({"budget": 3}, "budget", "3", "at least 4"),
    "no budget": ({"budget": 0}, "budget"),
    "negative budget": ({"budget": -100}, "budget"),
    "half a budget": ({"budget": 100.5}, "budget", "whole"),
    "endless budget": ({"budget": np.inf}, "budget"),
    "budget in words": ({"budget": "lots"}, "budget", "lots"),
    "budgets": ({"budget": [100, 200]}, "budget"),
    "zero tolerance": ({"tol": 0.0}, "tol", "positive"),
    "negative tolerance": ({"tol": -1e-3}, "tol", "positive"),
    "negative relative tolerance": ({"rtol": -0.1}, "rtol", "positive"),
    "tolerance nan": ({"tol": np.nan}, "tol"),
    "tolerances": ({"tol": np.array([0.1, 0.2])}, "tol"),
    "tolerance in words": ({"tol": "small"}, "tol"),
    "no time": ({"budget": 100, "max_seconds": 0.0}, "max_seconds"),
    "unknown method": ({"budget": 100, "method": "nkd"}, "method", "nkd", "Did you mean 'nkq'"),
    "method class": ({"budget": 100, "method": nq.NKQ}, "method", "nq.NKQ()"),
    "method none": ({"budget": 100, "method": None}, "method"),
    "negative seed": ({"budget": 100, "rng": -1}, "rng"),
    "seed in words": ({"budget": 100, "rng": "seed"}, "rng"),
    "executor": ({"budget": 100, "executor": 4}, "executor", "int"),
    "budget below sizes": (
        {"budget": 99, "method": nq.NKQ(n_outer=10, n_inner=10)},
        "budget",
        "99",
        "at least 100",
    ),
    "budget below one size": (
        {"budget": 99, "method": nq.NMC(n_outer=60)},
        "budget",
        "at least 120",
    ),
    "too few given points": (
        {"method": nq.NQMC(n_outer=9, n_inner=4, outer_points=nq.Given(np.full((5, 1), 0.5)))},
        "9",
        "5",
    ),
    "given points of another dimension": (
        {"method": nq.NQMC(n_inner=4, outer_points=nq.Given(np.full((5, 2), 0.5)))},
        "points",
        "2 coordinates",
    ),
}


@pytest.mark.parametrize("name", WRONG_GOALS)
def test_wrong_goals(name):
    options, *words = WRONG_GOALS[name]
    refuse(lambda: nq.estimate(problem(), **options), *words)


def test_something_that_is_no_problem():
    refuse(lambda: nq.estimate(lambda x: x, budget=100), "problem", "NestedExpectation")
    refuse(lambda: nq.compare("finance", budget=100), "problem", "NestedExpectation")


def test_messages_say_what_came_and_what_was_expected():
    error = refuse(lambda: nq.NKQ(n_outer=1), "n_outer: got 1; expected an integer of at least 2.")
    assert error.argument == "n_outer"
    assert error.given == "1"
    assert isinstance(error, ValueError)


def test_every_method_takes_the_smallest_sizes():
    for cls in (nq.NMC, nq.NQMC, nq.NKQ):
        for space in ("uniform", "native"):
            options = {} if cls is not nq.NKQ else {"inner": nq.KernelQuadrature(space=space)}
            est = nq.estimate(problem(f=np.square), method=cls(2, 2, **options), rng=0)
            assert np.isfinite(est.value)
            assert np.isfinite(est.std_error)


@pytest.mark.parametrize("path", [1, True, None, b"points.csv", "no/such/folder/points.csv", "."])
def test_points_are_written_to_files_alone(path):
    points = nq.plan(nq.problems.synthetic(), budget=64, method="nmc", rng=0)
    with pytest.raises(nq.InputError, match="path"):
        points.to_csv(path)
