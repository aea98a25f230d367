"""A law of your own

Any simulator that is driven by uniforms or normals is a law: say how many of them it takes. Here x
is the path of a river's level over a month, an autoregression with heavy-tailed shocks, and 30
uniforms drive it.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import stdtrit

import nestquad as nq
from nestquad.plots import style

DAYS = 30


def river(theta):
    """The law of the path given θ (T, 1): u (T, n, DAYS) → x of the same shape."""

    def path(u):
        shocks = 0.2 * stdtrit(4.0, u)  # Student's t
        level = np.empty_like(shocks)
        last = np.broadcast_to(theta[:, None, 0], shocks.shape[:-1])
        for day in range(DAYS):
            last = 0.9 * last + 0.1 * theta[:, None, 0] + shocks[..., day]
            level[..., day] = last
        return level

    return nq.Transport(path, DAYS)


# %%
# g may look at the whole path: days above the bank. f compares the two options that a town has.
problem = nq.NestedExpectation(
    outer=nq.Normal(0.0, 0.5),
    inner=river,
    g=lambda x, theta: (1.0 / (1.0 + np.exp(-20.0 * (x - 1.0)))).sum(axis=-1),
    f=lambda days: np.minimum(days, 3.0),  # a wall costs as much as three days of flood
    name="wall or flood",
)
est = nq.estimate(problem, budget=4_000, rng=0)
est

# %%
rng = np.random.default_rng(0)
fig, ax = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
style(ax)
for theta, color in ((-0.5, "#3A9BD9"), (0.0, "#0072B2"), (0.8, "#C97700")):
    law = river(np.array([[theta]]))
    paths = law.from_uniform(rng.random((1, 6, DAYS)))[0]
    ax.plot(np.arange(1, DAYS + 1), paths.T, color=color, linewidth=0.9, alpha=0.8)
    ax.plot([], [], color=color, label=f"θ = {theta}")
ax.axhline(1.0, color="black", linewidth=1, linestyle=(0, (8, 3)))
ax.legend(frameon=False, loc="upper left", ncols=3)
ax.set_xlabel("day (dashed: the bank)")
plt.show()
