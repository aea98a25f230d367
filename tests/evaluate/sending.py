"""Run by a test as a script: g stands where workers that import this file do not find it.

``python sending.py processes|dask [bad]`` prints the value, or the error.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

import nestquad as nq

if __name__ == "__main__":

    def g(x, theta):
        return np.exp(x[..., 0]) + theta[..., 0]

    def kills(x, theta):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    lock = threading.Lock()

    def locked(x, theta):
        with lock:
            return x[..., 0]

    kind, which = sys.argv[1], sys.argv[2]
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), {"g": g, "kills": kills, "locked": locked}[which], np.square
    )
    options = {"method": "nmc", "budget": 400, "rng": 0}

    def run(executor):
        try:
            print("VALUE", repr(nq.estimate(problem, executor=executor, **options).value))
        except nq.NestquadError as error:
            print("ERROR", type(error).__name__, error)

    if which == "g":
        print("PLAIN", repr(nq.estimate(problem, **options).value))
    if kind == "processes":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            run(pool)
    else:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            run(client.get_executor())
