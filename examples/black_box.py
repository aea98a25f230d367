"""The best settings of a machine, from few and dear experiments.

A coating is baked: the oven's temperature and the time in it decide how hard it becomes. Too little
and it stays soft, too much and it burns, and the oven's time costs money. An experiment takes a
morning, and two plates fit into the oven, so two settings are tried at a time and chosen together,
with a look at what the next two could bring (`lookahead-kq`). Put your own experiment in place of
`profit`: any function of one point that returns a number. Needs the extra `botorch`.

Run it with `python examples/black_box.py`.
"""

import math

import nestquad.botorch as nb

LOW, HIGH = [120.0, 5.0], [220.0, 60.0]  # °C, minutes


def profit(setting):
    """The hardness of the coating, from 0 to 1, less what the oven costs."""
    temperature, minutes = setting
    # Twice as fast for 12 degrees more, both curing and burning; burning begins late.
    cured = 1.0 - math.exp(-minutes / 14.0 * 2.0 ** ((temperature - 165.0) / 12.0))
    burnt = 1.0 - math.exp(-((minutes / 55.0 * 2.0 ** ((temperature - 168.0) / 8.0)) ** 2))
    return cured * (1.0 - burnt) - minutes / 200.0


if __name__ == "__main__":
    trace = nb.optimize(
        profit,
        [LOW, HIGH],
        iterations=5,
        q=2,
        acquisition=nb.acquisition("lookahead-kq", outer=8, inner=8),
        initial=4,
        kernel="matern52",
        noise=0.0,
        seed=0,
    )
    temperature, minutes = trace.best_x
    print(trace)
    print(f"profit {trace.best[-1]:.4f} at {temperature:.0f} °C for {minutes:.0f} minutes")
