"""Shifts that are alike in a mode: blocks that rounding makes singular."""

import numpy as np

from nestquad.gp._lattice import PeriodicKernel, interpolate
from nestquad.points import lattice_vector


def test_equal_shifts_have_a_solution():
    vector = lattice_vector(2, 12)
    shift = np.random.default_rng(0).random((1, 2))
    shifts = np.repeat(shift, 2, axis=0)
    kernel = PeriodicKernel(2, np.array([1.0, 1.0]), 1e-30)
    grid = np.arange(4096)[:, None] * np.asarray(vector) / 4096
    values = np.cos(2 * np.pi * (grid + shift) % 1.0).sum(axis=1)
    process = interpolate(kernel, vector, shifts, 1, np.repeat(values, 2))
    system = process._system
    least = 0.4 * np.finfo(float).eps * np.trace(system, axis1=1, axis2=2).real
    assert (np.linalg.eigvalsh(system)[:, 0] >= least).all()
    predicted = process.predicted(process.values[None], shifts[:, :1])
    np.testing.assert_allclose(predicted[0, 0], predicted[0, 1], rtol=1e-6)
