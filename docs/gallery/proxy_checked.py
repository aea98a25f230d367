"""A proxy, checked

A regression that forgot a factor: the interval holds all the same, and the verdict names the factor. The loss depends on equity and on the square
of rates; the proxy is linear in both. A check with 2,000 evaluations says which factor it lacks, and
corrects the answer.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq

problem = nq.NestedExpectation(
    outer=nq.Normal(np.zeros(2)),
    inner=nq.Normal(),
    g=lambda x, theta: theta[..., 0] + 0.7 * theta[..., 1] ** 2 + x[..., 0],
    f=lambda j: np.maximum(j - 1.0, 0.0),
    name="book",
)


def proxy(theta):
    return theta[:, 0] + 0.7


check = nq.certify(problem, proxy, budget=2_000, rng=0)
check

# %%
# Where it is worst, each scenario with its error.
for scenario in check.worst(3):
    print(scenario)

# %%
fig, axes = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
check.plot(axes)
plt.show()
