"""Models whose values of information are known, and tables drawn from them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

_MEANS = [1000, 0.1, 5.2, 400, 0.7, 0.3, 3, 0.25, -0.1, 0.5, 1500, 0.08, 6.1, 0.8, 0.3, 3, 0.2]
_MEANS += [-0.1, 0.5]
_SDS = [1, 0.02, 1, 200, 0.1, 0.1, 0.5, 0.1, 0.02, 0.2, 1, 0.02, 1, 0.1, 0.05, 1, 0.05, 0.02, 0.2]
_CORRELATED = (4, 6, 13, 15)


def positive_part(mean: float, sd: float) -> float:
    """E max(X, 0) of a normal X."""
    return mean * norm.cdf(mean / sd) + sd * norm.pdf(mean / sd)


def gain_of_knowing(mean: float, sd: float) -> float:
    """The value of knowing a normal incremental net benefit."""
    return positive_part(mean, sd) - max(mean, 0.0)


def two_normals(n: int, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    """INB = p1 - p2, p1 ~ N(1, 1), p2 ~ N(0, variance 4)."""
    rng = np.random.default_rng(seed)
    inputs = pd.DataFrame({"p1": rng.normal(1.0, 1.0, n), "p2": rng.normal(0.0, 2.0, n)})
    return np.column_stack((np.zeros(n), inputs.p1 - inputs.p2)), inputs


def brennan(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Costs, effects and parameters of the 19-parameter model, drawn anew."""
    correlation = np.eye(19)
    correlation[np.ix_(_CORRELATED, _CORRELATED)] = 0.6
    np.fill_diagonal(correlation, 1.0)
    normals = np.random.default_rng(seed).standard_normal((n, 19))
    x = np.array(_MEANS) + np.array(_SDS) * (normals @ np.linalg.cholesky(correlation).T)
    t = dict(enumerate(x.T, start=1))
    effects = (
        t[5] * t[6] * t[7] + t[8] * t[9] * t[10],
        t[14] * t[15] * t[16] + t[17] * t[18] * t[19],
    )
    costs = (t[1] + t[2] * t[3] * t[4], t[11] + t[12] * t[13] * t[4])
    names = [f"theta{k}" for k in t]
    return np.column_stack(costs), np.column_stack(effects), pd.DataFrame(x, columns=names)


BRENNAN_EXACT = {
    ("theta5", "theta14"): 247.912,
    ("theta7", "theta16"): 536.520,
    ("theta5", "theta6", "theta14", "theta15"): 841.23,
    ("theta5",): 22.46,
    ("theta6",): 611.80,
    ("theta1", "theta2", "theta3", "theta12"): 0.0,
}


def shared_folder() -> Path:
    """Where the real tables are: beside a clone, or where the environment says."""
    root = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("NESTQUAD_DATA", root.parent / "shared" / "data"))


def shared_table(*parts: str) -> pd.DataFrame:
    """A real table from the shared data, or a skipped test."""
    path = shared_folder().joinpath(*parts)
    if not path.is_file():
        pytest.skip("the shared tables are not here")
    return pd.read_csv(path)
