"""A simulator in the shell

Estimates with a simulator that nestquad cannot call: a program that reads a file of inputs and
writes a file of outputs, perhaps on another computer. nestquad says where it should be run, block by block, each chosen from the values
of the last. The simulator here is a line of awk.
"""

# %%
# A repair shop: θ is the wear of a machine, x what a repair takes beyond it. Is it worth looking
# at the machine first, if replacing it costs 2? There is no `g`: nobody in Python knows it.
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

import nestquad as nq
from nestquad.plots import style

problem = nq.NestedExpectation(
    outer=nq.LogNormal(0.0, 0.5),
    inner=nq.Normal(-0.5, 1.0),
    f=lambda cost: np.minimum(cost, 2.0),
    exact=2.0 * (np.exp(0.125) * ndtr(-0.5) + 0.5),
    name="repair or replace",
)
SIMULATOR = r"""
awk -F, 'NR == 1 {print "id,cost"}
         NR > 1  {printf "%s,%.17g\n", $1, $2 * (1 + exp($3))}' points.csv > values.csv
"""

# %%
# Points out, values in, until the method asks for no more.
found = []
plan = nq.plan(problem, budget=1_024, method="ckq", rng=0)
with tempfile.TemporaryDirectory() as folder:
    while plan is not None:
        plan.to_csv(Path(folder, "points.csv"))
        subprocess.run(SIMULATOR, shell=True, check=True, cwd=folder)
        found.append(nq.analyze(plan, Path(folder, "values.csv")))
        print(found[-1])
        plan = plan.next(Path(folder, "values.csv"))

# %%
fig, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
style(ax)
runs = [est.n_evaluations for est in found]
halves = [1.96 * est.std_error for est in found]
ax.errorbar(runs, [est.value for est in found], halves, fmt="o", color="#0072B2", capsize=4)
ax.axhline(problem.exact, color="black", linewidth=1, linestyle=(0, (8, 3)))
ax.set_xlabel("runs of the simulator (dashed: the exact value)")
ax.set_ylabel("expected cost")
plt.show()
