"""A store is not believed once g is another function, whatever made it one."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq


def run(g, store, **options):
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), g, np.square, noisy=options.pop("noisy", False)
    )
    return nq.estimate(problem, method="nqmc", budget=256, rng=0, store=store, **options)


class Slots:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x, theta):
        return self.scale * x[..., 0] + theta[..., 0]


@pytest.mark.parametrize("before", [1.0])
@pytest.mark.parametrize("after", [1.001, 1.5])
def test_what_g_holds(before, after, tmp_path):
    first = run(Slots(before), tmp_path / "store")
    again = run(Slots(before), tmp_path / "store")
    assert again.value == first.value
    assert again.diagnostics["n_reused"] == 256
    with pytest.raises(nq.InputError, match="another g"):
        run(Slots(after), tmp_path / "store")


def test_what_g_reads(tmp_path):
    file = tmp_path / "scale.txt"

    def g(x, theta):
        return float(file.read_text()) * x[..., 0] + theta[..., 0]

    file.write_text("1.0")
    first = run(g, tmp_path / "store")
    file.write_text("1.001")
    with pytest.raises(nq.InputError, match=r"(?s)another g.*theta = .*x = .*noisy=True") as caught:
        run(g, tmp_path / "store")
    assert caught.value.argument == "problem"
    assert run(g, tmp_path / "store", store_check=False).value == first.value
    file.write_text("1.0")
    again = run(g, tmp_path / "store")
    assert again.value == first.value
    assert 0 < again.diagnostics["n_checked"] <= 16


def test_a_rare_loss_that_is_gone(tmp_path):
    # The largest values are looked at: there a branch shows that few points take.
    file = tmp_path / "loss.txt"

    def g(x, theta):
        return x[..., 0] + float(file.read_text()) * (x[..., 0] > 0.99)

    file.write_text("10")
    run(g, tmp_path / "store")
    file.write_text("0")
    with pytest.raises(nq.InputError, match="another g"):
        run(g, tmp_path / "store")


def test_a_rare_loss_in_the_first_of_many_chunks(tmp_path, simulated):
    # How many chunks there are depends on the time that g takes: the extremes of all count.
    file = tmp_path / "loss.txt"

    def g(x, theta):
        simulated.wait(0.02)
        return x[..., 0] * float(file.read_text()) ** (theta[..., 0] < 0.05)

    file.write_text("100")
    run(g, tmp_path / "store")
    assert len(list((tmp_path / "store").glob("points-*/*.npy"))) > 3
    file.write_text("1")
    with pytest.raises(nq.InputError, match="another g"):
        run(g, tmp_path / "store")


def test_another_number_of_outputs(tmp_path):
    file = tmp_path / "outputs.txt"

    def g(x, theta):
        return np.stack([x[..., 0]] * int(file.read_text()), axis=-1)

    file.write_text("1")
    run(g, tmp_path / "store")
    file.write_text("2")
    with pytest.raises(nq.InputError, match="another g"):
        run(g, tmp_path / "store")


class Random:
    def __init__(self, seed, shift=0.0):
        self._rng, self.shift = np.random.default_rng(seed), [shift]

    def __call__(self, x, theta):
        self.shift[0] += 0.0
        noise = self._rng.standard_normal(np.broadcast_shapes(x.shape, theta.shape)[:-1])
        return x[..., 0] + theta[..., 0] + self.shift[0] + 0.1 * noise


def test_a_random_g_is_refused_unless_it_is_declared(tmp_path):
    first = run(Random(0), tmp_path / "store", noisy=True)
    with pytest.raises(nq.InputError, match="noisy=True"):
        run(Random(2), tmp_path / "store")
    for seed in range(2, 42, 2):
        assert run(Random(seed), tmp_path / "store", noisy=True).value == first.value
    with pytest.raises(nq.InputError, match="on average"):
        run(Random(2, 30.0), tmp_path / "store", noisy=True)


def test_workers_evaluate_the_points_again(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        first = run(Slots(1.0), tmp_path / "store", executor=pool)
        again = run(Slots(1.0), tmp_path / "store", executor=pool)
    assert again.value == first.value
    assert again.diagnostics["n_checked"] > 0
