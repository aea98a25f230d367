"""Matérn weights on a line: linear cost, and the same numbers as the dense solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

import nestquad as nq
from nestquad.plots import series_styles
from nestquad.points import Stream
from nestquad.rules import Jitter, Rule, kernel_rule
from studies.promises.measure import Timings, interleaved
from studies.runner.figures import line_figure
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import number, seconds

_LENGTHSCALE = 0.3
_KERNEL = nq.Matern(0.5, _LENGTHSCALE)
# A number for λ asks for the dense solver; zero adds nothing to the matrix.
_DENSE = 0.0
_RIDGE = Jitter().start
_DENSE_SIZE, _LARGEST = 2_000, 1_000_000
_SIZES = (100, 300, 1_000, _DENSE_SIZE, 10_000, 100_000, _LARGEST)
_ORDERS, _ORDER_SIZES = (0.5, 1.5, 2.5), (30, 100, 300, 1_000, _DENSE_SIZE, 10_000, 100_000)
_REPEATS = 5


def _run(settings: Settings) -> Result:
    speed = _speed(_SIZES[:-1] if settings.quick else _SIZES)
    orders = _orders(_ORDER_SIZES[:-1] if settings.quick else _ORDER_SIZES)
    equality = _equality()
    largest = [row for row in speed.rows if row["n"] == _LARGEST]
    slowest = max(largest, key=lambda row: row["fast"], default=None)
    gap = max(row["difference"] for row in equality.rows)
    relative = ", ".join(f"{number(row['relative'])} {row['nodes']}" for row in equality.rows)
    return Result(
        tables=(speed, orders, equality),
        notes=(
            "Where two nodes nearly coincide it is the dense solver that loses digits, so that the "
            "relative difference there says little about the tridiagonal one; the last two columns "
            "tell them apart.",
        ),
        verdicts=(
            Verdict.of(
                "weights for N = 10⁶ Matérn-1/2 nodes in 1-D (the slower law)",
                "< 2 s",
                "–"
                if slowest is None
                else f"{seconds(slowest['fast'])} ({seconds(slowest['fast_cpu'])} of CPU time)",
                None if slowest is None else slowest["fast"] < 2.0,
            ),
            Verdict.of(
                f"equal to dense weights at N = {_DENSE_SIZE:,}, largest absolute difference",
                "≤ 1e-9",
                f"{number(gap)} (relative to the largest weight: {relative})",
                gap <= 1e-9,
            ),
        ),
    )


def _speed(sizes: tuple[int, ...]) -> Table:
    laws = {"Uniform(0, 1)": nq.Uniform(), "Normal(0, 1)": nq.Normal()}
    rows = []
    for name, law in laws.items():
        for n in sizes:
            nodes = law.sample(n, np.random.default_rng(n))
            fast = _timed(law, nodes, None)
            row: dict[str, Any] = {"law": name, "n": n}
            row |= {"fast": fast.median, "fast_cpu": float(np.median(fast.cpu))}
            if n <= _DENSE_SIZE:
                row["dense"] = _timed(law, nodes, _DENSE).median
            rows.append(row)
    heads = columns(
        "law; n = N: count; fast = tridiagonal: seconds; "
        "fast_cpu = tridiagonal, CPU time: seconds; dense: seconds"
    )
    caption = f"Time for `Matern(0.5, {_LENGTHSCALE})` and i.i.d. nodes, median of {_REPEATS}."
    return Table("sizes", caption, heads, tuple(rows))


def _orders(sizes: tuple[int, ...]) -> Table:
    law = nq.Uniform()
    rows = []
    for nu in _ORDERS:
        kernel = nq.Matern(nu, _LENGTHSCALE)
        for n in sizes:
            nodes = nq.Sobol().uniforms(Stream.from_rng(n), 1, (0, 1), (0, n))[0]
            row: dict[str, Any] = {"nu": f"{nu:g}", "n": n}
            row["fast"] = _timed(law, nodes, None, kernel).median
            row["error"] = _error_of_cosine(kernel_rule(kernel, law, nodes), nodes)
            if n <= _DENSE_SIZE:
                row["dense"] = _timed(law, nodes, _RIDGE / n, kernel).median
                rule = kernel_rule(kernel, law, nodes, regularization=_RIDGE / n)
                row["dense_error"] = _error_of_cosine(rule, nodes)
            rows.append(row)
    heads = columns(
        "nu = ν; n = N: count; fast = banded: seconds; dense: seconds; "
        "error = error, banded: error; dense_error = error, dense: error"
    )
    caption = (
        f"Matérn kernels of several orders with lengthscale {_LENGTHSCALE} on Sobol points under a "
        f"uniform law: time, median of {_REPEATS}, and error for the integral of cos. Dense "
        f"weights have the ridge that they start from, {number(_RIDGE)}."
    )
    return Table("orders", caption, heads, tuple(rows))


def _error_of_cosine(rule: Rule, nodes: np.ndarray) -> float:
    return abs(float(rule.integrate(np.cos(nodes[:, 0]))) - float(np.sin(1.0)))


def _equality() -> Table:
    law, n = nq.Uniform(), _DENSE_SIZE
    sobol = nq.Sobol().uniforms(Stream.from_rng(0), 1, (0, 1), (0, n))[0]
    rows = []
    for name, nodes in (("Sobol", sobol), ("i.i.d.", law.sample(n, np.random.default_rng(n)))):
        fast = kernel_rule(_KERNEL, law, nodes, exact="none").weights
        dense = kernel_rule(_KERNEL, law, nodes, exact="none", regularization=_DENSE).weights
        refined = _refined(nodes[:, 0], dense)
        largest = float(np.abs(refined).max())
        rows.append(
            {
                "nodes": name,
                "closest": float(np.diff(np.sort(nodes[:, 0])).min()),
                "difference": float(np.abs(fast - dense).max()),
                "relative": float(np.abs(fast - dense).max()) / largest,
                "fast_error": float(np.abs(fast - refined).max()) / largest,
                "dense_error": float(np.abs(dense - refined).max()) / largest,
            }
        )
    heads = columns(
        "nodes; closest = closest two: error; "
        "difference = largest difference: error; "
        "relative = relative to the largest weight: error; "
        "fast_error = relative error, tridiagonal: error; "
        "dense_error = relative error, dense: error"
    )
    caption = (
        f"Weights at N = {n:,} under a uniform law: the largest difference between the two solvers "
        "and, against a solution refined in extended precision and relative to the largest "
        "weight, what each gets wrong."
    )
    return Table("equality", caption, heads, tuple(rows))


def _refined(x: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Weights by iterative refinement with matrix and right-hand side in extended precision."""
    x, scale = x.astype(np.longdouble), np.longdouble(_LENGTHSCALE)
    gram = np.exp(-np.abs(x[:, None] - x[None, :]) / scale)
    mean = scale * (2 - np.exp(-x / scale) - np.exp(-(1 - x) / scale))
    factor = cho_factor(gram.astype(float))
    weights = start.astype(np.longdouble)
    for _ in range(4):
        weights = weights + cho_solve(factor, (mean - gram @ weights).astype(float))
    return weights


