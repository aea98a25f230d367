"""A simulator that is a shell command: points go out as a file, values come back as a file.

A repair shop: θ is the wear of a machine, log-normal, and x is what a repair takes beyond what its
wear explains. The simulator, here a line of awk, knows the cost of a repair. Is it worth looking
at the machine first, if replacing it costs 2? I = E[min(E[cost | θ], 2)].

The method asks for points in blocks, each chosen from the values of the last. With a simulator on
another computer, the same two files travel back and forth.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.special import ndtr

import nestquad as nq

# Columns of points.csv: id, theta_1, x_1.
SIMULATOR = """
awk -F, 'NR == 1 {print "id,cost"}
         NR > 1 {printf "%s,%.17g\\n", $1, $2 * (1 + exp($3))}' points.csv > values.csv
"""

problem = nq.NestedExpectation(
    outer=nq.LogNormal(0.0, 0.5),
    inner=nq.Normal(-0.5, 1.0),
    f=lambda cost: np.minimum(cost, 2.0),
    # E[exp(x)] = 1, so that J = 2 θ.
    exact=2.0 * (np.exp(0.125) * ndtr(-0.5) + 0.5),
    name="repair or replace",
)


def main():
    plan = nq.plan(problem, budget=1024, method="ckq", rng=0)
    with tempfile.TemporaryDirectory() as folder:
        while plan is not None:
            plan.to_csv(Path(folder, "points.csv"))
            subprocess.run(SIMULATOR, shell=True, check=True, cwd=folder)
            values = Path(folder, "values.csv")
            est = nq.analyze(plan, values)
            print(f"{est}, exact value {problem.exact:.4f}")
            plan = plan.next(values)


if __name__ == "__main__":
    main()
