"""J as a function

The inner expectation as a function that can be called and plotted: the price of an option as a function of the
market, the expected benefit given a test result. `nq.conditional` returns Ĵ with its
uncertainty, for any θ, from a hundred and sixty evaluations of g.
"""

# %%
# A call option in half a year, as a function of today's price. The closed form exists, for
# comparison.
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

import nestquad as nq

STRIKE, VOLATILITY, YEARS = 100.0, 0.3, 0.5
SD = VOLATILITY * np.sqrt(YEARS)

problem = nq.NestedExpectation(
    outer=nq.Uniform(60.0, 140.0),
    inner=lambda price: nq.LogNormal(np.log(price) - SD**2 / 2, SD),
    g=lambda x, price: np.maximum(x[..., 0] - STRIKE, 0.0),
    name="call option",
)
J = nq.conditional(problem, budget=160, rng=0)
J

# %%
price = np.linspace(61.0, 139.0, 200)
mean, sd = J(price[:, None], return_std=True)
d = (np.log(price / STRIKE) + SD**2 / 2) / SD
exact = price * ndtr(d) - STRIKE * ndtr(d - SD)
print(f"largest error {np.abs(mean - exact).max():.3f}, largest claimed {1.96 * sd.max():.3f}")

ax = J.plot()
ax.plot(price, exact, color="black", linewidth=1, linestyle=(0, (8, 3)))
ax.set_xlabel("price today (dashed: Black–Scholes)")
plt.show()