def _timed(
    law: Any, nodes: np.ndarray, regularization: float | None, kernel: nq.Matern = _KERNEL
) -> Timings:
    def task(_: int) -> None:
        kernel_rule(kernel, law, nodes, regularization=regularization)

    return interleaved({"rule": task}, _REPEATS)["rule"]


def _draw(result: Result) -> Figure:
    rows = [row for row in result.table("sizes").rows if row["law"].startswith("Uniform")]
    lines = []
    for (key, text), look in zip(
        {"fast": "tridiagonal", "dense": "dense"}.items(), series_styles(2), strict=True
    ):
        known = [row for row in rows if row.get(key) is not None]
        lines.append((text, [row["n"] for row in known], [row[key] for row in known], look))
    return line_figure({"": lines}, "nodes N", "seconds for all weights")


STUDY = Study(
    name="tridiagonal",
    title="A million weights on a line",
    about="""
The Gram matrix of Matérn-1/2 on a line has a tridiagonal inverse, so `kernel_rule` finds all
weights in O(N log N), sorting included. Timed is the whole call with checks and embeddings, for a
uniform and a normal law. Smoother Matérn kernels have a block-tridiagonal one for values and
derivatives together: a banded system, which needs no ridge.
""",
    run=_run,
    drawings=(
        Drawing("", "Time for all weights under a uniform law, tridiagonal and dense.", _draw),
    ),
)
