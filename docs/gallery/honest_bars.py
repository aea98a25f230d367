"""Error bars that can be believed

How far can an error bar be trusted when losses are rare? An insurer pays when a flood exceeds a
dike. Most years nothing happens, so a few draws show no
loss at all, and their spread says *0 ± 0*. Bars of nestquad know what they have not seen, and
`certify=True` gives an interval that does not rest on any model.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

import nestquad as nq
from nestquad.plots import style


def flood(dike):
    """The problem, and its exact value from the closed form of J on a fine grid."""
    theta = np.linspace(-8.0, 8.0, 200_001)
    density = np.exp(-(theta**2) / 2)
    excess = np.maximum(100.0 * ndtr(theta - dike) - 5.0, 0.0)
    return nq.NestedExpectation(
        outer=nq.Normal(0.0, 1.0),  # the climate of a year
        inner=lambda theta: nq.Normal(theta, 1.0),  # its highest water
        g=lambda x, theta: 100.0 * (x[..., 0] > dike),
        f=lambda j: np.maximum(j - 5.0, 0.0),  # the insurer bears the first 5 itself
        exact=excess @ density / density.sum(),
        name=f"flood over {dike:.0f}",
    )


problem = flood(3.0)

# %%
# Three budgets, twelve seeds each. Every bar is an answer that somebody would have got. nestquad
# does not know that this f is never negative, and its intervals are symmetric: those that reach
# below zero are drawn from zero on, which excludes no possible loss.
fig, ax = plt.subplots(figsize=(7.0, 3.6), layout="constrained")
style(ax)
missed = 0
for k, budget in enumerate((200, 1_000, 5_000)):
    for seed in range(12):
        est = nq.estimate(problem, budget=budget, method="nqmc", rng=seed)
        low, high = est.interval()
        missed += not low <= problem.exact <= high
        ax.plot([16 * k + seed] * 2, [max(low, 0.0), high], color="#0072B2", linewidth=2)
        ax.plot(16 * k + seed, est.value, "o", color="#0072B2", markersize=4)
ax.axhline(problem.exact, color="black", linewidth=1, linestyle=(0, (8, 3)))
ax.set_xticks([5.5, 21.5, 37.5], ["200 evaluations", "1,000", "5,000"])
ax.set_ylabel("expected loss of the reinsurer")
ax.set_title(f"dashed: the truth; missed by {missed} of 36 intervals", loc="left", fontsize=10)
plt.show()

# %%
# The same from a learned model, with a certificate from fresh independent draws.
nq.estimate(problem, budget=10_000, certify=True, rng=0)
