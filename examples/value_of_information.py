"""Is a trial worth its cost? A decision between usual care and a new treatment.

The incremental net benefit of the treatment is p1 - p2, both uncertain. We ask what it is worth to
know everything, to know p2 alone, and to measure p2 in a trial; all have closed forms to compare
with.
"""

import numpy as np
from scipy.stats import norm

import nestquad as nq
from nestquad import voi

model = voi.Model(
    parameters={"p1": nq.Normal(1.0, 1.0), "p2": nq.Normal(0.0, 2.0)},
    net_benefit=lambda p: (0.0, p["p1"] - p["p2"]),
    options=("usual care", "new treatment"),
    name="trial or not",
)


def exact(sd):
    """The value of knowing a part of the net benefit that has this standard deviation."""
    return norm.cdf(1 / sd) + sd * norm.pdf(1 / sd) - 1


if __name__ == "__main__":
    print(model.evpi(tol=0.005, rng=0), f"exact {exact(np.sqrt(5.0)):.4f}")
    print(model.evppi("p2", tol=0.005, method="joint", rng=0), f"exact {exact(2.0):.4f}")
    trial = voi.NormalTrial("p2", sd=4.0)
    value = model.evsi(trial, sizes=[4, 12, 36], n_runs=5_000)
    known = 4.0 * value.n / (value.n + 4.0)  # variance of the posterior mean of p2
    value["exact"] = exact(np.sqrt(known))
    print(value[["n", "evsi", "se", "exact"]].round(4).to_string(index=False))
    costed = voi.enbs(value, per_year=1_000, horizon=5, cost_per_participant=10.0)
    print("best size:", *costed.n[costed.optimal])
