"""Periodized lattices: integrals, inverses, chunks."""

import numpy as np
import pytest

from nestquad.points import (
    PERIODIZATIONS,
    PeriodicLattice,
    Stream,
    density,
    lattice_vector,
    moved,
    periodic,
)


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_periodization_preserves_integrals(periodization):
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # The tent has a kink in the middle: integrate both halves.
    v = np.concatenate([(nodes + 1) / 4, (nodes + 3) / 4])
    half = np.concatenate([weights, weights]) / 4
    u, by = moved(periodization, v), density(periodization, v[:, None])
    assert ((u > 0) & (u < 1)).all()
    for power in range(6):
        np.testing.assert_allclose(half @ (u**power * by), 1 / (power + 1), rtol=1e-12)


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_points_do_not_depend_on_the_chunk(periodization):
    points = PeriodicLattice(12, periodization)
    stream = Stream.from_rng(3)
    whole = points.uniforms(stream, 4, (0, 1), (0, 64))
    part = points.uniforms(stream, 4, (0, 1), (17, 40))
    assert np.array_equal(whole[:, 17:40], part)
    assert np.array_equal(whole[0], moved(periodization, points.periodic(stream, 4, 64)))
    assert whole.min() > 0
    assert whole.max() < 1


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_periodic_inverts_moved(periodization):
    u = np.concatenate([np.linspace(0.001, 0.999, 97), [1e-9, 0.5, 1 - 1e-9]])
    np.testing.assert_allclose(moved(periodization, periodic(periodization, u)), u, rtol=1e-6)


def stratified(seed, dim=2, n_shifts=4, log2_size=6):
    """Stratified shifts of a lattice, before periodization: (size, n_shifts, dim)."""
    points = PeriodicLattice(12, "tent", n_shifts, log2_strata=log2_size)
    flat = points.periodic(Stream.from_rng(seed), dim, n_shifts << log2_size)
    return flat.reshape(-1, n_shifts, dim)


def wave(points, frequency):
    """Mean of exp(2πi h·x) over each shift, (n_shifts,): the error of a rule for one frequency."""
    return np.exp(2j * np.pi * points @ np.asarray(frequency)).mean(axis=0)


def test_stratified_shifts_are_uniform():
    first = np.stack([stratified(seed)[0] for seed in range(2000)])
    for k in range(1, 4):
        for j in range(2):
            # Fourier coefficients of 2,000 uniforms are of the size 1/√2000 = 0.022.
            frequency = k * np.eye(2)[j]
            assert np.abs(np.exp(2j * np.pi * first @ frequency).mean(axis=0)).max() < 0.08


def test_stratified_shifts_cancel_where_a_lattice_is_even_and_are_independent_beyond():
    vector = lattice_vector(2, 12)
    sizes = {}
    for n in (64, 256):
        # Dual vectors h of the lattice with n points: h·z = 0 modulo n. The shortest of them.
        grid = np.mgrid[-n:n, 0:n].reshape(2, -1).T
        dual = grid[(grid @ vector % n == 0) & (np.abs(grid).sum(axis=1) > 0)]
        if n == 64:
            dual = dual[dual @ vector % 256 != 0]
        sizes[n] = dual[np.argmin((dual**2).sum(axis=1))]
    errors = {n: np.stack([wave(stratified(s), h) for s in range(400)]) for n, h in sizes.items()}
    # Each shift alone integrates neither: |error| is one.
    np.testing.assert_allclose(np.abs(errors[64]), 1.0, rtol=1e-9)
    np.testing.assert_allclose(np.abs(errors[256]), 1.0, rtol=1e-9)
    # Four independent shifts would have a mean square of a quarter.
    together = {n: np.mean(np.abs(e.mean(axis=1)) ** 2) for n, e in errors.items()}
    assert together[64] < 0.15
    # Phases of the dual vector of all points differ between shifts by jitter of a cell.
    apart = np.abs(np.mean(errors[256][:, 1] * errors[256][:, 2].conj()))
    assert apart < 0.5
