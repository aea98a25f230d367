"""Values whose squares are out of range."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import nestquad as nq


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
@pytest.mark.parametrize("factor", [2.0**660, 2.0**-660])
def test_answers_do_not_depend_on_the_unit_of_g(method, factor):
    plain = nq.problems.finance()
    scaled = nq.NestedExpectation(
        outer=plain.outer_law,
        inner=plain.inner,
        g=lambda x, theta: factor * np.asarray(plain.g(x, theta)),
        f=lambda j: plain.f(j / factor),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the error bar
        found = nq.estimate(scaled, method=method, budget=512, rng=0).value
    expected = nq.estimate(plain, method=method, budget=512, rng=0).value
    assert found == pytest.approx(expected, rel=1e-6)
