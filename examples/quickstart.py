import numpy as np

import nestquad as nq

problem = nq.NestedExpectation(
    outer=nq.Normal(0.0, 1.0),  # θ: the result of a market study
    inner=lambda theta: nq.Normal(theta, 2.0),  # x: the market, given θ
    g=lambda x, theta: np.exp(0.1 * x[..., 0]) - 1.0,  # the gain of the project
    f=lambda j: np.maximum(j, 0.0),  # invest only if the mean gain is positive
    name="option to invest",
)
print(nq.estimate(problem, tol=1e-3, budget=10_000, rng=0))
