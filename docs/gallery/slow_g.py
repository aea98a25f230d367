"""A slow g: processes, Dask, and going on after a crash

A simulator of milliseconds in plain Python, evaluated by worker processes and by a Dask cluster.
The answer has the same bits everywhere, and a store continues a run that was cut off.
"""

# %%
# A queue at a counter: θ is how busy the day is, x drives one customer after the other.
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq

CUSTOMERS = 8


def wait(x, theta):
    """Mean waiting time of the customers of a day; one point at a time."""
    time.sleep(0.001)  # a simulator takes its time
    total = waiting = 0.0
    for gap, service in zip(x[:CUSTOMERS], x[CUSTOMERS:]):
        waiting = max(0.0, waiting + float(service) - float(gap) / float(theta[0]))
        total += waiting
    return total / CUSTOMERS


problem = nq.NestedExpectation(
    outer=nq.LogNormal(0.0, 0.3),
    inner=nq.LogNormal(np.zeros(2 * CUSTOMERS), 0.5),
    g=wait,
    f=lambda j: np.maximum(j - 1.0, 0.0),  # patience ends after 1
    vectorized=False,
    name="queue",
)

# %%
# One process, and two.
alone = nq.estimate(problem, budget=1_000, rng=0)
with ProcessPoolExecutor(2) as pool:
    together = nq.estimate(problem, budget=1_000, rng=0, executor=pool)
print(alone)
print("same bits:", alone.value == together.value)

# %%
# A Dask cluster, here of two threads on this machine, with a store: every finished chunk is on
# disk. The first simulator crashes on a busy day; the second run, with the mended one, goes on
# where the first ended.
from distributed import Client


def fragile(x, theta):
    """The same waiting time, from a simulator with a bug."""
    if theta[0] > 1.65:
        raise ZeroDivisionError("no customer was served")
    return wait(x, theta)


with (
    tempfile.TemporaryDirectory() as folder,
    Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as client,
):
    executor = client.get_executor()
    options = dict(budget=1_000, rng=0, method="nqmc", executor=executor, store=folder)
    try:
        nq.estimate(replace(problem, g=fragile), **options)
    except nq.EvaluationError as error:
        print(str(error).partition(", at")[0])
    resumed = nq.estimate(problem, **options)
whole = nq.estimate(problem, budget=1_000, rng=0, method="nqmc")
print(f"{resumed.diagnostics['n_reused']} of {resumed.n_evaluations} values were there")
print("same bits as in one go:", resumed.value == whole.value)

# %%
together.plot()
plt.show()
