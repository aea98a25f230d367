from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from nestquad.accuracy import Allocation, Level, allocate
from nestquad.errors import InputError

SMOOTH = {"s_x": 2.0, "s_theta": 2.0}
CASES = [
    ("nmc", {}, 3.0),
    ("nmc", {"regime": "lipschitz"}, 4.0),
    ("nqmc", {}, 2.5),
    ("mlmc", {}, 2.0),
    ("nkq", SMOOTH, 1.0),
    ("nkq", {"s_x": 1.0, "s_theta": 1.0}, 2.0),
    ("nkq", {"s_x": 3.0, "s_theta": 4.0, "dim_x": 5, "dim_theta": 2}, 5 / 3 + 1 / 2),
    ("nkq", {"s_x": 1.0, "s_theta": math.inf}, 1.0),
    ("mlkq", SMOOTH, 1.5),
    ("mlkq", {"s_x": 3.0, "s_theta": 4.0, "dim_x": 5, "dim_theta": 2}, 1 + 5 / 6 + 1 / 4),
    ("mlkq", {"s_x": math.inf, "s_theta": math.inf}, 1.0),
]


@pytest.mark.parametrize(("method", "options", "exponent"), CASES)
def test_cost_grows_with_the_exponent(method, options, exponent):
    deltas = np.logspace(-4, -9, 11)
    plans = [allocate(delta, method, **options) for delta in deltas]
    slope = np.polyfit(np.log(1 / deltas), [math.log(p.n_evaluations) for p in plans], 1)[0]
    assert plans[0].exponent == pytest.approx(exponent, rel=1e-12)
    # Infinite smoothness adds a logarithm, whose slope over this range is about 0.07.
    tolerance = 0.1 if math.inf in options.values() else 0.02
    assert slope == pytest.approx(exponent, abs=tolerance)


def test_infinite_smoothness_costs_a_power_of_the_logarithm():
    plan = allocate(1e-6, s_x=math.inf, s_theta=math.inf, dim_theta=2)
    assert plan.exponent == 0
    assert plan.n_inner == math.ceil(math.log(1e6))
    assert plan.n_outer == math.ceil(math.log(1e6) ** 2)
    assert "log(1/Δ)" in str(plan)
    # In many dimensions the Monte Carlo size is smaller.
    assert allocate(0.1, s_x=math.inf, s_theta=math.inf, dim_x=17).n_inner == 100


def test_the_examples_of_the_paper():
    assert allocate(0.01, "nmc").n_evaluations == 10**6
    assert allocate(0.01, "nmc", regime="lipschitz").n_evaluations == 10**8
    assert allocate(0.01, "nqmc").n_evaluations == 10**5
    assert 10**4 < allocate(0.01, "mlmc").n_evaluations < 2.1 * 10**4
    nmc = allocate(0.01, "nmc")
    assert (nmc.n_inner, nmc.n_outer) == (100, 10_000)
    synthetic = allocate(1e-4, "nkq", **SMOOTH)
    assert (synthetic.n_inner, synthetic.n_outer) == (100, 100)
    finance = allocate(1e-2, "nkq", s_x=1, s_theta=1)
    assert (finance.n_inner, finance.n_outer) == (100, 100)


def test_mlmc_levels_halve_the_bias_and_quarter_the_outer_size():
    plan = allocate(2.0**-10, "mlmc")
    assert plan.n_outer is None
    assert plan.n_inner is None
    assert [level.n_inner for level in plan.levels] == [2**k for k in range(11)]
    assert [level.n_outer for level in plan.levels[:-1]] == [4 ** (10 - k) for k in range(10)]
    assert plan.levels[-1].n_outer == 2  # theory says 1
    assert plan.n_evaluations == sum(a.n_inner * a.n_outer for a in plan.levels)


