"""Greeks of an expected loss

The sensitivities of a risk to the market, with intervals. In a month a sold put may be worth more than our limit. What does
the expected excess gain or lose if the price, the volatility or the strike moves? One call gives the
value and all derivatives from the same simulations, beside exact ones by quadrature.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr

import nestquad as nq

MONTH, REST, LIMIT = 1 / 12, 11 / 12, 12.0


def put(vol, spot, strike):
    """Expected value beyond the limit, in a month, of a put that expires in a year."""

    def after(start, years):
        return nq.LogNormal(np.log(start) - vol**2 * years / 2, vol * np.sqrt(years))

    return nq.NestedExpectation(
        outer=after(spot, MONTH),
        inner=lambda price: after(price, REST),
        g=lambda x, price: np.maximum(strike - x[..., 0], 0.0),
        f=lambda j: np.maximum(j - LIMIT, 0.0),
        name="sold put",
    )


today = {"vol": 0.25, "spot": 100.0, "strike": 95.0}
s = nq.sensitivity(put, today, budget=6_000, rng=0)
s

# %%
# A tornado of scaled sensitivities: the rate of change of the answer per 100 % of each parameter.
fig, ax = plt.subplots(figsize=(6.8, 2.8), layout="constrained")
s.plot(ax)
plt.show()


# %%
# The formula of Black and Scholes for J, integrated on a fine grid, and its differences are exact.
def exact(vol, spot, strike):
    z = np.linspace(-8, 8, 400_001)
    price = spot * np.exp(-(vol**2) * MONTH / 2 + vol * np.sqrt(MONTH) * z)
    sd = vol * np.sqrt(REST)
    d = (np.log(strike / price) + sd**2 / 2) / sd
    density = np.exp(-(z**2) / 2)
    j = strike * ndtr(d) - price * ndtr(d - sd)
    return density @ np.maximum(j - LIMIT, 0.0) / density.sum()


for name, value in today.items():
    step = 1e-4 * value
    up, down = (exact(**{**today, name: value + side}) for side in (step, -step))
    low, high = s[name].interval()
    print(
        f"{name:7} {s[name].value:9.5f}  [{low:.5f}, {high:.5f}]  exact {(up - down) / 2 / step:.5f}"
    )
