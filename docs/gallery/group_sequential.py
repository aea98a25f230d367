"""A group-sequential trial that may stop early.

A trial looks at its data after each of three groups of patients, and stops for success if the
posterior probability of a benefit exceeds 97.5 %, or for futility if the predictive probability of
success at the end falls below 10 %. How often does it stop, and how many patients does it save?
The look ahead is a repeated expectation: over data, of a decision, on a posterior.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr, ndtri

import nestquad as nq
from nestquad import design
from nestquad.plots import series_styles, style

MEAN, SD = 0.2, 0.2  # prior of the effect, in units of the standard deviation of a patient
GROUP, LOOKS, LEVEL, FUTILE = 60, 3, 0.975, 0.10


def posterior(total, n):
    """Mean and standard deviation of the effect after n patients with this sum of responses."""
    precision = 1 / SD**2 + n
    return (MEAN / SD**2 + total) / precision, precision**-0.5


def predictive(total, n):
    """Probability of success at the end, given the data so far."""
    mean, sd = posterior(total, n)
    more = GROUP * LOOKS - n
    least = (ndtri(LEVEL) * np.sqrt(1 / SD**2 + GROUP * LOOKS) - MEAN / SD**2) - total
    spread = np.sqrt(more + (more * sd) ** 2)
    return ndtr((more * mean - least) / np.maximum(spread, 1e-12))


# %%
# Sums of responses of the three groups are the data. A look decides on the sum so far.
def outcome(y):
    """Look at which each trial stops (1 to 3), and whether it succeeded."""
    stop, success = np.full(len(y), LOOKS), np.zeros(len(y), dtype=bool)
    open_ = np.ones(len(y), dtype=bool)
    for look in range(1, LOOKS + 1):
        total, n = y[:, :look].sum(axis=1), GROUP * look
        mean, sd = posterior(total, n)
        wins = open_ & (ndtr(mean / sd) > LEVEL)
        fails = open_ & ~wins & (look < LOOKS) & (predictive(total, n) < FUTILE)
        stop[wins | fails], success[wins] = look, True
        open_ &= ~(wins | fails)
    return stop, success


trial = design.Experiment(
    prior=nq.Normal(MEAN, SD),
    simulate=lambda theta, e, d: GROUP * theta + np.sqrt(GROUP) * e,
    noise=nq.Normal(np.zeros(LOOKS)),
    name="three looks",
)
power = design.assurance(trial, None, success=lambda y: outcome(y)[1], rng=1)
early = design.assurance(trial, None, success=lambda y: outcome(y)[0] < LOOKS, rng=1)
fixed = design.assurance(
    trial, None, success=lambda y: ndtr(np.divide(*posterior(y.sum(axis=1), 180))) > LEVEL, rng=1
)
print(f"success {power.summary}, with all 180 patients {fixed.summary}, early stop {early.summary}")

# %%
# The decision after the first group, as a nested expectation over its data: the value of going on
# is the expected value of the better option later. J(y) is the probability of success at the end.
look = nq.NestedExpectation(
    outer=nq.Normal(GROUP * MEAN, np.sqrt(GROUP + (GROUP * SD) ** 2)),
    inner=lambda total: nq.Normal(
        total + 120 * posterior(total, GROUP)[0],
        np.full_like(total, np.sqrt(120 + (120 * posterior(0.0, GROUP)[1]) ** 2)),
    ),
    g=lambda x, total: (posterior(x, 180)[0] / posterior(x, 180)[1] > ndtri(LEVEL))[..., 0] * 1.0,
    f=lambda j: (j < FUTILE) * 1.0,
    name="futility at the first look",
)
futile = nq.estimate(look, budget=60_000, method=nq.NQMC(n_inner=256), rng=1)
print(futile)

# %%
# Patients saved, over the true effect.
effects = np.linspace(-0.2, 0.6, 17)
rng = np.random.default_rng(1)
patients, wins = [], []
for effect in effects:
    sums = GROUP * effect + np.sqrt(GROUP) * rng.standard_normal((20_000, LOOKS))
    stop, success = outcome(sums)
    patients.append(GROUP * stop.mean())
    wins.append(success.mean())
fig, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
color = series_styles(2)[0].color
for ax, values, label in (
    (style(left), patients, "expected number of patients"),
    (style(right), wins, "probability of success"),
):
    ax.plot(effects, values, color=color)
    ax.set_xlabel("true effect")
    ax.set_ylabel(label)
plt.show()