@pytest.mark.parametrize("dims", [(1, 1), (3, 2)])
def test_mlkq_levels_each_contribute_the_same_error(dims):
    # The theorem bounds the error of a level by N^(-s_x/d_x)·T^(-s_θ/(2 s_θ + d_θ)).
    delta, (s_x, s_theta), (dim_x, dim_theta) = 1e-8, (2.0, 3.0), dims
    plan = allocate(delta, "mlkq", s_x=s_x, s_theta=s_theta, dim_x=dim_x, dim_theta=dim_theta)
    errors = [
        level.n_inner ** (-s_x / dim_x) * level.n_outer ** (-s_theta / (2 * s_theta + dim_theta))
        for level in plan.levels
    ]
    # Rounding up only makes it smaller, and by little except at the last levels, where T is 2.
    assert all(0.3 * delta < error <= delta * (1 + 1e-9) for error in errors)
    # The finest level alone has a bias of at most delta.
    assert 0.2 * delta < plan.levels[-1].n_inner ** (-s_x / dim_x) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("options", [SMOOTH, {"s_x": 30.0, "s_theta": 30.0}])
def test_levels_get_finer(options):
    sizes = [level.n_inner for level in allocate(0.01, "mlkq", **options).levels]
    assert all(fine > coarse for coarse, fine in itertools.pairwise(sizes))


@pytest.mark.parametrize(("method", "options", "exponent"), CASES)
def test_sizes_are_integers_with_a_floor(method, options, exponent):
    plan = allocate(0.999, method, **options)
    levels = plan.levels or (Level(plan.n_inner, plan.n_outer),)
    for level in levels:
        assert isinstance(level.n_inner, int)
        assert isinstance(level.n_outer, int)
        assert level.n_inner >= 1
        assert level.n_outer >= 2


def test_constant_is_the_scale_of_the_error():
    large = allocate(5.0, "nmc", constant=500.0)
    small = allocate(0.01, "nmc")
    assert (large.n_inner, large.n_outer) == (small.n_inner, small.n_outer)
    assert large.delta == 5.0


def test_the_roughest_answer_decides():
    several = allocate(0.01, s_x=math.inf, s_theta=(1.0, math.inf, math.inf))
    assert several == allocate(0.01, s_x=math.inf, s_theta=1.0)


def test_printing_is_short():
    assert str(allocate(0.01, **SMOOTH)).count("\n") == 0
    text = str(allocate(0.01, "MLMC"))
    assert text.count("\n") == 1
    assert "10,000 × 1" in text
    assert isinstance(allocate(0.01, "mlmc"), Allocation)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0.0, "nmc"), {}, "delta"),
        ((-0.1, "nmc"), {}, "delta"),
        ((1.0, "nmc"), {}, "delta"),
        ((math.nan, "nmc"), {}, "delta"),
        ((1e-20, "nmc"), {}, "delta"),
        ((3.0, "nmc"), {"constant": 2.0}, "delta"),
        ((0.1, "nmc"), {"constant": 0.0}, "constant"),
        ((0.1, "nkw"), {}, "Did you mean 'nkq'"),
        ((0.1, "nmc"), {"regime": "lipshitz"}, "Did you mean 'lipschitz'"),
        ((0.1, "mlmc"), {"regime": "lipschitz"}, "regime"),
        ((0.1, "nkq"), {"s_theta": 2.0}, "s_x: got None"),
        ((0.1, "mlkq"), {"s_x": 2.0}, "s_theta: got None"),
        ((0.1, "nkq"), {"s_x": 0.5, "s_theta": 2.0}, "half the dimension"),
        ((0.1, "nkq"), {"s_x": 2.0, "s_theta": 2.0, "dim_theta": 4}, "s_theta"),
        ((0.1, "nkq"), {"s_x": math.nan, "s_theta": 2.0}, "s_x"),
        ((0.1, "nkq"), {"s_x": 2.0, "s_theta": 2.0, "dim_x": 0}, "dim_x"),
        ((0.1, "nkq"), {"s_x": 2.0, "s_theta": 2.0, "dim_x": 1.5}, "dim_x"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(InputError, match=message):
        allocate(*arguments, **options)
