"""A sold put, in a month

The probability that a sold option becomes too expensive, and by how much. It expires in a year. How likely is it that in a month it is worth more
than our limit, and by how much? Two answers from the same simulations, $P(J > c)$ and
$\\mathbb{E}[\\max(J - c, 0)]$. The first has a jump where the second has a kink, and a model of J
makes both harmless.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

import nestquad as nq
from nestquad.plots import style

PRICE, STRIKE, VOLATILITY, LIMIT = 100.0, 95.0, 0.25, 12.0
MONTH, REST = 1 / 12, 11 / 12


def after(start, years):
    """Law of a price after some years, without interest."""
    return nq.LogNormal(np.log(start) - VOLATILITY**2 * years / 2, VOLATILITY * np.sqrt(years))


problem = nq.NestedExpectation(
    outer=after(PRICE, MONTH),
    inner=lambda price: after(price, REST),
    g=lambda x, price: np.maximum(STRIKE - x[..., 0], 0.0),
    f=lambda j: np.stack([j > LIMIT, np.maximum(j - LIMIT, 0.0)], axis=-1),
    name="sold put",
)
est = nq.estimate(problem, budget=1_000, rng=0)
est


# %%
# The closed form of J, integrated on a fine grid, is the truth.
def black_scholes(price):
    sd = VOLATILITY * np.sqrt(REST)
    d = (np.log(STRIKE / price) + sd**2 / 2) / sd
    return STRIKE * ndtr(d) - price * ndtr(d - sd)


z = np.linspace(-8, 8, 400_001)
prices = np.exp(np.log(PRICE) - VOLATILITY**2 * MONTH / 2 + VOLATILITY * np.sqrt(MONTH) * z)
density = np.exp(-(z**2) / 2)
exact = density @ problem.f(black_scholes(prices)) / density.sum()
for name, value, error, truth in zip(
    ("probability", "mean excess"), est.value, est.std_error, exact
):
    print(f"{name:12} {value:.5f} ± {1.96 * error:.5f}, exact {truth:.5f}")

# %%
J = nq.conditional(problem, budget=1_000, rng=0)
grid = np.linspace(82, 122, 200)
fig, ax = plt.subplots(figsize=(6.8, 3.6), layout="constrained")
style(ax)
ax.fill_between(grid, LIMIT, np.maximum(J(grid[:, None]), LIMIT), color="#C97700", alpha=0.3)
ax.plot(grid, J(grid[:, None]), color="#0072B2", linewidth=2)
ax.axhline(LIMIT, color="black", linewidth=1, linestyle=(0, (8, 3)))
ax.set_xlabel("price in a month")
ax.set_ylabel("J: value of the put then")
ax.set_title("shaded: beyond the limit", loc="left", fontsize=10)
plt.show()
