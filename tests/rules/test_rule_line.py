"""Matérn kernels on a line in O(N log N): the weights of the dense equations, and better."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from nestquad.distributions import Empirical, Normal, Uniform
from nestquad.embeddings import mean_embedding
from nestquad.errors import InputError
from nestquad.kernels import Matern
from nestquad.points import Sobol, Stream
from nestquad.rules import Jitter, kernel_rule, line_laws, line_solutions, prefix_rules

ORDERS = [1.5, 2.5, 3.5]
LAWS = {"box": Uniform(-1.0, 2.0), "normal": Normal(0.5, 1.5)}
FRACTIONS = {  # of the law's mass to the left of each node
    "spread": (np.arange(20) + np.random.default_rng(1).random(20)) / 20,
    "even": (np.arange(24) + 0.5) / 24,
    "clustered": np.r_[0.02, 0.1, 0.4 + 1e-4 * np.arange(4), 0.55, 0.8, 0.8 + 1e-3, 0.97],
    "two": np.array([0.3, 0.45]),
    "one": np.array([0.7]),
}


def exact_solution(nu, lengthscale, law, x):
    """K⁻¹μ, K⁻¹1, 1ᵀK⁻¹1 and the variance, from the dense equations with 60 digits."""
    with mp.workdps(60):
        coefficients = {
            1.5: [1, 1],
            2.5: [1, 1, mp.mpf(1) / 3],
            3.5: [1, 1, mp.mpf(2) / 5, mp.mpf(1) / 15],
        }[nu]
        rate = mp.sqrt(2 * mp.mpf(nu)) / mp.mpf(lengthscale)
        nodes = [mp.mpf(float(v)) for v in x]

        def decaying(c, z):
            return mp.polyval(c[::-1], z) * mp.exp(-z)

        if isinstance(law, Uniform):
            low, high = mp.mpf(float(law.low[0])), mp.mpf(float(law.high[0]))
            width = rate * (high - low)

            def tail(c, z):  # ∫ over all that is larger than z
                moments = [v * mp.factorial(k) for k, v in enumerate(c)]
                sums = [sum(moments[i:]) / mp.factorial(i) for i in range(len(c))]
                return decaying(sums, z)

            def below(c, z):
                return tail(c, 0) - tail(c, z)

            def mean_at(t):
                sides = (rate * (t - low), rate * (high - t))
                return sum(below(coefficients, side) for side in sides) / width

            double = width * below(coefficients, width) - below([0, *coefficients], width)
            double *= 2 / width**2
        else:
            loc, sd = mp.mpf(float(law.loc[0])), mp.mpf(float(law.sd[0]))

            def half(slope, shift):  # of a unit normal around `shift`, over the positive half-line
                z = slope - shift
                moments = [mp.sqrt(mp.pi / 2) * mp.exp(z * z / 2) * mp.erfc(z / mp.sqrt(2))]
                moments.append(1 - z * moments[0])
                for k in range(1, 4):
                    moments.append(k * moments[k - 1] - z * moments[k])
                terms = (c * slope**k * moments[k] for k, c in enumerate(coefficients))
                return sum(terms) * mp.exp(-shift * shift / 2) / mp.sqrt(2 * mp.pi)

            def mean_at(t):
                shift = (loc - t) / sd
                return half(rate * sd, shift) + half(rate * sd, -shift)

            double = 2 * half(rate * sd * mp.sqrt(2), mp.mpf(0))
        gram = mp.matrix(
            [[decaying(coefficients, rate * abs(a - b)) for b in nodes] for a in nodes]
        )
        mean = mp.matrix([mean_at(t) for t in nodes])
        inverse_mean, inverse_one = mp.lu_solve(gram, mean), mp.lu_solve(gram, mp.ones(len(x), 1))
        variance = double - (mean.T * inverse_mean)[0]
        as_floats = [np.array([float(v) for v in vector]) for vector in (inverse_mean, inverse_one)]
        return *as_floats, float(sum(inverse_one)), float(variance)


def line_solution(nu, lengthscale, law, x):
    rate = np.array([np.sqrt(2.0 * nu) / lengthscale])
    return line_solutions(round(nu + 0.5), rate, [x[None]], line_laws(law, 1))[0][0]


def largest_difference(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def sobol_nodes(law, n, seed=0):
    return law.from_uniform(Sobol().uniforms(Stream.from_rng(seed), 1, (0, 1), (0, n))[0])


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("lengthscale", [0.02, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("nu", ORDERS)
def test_solves_the_dense_equations_where_they_are_singular_to_rounding(
    nu, law, lengthscale, fractions
):
    law, rng = LAWS[law], np.random.default_rng(0)
    x = rng.permutation(law.from_uniform(FRACTIONS[fractions][:, None])[:, 0])
    found = line_solution(nu, lengthscale, law, x)
    if found is None:  # allowed for close nodes of the highest order, where the guard has its say
        assert nu == 3.5
        assert fractions == "clustered"
        return
    mean, one, total, variance = exact_solution(nu, lengthscale, law, x)
    # K has condition numbers up to 1e40 here; what is left of them grows with the order.
    loss = {1.5: 1e-11, 2.5: 1e-8, 3.5: 1e-4}[nu] if fractions == "clustered" else {
        1.5: 1e-13, 2.5: 1e-10, 3.5: 1e-5
    }[nu]  # fmt: skip
    assert largest_difference(found.inverse_mean, mean) < loss
    assert largest_difference(found.inverse_one, one) < 10 * loss
    assert found.total == pytest.approx(total, rel=loss)
    assert found.variance == pytest.approx(variance, rel=100 * loss)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("nu", ORDERS)
def test_integrates_the_functions_of_the_space_exactly(nu, law):
    law, kernel = LAWS[law], Matern(nu, 0.7)
    nodes = sobol_nodes(law, 400)
    rule = kernel_rule(kernel, law, nodes, exact="none", regularization=Jitter(limit=10.0))
    assert rule.ridge == 0.0
    integrals = kernel(nodes, nodes) @ rule.weights
    np.testing.assert_allclose(integrals, mean_embedding(kernel, law, nodes), rtol=1e-12)


@pytest.mark.parametrize("exact", ["none", "constant"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("nu", ORDERS)
def test_a_few_nodes(nu, law, n, exact):
    law, kernel = LAWS[law], Matern(nu, 0.9)
    nodes = law.from_uniform(np.array([[0.7], [0.2], [0.4]]))[:n]
    rule = kernel_rule(kernel, law, nodes, exact=exact, regularization=Jitter(limit=10.0))
    assert rule.ridge == 0.0
    gram, mean = kernel(nodes, nodes), mean_embedding(kernel, law, nodes)
    weights, one = np.linalg.solve(gram, np.column_stack([mean, np.ones(n)])).T
    if exact == "constant":
        weights = weights + one * (1.0 - weights.sum()) / one.sum()
    np.testing.assert_allclose(rule.weights, weights, atol=1e-12)
    dense = kernel_rule(kernel, law, nodes, exact=exact, regularization=0.0)
    assert rule.worst_case_error == pytest.approx(dense.worst_case_error, rel=1e-8)
    assert rule.posterior_variance == pytest.approx(dense.posterior_variance, rel=1e-8)


@pytest.mark.parametrize("law", LAWS)
def test_equals_dense_weights_where_those_are_well_conditioned(law):
    law, kernel = LAWS[law], Matern(1.5, 0.5)
    nodes = sobol_nodes(law, 200)
    rule = kernel_rule(kernel, law, nodes)
    dense = kernel_rule(kernel, law, nodes, regularization=0.0)
    assert rule.ridge == 0.0
    assert largest_difference(rule.weights, dense.weights) < 1e-8
    assert rule.worst_case_error == pytest.approx(dense.worst_case_error, rel=1e-6)


@pytest.mark.parametrize("nu", ORDERS)
def test_even_nodes_have_positive_weights(nu):
    nodes = (np.arange(3000)[:, None] + 0.5) / 3000
    rule = kernel_rule(Matern(nu, 0.4), Uniform(), nodes)
    assert rule.weights.min() > 0.0
    assert rule.weights.sum() == pytest.approx(1.0, abs=1e-14)
    middle = rule.weights[100:-100] * 3000
    np.testing.assert_allclose(middle, 1.0, rtol=1e-9)  # far from the ends it is the mean


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_the_order_of_the_nodes_does_not_matter(nu):
    nodes, order = sobol_nodes(Normal(), 500), np.random.default_rng(3).permutation(500)
    first = kernel_rule(Matern(nu), Normal(), nodes, exact="none")
    second = kernel_rule(Matern(nu), Normal(), nodes[order], exact="none")
    np.testing.assert_array_equal(first.weights[order], second.weights)


@pytest.mark.parametrize("nu", ORDERS)
def test_prefixes_and_sets_are_what_they_are_alone(nu):
    # Bit by bit, though all of them are one chain: results do not depend on company.
    uniform = Sobol().uniforms(Stream.from_rng(2), 1, (0, 3), (0, 300))
    scales = np.array([[0.3], [0.8], [2.0]])
    boxes = Uniform([[0.0], [-1.0], [2.0]], [[1.0], [1.0], [5.0]])
    nodes = boxes.from_uniform(uniform)
    together = prefix_rules(Matern(nu, scales), boxes, nodes, [300, 150, 75])
    for i, rules in enumerate(together):
        kernel, law = Matern(nu, scales[i]), Uniform(boxes.low[i], boxes.high[i])
        for size, rule in zip([300, 150, 75], rules, strict=True):
            alone = kernel_rule(kernel, law, nodes[i, :size])
            assert rule.ridge == alone.ridge == 0.0
            np.testing.assert_array_equal(rule.weights, alone.weights)
            assert rule.posterior_variance == alone.posterior_variance


@pytest.mark.parametrize(("nu", "rate"), [(1.5, 2.0), (2.5, 3.0)])
def test_errors_fall_to_rounding(nu, rate):
    def error(n):
        x = (np.arange(n) + np.random.default_rng(n).random(n)) / n
        rule = kernel_rule(Matern(nu, 0.5), Uniform(), x[:, None])
        value = rule.integrate(np.exp(x) * np.cos(3.0 * x))
        exact = (np.e * (np.cos(3.0) + 3.0 * np.sin(3.0)) - 1.0) / 10.0
        return abs(float(value) - exact), rule.worst_case_error

    errors, worst = np.array([error(n) for n in (100, 1000, 10_000, 100_000)]).T
    floor = 1e-14
    assert errors[-1] < floor
    for i in range(3):
        assert errors[i + 1] < max(errors[i] * 10.0**-rate, floor)
    np.testing.assert_allclose(np.diff(np.log10(worst)), -(nu + 0.5), atol=0.4)


def test_a_ridge_of_rounding_stops_dense_weights_long_before():
    nodes = sobol_nodes(Uniform(), 1500)
    line = kernel_rule(Matern(2.5, 0.5), Uniform(), nodes)
    dense = kernel_rule(Matern(2.5, 0.5), Uniform(), nodes, regularization=1e-12 / 1500)
    assert line.worst_case_error < 0.2 * dense.worst_case_error
    values = np.exp(nodes[:, 0])
    assert line.integrate(values) == pytest.approx(np.e - 1.0, abs=1e-10)


@pytest.mark.parametrize("nu", ORDERS)
def test_the_guard_takes_over_where_weights_cancel(nu):
    nodes = np.random.default_rng(0).random((300, 1))  # gaps from 1e-6 to 0.02
    wild = line_solution(nu, 0.5, Uniform(), nodes[:, 0])
    assert wild is None or np.abs(wild.inverse_mean).sum() > 2.0
    rule = kernel_rule(Matern(nu, 0.5), Uniform(), nodes)
    assert rule.ridge > 0.0
    assert rule.sum_abs_weights <= 2.0
    assert kernel_rule(
        Matern(1.5, 0.5), Uniform(), nodes, regularization=Jitter(limit=1e6)
    ).sum_abs_weights > 2.0  # fmt: skip


@pytest.mark.parametrize("distance", [1e-6, 1e-10, 1e-14])
@pytest.mark.parametrize("nu", ORDERS)
def test_no_weights_that_rounding_decides(nu, distance):
    # Symmetric, so that the true weights are tame: only rounding can tell the two apart.
    x = np.array([0.1, 0.5, 0.5 + distance, 0.9])
    found = line_solution(nu, 0.5, Uniform(), x)
    if found is not None and np.abs(found.inverse_mean).sum() <= 2.0:
        expected = exact_solution(nu, 0.5, Uniform(), x)[0]
        assert largest_difference(found.inverse_mean, expected) < 1e-5
    elif found is None:
        assert distance < 1e-5


@pytest.mark.parametrize(
    ("law", "nodes"),
    [
        (Uniform(), np.array([[1.2], [0.3], [0.6]])),
        (Empirical(np.random.default_rng(0).random((30, 1))), np.array([[0.2], [0.3], [0.6]])),
        (Normal(), np.array([[0.0], [1e9]])),
    ],
)
def test_other_laws_and_nodes_have_dense_weights(law, nodes):
    kernel = Matern(2.5, 0.4)
    rule = kernel_rule(kernel, law, nodes, exact="none")
    assert rule.ridge > 0.0
    expected = np.linalg.solve(kernel(nodes, nodes), mean_embedding(kernel, law, nodes))
    np.testing.assert_allclose(rule.weights, expected, atol=1e-9)


@pytest.mark.parametrize("lengthscale", [1e-9, 1e-3, 1e3, 1e9, 1e30, 1e100])
@pytest.mark.parametrize("x", [[0.0, 0.5, 1.0], [0.0, 1e-300, 0.5], [0.3], [0.2, 0.2 + 1e-16, 0.7]])
@pytest.mark.parametrize("law", [Uniform(), Normal()])
@pytest.mark.parametrize("nu", ORDERS)
def test_extreme_lengthscales_and_gaps(nu, law, x, lengthscale):
    rule = kernel_rule(Matern(nu, lengthscale), law, np.unique(x)[:, None])
    assert np.isfinite(rule.weights).all()
    assert rule.weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert rule.sum_abs_weights <= 2.0


def test_one_set_of_several_may_be_dense():
    rng = np.random.default_rng(0)
    even, wild = (np.arange(200) + 0.5) / 200, rng.random(200)
    nodes = np.stack([wild, even])[..., None]
    scales = np.array([[0.4], [0.7]])
    (first,), (second,) = prefix_rules(Matern(1.5, scales), Uniform(), nodes, [200])
    assert first.ridge > 0.0
    assert second.ridge == 0.0
    for rule, scale, own in zip((first, second), scales, nodes, strict=True):
        alone = kernel_rule(Matern(1.5, scale), Uniform(), own)
        np.testing.assert_allclose(rule.weights, alone.weights, rtol=1e-12)


def test_many_nodes_that_need_a_ridge_are_refused_with_advice():
    nodes = np.random.default_rng(0).random((30_000, 1))
    with pytest.raises(InputError, match="Sobol"):
        kernel_rule(Matern(1.5), Uniform(), nodes)


def test_a_law_that_does_not_fit_is_refused():
    with pytest.raises(InputError):
        kernel_rule(Matern(1.5), Uniform(dim=2), sobol_nodes(Uniform(), 100))


@pytest.mark.parametrize("law", LAWS)
def test_a_hundred_thousand_nodes(law):  # dense weights would need 80 GB
    nodes = sobol_nodes(LAWS[law], 100_000)
    rule = kernel_rule(Matern(2.5, 0.5), LAWS[law], nodes)
    assert rule.ridge == 0.0
    exact = {"box": (np.sin(2) + np.sin(1)) / 3, "normal": np.cos(0.5) * np.exp(-1.125)}[law]
    assert rule.integrate(np.cos(nodes[:, 0])) == pytest.approx(exact, abs=1e-5)
