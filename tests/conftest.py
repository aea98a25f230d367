"""Fixtures that several rooms share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nestquad.clock import use_clock


class SimulatedClock:
    """Seconds that tests set: `step` for each look at it, and the time that `wait` adds."""

    def __init__(self):
        self.seconds, self.step = 0.0, 1e-6

    def __call__(self):
        self.seconds += self.step
        return self.seconds

    def wait(self, seconds):
        self.seconds += seconds

    def slow(self, problem, seconds):
        """Return the problem with a g that takes `seconds` for each evaluation on this clock."""

        def g(x, theta):
            values = problem.g(x, theta)
            self.wait(seconds * np.prod(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1])))
            return values

        return replace(problem, g=g)


@pytest.fixture
def simulated():
    """Clock of this thread in place of the machine's: no test depends on how busy that is."""
    clock = SimulatedClock()
    with use_clock(clock):
        yield clock
