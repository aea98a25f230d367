"""Functions that write into what they get, or return the same array again and again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq

METHODS = ["nqmc", "nkq", "ckq", "joint", "mlkq"]


def problem(**changes):
    plain = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: x[..., 0] + 0.1 * theta[..., 0] ** 2,
        lambda j: np.maximum(j, 0.0),
        combine=lambda answers: answers + 1.0,
    )
    return replace(plain, **changes)


class Buffer:
    """Returns the same memory whenever it is called."""

    def __init__(self, function):
        self.function, self.memory = function, {}

    def __call__(self, *args):
        values = np.asarray(self.function(*args))
        out = self.memory.setdefault(values.shape, np.empty_like(values))
        out[...] = values
        return out


def writing_f(j):
    j[j < 0] = 0.0
    return j


def writing_inner(theta):
    theta *= 1.0
    law = nq.Normal(theta.copy(), 1.0)
    theta[:] = np.nan
    return law


def writing_combine(answers):
    answers += 1.0
    return answers


@pytest.mark.parametrize("method", METHODS)
def test_they_change_nothing_but_their_own(method):
    plain = problem()
    changes = {
        "f writes": {"f": writing_f},
        "f returns a buffer": {"f": Buffer(plain.f)},
        "g returns a buffer": {"g": Buffer(plain.g)},
        "inner writes": {"inner": writing_inner},
        "combine writes": {"combine": writing_combine},
        "combine returns a buffer": {"combine": Buffer(plain.combine)},
    }
    expected = nq.estimate(plain, method=method, budget=400, rng=0)
    for name, change in changes.items():
        answer = nq.estimate(replace(plain, **change), method=method, budget=400, rng=0)
        assert (answer.value, answer.std_error) == (expected.value, expected.std_error), name


def test_a_single_expectation_of_an_h_that_writes():
    def h(x):
        x += 1.0
        return x[:, 0] ** 2

    plain = nq.expectation(lambda x: (x[:, 0] + 1.0) ** 2, nq.Normal(), budget=64, rng=0)
    assert nq.expectation(h, nq.Normal(), budget=64, rng=0).value == plain.value


def test_a_g_of_one_point_that_returns_a_buffer():
    plain = problem(vectorized=False, g=lambda x, theta: x[0] + theta[0])
    answer = nq.estimate(replace(plain, g=Buffer(plain.g)), method="nmc", budget=400, rng=0)
    assert answer.value == nq.estimate(plain, method="nmc", budget=400, rng=0).value
