"""Draw the picture in docs/errors.md: `python docs/draw_check.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

import nestquad as nq
from nestquad.estimate import Loop
from nestquad.evaluate import Evaluator
from nestquad.methods import Goal
from nestquad.plots import INK, new_axes
from nestquad.points import Stream

FIGURE = Path(__file__).resolve().parent / "figures" / "check.png"
LEVEL, STEP, BUDGET = 1.0, 0.4, 600


def mean(theta: np.ndarray) -> np.ndarray:
    """J: a ramp with a step, which a line does not follow."""
    return theta + 1.5 * (theta > STEP)


def problem() -> nq.NestedExpectation:
    """P(J > 1) = P(θ > 0.4): the step leads over the level."""
    return nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: mean(theta[..., 0]) + 0.5 * x[..., 0],
        lambda j: (j > LEVEL).astype(float),
        name="a step",
    )


def main() -> None:
    """Write docs/figures/check.png."""
    evaluator = Evaluator(problem(), keep=True)
    loop = Loop(nq.LSMC(degree=1), Goal(Stream.from_rng(0), BUDGET), evaluator)
    est = loop.run()
    assert loop.last is not None
    state = loop.last.state
    check, model = state.check, state.model
    theta = ndtri(check.uniform[:, 0])
    observed = check.residuals(model)[:, :, 0] + model.mean(check.uniform)
    figure, (left, right) = new_axes(9.0, 3.4, columns=2)
    u = np.linspace(0.002, 0.998, 999)
    left.axhline(LEVEL, color=INK, lw=0.8, ls=":")
    left.plot(ndtri(u), mean(ndtri(u)), color=INK, lw=1, label="J")
    left.plot(ndtri(u), model.mean(u[:, None])[:, 0], lw=2, label="Ĵ, a line")
    left.plot(
        np.repeat(theta, 2), observed.ravel(), "o", ms=3.5, alpha=0.6, label="fresh draws, in pairs"
    )
    left.set(xlim=(-2.5, 2.5), xlabel="θ", title="P(J > 1): fresh draws where it is decided")
    left.legend(frameon=False, fontsize=8)
    parts = {name: size for name, size in state.parts.items() if size > 1e-6}
    names = sorted(parts, key=parts.__getitem__)
    right.barh(names, [1.96 * parts[name] for name in names])
    right.axvline(abs(float(est.value) - ndtr(-STEP)), color=INK, lw=1)
    right.set(xlabel="95 % half-width by part", title="Parts of the bar, and the true error (line)")
    figure.savefig(FIGURE, dpi=150)
    print(est, est.diagnostics["check"])


if __name__ == "__main__":
    main()
