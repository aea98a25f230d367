"""Exposure of a swap over its life

What a bank may lose at each date if the other party of an interest rate swap defaults. What would be lost then is the
value of the swap on that day, if positive: an expectation given the rates of that day. Exposures
at all dates come from one set of evaluations, and the credit value adjustment with them.
"""

# %%
# A simple model: θ drives the rate up to each date, x from there to the end. The swap is worth
# less and less as payments are made, so that its exposure rises and falls.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad import risk

YEARS = 10.0
DATES = np.arange(1.0, 10.0)


def value(x, theta):
    """Discounted value at each date, per 100 of notional: payments left times what the rate is above 3 %."""
    spread = 0.8 * np.sqrt(DATES) * theta + 0.8 * np.sqrt((YEARS - DATES) / 3) * x
    return (YEARS - DATES) * spread * np.exp(-0.03 * DATES)


swap = nq.NestedExpectation(nq.Normal(), nq.Normal(), value, name="swap")
report = risk.measure(
    swap, exposure=True, outputs=DATES, var=(0.95, 0.99), default_curve=0.02, budget=2_000, rng=0
)
print(f"CVA {report.exposure.cva.summary} per 100 of notional")

# %%
# Here J is a multiple of θ, so that the exact expected exposure is known: its standard deviation
# over √(2π).
sd = (YEARS - DATES) * 0.8 * np.sqrt(DATES) * np.exp(-0.03 * DATES)
exact = sd / np.sqrt(2 * np.pi)
print(f"largest error of an expected exposure {np.abs(report.exposure.ee.value - exact).max():.4f}")

# %%
ax = report.exposure.plot()
ax.plot(DATES, exact, "o", color="black", fillstyle="none", markersize=9)
ax.set_xlabel("years (circles: exact expected exposure)")
plt.show()
