"""Laws as they come from scipy.stats: what should a reinsurer charge?

A flood of depth x_1 costs x_2 for each meter. What a meter costs depends on θ, the price level of
the year, which nobody knows yet. A reinsurer pays what the expected damage J(θ) has beyond a
retention, so its fair price is E[max(J - retention, 0)].
"""

import numpy as np
from scipy import stats

import nestquad as nq

RETENTION = 15.0

price_level = stats.gamma(4.0, scale=0.5)
depth = stats.weibull_min(1.5, scale=3.0)


def depth_and_cost(theta):
    """The laws of x_1 and x_2 given θ (T, 1).

    A tuple of frozen laws stands for independent coordinates. `depth` does not depend on θ and is
    shared; the scale of the other one has one entry for each θ.
    """
    return depth, stats.gamma(2.0, scale=theta[:, 0])


def exact():
    """J = 2 E[x_1] θ, and the mean excess of a gamma law has a closed form."""
    slope = 2.0 * depth.mean()
    root = RETENTION / slope  # where J reaches the retention
    above = price_level.mean() * stats.gamma(5.0, scale=0.5).sf(root)  # E[θ; θ > root]
    return slope * above - RETENTION * price_level.sf(root)


problem = nq.NestedExpectation(
    outer=price_level,
    inner=depth_and_cost,
    g=lambda x, theta: x[..., 0] * x[..., 1],
    f=lambda j: np.maximum(j - RETENTION, 0.0),
    exact=float(exact()),
    name="reinsurance",
)

if __name__ == "__main__":
    est = nq.estimate(problem, budget=8192, rng=0)
    low, high = est.interval()
    print(f"price {est.value:.4f}, 95 % interval {low:.4f} … {high:.4f}, exact {est.exact:.4f}")
