"""What every shipped problem owes its users."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from nestquad import problems
from nestquad.errors import InputError

TAGS = {"smooth", "kinked", "high-dimensional", "log", "several-outputs"}
EXTRA = [
    problems.synthetic(3),
    problems.eig_linear(2, design=[[1.0, 0.5], [0.0, 2.0], [1.0, -1.0]]),
    problems.gaussian_es(0.9, s=0.5),
]
PROBLEMS = [*problems.all(), *EXTRA]


def everyone(function):
    labels = [
        f"{p.name}-extra" if i >= len(PROBLEMS) - 3 else p.name for i, p in enumerate(PROBLEMS)
    ]
    return pytest.mark.parametrize("problem", PROBLEMS, ids=labels)(function)


def draw(problem, n_outer, n_inner, rng):
    """Independent inner points for every theta, whether or not the law depends on it."""
    theta = problem.outer_law.sample(n_outer, rng)
    law = problem.inner_law(theta)
    if law.batch is None:
        return theta, law.sample(n_outer * n_inner, rng).reshape(n_outer, n_inner, -1)
    return theta, law.sample(n_inner, rng)


def test_names_and_get_agree():
    assert [p.name for p in problems.all()] == list(problems.names())
    for name in problems.names():
        assert problems.get(name).name == name


@pytest.mark.parametrize(
    ("given", "nearest"), [("finnace", "'finance'"), ("health_durations", "'health-durations'")]
)
def test_unknown_name_suggests_the_nearest(given, nearest):
    with pytest.raises(InputError, match=f"Did you mean {nearest}"):
        problems.get(given)


@everyone
def test_description_is_complete(problem):
    assert math.isfinite(problem.exact)
    assert problem.tags
    assert set(problem.tags) <= TAGS
    assert ("smooth" in problem.tags) != ("kinked" in problem.tags)
    s_x, s_theta = problem.smoothness
    assert min(np.min(s_x), np.min(s_theta)) >= 1
    assert ("high-dimensional" in problem.tags) == (problem.inner_law(_center(problem)).dim >= 5)


def _center(problem):
    law = problem.outer_law
    return law.from_uniform(np.full((1, law.base_dim), 0.5))


@everyone
def test_g_broadcasts_and_agrees_with_single_points(problem):
    rng = np.random.default_rng(1)
    theta, x = draw(problem, 4, 3, rng)
    values = problem.g(x, theta[:, None, :])
    shared = problem.g(x[:1], theta[:, None, :] + 0.0 * x[..., :1])
    outputs = values.shape[2:]
    assert values.shape == (4, 3, *outputs)
    assert (len(outputs) == 1) == ("several-outputs" in problem.tags)
    for t in range(4):
        for n in range(3):
            np.testing.assert_allclose(values[t, n], problem.g(x[t, n], theta[t]), rtol=1e-13)
            np.testing.assert_allclose(
                np.broadcast_to(shared, values.shape)[t, n],
                problem.g(x[0, n], theta[t]),
                rtol=1e-13,
            )


@everyone
def test_g_leaves_its_arguments_alone(problem):
    theta, x = draw(problem, 4, 3, np.random.default_rng(2))
    theta_before, x_before = theta.copy(), x.copy()
    problem.f(problem.g(x, theta[:, None, :]).mean(axis=1))
    np.testing.assert_array_equal(theta, theta_before)
    np.testing.assert_array_equal(x, x_before)


@everyone
def test_pieces_survive_pickling(problem):
    # Process pools send g and the laws to their workers.
    theta, x = draw(problem, 5, 4, np.random.default_rng(3))
    copy = pickle.loads(pickle.dumps(problem))
    values = problem.g(x, theta[:, None, :])
    np.testing.assert_array_equal(copy.g(x, theta[:, None, :]), values)
    j = np.abs(values).mean(axis=1)
    np.testing.assert_array_equal(copy.apply_f(j), problem.apply_f(j))
    u = np.random.default_rng(4).random((6, problem.inner_law(theta).base_dim))
    np.testing.assert_array_equal(
        copy.inner_law(theta).from_uniform(u), problem.inner_law(theta).from_uniform(u)
    )


@everyone
def test_plain_nested_monte_carlo_finds_the_exact_value(problem):
    # N is large enough for the bias of f to be small beside the standard error.
    n_outer, n_inner = 600, 600
    theta, x = draw(problem, n_outer, n_inner, np.random.default_rng(20240229))
    f = problem.apply_f(problem.g(x, theta[:, None, :]).mean(axis=1))
    mean = f.mean(axis=0)
    gradient = np.array(
        [
            (problem.finish(mean + step) - problem.finish(mean - step)) / 2e-6
            for step in 1e-6 * np.eye(mean.size)
        ]
    ).reshape(-1)
    error_bar = np.std(f @ gradient) / math.sqrt(n_outer)
    assert 0.0 < error_bar < 0.2 * abs(problem.exact)  # otherwise the check could not fail
    assert abs(problem.finish(mean) - problem.exact) < 4 * error_bar


@everyone
def test_bits_do_not_depend_on_the_chunk(problem):
    # The same seed has to give the same answer however the work is cut.
    theta, x = draw(problem, 9, 8, np.random.default_rng(5))
    u = np.random.default_rng(6).random((8, problem.inner_law(theta).base_dim))
    values = problem.g(x, theta[:, None, :])
    whole = np.broadcast_to(problem.inner_law(theta).from_uniform(u), x.shape)
    for chunk in (slice(0, 1), slice(1, 4), slice(4, 9)):
        part = problem.inner_law(theta[chunk]).from_uniform(u)
        np.testing.assert_array_equal(np.broadcast_to(part, x[chunk].shape), whole[chunk])
        np.testing.assert_array_equal(problem.g(x[chunk], theta[chunk, None, :]), values[chunk])


@pytest.mark.parametrize("junk", [None, [], {}, [[1], [2, 3]], object(), math.nan, -1, 10**40])
@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (problems.get, "name"),
        (problems.synthetic, "dim"),
        (problems.gaussian_es, "alpha"),
        (problems.health, "known"),
        (problems.eig_linear, "dim"),
    ],
)
def test_arguments_of_other_types_are_refused(make, argument, junk):
    if make is problems.synthetic and junk == 10**40:
        return  # a dimension, though one that nobody can evaluate
    with pytest.raises(InputError) as caught:
        make(junk)
    assert caught.value.argument == argument


def test_a_ragged_design_is_refused():
    with pytest.raises(InputError, match="design"):
        problems.eig_linear(design=[[1.0], [2.0, 3.0]])
