import numpy as np

import nestquad as nq

problem = nq.NestedExpectation(
    outer=nq.Normal(0.0, 1.0),  # θ: what a market study would tell us
    inner=lambda theta: nq.Normal(theta, 2.0),  # x: the market, once θ is known
    g=lambda x, theta: np.exp(0.1 * x[..., 0]) - 1.0,  # what the project then earns
    f=lambda j: np.maximum(j, 0.0),  # we go ahead only where that is a gain on average
    name="option to invest",
)
print(nq.estimate(problem, tol=1e-3, budget=10_000, rng=0))
