"""Second opinions where splines are blind: trees, and residuals of neighbors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nestquad import voi
from nestquad.voi.table import _evppi
from nestquad.voi.table._regression import has_trees, unexplained

needs_trees = pytest.mark.skipif(not has_trees(), reason="scikit-learn is not here")


def table(seed, n=3000, size=0.8):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    gain = size * np.sign(np.prod(x, axis=1)) + rng.standard_normal(n)
    return np.column_stack((0 * gain, gain)), pd.DataFrame(x, columns=["a", "b", "c"])


@needs_trees
def test_a_product_of_signs_is_found():
    row = voi.evppi(*table(0), ["a", "b", "c"]).iloc[0]
    assert "interactions" in row["flags"]
    assert "not distinguishable" not in row["flags"]
    assert row.lower <= 0.4 <= row.upper
    assert row.evppi > 0.3


@needs_trees
def test_nothing_is_nothing_to_both():
    rows = [voi.evppi(*table(seed, 1000, 0.0), ["a", "b", "c"]).iloc[0] for seed in (0, 2, 4, 6)]
    assert sum("not distinguishable" in row["flags"] for row in rows) >= 3
    assert not any("interactions" in row["flags"] for row in rows)


@needs_trees
def test_the_same_seed_gives_the_same_bits():
    one, other = (voi.evppi(*table(0), ["a", "b", "c"]).iloc[0] for _ in range(2))
    assert one.evppi == other.evppi
    assert one.upper == other.upper


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(_evppi, "has_trees", lambda: False)
    row = voi.evppi(*table(0), ["a", "b", "c"]).iloc[0]
    assert "interactions" not in row["flags"]


def test_what_neighbors_share_is_what_the_fit_has_missed():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (4000, 2))
    missing = np.sin(x[:, 0]) * np.cos(x[:, 1])
    deviations, z = unexplained(
        np.column_stack((missing + rng.standard_normal(4000), rng.standard_normal(4000))), x, rng
    )
    assert deviations[0] == pytest.approx(missing.std(), rel=0.15)
    assert z[0] > 10
    assert abs(z[1]) < 3


def test_z_is_standard_normal_where_nothing_is_missing():
    rng = np.random.default_rng(0)
    noise = np.exp(rng.standard_normal((1000, 400)))  # skewed
    for inputs in (rng.standard_normal((1000, 3)), rng.integers(0, 2, (1000, 3)).astype(float)):
        z = unexplained(noise, inputs, rng)[1]
        assert abs(z.mean()) < 0.2
        assert 0.8 < z.std() < 1.2


def test_neighbors_see_a_product_that_trees_do_not(monkeypatch):
    monkeypatch.setattr(_evppi, "has_trees", lambda: False)
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.standard_normal((2000, 5)), columns=list("abcde"))
    gain = x.prod(axis=1) + rng.standard_normal(2000)
    row = voi.evppi(np.column_stack((0 * gain, gain)), x, list("abcde")).iloc[0]
    assert "misfit" in row["flags"]
    assert "not distinguishable" not in row["flags"]
    assert row.lower <= (2 / np.pi) ** 2.5 / 2 <= row.upper  # E max(0, product) of five normals
