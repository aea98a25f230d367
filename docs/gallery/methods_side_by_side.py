"""Methods side by side

Which method is best for a problem? Run them all, several times, with the same number of
evaluations: here on the paper's risk problem, where the true answer is known. Steeper lines are
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
