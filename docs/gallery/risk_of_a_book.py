"""Risk of a book

Value at risk and expected shortfall of a book of options, and which desk they come from. In two
weeks the market will be somewhere, and what the book is worth there is itself an expectation. How much can it lose, with what probability, and which desk is to
blame? Value at risk, expected shortfall and contributions, from two thousand evaluations of the
loss.
"""

# %%
# θ are prices at the horizon, x prices at maturity, and the loss has an output for each desk.
import matplotlib.pyplot as plt
import numpy as np

import nestquad as nq
from nestquad import risk

SPOT, VOL, HORIZON, REST = 100.0, np.array([0.2, 0.3]), 0.04, 0.46
COV = VOL[:, None] * np.array([[1.0, 0.5], [0.5, 1.0]]) * VOL


def prices(start, time):
    """Log-normal prices after some time."""
    return nq.LogNormal(np.log(start) - VOL**2 * time / 2, cov=COV * time)


def loss(x, theta):
    """Short calls on the first asset, hedged, and short puts on the second."""
    calls = 2.0 * (np.maximum(x[..., 0] - 100.0, 0.0) - 5.6) - 1.1 * (x[..., 0] - SPOT)
    puts = 3.0 * (np.maximum(95.0 - x[..., 1], 0.0) - 5.9)
    return np.stack([calls, puts], axis=-1)


book = nq.NestedExpectation(
    outer=prices(np.full(2, SPOT), HORIZON),
    inner=lambda theta: prices(theta, REST),
    g=loss,
    name="two desks",
)

# %%
# One call. Every measure has its own interval.
report = risk.measure(
    book, var=(0.95, 0.99), es=0.975, exceed=20.0, outputs=["calls", "puts"], budget=2_000, rng=0
)
report

# %%
# Contributions add up to the measure; a hedge has a negative one.
for name, value in zip(("calls", "puts"), report.contributions.var[0.99].value):
    print(f"{name:6} {value:6.2f} of a value at risk of {report.var[0.99].value:.2f}")

# %%
# The exceedance curve with its band.
report.plot()
plt.show()
