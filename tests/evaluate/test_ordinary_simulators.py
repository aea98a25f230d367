"""g of one point, g of other libraries, g that fails now and then."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq

METHODS = ["nmc", "nqmc", "nkq", "ckq", "joint", "mlmc", "mlkq", "lsmc"]


def one_point(x, theta):
    assert x.shape == (2,)
    assert theta.shape == (1,)
    return float(np.exp(x[0]) * x[1] + theta[0])


def block(x, theta):
    return np.exp(x[..., 0]) * x[..., 1] + theta[..., 0]


def problem(g, **options):
    laws = {"outer": nq.Uniform(), "inner": nq.Uniform([0.0, 0.0], [1.0, 1.0])}
    return nq.NestedExpectation(**laws, g=g, f=np.square, **options)


@pytest.mark.parametrize("method", METHODS)
def test_one_point_at_a_time_gives_the_same_bits(method):
    expected = nq.estimate(problem(block), method=method, budget=600, rng=0)
    answer = nq.estimate(problem(one_point, vectorized=False), method=method, budget=600, rng=0)
    assert answer.value == expected.value
    assert answer.std_error == expected.std_error


def test_one_point_at_a_time_with_several_outputs():
    def g(x, theta):
        return [x[0] + theta[0], x[1]]

    est = nq.estimate(
        problem(g, vectorized=False), method="nqmc", budget=4096, rng=0
    )  # E (x + θ)² given θ is not asked for: f is the square of the mean
    np.testing.assert_allclose(est.value, [1 + 1 / 12, 0.25], rtol=0.02)


@pytest.mark.parametrize(
    "convert", [np.float32, lambda v: v.tolist(), lambda v: memoryview(np.ascontiguousarray(v))]
)
def test_whatever_numpy_understands(convert):
    exact = nq.estimate(problem(block), method="nmc", budget=400, rng=0).value
    answer = nq.estimate(
        problem(lambda x, theta: convert(block(x, theta))), method="nmc", budget=400, rng=0
    )
    assert answer.value == pytest.approx(exact, rel=1e-6)


class Tensor:
    """What of a PyTorch tensor matters here: it refuses conversion while it tracks gradients."""

    def __init__(self, values, attached=True):
        self.values, self.attached = values, attached

    def detach(self):
        return Tensor(self.values, attached=False)

    def cpu(self):
        return self

    def numpy(self):
        assert not self.attached
        return self.values

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("call detach() first")


def test_tensors_that_track_gradients():
    expected = nq.estimate(problem(block), method="nmc", budget=400, rng=0)
    answer = nq.estimate(
        problem(lambda x, theta: Tensor(block(x, theta))), method="nmc", budget=400, rng=0
    )
    assert answer.value == expected.value


def test_pytorch():
    torch = pytest.importorskip("torch")

    def g(x, theta):
        x, theta = torch.tensor(x, requires_grad=True), torch.tensor(theta)
        return torch.exp(x[..., 0]) * x[..., 1] + theta[..., 0]

    expected = nq.estimate(problem(block), method="nqmc", budget=400, rng=0)
    answer = nq.estimate(problem(g), method="nqmc", budget=400, rng=0)
    assert answer.value == pytest.approx(expected.value, rel=1e-12)


def test_jax():
    jnp = pytest.importorskip("jax.numpy")

    def g(x, theta):
        return jnp.exp(x[..., 0]) * x[..., 1] + theta[..., 0]

    expected = nq.estimate(problem(block), method="nqmc", budget=400, rng=0)
    answer = nq.estimate(problem(g), method="nqmc", budget=400, rng=0)
    assert answer.value == pytest.approx(expected.value, rel=1e-5)  # JAX computes in float32


def read_only(values):
    """As JAX lends its arrays."""
    values = np.array(values)
    values.flags.writeable = False
    return values


@pytest.mark.parametrize("method", METHODS)
def test_arrays_that_are_lent_for_reading_only(method):
    usual = problem(block)
    lent = nq.NestedExpectation(
        usual.outer,
        usual.inner,
        lambda x, theta: read_only(block(x, theta)),
        lambda j: read_only(usual.f(j)),
    )
    expected = nq.estimate(usual, method=method, budget=600, rng=0)
    assert nq.estimate(lent, method=method, budget=600, rng=0).value == expected.value


class Flaky:
    """Fails at some points, and succeeds there when it is asked again."""

    def __init__(self, how, share=0.02, patience=1):
        self.how, self.share, self.patience, self.failed = how, share, patience, {}

    def bad(self, x):
        key = x.tobytes()
        if x[..., 1] > self.share or self.failed.get(key, 0) >= self.patience:
            return False
        self.failed[key] = self.failed.get(key, 0) + 1
        return True

    def __call__(self, x, theta):
        if x.ndim == 1:
            if self.bad(x):
                return self.fail(np.nan)
            return one_point(x, theta)
        values = np.array(np.broadcast_to(block(x, theta), (theta.shape[0], x.shape[1])))
        x = np.broadcast_to(x, (*values.shape, 2))
        bad = np.array([[self.bad(one) for one in row] for row in x])
        if bad.any():
            return self.fail(np.where(bad, np.inf, values))
        return values

    def fail(self, values):
        if self.how == "raises":
            raise OSError("license server is busy")
        return values


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("how", ["raises", "returns"])
def test_retries_give_the_answer_without_failures(how, vectorized):
    expected = nq.estimate(problem(block), method="nmc", budget=2000, rng=0)
    g = Flaky(how)
    answer = nq.estimate(
        problem(g, vectorized=vectorized), method="nmc", budget=2000, rng=0, retries=3
    )
    assert g.failed
    assert answer.value == expected.value


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("how", ["raises", "returns"])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_point_that_always_fails_is_named(how, vectorized, retries):
    g = Flaky(how, share=0.002, patience=10**9)
    with pytest.raises(nq.EvaluationError) as caught:
        nq.estimate(
            problem(g, vectorized=vectorized), method="nmc", budget=20_000, rng=0, retries=retries
        )
    error = caught.value
    assert error.x[1] < 0.002
    assert error.theta.shape == (1,)
    assert ("3 attempts" in str(error)) == (retries == 2)
    assert ("license server" in str(error)) == (how == "raises")


def test_no_retry_for_what_is_no_accident():
    calls = []

    def g(x, theta):
        calls.append(1)
        return x[:, 0]

    with pytest.raises(nq.EvaluationError, match="shape"):
        nq.estimate(problem(g), method="nmc", budget=400, rng=0, retries=5)
    assert len(calls) == 1


def test_the_answer_before_a_failure_comes_with_it():
    class Fails:
        points = 0

        def __call__(self, x, theta):
            values = block(x, theta)
            self.points += values.size
            if self.points > 30_000:
                raise OSError("disk full")
            return values

    with pytest.raises(nq.EvaluationError, match="disk full") as caught:
        nq.estimate(problem(Fails()), method="nmc", tol=1e-9, rng=0)
    before = caught.value.estimate
    assert before.status == "failed"
    again = nq.estimate(problem(block), method=nq.NMC(before.n_outer, before.n_inner), rng=0)
    assert before.value == again.value


@pytest.mark.parametrize(
    ("g", "message"),
    [
        (lambda x, theta: [[1.0, 2.0]], "shape"),
        (lambda x, theta: [1.0] if x[0] > 0.5 else 1.0, "shape"),
        (lambda x, theta: "1.0", "str"),
        (lambda x, theta: x[2], "IndexError"),
    ],
)
def test_wrong_answers_of_one_point(g, message):
    with pytest.raises(nq.EvaluationError, match=message):
        nq.estimate(problem(g, vectorized=False), method="nmc", budget=100, rng=0)


def test_a_problem_without_g_is_for_planning():
    with pytest.raises(nq.InputError, match=r"nq\.plan"):
        nq.estimate(problem(None), budget=100)


@pytest.mark.parametrize("retries", [-1, 1.5, True, "2"])
def test_retries_have_to_be_a_number(retries):
    with pytest.raises(nq.InputError, match="retries"):
        nq.estimate(problem(block), budget=100, retries=retries)


def sum_of(x, theta):
    return np.array(x[..., 0] + theta[..., 0])


class Changing:
    """NaN at the first point of every other call, and something else in the calls between."""

    def __init__(self, between):
        self.between, self.calls = between, 0

    def __call__(self, x, theta):
        self.calls += 1
        if self.calls % 2 == 0:
            return self.between()
        values = sum_of(x, theta)
        values[0, 0] = np.nan
        return values


def fail():
    raise ValueError("another way to fail")


@pytest.mark.parametrize(
    "between", [fail, lambda: np.zeros((7, 3, 2)), lambda: np.zeros((1, 1, 2))]
)
def test_a_retry_that_fails_in_another_way(between):
    with pytest.raises(nq.EvaluationError, match=r"g raised ValueError|g returned"):
        nq.estimate(problem(Changing(between)), method="nqmc", budget=400, rng=0, retries=1)


def outputs_by_block(x, theta):
    if x.shape[1] > 4 or theta.shape[0] > 4:
        raise ValueError("large")
    return np.zeros((theta.shape[0], x.shape[1], 1 + x.shape[1]))


def ends(x, theta):
    raise SystemExit(3)


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("g", [outputs_by_block, ends])
def test_other_failures_of_g_are_evaluation_errors(g, retries):
    with pytest.raises(nq.EvaluationError, match=r"different axes|g returned|g raised"):
        nq.estimate(problem(g), method="nqmc", budget=400, rng=0, retries=retries)


@pytest.mark.parametrize("method", ["auto", "ckq"])
def test_a_number_of_answers_that_varies(method):
    varying = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), sum_of, lambda j: np.ones((len(j), 1 + len(j) % 3))
    )
    with pytest.raises(nq.EvaluationError, match="answers after"):
        nq.estimate(varying, method=method, budget=2000, rng=0)


def test_final_answers_that_are_none_or_vary():
    calls = []

    def combine(answers):
        calls.append(answers)
        return np.ones(1 + len(calls) % 2)

    for bad in (lambda answers: np.zeros(0), combine):
        with pytest.raises(nq.EvaluationError, match="combine returned"):
            nq.estimate(
                nq.NestedExpectation(nq.Uniform(), nq.Uniform(), sum_of, combine=bad),
                method="nqmc", budget=400, rng=0,
            )  # fmt: skip


def test_f_may_return_a_tensor_that_tracks_gradients():
    torch = pytest.importorskip("torch")
    tracked = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), sum_of, lambda j: 2 * torch.tensor(j, requires_grad=True)
    )
    est = nq.estimate(tracked, method="nqmc", budget=400, rng=0)
    assert est.value == pytest.approx(2.0, abs=0.1)
