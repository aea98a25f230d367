"""Sensitivities against closed forms and quadrature; steps, jumps, automatic differentiation."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import nestquad as nq

STEP = 1e-4
# A plain rule, where only the mechanism is tested.
RULE = nq.NQMC(n_outer=64, n_inner=8)


def derivative(function, at, which):
    """Central difference of an exact function in one of its arguments."""
    up, down = ({**at, which: at[which] + side} for side in (STEP, -STEP))
    return (function(**up) - function(**down)) / (2 * STEP)


def linear(mean, slope):
    """J = mean + slope θ, I = mean² + slope²."""
    return nq.NestedExpectation(
        outer=nq.Normal(),
        inner=lambda theta: nq.Normal(mean + slope * theta, 1.0),
        g=lambda x, theta: x[..., 0],
        f=lambda j: j**2,
        name="linear",
    )


def excess(vol, strike):
    """E max(J − 0.1, 0) of a forward call: kinks in g and in f, and vol in both laws."""
    return nq.NestedExpectation(
        outer=nq.Normal(0.0, vol),
        inner=lambda theta: nq.Normal(theta, vol),
        g=lambda x, theta: np.maximum(x[..., 0] - strike, 0.0),
        f=lambda j: np.maximum(j - 0.1, 0.0),
        name="excess",
    )


def call(theta, vol, strike):
    z = (theta - strike) / vol
    return (theta - strike) * norm.cdf(z) + vol * norm.pdf(z)


def exact_excess(vol, strike):
    start = brentq(lambda theta: call(theta, vol, strike) - 0.1, -3.0, 3.0)
    density = norm(0.0, vol).pdf
    return quad(
        lambda theta: (call(theta, vol, strike) - 0.1) * density(theta), start, 2.0, epsabs=1e-13
    )[0]


def exceedance(vol, threshold):
    """P(J > threshold), a jump of f that a parameter moves, too."""
    return nq.NestedExpectation(
        outer=nq.Normal(0.0, vol),
        inner=lambda theta: nq.Normal(theta, vol),
        g=lambda x, theta: np.maximum(x[..., 0] - 0.1, 0.0),
        f=lambda j: 1.0 * (j > threshold),
    )


def exact_exceedance(vol, threshold):
    place = brentq(lambda theta: call(theta, vol, 0.1) - threshold, -3.0, 3.0)
    return norm.sf(place / vol)


def decision(spread, gain):
    """EVPPI of an option of value N(gain, spread²) beside one of value 0."""
    return nq.NestedExpectation(
        outer=nq.Normal(),
        inner=nq.Normal(),
        g=lambda x, theta: np.stack(
            np.broadcast_arrays(
                gain + spread * theta[..., 0] + x[..., 0] ** 2 - 1.0, 0.3 * np.sin(x[..., 0])
            ),
            axis=-1,
        ),
        f=lambda j: np.concatenate([j.max(axis=-1, keepdims=True), j], axis=-1),
        combine=lambda means: means[0] - means[1:].max(),
    )


def exact_decision(spread, gain):
    return gain * norm.cdf(gain / spread) + spread * norm.pdf(gain / spread) - max(gain, 0.0)


CASES = {
    "excess": (excess, exact_excess, {"vol": 0.2, "strike": 0.1}, 0.1),
    "exceedance": (exceedance, exact_exceedance, {"vol": 0.2, "threshold": 0.1}, 0.05),
    "decision": (decision, exact_decision, {"spread": 1.5, "gain": 0.4}, 0.01),
}


def holds(estimate, truth, rounding=1e-6):
    """Whether the interval has the truth, up to that of its difference quotient."""
    low, high = estimate.interval()
    return low - rounding <= truth <= high + rounding


def test_linear_normal():
    s = nq.sensitivity(linear, {"mean": 0.5, "slope": 2.0}, budget=1500, rng=0, method="joint")
    for found, truth in ((s.value, 4.25), (s["mean"], 1.0), (s["slope"], 4.0)):
        assert found.value == pytest.approx(truth, rel=1e-6)
        assert holds(found, truth)
    assert s.n_evaluations <= 1500


@pytest.mark.parametrize("name", CASES)
def test_closed_forms(name):
    make, exact, at, accuracy = CASES[name]
    s = nq.sensitivity(make, at, budget=3000, rng=0, method="joint")
    truths = [exact(**at), *(derivative(exact, at, which) for which in at)]
    for found, truth in zip([s.value, *s.gradient.values()], truths, strict=True):
        assert abs(found.value - truth) <= accuracy * abs(truth)
        assert abs(found.value - truth) <= 1.5 * found.half_width + 1e-6
        assert found.half_width <= 5.0 * accuracy * abs(truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_coverage(name):
    """Nominal 95 %: at least 48 of 60 (three answers, 20 seeds) and no bar ten times too wide."""
    make, exact, at, _ = CASES[name]
    truths = [exact(**at), *(derivative(exact, at, which) for which in at)]
    hits, errors, halves = [], [], []
    for seed in range(0, 40, 2):
        s = nq.sensitivity(make, at, budget=3000, rng=seed)
        found = [s.value, *s.gradient.values()]
        hits += [holds(one, truth) for one, truth in zip(found, truths, strict=True)]
        errors.append([one.value - truth for one, truth in zip(found, truths, strict=True)])
        halves.append([one.half_width for one in found])
    assert np.mean(hits) >= 0.85
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    assert (np.mean(halves, axis=0) < 20.0 * rms + 1e-6).all()


def test_covariance_and_draws():
    s = nq.sensitivity(excess, {"vol": 0.2, "strike": 0.1}, budget=1500, rng=2, method="joint")
    assert s.covariance.shape == (3, 3)
    errors = [s.value.std_error, s["vol"].std_error, s["strike"].std_error]
    np.testing.assert_allclose(np.sqrt(np.diag(s.covariance)), errors, rtol=1e-6)
    assert np.linalg.eigvalsh(s.covariance).min() > -1e-12
    assert s.draws is not None
    assert s.draws.shape[1] == 3
    np.testing.assert_array_equal(s.draws[:, 1], s["vol"].draws)


def baskets(weights, shift):
    """J = w·θ + shift, I = |w|² + shift²."""
    return nq.NestedExpectation(
        outer=nq.Normal(np.zeros(4)),
        inner=nq.Normal(),
        g=lambda x, theta: theta @ np.ravel(weights) + shift + x[..., 0],
        f=lambda j: j**2,
    )


def test_gradients_have_the_shape_of_their_parameters():
    weights = np.array([[1.0, -0.5], [0.25, 2.0]])
    at = {"weights": weights, "shift": 0.0}
    s = nq.sensitivity(baskets, at, budget=9000, rng=0, method=nq.NQMC(n_outer=256, n_inner=2))
    assert s["weights"].value.shape == s["weights"].std_error.shape == (2, 2)
    away = np.abs(s["weights"].value - 2 * weights)
    assert (away <= np.minimum(2.0 * s["weights"].half_width, 0.3)).all()
    assert s["weights"].covariance.shape == (4, 4)
    assert abs(s["shift"].value) <= 2.0 * s["shift"].half_width
    assert [row["parameter"] for row in s.rows()][1] == "weights[0, 1]"
    assert "weights[1, 1]" in str(s)
    assert "±" in str(s["weights"])
    assert "<td" in s["weights"]._repr_html_()


def test_several_answers():
    def two(a):
        return nq.NestedExpectation(
            outer=nq.Normal(),
            inner=nq.Normal(),
            g=lambda x, theta: a * theta[..., 0] + x[..., 0],
            f=lambda j: np.stack([j**2, j + a], axis=-1),
        )

    s = nq.sensitivity(two, {"a": 3.0}, budget=1000, rng=0, method="joint")
    np.testing.assert_allclose(s.value.value, [9.0, 3.0], rtol=1e-5)
    np.testing.assert_allclose(s["a"].value, [6.0, 1.0], rtol=1e-5)
    assert len(s.rows()) == 2


def test_parameters_in_f_and_combine_alone():
    def scaled(power, factor):
        return nq.NestedExpectation(
            outer=nq.Uniform(0.5, 1.5),
            inner=nq.Normal(),
            g=lambda x, theta: theta[..., 0] + 0.1 * x[..., 0],
            f=lambda j: np.abs(j) ** power,
            combine=lambda means: factor * means[0],
        )

    s = nq.sensitivity(scaled, {"power": 2.0, "factor": 3.0}, budget=800, rng=0, method="joint")
    moment = quad(lambda t: t**2, 0.5, 1.5)[0]
    slope = quad(lambda t: t**2 * np.log(t), 0.5, 1.5)[0]
    assert s.value.value == pytest.approx(3 * moment, rel=1e-6)
    assert s["factor"].value == pytest.approx(moment, rel=1e-6)
    assert s["power"].value == pytest.approx(3 * slope, rel=1e-5)


def test_logarithm_needs_positive_j():
    def evidence(scale):
        return nq.NestedExpectation(
            outer=nq.Uniform(-1.0, 1.0),
            inner=nq.Normal(),
            g=lambda x, theta: np.exp(scale * theta[..., 0] - 0.5 + 0.2 * x[..., 0]),
            f=np.log,
        )

    s = nq.sensitivity(evidence, {"scale": 1.0}, budget=1000, rng=0, method="joint")
    assert s.value.value == pytest.approx(-0.48, abs=1e-3)
    assert abs(s["scale"].value) < 1e-3


def test_same_seed_same_bits_with_threads():
    at = {"vol": 0.2, "strike": 0.1}
    with ThreadPoolExecutor(2) as executor:
        there = nq.sensitivity(excess, at, budget=5000, rng=4, executor=executor, method=RULE)
    here = nq.sensitivity(excess, at, budget=5000, rng=4, method=RULE)
    assert here.to_dict()["gradient"] == there.to_dict()["gradient"]


def test_store_continues(tmp_path):
    at = {"mean": 0.5, "slope": 2.0}
    first = nq.sensitivity(linear, at, budget=5000, rng=0, store=tmp_path / "values", method=RULE)
    again = nq.sensitivity(linear, at, budget=5000, rng=0, store=tmp_path / "values", method=RULE)
    assert first["slope"].value == again["slope"].value


def test_tolerance():
    s = nq.sensitivity(linear, {"mean": 0.5, "slope": 2.0}, tol=1e-2, rng=0, method="joint")
    assert s.status == "converged"
    assert s["slope"].half_width * 2.0 <= 1e-2


def test_evaluations_are_counted():
    counted = [0]

    def counting(mean, slope):
        problem = linear(mean, slope)

        def g(x, theta):
            counted[0] += max(len(x), len(theta)) * x.shape[1]
            return x[..., 0]

        return nq.NestedExpectation(problem.outer, problem.inner, g, problem.f)

    s = nq.sensitivity(counting, {"mean": 0.5, "slope": 2.0}, budget=5000, rng=0, method=RULE)
    # Single points that tell shapes come on top.
    assert s.n_evaluations <= counted[0] <= s.n_evaluations + 20
    assert s.n_evaluations <= 5000


def test_g_with_errors_of_a_solver_gets_a_larger_step():
    def rounded(slope):
        return nq.NestedExpectation(
            outer=nq.Normal(),
            inner=nq.Normal(),
            g=lambda x, theta: np.round(np.exp(slope * (theta[..., 0] + x[..., 0])), 7),
        )

    s = nq.sensitivity(rounded, {"slope": 0.2}, budget=1500, rng=0, method="joint")
    assert s["slope"].value == pytest.approx(0.4 * np.exp(0.04), rel=2e-4)


def test_gradient_of_the_user():
    def gradient(x, theta, vol, strike):
        inside = -1.0 * (x[..., 0] > strike)
        return {"vol": np.zeros_like(inside), "strike": inside}

    at = {"vol": 0.2, "strike": 0.1}
    by_hand = nq.sensitivity(excess, at, budget=3000, rng=0, gradient=gradient, method="joint")
    assert by_hand["strike"].value == pytest.approx(
        derivative(exact_excess, at, "strike"), abs=2 * by_hand["strike"].half_width
    )
    assert by_hand["vol"].value == pytest.approx(derivative(exact_excess, at, "vol"), rel=0.05)

    def wrong(x, theta, vol, strike):
        return {"vol": np.zeros(x.shape[:-1]), "strike": np.ones(x.shape[:-1])}

    with pytest.raises(nq.InputError, match=r"gradient: got a slope of .* differences of g"):
        nq.sensitivity(excess, at, budget=3000, rng=0, gradient=wrong)
    with pytest.raises(nq.InputError, match="a dict with"):
        nq.sensitivity(excess, at, budget=3000, gradient=lambda x, theta, **_: {"vol": x[..., 0]})


def put_in(library, vol, strike, weights):
    """A put on two assets, written with functions of a library."""

    def g(x, theta):
        growth = library.exp(vol * x[..., 0]) * library.exp(0.1 * vol)
        spot = 100.0 * growth * weights[0] + theta[..., 0] * weights[1]
        rest = strike - spot + library.sum(weights)
        return library.where(rest > 0, rest, 0.0 * rest)

    return nq.NestedExpectation(
        outer=nq.Normal(0.0, 10.0 * vol),
        inner=lambda theta: nq.Normal(0.01 * theta - 0.5 * vol**2, np.sqrt(1.0 + vol)),
        g=g,
        f=lambda j: np.maximum(j - 5.0, 0.0),
        arrays={"jax.numpy": "jax", "torch": "torch"}.get(library.__name__, "numpy"),
    )


PUT = {"vol": 0.2, "strike": 100.0, "weights": np.array([1.0, 0.5])}


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_automatic_differentiation_agrees_with_differences(library):
    module = pytest.importorskip("jax.numpy" if library == "jax" else "torch")
    method = nq.NQMC(n_outer=32, n_inner=16)

    def make(vol, strike, weights):
        return put_in(module, vol, strike, weights)

    def plain(vol, strike, weights):
        return put_in(np, vol, strike, weights)

    found = nq.sensitivity(make, PUT, budget=2000, rng=0, method=method, derivative=library)
    same = nq.sensitivity(plain, PUT, budget=20_000, rng=0, method=method)
    assert found.n_evaluations < same.n_evaluations / 4
    for name in PUT:
        np.testing.assert_allclose(found[name].value, same[name].value, rtol=1e-5)


def test_hundred_parameters_take_one_pass():
    jax = pytest.importorskip("jax")

    def curve(weights):
        def g(x, theta):
            waves = jax.numpy.sin(jax.numpy.arange(1.0, 101.0) * x[..., :1])
            return jax.numpy.sum(weights * waves, axis=-1) + theta[..., 0]

        return nq.NestedExpectation(nq.Normal(), nq.Normal(), g, arrays="jax")

    s = nq.sensitivity(
        curve,
        {"weights": np.linspace(1.0, 2.0, 100)},
        budget=1000,
        rng=0,
        derivative="jax",
        method=nq.NQMC(n_outer=16, n_inner=16),
    )
    # E sin(k x) = 0.
    assert s["weights"].value.shape == (100,)
    assert np.abs(s["weights"].value).max() < 0.5
    # At most five evaluations of g for each of the 256 points, the pilot included.
    assert s.n_evaluations <= 5 * 256


def test_parameter_that_is_cut_off_from_differentiation():
    jax = pytest.importorskip("jax")

    def cut(vol):
        fixed = float(vol)
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: jax.numpy.exp(fixed * x[..., 0]),
            arrays="jax",
        )

    with pytest.raises(nq.InputError, match="derivative: got a slope of 0"):
        nq.sensitivity(cut, {"vol": 0.3}, budget=1000, derivative="jax")


def digital(strike, spot):
    return nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: 1.0 * (x[..., 0] + spot > strike),
    )


def knocked_out(barrier, vol):
    def g(x, theta):
        value = np.maximum(theta[..., 0] + vol * x[..., 0], 0.0)
        return np.where(value < barrier, value, 0.0)

    return nq.NestedExpectation(
        nq.Normal(1.0, 0.3), nq.Normal(), g, lambda j: np.maximum(j - 0.5, 0)
    )


@pytest.mark.parametrize(
    ("make", "at", "named"),
    [
        (digital, {"strike": 0.5, "spot": 0.1}, "strike"),
        (knocked_out, {"barrier": 1.5, "vol": 0.2}, "barrier"),
    ],
)
def test_jumps_of_g_are_refused(make, at, named):
    with pytest.raises(nq.DiscontinuityError, match=f"g jumps by .*{named}"):
        nq.sensitivity(make, at, budget=10_000, rng=0)


def option(kind):
    """A digital, an asset-or-nothing, a knock-out or a capped call at the second of two dates."""

    def make(spot=100.0, vol=0.3, strike=100.0, barrier=80.0):
        def g(x, theta):
            path = spot * np.exp(np.cumsum(vol * x / 2, axis=-1) + theta)
            end = path[..., -1]
            return {
                "digital": 1.0 * (end > strike),
                "asset": end * (end > strike),
                "knock-out": np.maximum(end - strike, 0.0) * (path.min(axis=-1) > barrier),
                "ramp": np.clip((end - strike) / 0.5, 0.0, 1.0),
                "call": np.maximum(end - strike, 0.0),
            }[kind]

        return nq.NestedExpectation(nq.Normal(0.0, vol / 2), nq.Normal(np.zeros(2)), g)

    return make


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("digital", ("strike",)),
        ("digital", ("spot", "vol")),
        ("digital", ("spot", "strike")),
        ("asset", ("spot",)),
        ("asset", ("spot", "strike")),
        ("knock-out", ("barrier", "vol")),
    ],
)
def test_jumps_are_met_by_few_evaluations(kind, names):
    """The pilot has the same points for each seed: what varies is where the jump is."""
    at = {"spot": 100.0, "vol": 0.3, "strike": 100.0, "barrier": 80.0}
    for seed in range(0, 20, 2):
        moves = np.random.default_rng(seed).uniform(0.85, 1.15, len(names))
        here = {name: at[name] * move for name, move in zip(names, moves, strict=True)}
        with pytest.raises(nq.DiscontinuityError):
            nq.sensitivity(option(kind), here, budget=1000, rng=seed)


def shifted(g, spread=(0.5, 1.0)):
    """A problem in which the parameter moves the law of θ, and so the places where g jumps."""

    def make(mean):
        return nq.NestedExpectation(
            nq.Normal(mean, spread[0]),
            lambda theta: nq.Normal(theta, spread[1]),
            lambda x, theta: g(x[..., 0], theta[..., 0]),
        )

    return make


@pytest.mark.parametrize(
    ("g", "mean", "spread"),
    [
        (lambda x, theta: x + (x > 1.0), 0.3, (0.5, 1.0)),
        (lambda x, theta: np.exp(x) + (x > 0.9), 0.02, (0.2, 0.3)),
        (lambda x, theta: x + 50.0 * (x > 4.0), 0.3, (0.5, 1.0)),
        (lambda x, theta: 100.0 * x + (x > 1.0), 0.3, (0.5, 1.0)),
        (lambda x, theta: x + theta * (theta > 0.7), 0.0, (0.5, 1.0)),
    ],
    ids=["beside zero", "exponential", "rare", "small beside the slope", "in theta"],
)
def test_jumps_beyond_a_share_of_the_parameter(g, mean, spread):
    """Where the parameter is near zero, a share of it moves x by nothing."""
    for budget in (500, 1500, 3000):
        with pytest.raises(nq.DiscontinuityError, match="where mean moves"):
            nq.sensitivity(shifted(g, spread), {"mean": mean}, budget=budget, rng=0)


def test_a_jump_that_no_parameter_moves_is_none():
    def steps(scale):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: scale * (theta[..., 0] + x[..., 0] + (x[..., 0] > 0.5)),
        )

    s = nq.sensitivity(steps, {"scale": 0.3}, budget=2000, rng=0, method="nqmc")
    assert holds(s["scale"], norm.sf(0.5))


@pytest.mark.parametrize("kind", ["ramp", "call"])
def test_kinks_and_ramps_are_no_jumps(kind):
    for seed in range(0, 10, 2):
        move = np.random.default_rng(seed).uniform(0.85, 1.15)
        at = {"spot": 100.0 * move, "vol": 0.3}
        s = nq.sensitivity(option(kind), at, budget=1500, rng=seed, method="nqmc")
        assert np.isfinite(s["vol"].value)


def test_a_change_of_regime_beside_the_parameter_is_no_jump():
    def regime(rate):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: rate * theta[..., 0] + x[..., 0] + 5.0 * (rate > 0.0104),
            lambda j: j**2,
        )

    s = nq.sensitivity(regime, {"rate": 0.01}, budget=1500, rng=0, method="joint")
    assert s["rate"].value == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-4, 1.0])
def test_parameters_that_are_small_beside_their_unit(size):
    def shifted(shift, limit):
        return nq.NestedExpectation(
            nq.Normal(),
            lambda theta: nq.Normal(theta, 1.0),
            lambda x, theta: x[..., 0] + shift,
            lambda j: (j + 1.0 - limit) ** 2,
        )

    s = nq.sensitivity(shifted, {"shift": size, "limit": size}, budget=1500, rng=0, method="joint")
    assert s["shift"].value == pytest.approx(2.0, rel=1e-4)
    assert s["limit"].value == pytest.approx(-2.0, rel=1e-4)
    assert holds(s["shift"], 2.0)


@pytest.mark.parametrize("place", [0.2, 0.8, 1.0, 2.0])
def test_density_at_and_beside_inflections(place):
    """J is normal, with inflections of its density at 1 and -1."""

    def above(mean, limit):
        return nq.NestedExpectation(
            nq.Normal(),
            lambda theta: nq.Normal(theta, 1.0),
            lambda x, theta: x[..., 0] + mean,
            lambda j: 1.0 * (j > limit),
        )

    s = nq.sensitivity(above, {"mean": 0.0, "limit": place}, budget=3000, rng=0, method="joint")
    for name, sign in (("mean", 1.0), ("limit", -1.0)):
        error = abs(s[name].value - sign * norm.pdf(place))
        assert error <= s[name].half_width <= 0.02 * norm.pdf(place)


def test_steep_and_kinked_g_is_no_jump():
    def ramp(strike):
        return nq.NestedExpectation(
            nq.Normal(),
            lambda theta: nq.Normal(theta, 1.0),
            lambda x, theta: np.clip(50.0 * (x[..., 0] - strike), 0.0, 1.0),
        )

    s = nq.sensitivity(ramp, {"strike": 0.5}, budget=3000, rng=0, method="joint")
    assert (
        abs(s["strike"].value + norm.pdf(0.51 / np.sqrt(2)) / np.sqrt(2))
        < 2 * s["strike"].half_width
    )


AT = {"mean": 0.1, "slope": 1.0}


def idle(mean, slope, b):
    return linear(mean, slope)


@pytest.mark.parametrize(
    ("make", "at", "more", "text"),
    [
        (linear(0.0, 1.0), {"a": 1.0}, {}, "make_problem: got NestedExpectation"),
        (linear, {}, {}, "parameters: got {}"),
        (linear, {"mean": 0.1}, {}, "make_problem: got a function that raised TypeError"),
        (linear, {"mean": "x", "slope": 1.0}, {}, r"parameters\['mean'\]: got 'x'"),
        (linear, {"mean": np.nan, "slope": 1.0}, {}, "finite numbers"),
        (lambda a: a, {"a": 1.0}, {}, "returned float"),
        (idle, {**AT, "b": 2.0}, {}, "'b', on which neither"),
        (linear, AT, {"derivative": "autograd"}, "derivative: got 'autograd'"),
        (linear, AT, {"budget": 100}, "budget: got 100 evaluations"),
        (linear, AT, {"budget": None}, "neither a budget nor"),
        (linear, AT, {"derivative": "jax", "gradient": linear}, "gradient: got with 'jax'"),
    ],
)
def test_wrong_input(make, at, more, text):
    with pytest.raises(nq.InputError, match=text):
        nq.sensitivity(make, at, **{"budget": 2000, **more})


def test_dimension_may_not_depend_on_a_parameter():
    def growing(n):
        return nq.NestedExpectation(
            nq.Normal(np.zeros(2 if n > 1.0 else 1)),
            nq.Normal(),
            lambda x, theta: n * theta[..., 0],
        )

    with pytest.raises(nq.InputError, match="same dimension for all parameters"):
        nq.sensitivity(growing, {"n": 1.0}, budget=1000)


def test_laws_without_transport_and_noisy_g_are_refused():
    def sampled(a):
        law = nq.Sampler(lambda theta, rng: rng.normal(size=theta.shape), 1)
        return nq.NestedExpectation(nq.Normal(), law, lambda x, theta: a * x[..., 0])

    def noisy(a):
        return nq.NestedExpectation(
            nq.Normal(), nq.Normal(), lambda x, theta: a * x[..., 0], noisy=True
        )

    for make, text in ((sampled, "can only be sampled"), (noisy, "noisy g has no differences")):
        with pytest.raises(nq.UnsupportedError, match=text):
            nq.sensitivity(make, {"a": 1.0}, budget=1000)


def test_random_g_is_refused():
    rng = np.random.default_rng(0)

    def random(a):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: a * x[..., 0] + rng.normal(size=(len(theta), x.shape[1])),
        )

    with pytest.raises(nq.NumericalError, match="too rough in the parameters"):
        nq.sensitivity(random, {"a": 1.0}, budget=1000)


def test_presentation(tmp_path):
    s = nq.sensitivity(linear, {"mean": 0.5, "slope": -2.0}, budget=5000, rng=0, method=RULE)
    assert str(s).startswith("linear: 4.")
    assert "scaled" in str(s)
    assert "<table" in s._repr_html_()
    told = json.loads(s.to_json())
    assert [row["parameter"] for row in told["gradient"]] == ["mean", "slope"]
    assert told["gradient"][1]["scaled"] == pytest.approx(2.0 * told["gradient"][1]["value"])
    with pytest.raises(nq.InputError, match="one of 'mean', 'slope'"):
        s["drift"]
    assert list(s) == ["mean", "slope"]
    pytest.importorskip("pandas")
    assert list(s.to_frame()["parameter"]) == ["mean", "slope"]
    pytest.importorskip("matplotlib")
    ax = s.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["slope = -2", "mean = 0.5"]
    page = s.save(tmp_path / "page.html", command="nestquad sensitivity").read_text()
    assert "Derivatives with 95 % intervals" in page


def test_value_is_that_of_the_problem():
    s = nq.sensitivity(linear, {"mean": 0.5, "slope": 2.0}, budget=1500, rng=0, method="joint")
    assert s.value.sample is not None
    np.testing.assert_allclose(s.value.sample.j, 0.5 + 2.0 * s.value.sample.theta[:, 0], atol=1e-4)


@pytest.mark.parametrize("place", [-0.2, 0.05, 0.5])
def test_jumps_of_the_density_widen_the_interval(place):
    """J = z + 1{z > 0} has no values between 0 and 1."""

    def above(mean):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: theta[..., 0] + (theta[..., 0] > 0) + mean + 0.3 * x[..., 0],
            lambda j: 1.0 * (j > place),
        )

    s = nq.sensitivity(above, {"mean": 0.0}, budget=1500, rng=0, method="joint")
    assert holds(s["mean"], norm.pdf(place) if place < 0 else 0.0)
    assert s["mean"].half_width < 1.0
    if abs(place) < 0.1:
        assert any("density of J may jump" in note for note in s.notes)


@pytest.mark.parametrize("size", [1e-3, 1e-8, 1e-10])
def test_steps_of_f_beside_a_tiny_spread_of_j(size):
    """E max(J, 0) = s φ(0) for J ~ N(0, s²), where g has noise of size one."""

    def positive(s):
        return nq.NestedExpectation(
            nq.Normal(0.0, s),
            lambda theta: nq.Normal(theta, 1.0),
            lambda x, theta: x[..., 0],
            lambda j: np.maximum(j, 0.0),
        )

    s = nq.sensitivity(positive, {"s": size}, budget=1500, rng=0, method="joint")["s"]
    assert holds(s, norm.pdf(0.0))
    if size == 1e-3:
        assert s.half_width < 0.01


def tail(c, mean):
    return nq.NestedExpectation(
        nq.Normal(mean),
        nq.Normal(),
        lambda x, theta: theta[..., 0] + 0.3 * x[..., 0],
        lambda j: (j > c).astype(float),
    )


@pytest.mark.parametrize("c", [3.0, 4.0])
def test_a_jump_that_few_values_reach_has_a_derivative(c):
    """The pilot sees no J beyond c; -dP(J > c)/dc is the density of J there."""
    s = nq.sensitivity(tail, {"c": c, "mean": 0.1}, budget=2000, rng=0)
    density = norm.pdf(c - 0.1)
    low, high = s.value.interval()
    assert 0.0 <= low <= norm.sf(c - 0.1) <= high <= 1.0
    for name, exact in (("c", -density), ("mean", density)):
        low, high = s[name].interval()
        assert low <= exact <= high
        assert abs(s[name].value - exact) < 0.1 * density
    assert not all(slope.half_width == 0 for slope in s.gradient.values())


def test_a_jump_of_f_at_an_atom_of_J_is_refused():
    def positive(c):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: np.maximum(theta[..., 0], 0.0) + 0.3 * x[..., 0],
            lambda j: (j > c).astype(float),
        )

    with pytest.raises(nq.DiscontinuityError, match=r"an atom: 5\d% of theta"):
        nq.sensitivity(positive, {"c": 0.0}, budget=2000, rng=0)
    assert nq.sensitivity(positive, {"c": 0.5}, budget=2000, rng=0)["c"].value < 0
