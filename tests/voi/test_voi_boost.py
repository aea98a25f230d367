"""A second opinion where splines are blind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nestquad import voi
from nestquad.voi.table import _boost

needs_trees = pytest.mark.skipif(not _boost.is_available(), reason="scikit-learn is not here")


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
    monkeypatch.setattr(_boost, "is_available", lambda: False)
    row = voi.evppi(*table(0), ["a", "b", "c"]).iloc[0]
    assert "interactions" not in row["flags"]
