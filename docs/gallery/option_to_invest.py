"""An option to invest

What it is worth to decide after a market study instead of now. A company may build a plant, and
walks away if the study is bad. Not having to
decide now is worth something, $\\mathbb{E}_\\theta[\\max(J(\\theta), 0)]$: where $J(\\theta)$ is
the expected profit once the study has said θ. Only a gain on average counts, so a mean inside the
maximum has to be right, and plain averages are biased.
"""

# %%
# A problem is two laws, g and f. Theta is what the study says, x the market given that.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq

problem = nq.NestedExpectation(
    outer=nq.Normal(0.0, 1.0),
    inner=lambda theta: nq.Normal(theta, 2.0),
    g=lambda x, theta: np.exp(0.1 * x[..., 0]) - 1.0,
    f=lambda j: np.maximum(j, 0.0),
    name="option to invest",
)
problem

# %%
# Ask for an accuracy. The answer says how many evaluations of g it took.
est = nq.estimate(problem, tol=1e-3, budget=10_000, rng=0)
est

# %%
# Profits are certain losses left of the kink, where the company walks away.
est.plot()
plt.show()

# %%
# The same by plain nested Monte Carlo, with a thousand times as many evaluations.
print(nq.estimate(problem, budget=128_000, method="nmc", rng=0))
