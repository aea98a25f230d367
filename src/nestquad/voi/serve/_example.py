"""An example to try the page on: a new drug against usual care."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np

_DRAWS = 2_000


def example() -> tuple[dict[str, tuple[str, BinaryIO]], dict[str, Any]]:
    """Files and settings of the example, as an upload has them."""
    rng = np.random.default_rng(1)
    p_old, p_new = rng.beta(40, 60, _DRAWS), rng.beta(14, 16, _DRAWS)
    u_well, u_ill = rng.beta(16, 4, _DRAWS), rng.beta(10, 10, _DRAWS)
    c_ill, c_side = rng.gamma(20, 150, _DRAWS), rng.gamma(4, 50, _DRAWS)
    parameters = {
        "p_old": p_old, "p_new": p_new, "u_well": u_well,
        "u_ill": u_ill, "c_ill": c_ill, "c_side": c_side,
    }  # fmt: skip
    costs = {"usual care": (1 - p_old) * c_ill, "drug": 500 + c_side + (1 - p_new) * c_ill}
    effects = {
        name: p * u_well + (1 - p) * u_ill for name, p in zip(costs, (p_old, p_new), strict=True)
    }
    tables = {"parameters": parameters, "costs": costs, "effects": effects}
    files = {kind: (f"{kind}.csv", _csv(table)) for kind, table in tables.items()}
    return files, {"wtp": 20_000, "title": "Example: a new drug against usual care"}


def _csv(table: dict[str, Any]) -> BinaryIO:
    file = io.BytesIO()
    header = ",".join(table)
    np.savetxt(file, np.column_stack(list(table.values())), "%.8g", ",", header=header, comments="")
    file.seek(0)
    return file
