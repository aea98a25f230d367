"""Value at risk of a sold barrier option, priced path by path with QuantLib.

We have sold a down-and-in put that expires in half a year: it pays like a put once the price was
below a barrier on one of the observation dates. In two weeks the market will have moved to θ, its
price and its variance, and the position will be worth what it is expected to cost us from there.
One evaluation of g is one path of Heston's model, by QuantLib's own discretization and driven by
our normals x, so that low-discrepancy points reach it. QuantLib takes one path at a time
(`vectorized=False`), paths are shared by processes, and a store keeps their values on disk: the
second call evaluates nothing. Needs the extra `quantlib`.

Run it with `python examples/quantlib_knock_in.py`.
"""

import math
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import QuantLib as ql

import nestquad as nq

SPOT, STRIKE, BARRIER, RATE = 100.0, 100.0, 85.0, 0.02
YEARS, DATES = 0.5, 12
# Heston's model: variance today, mean reversion, long-run variance, volatility of variance, ρ.
V0, KAPPA, VBAR, SIGMA, RHO = 0.04, 1.5, 0.05, 0.4, -0.7

TODAY = ql.Date(2, 1, 2026)
ql.Settings.instance().evaluationDate = TODAY
DAYS = ql.Actual365Fixed()


def flat(rate):
    return ql.YieldTermStructureHandle(ql.FlatForward(TODAY, rate, DAYS))


def heston(price, variance):
    quote = ql.QuoteHandle(ql.SimpleQuote(price))
    return ql.HestonProcess(
        flat(RATE), flat(0.0), quote, variance, KAPPA, VBAR, SIGMA, RHO,
        ql.HestonProcess.QuadraticExponentialMartingale,
    )  # fmt: skip


PROCESS = heston(SPOT, V0)


def cost(x, theta):
    """What the sold option costs on one path, discounted; x has two normals a date."""
    state, step, lowest = ql.Array(theta.tolist()), YEARS / DATES, math.inf
    for k in range(DATES):
        state = PROCESS.evolve(k * step, state, step, ql.Array(x[2 * k : 2 * k + 2].tolist()))
        lowest = min(lowest, state[0])
    return math.exp(-RATE * YEARS) * max(STRIKE - state[0], 0.0) * (lowest < BARRIER)


# Two weeks of history: price and variance move together, against each other.
SD = np.array([0.2 / math.sqrt(26.0), 0.35])
market = nq.LogNormal(
    np.log([SPOT, V0]) - SD**2 / 2, cov=SD[:, None] * np.array([[1.0, RHO], [RHO, 1.0]]) * SD
)
problem = nq.NestedExpectation(
    outer=market,
    inner=nq.Normal(dim=2 * DATES),
    g=cost,
    name="sold knock-in put",
    vectorized=False,
)

if __name__ == "__main__":
    from nestquad import risk

    with ProcessPoolExecutor(2) as executor, tempfile.TemporaryDirectory() as store:
        wanted = {"var": (0.95, 0.99), "es": (0.975,), "exceed": (9.0,)}
        for run in ("first run", "from the store"):
            start = time.perf_counter()
            report = risk.measure(
                problem, **wanted, budget=4096, rng=0, executor=executor, store=store
            )
            print(f"{run}: {time.perf_counter() - start:.3f} s")
    print(report)
