"""The fast construction of generating vectors against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.errors import InputError
from nestquad.points import lattice_vector

TIE = 1e-6  # the tolerance within which the first candidate is taken


def squared_error(vector, log2_n, weights):
    """Shift-averaged squared worst-case error, straight from its definition."""
    n = 2**log2_n
    x = np.outer(np.arange(n), vector) % n / n
    bernoulli = x**2 - x + 1 / 6
    return float(np.mean(np.prod(1 + np.asarray(weights)[: len(vector)] * bernoulli, axis=1)) - 1)


def candidates(log2_n):
    """Odd residues up to sign, in the order of the powers of 5."""
    return [pow(5, a, 2**log2_n) for a in range(max(2**log2_n // 4, 1))]


def first_smallest(values):
    values = np.asarray(values)
    return int(np.argmax(values <= values.min() * (1 + TIE)))


def brute_force_errors(log2_n, weights):
    vector, smallest = [], []
    for _ in weights:
        errors = [squared_error([*vector, z], log2_n, weights) for z in candidates(log2_n)]
        best = first_smallest(errors)
        smallest.append(errors[best])
        vector.append(candidates(log2_n)[best])
    return smallest


def brute_force_vector(log2_n, weights):
    """Worst ratio over the sizes 2, 4, …, 2**log2_n, one component after another."""
    best = [brute_force_errors(k, weights) for k in range(1, log2_n + 1)]
    vector = []
    for j in range(len(weights)):
        ratios = [
            max(
                squared_error([*vector, z], k, weights) / best[k - 1][j]
                for k in range(1, log2_n + 1)
            )
            for z in candidates(log2_n)
        ]
        vector.append(candidates(log2_n)[first_smallest(ratios)])
    return vector


@pytest.mark.parametrize("log2_n", [1, 2, 3, 4, 5, 6, 7])
def test_fast_construction_equals_brute_force(log2_n):
    assert lattice_vector(4, log2_n).tolist() == brute_force_vector(log2_n, (0.1,) * 4)


@pytest.mark.parametrize("log2_n", [4, 5, 6])
def test_powers_of_five_are_all_the_candidates(log2_n):
    # No odd number at all does better than those up to sign among which we search.
    weights = np.full(3, 0.1)
    n = 2**log2_n
    every_odd = [squared_error([1, z], log2_n, weights) for z in range(1, n, 2)]
    searched = [squared_error([1, z], log2_n, weights) for z in candidates(log2_n)]
    np.testing.assert_allclose(min(every_odd), min(searched), rtol=1e-12)
    assert {min(z, n - z) for z in candidates(log2_n)} == set(range(1, n // 2, 2))


def test_the_vector_of_fewer_coordinates_is_a_prefix():
    np.testing.assert_array_equal(lattice_vector(8, 10)[:3], lattice_vector(3, 10))


def test_components_are_odd_different_and_in_range():
    vector = lattice_vector(19, 16)
    assert (vector % 2 == 1).all()
    assert len({min(z, 2**16 - z) for z in vector.tolist()}) == 19
    assert vector.min() > 0
    assert vector.max() < 2**16


def test_every_size_beats_random_and_korobov_vectors():
    weights = np.full(6, 0.1)
    log2_max, dim = 12, 6
    ours = lattice_vector(dim, log2_max)
    rng = np.random.default_rng(0)
    odd = 2 * rng.integers(2 ** (log2_max - 1), size=(30, dim)) + 1
    korobov = [[pow(int(a), j, 2**log2_max) for j in range(dim)] for a in odd[:, 0]]
    for others in (odd, korobov):
        ratios = np.array(
            [
                [
                    squared_error(ours, k, weights) / squared_error(vector, k, weights)
                    for k in range(4, log2_max + 1)
                ]
                for vector in others
            ]
        )
        # Better than most at every size, by far at the larger ones, where there is a choice, and
        # better than each of them on average over the sizes.
        assert (np.median(ratios, axis=0) < 1).all()
        assert (np.median(ratios, axis=0)[4:] < 0.7).all()
        assert (ratios.mean(axis=1) < 1).all()


@pytest.mark.parametrize("dim", [2, 5])
def test_worst_case_error_decays_almost_like_one_over_n(dim):
    weights = np.full(dim, 0.1)
    log2_n = np.arange(4, 15)
    vector = lattice_vector(dim, 14)
    errors = [np.sqrt(squared_error(vector, k, weights)) for k in log2_n]
    assert np.polyfit(log2_n, np.log2(errors), 1)[0] < -0.9


def test_one_coordinate_has_the_known_error():
    # Σ B_2(i/n) = 1/(6n), so e² = γ/(6n²).
    for k in range(1, 11):
        error = squared_error(lattice_vector(1, 10), k, [0.1])
        np.testing.assert_allclose(error, 0.1 / 6 / 4**k, rtol=1e-6)


def test_the_cached_vector_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        lattice_vector(2, 5)[0] = 3


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 5), "dim"),
        ((2, -1), "log2_size"),
        ((2, 25), "log2_size"),
    ],
)
def test_bad_arguments_are_refused(arguments, name):
    with pytest.raises(InputError) as info:
        lattice_vector(*arguments)
    assert info.value.argument == name
