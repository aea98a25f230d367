"""What holds for every law: shapes, batches, chunks, bases, pickling."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

import nestquad.distributions
from nestquad.distributions import (
    Empirical,
    Independent,
    Law,
    LogNormal,
    MultivariateT,
    Normal,
    Sampler,
    Transport,
    Uniform,
    as_law,
)
from nestquad.errors import InputError

# So many tests of samples need a small level; 4000 draws keep them sharp.
FALSE_ALARM = 1e-6
T = 3
THETA = np.array([[-1.0, 0.5], [0.0, 1.0], [2.0, 4.0]])  # T parameter pairs


def _ramp(u):
    return np.stack([u[..., 0] ** 2, u[..., 0] + u[..., 1]], axis=-1)


def _drift(z):
    return z + 1.0


def _draw(n, rng):
    return rng.exponential(size=(n, 2))


SINGLE = {
    "uniform": Uniform([-1.0, 2.0], [0.0, 5.0]),
    "normal sd": Normal([-1.0, 2.0], sd=[0.3, 4.0]),
    "normal cov": Normal([-1.0, 2.0], cov=[[2.0, -0.7], [-0.7, 0.5]]),
    "normal singular": Normal(cov=[[1.0, 2.0], [2.0, 4.0]]),
    "lognormal": LogNormal([0.0, 1.0], [0.2, 0.4]),
    "lognormal cov": LogNormal([0.0, 1.0], cov=[[2.0, -0.7], [-0.7, 0.5]]),
    "student": MultivariateT([0.0, 1.0], [[2.0, -0.7], [-0.7, 0.5]], df=3.5),
    "independent": Independent(Uniform(), Normal(1.0, sd=2.0), LogNormal(0.0, 1.0)),
    "transport": Transport(_ramp, 2, out_dim=2),
    "transport normal": Transport(_drift, 1, base="normal"),
    "empirical 1": Empirical([[3.0], [1.0], [2.0]], [0.5, 0.2, 0.3]),
    "empirical 2": Empirical([[3.0, 0.0], [1.0, 1.0], [2.0, -1.0]]),
    "scipy": as_law(stats.gamma([2.0, 3.0], scale=0.5)),
    "scipy discrete": as_law(stats.poisson(4.0)),
    "tuple": as_law((stats.beta(2, 3), Uniform(), stats.norm(1, 2))),
}
COV = np.array([[[1.0, 0.2], [0.2, 1.0]], [[2.0, -1.0], [-1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]])
SAMPLES = np.random.default_rng(5).normal(size=(T, 7, 2))


def _batched(theta):
    """Every law as a function of theta (T, 2) would build it; the same for one row of theta."""
    rows = np.array([np.flatnonzero((row == THETA).all(axis=1))[0] for row in theta])
    size = len(theta)
    return {
        "uniform": Uniform(theta[:, :1], theta[:, :1] + theta[:, 1:]),
        "normal sd": Normal(theta, sd=theta[:, 1:]),
        "normal cov": Normal(theta, cov=COV[rows]),
        "normal one cov": Normal(theta, cov=COV[1]),
        "lognormal": LogNormal(theta[:, :1], theta[:, 1:]),
        "lognormal cov": LogNormal(theta, cov=COV[rows]),
        "student": MultivariateT(theta, COV[rows], df=4.0),
        "student one shape": MultivariateT(theta, COV[1], df=4.0),
        "independent": Independent(Uniform(theta[:, :1], 9.0), Normal(), LogNormal(theta, 0.1)),
        "empirical": Empirical(SAMPLES[rows]),
        "empirical 1 weighted": Empirical(SAMPLES[rows][..., :1], SAMPLES[rows][..., 1] ** 2),
        "empirical shared weights": Empirical(SAMPLES[rows], np.arange(7.0)),
        "scipy (T,)": as_law(stats.gamma(theta[:, 1], scale=2.0), batch=size),
        "scipy (T, d)": as_law(stats.expon(theta, [1.0, 3.0]), batch=size),
        "scipy tuple": as_law((stats.norm(theta[:, 0], 2), stats.expon()), batch=size),
        "transport": as_law(
            Transport(lambda u: theta[:, None, :] + u, 2, base="normal"), batch=size
        ),
        "transport given": Transport(lambda u: theta[:, None, :] * u, 2, batch=size, out_dim=2),
    }


BATCHED = _batched(THETA)
ALL = [pytest.param(law, id=name) for name, law in SINGLE.items()]
ALL_BATCHED = [pytest.param(name, id=name) for name in BATCHED]


def _cube(rng, *shape):
    return rng.uniform(1e-6, 1 - 1e-6, size=shape)


@pytest.mark.parametrize("law", ALL)
@pytest.mark.parametrize("lead", [(5,), (1, 5), (4, 5), (2, 3, 5), (0,)])
def test_single_law_keeps_leading_axes_and_treats_rows_alone(law, lead):
    u = _cube(np.random.default_rng(0), *lead, law.base_dim)
    x = law.from_uniform(u)
    assert x.shape[:-1] == lead
    if law.dim is not None:
        assert x.shape[-1] == law.dim
    flat = law.from_uniform(u.reshape(-1, law.base_dim))
    np.testing.assert_array_equal(x.reshape(flat.shape), flat)
    np.testing.assert_array_equal(law.from_normal(u).shape, x.shape)


@pytest.mark.parametrize("name", ALL_BATCHED)
@pytest.mark.parametrize("map_name", ["from_uniform", "from_normal"])
@pytest.mark.parametrize("lead", [(6,), (1, 6), (T, 6)])
def test_a_batch_equals_a_loop_over_its_laws(name, map_name, lead):
    law = BATCHED[name]
    points = _cube(np.random.default_rng(1), *lead, law.base_dim)
    x = getattr(law, map_name)(points)
    assert law.batch == T
    assert x.shape == (T, 6, law.dim or 2)
    for t in range(T):
        one = _batched(THETA[t : t + 1])[name]
        own = points[t] if lead[0] == T else points.reshape(6, -1)
        np.testing.assert_array_equal(x[t], getattr(one, map_name)(own)[0])


@pytest.mark.parametrize("law", [*ALL, *(pytest.param(v, id=k) for k, v in BATCHED.items())])
def test_chunks_of_any_size_give_the_same_bits(law):
    u = _cube(np.random.default_rng(2), 101, law.base_dim)
    for map_name in ("from_uniform", "from_normal"):
        whole = getattr(law, map_name)(u)
        for start, stop in [(0, 1), (1, 4), (3, 50), (50, 101)]:
            chunk = getattr(law, map_name)(u[start:stop])
            np.testing.assert_array_equal(whole[..., start:stop, :], chunk)


@pytest.mark.parametrize("law", [*ALL, *(pytest.param(v, id=k) for k, v in BATCHED.items())])
def test_from_normal_is_from_uniform_of_the_normal_cdf(law):
    z = np.random.default_rng(3).uniform(-4, 4, size=(50, law.base_dim))
    np.testing.assert_allclose(law.from_normal(z), law.from_uniform(ndtr(z)), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("law", ALL)
def test_normals_far_in_the_tails_give_finite_draws(law):
    # ndtr(9) rounds to 1, where a quantile function may be infinite.
    assert np.isfinite(law.from_normal(np.full((1, law.base_dim), 9.0))).all()
    assert np.isfinite(law.from_normal(np.full((1, law.base_dim), -9.0))).all()


@pytest.mark.parametrize("law", [*ALL, *(pytest.param(v, id=k) for k, v in BATCHED.items())])
def test_sample_is_seeded_and_independent_across_the_batch(law):
    x = law.sample(20, np.random.default_rng(4))
    lead = (20,) if law.batch is None else (law.batch, 20)
    assert x.shape[:-1] == lead
    np.testing.assert_array_equal(x, law.sample(20, np.random.default_rng(4)))
    np.testing.assert_array_equal(x, law.sample(20, 4))
    assert not np.array_equal(x, law.sample(20, np.random.default_rng(5)))


def test_a_shared_part_is_drawn_anew_for_each_law_of_a_batch():
    law = Independent(Normal(THETA), Uniform(), Sampler(_draw, 2))
    shared = law.sample(4, np.random.default_rng(0))[..., 2:]
    assert shared.shape == (T, 4, 3)
    assert len(np.unique(shared)) == shared.size


@pytest.mark.parametrize("law", [v for v in SINGLE.values() if "lambda" not in repr(v)])
def test_a_pickled_law_survives(law):
    twin = pickle.loads(pickle.dumps(law))
    u = _cube(np.random.default_rng(6), 9, law.base_dim)
    np.testing.assert_array_equal(twin.from_uniform(u), law.from_uniform(u))
    assert (twin.dim, twin.base_dim, twin.batch, twin.base) == (
        law.dim,
        law.base_dim,
        law.batch,
        law.base,
    )


@pytest.mark.parametrize("name", [k for k in BATCHED if "transport" not in k])
def test_a_pickled_batch_survives(name):
    law = BATCHED[name]
    twin = pickle.loads(pickle.dumps(law))
    u = _cube(np.random.default_rng(6), 9, law.base_dim)
    np.testing.assert_array_equal(twin.from_uniform(u), law.from_uniform(u))


@pytest.mark.parametrize("law", ALL)
def test_laws_do_not_change_after_they_were_made(law):
    with pytest.raises(AttributeError):
        law.dim = 7
    for value in vars(law).values():
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable


def test_parameters_are_copied():
    low = np.array([0.0, 0.0])
    law = Uniform(low, 1.0)
    low[0] = 0.9
    assert law.low[0] == 0.0


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 4),
    dim=st.integers(1, 3),
    n=st.integers(0, 5),
    forms=st.tuples(
        st.sampled_from(["()", "(d,)", "(T,d)", "(T,1)", "(1,d)"]),
        st.sampled_from(["()", "(d,)", "(T,d)"]),
    ),
    points=st.sampled_from(["(N,d)", "(1,N,d)", "(T,N,d)"]),
    family=st.sampled_from([Uniform, Normal, LogNormal]),
)
def test_every_mix_of_parameter_shapes(size, dim, n, forms, points, family):
    shapes = {"()": (), "(d,)": (dim,), "(T,d)": (size, dim), "(T,1)": (size, 1), "(1,d)": (1, dim)}
    rng = np.random.default_rng(size + 10 * dim)
    first = rng.uniform(-1.0, 0.5, size=shapes[forms[0]])
    second = rng.uniform(0.6, 2.0, size=shapes[forms[1]])
    law = family(first, second, dim=dim)
    full = np.broadcast_shapes(shapes[forms[0]], shapes[forms[1]], (dim,))
    batch = full[0] if len(full) == 2 else None
    assert (law.dim, law.base_dim, law.batch) == (dim, dim, batch)
    lead = {"(N,d)": (n,), "(1,N,d)": (1, n), "(T,N,d)": (size, n)}[points]
    u = _cube(rng, *lead, dim)
    if batch is None:
        expected = (*lead, dim)
    else:
        if points == "(T,N,d)" and batch not in (1, size):
            return
        if points == "(T,N,d)" and batch == 1 and size > 1:
            with pytest.raises(InputError):
                law.from_uniform(u)
            return
        expected = (batch, n, dim)
    x = law.from_uniform(u)
    assert x.shape == expected
    a, b = np.broadcast_to(first, full)[..., None, :], np.broadcast_to(second, full)[..., None, :]
    v = u if batch is None or u.ndim == 3 else u[None]
    reference = {
        Uniform: lambda: stats.uniform(a, b - a).ppf(v),
        Normal: lambda: stats.norm(a, b).ppf(v),
        LogNormal: lambda: stats.lognorm(b, scale=np.exp(a)).ppf(v),
    }[family]()
    np.testing.assert_allclose(x, reference, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "u",
    [
        np.array([[0.0]]),
        np.array([[1.0]]),
        np.array([[0.5], [np.nan]]),
        np.array([[-0.1]]),
    ],
)
def test_points_outside_the_open_cube_are_refused(u):
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        Uniform().from_uniform(u)


@pytest.mark.parametrize("z", [np.inf, -np.inf, np.nan])
def test_normals_that_are_not_finite_are_refused(z):
    with pytest.raises(InputError, match="finite"):
        Normal().from_normal([[z]])


@pytest.mark.parametrize("shape", [(), (2,), (5, 3)])
def test_points_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(InputError, match=r"shape \(\.\.\., N, 2\)"):
        Normal(dim=2).from_uniform(np.full(shape, 0.5))


def test_a_forgotten_last_axis_is_explained():
    with pytest.raises(InputError, match=r"add a last axis"):
        Normal().from_uniform([0.2, 0.3])


@pytest.mark.parametrize("shape", [(2, 5, 2), (1, T, 5, 2), (T, 1, 5, 2)])
def test_points_of_another_batch_are_refused(shape):
    with pytest.raises(InputError, match=r"\(3, N, 2\) for a batch of 3 laws"):
        Normal(THETA).from_uniform(np.full(shape, 0.5))


@pytest.mark.parametrize("values", [[["a"]], [[1j]], [[None]], [[0.1], [0.2, 0.3]], object()])
def test_points_that_are_not_numbers_are_refused(values):
    with pytest.raises(InputError, match="real numbers"):
        Uniform().from_uniform(values)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", None, True])
def test_counts_have_to_be_positive_integers(n):
    with pytest.raises(InputError, match="whole number"):
        Normal().sample(n, 0)


def test_repr_is_one_short_line():
    assert repr(Normal(1.0, sd=2.0)) == "Normal(loc=[1.0], sd=[2.0])"
    assert repr(Normal(np.zeros((50, 2)))) == "Normal(dim=2, batch=50)"
    for law in [*SINGLE.values(), *BATCHED.values()]:
        assert "\n" not in repr(law)


def test_a_law_of_ones_own_needs_one_method():
    class Rayleigh(Law):
        dim = base_dim = 1

        def _from_uniform(self, u):
            return np.sqrt(-2 * np.log1p(-u))

    u = np.linspace(0.01, 0.99, 99)[:, None]
    np.testing.assert_allclose(stats.rayleigh.cdf(Rayleigh().from_uniform(u)), u, rtol=1e-13)
    assert stats.kstest(Rayleigh().sample(4000, 1)[:, 0], stats.rayleigh.cdf).pvalue > FALSE_ALARM


def test_importing_the_laws_does_not_import_scipy_stats():
    folder = Path(nestquad.distributions.__file__).parents[1]
    # A bare package stands in for nestquad, whose other modules may need scipy.stats.
    script = (
        "import sys, types; package = types.ModuleType('nestquad'); "
        f"package.__path__ = [{str(folder)!r}]; sys.modules['nestquad'] = package; "
        "import nestquad.distributions; sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_more_than_a_million_draws():
    drawn = Normal().sample(1_200_000, 0)
    assert drawn.shape == (1_200_000, 1)
    assert abs(drawn.mean()) < 4.5 / np.sqrt(len(drawn))
    with pytest.raises(InputError, match="at least 1"):
        Normal().sample(0)
