"""EVPPI from a table

What would it be worth to learn some parameters of a health model before deciding, from the draws of
its probabilistic sensitivity analysis alone? A regression of the net benefits on them answers, with
an interval. No model has to be run again.
"""

# %%
# Five thousand draws: a new drug against usual care.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from nestquad import voi
from nestquad.plots import style

rng = np.random.default_rng(0)
n = 5_000
draws = pd.DataFrame(
    {
        "p_old": rng.beta(40, 60, n),  # recovers under usual care
        "p_new": rng.beta(14, 16, n),  # recovers on the drug: a small trial
        "u_well": rng.beta(16, 4, n),
        "u_ill": rng.beta(10, 10, n),
        "c_ill": rng.gamma(20, 150, n),
    }
)


def net_benefit(share, cost):
    years = share * draws.u_well + (1 - share) * draws.u_ill
    return 20_000 * years - cost - (1 - share) * draws.c_ill


benefits = pd.DataFrame(
    {"usual care": net_benefit(draws.p_old, 0.0), "drug": net_benefit(draws.p_new, 700.0)}
)

# %%
# What knowing everything is worth bounds what knowing a part of it is.
total = voi.evpi(benefits)
parts = voi.evppi(benefits, draws, [["p_new"], ["p_old"], ["u_well", "u_ill"], ["c_ill"]])
parts[["pars", "evppi", "se", "lower", "upper"]].round(1)

# %%
fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
style(ax)
bars = [parts.evppi - parts.lower, parts.upper - parts.evppi]  # 95 %, none below zero
ax.barh(parts.pars, parts.evppi, xerr=bars, color="#0072B2", height=0.6, capsize=3)
ax.invert_yaxis()
everything = float(total.evpi.iloc[0])
ax.axvline(everything, color="black", linestyle=(0, (8, 3)), linewidth=1)
ax.set_title(
    f"EVPPI for a person, with 95 % bars (dashed: EVPI {everything:.0f})", loc="left", fontsize=10
)
ax.grid(False, axis="y")
plt.show()
