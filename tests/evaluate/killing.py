"""Run by a test in a process of its own: starts estimations and kills them at random moments.

``python killing.py STORE METHOD KILLS`` prints JSON: how often a child was killed, how many points
were evaluated in all, by whom, and the answer at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np

import nestquad as nq

SIZES = {"nmc": nq.NMC(24, 50), "nkq": nq.NKQ(24, 50), "mlkq": "mlkq", "mlmc": "mlmc"}
BUDGET = 1200


def g(x, theta):
    """Takes half a millisecond a point, and writes down how many it evaluated."""
    values = np.exp(x[..., 0]) * (1.0 + theta[..., 0]) + np.zeros(theta.shape[:-1])
    if "NESTQUAD_TEST_LOG" in os.environ:
        time.sleep(5e-4 * values.size)
        with open(os.environ["NESTQUAD_TEST_LOG"], "a") as log:
            log.write(f"{values.size}\n")
    return values


def estimate(method, store=None, log=None):
    if log is not None:
        os.environ["NESTQUAD_TEST_LOG"] = log
    problem = nq.NestedExpectation(nq.Uniform(), lambda theta: nq.Normal(theta, 0.5), g, np.square)
    return nq.estimate(problem, method=SIZES[method], budget=BUDGET, rng=7, store=store)


def main(store: str, method: str, kills: int) -> None:
    log = f"{store}.log"
    estimate(method)  # what is imported late is imported now
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    killed = 0
    while killed < kills:
        child = os.fork()
        if child == 0:
            estimate(method, store, log)
            os._exit(0)
        time.sleep(rng.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):  # it got to the end before: begin again
            return print(json.dumps({"early": killed}))
    result = estimate(method, store, log)
    with open(log) as lines:
        evaluated = sum(map(int, lines))
    answer = {"value": result.value, "std_error": result.std_error, "killed": killed}
    answer |= {"evaluated": evaluated, "reused": result.diagnostics["n_reused"]}
    print(json.dumps(answer | {"n_evaluations": result.n_evaluations}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
