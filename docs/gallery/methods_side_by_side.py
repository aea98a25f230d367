"""Methods side by side

Errors of all methods at the same number of evaluations, over several runs: here on the paper's risk problem, where the true answer is known. Steeper lines are
better, and those of plain averages are flat.
"""

# %%
import matplotlib.pyplot as plt

import nestquad as nq

problem = nq.problems.finance()
table = nq.compare(
    problem,
    budget=[300, 1_000, 3_000],
    methods=["nmc", "nqmc", "mlmc", "nkq", "ckq", "joint"],
    replicates=6,
    rng=0,
)
table

# %%
# `covered` is how often the claimed interval held the truth: a narrow bar is worth nothing
# without it.
table.plot()
plt.show()
