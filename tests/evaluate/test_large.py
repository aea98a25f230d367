"""Memory and time at sizes that matter. The large ones run for minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nestquad as nq
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.points import IID, Stream

CHILD = """
import json, sys, time
import nestquad as nq

def peak():  # of this process alone: ru_maxrss would remember the one that started it
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
problem = nq.problems.health()  # 17 coordinates of x
method, n = getattr(nq, sys.argv[1]), int(sys.argv[2])
nq.estimate(problem, method=method(32, 32), rng=1)
start = time.process_time()
nq.estimate(problem, method=method(n, n), rng=0)
seconds = time.process_time() - start
memory = peak() * 1024
print(json.dumps({"seconds": seconds, "memory": memory}))
"""


def run(method, n):
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    child = [sys.executable, "-c", CHILD, method, str(n)]
    result = subprocess.run(child, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize("method", ["NMC", "NQMC", "NKQ"])
def test_memory_of_a_million_points_in_17_dimensions(method):
    assert run(method, 1000)["memory"] < 0.35e9


@pytest.mark.slow
@pytest.mark.parametrize("method", ["NMC", "NQMC", "NKQ"])
def test_ten_thousand_squared_in_17_dimensions(method):
    small, large = run(method, 1000), run(method, 10_000)
    assert large["memory"] < 1.5e9
    assert large["seconds"] / 1e8 < 1.3 * small["seconds"] / 1e6


def test_blocks_shrink_with_the_dimension():
    sizes = []

    def g(x, theta):
        sizes.append(x.size)
        return x.sum(axis=-1) + theta[..., 0]

    dim = 1000
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(np.zeros(dim), np.ones(dim)), g)
    evaluator = Evaluator(problem)
    grid = Grid(4, 10_000, IID(), IID(), None, Stream.from_rng(0))
    values = Evaluations(evaluator, Design((grid,))).values(4)
    assert values.shape == (4, 10_000)
    assert 8 * max(sizes) < 256e6 / 4
    assert abs(values.mean() - 500.5) < 5 * np.sqrt(dim / 12 / values.size) + 1.0


def test_mlmc_towards_a_tolerance_keeps_no_values():
    evaluator = []

    class Watched(nq.MLMC):
        def analyze(self, evaluations, last=None):
            evaluator.append(evaluations.evaluator)
            return super().analyze(evaluations, last)

    est = nq.estimate(nq.problems.synthetic(), method=Watched(), tol=0.02, rng=0)
    assert est.status == "converged"
    assert all(table.complete_rows(1) == 0 for table in evaluator[-1]._tables.values())
    plain = nq.estimate(nq.problems.synthetic(), method=nq.MLMC(), tol=0.02, rng=0)
    assert est.value == plain.value
