"""Smoothness of f: jumps and kinks are found, and small steps across jumps enlarged."""

import numpy as np
import pytest

import nestquad as nq
from nestquad.accuracy import is_discontinuous, order_of_smoothness, takes


@pytest.mark.parametrize(
    ("f", "order"),
    [
        (lambda j: j, 2),
        (np.exp, 2),
        (np.abs, 1),
        (lambda j: np.maximum(j, 0.2), 1),
        (lambda j: np.sign(j - 0.1), 0),
        (lambda j: np.floor(j), 0),
    ],
)
def test_order_of_smoothness_of_a_scalar_f(f, order):
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0], f)
    j = np.random.default_rng(0).normal(size=200)
    assert order_of_smoothness(problem, j) == order


def test_order_of_smoothness_of_a_maximum_and_of_a_logarithm():
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: x, lambda j: j.max(axis=-1)
    )
    j = np.random.default_rng(0).normal(size=(200, 3))
    assert order_of_smoothness(problem, j) == 1
    log = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0], np.log)
    positive = np.exp(5 * np.random.default_rng(0).normal(size=200))
    assert order_of_smoothness(log, positive, logarithmic=True) == 2


def test_jumps_are_noticed_a_little_beyond_what_j_is():
    def problem(f):
        return nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0], f)

    j = np.linspace(-1.0, 1.0, 101)
    assert is_discontinuous(problem(lambda v: (v > 0.3) + 0.0), j)
    assert is_discontinuous(problem(lambda v: (v > 1.5) + 0.0), j)
    assert not is_discontinuous(problem(lambda v: np.maximum(v - 0.3, 0.0)), j)
    assert not is_discontinuous(problem(np.log), np.exp(j))


def test_a_logarithm_takes_positive_numbers_only():
    log = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0], np.log)
    assert takes(log, np.array([1.0, 2.0]))
    assert not takes(log, np.array([1.0, 0.0]))
