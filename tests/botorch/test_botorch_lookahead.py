"""Two-step look-ahead: against dense quadrature, BoTorch's fantasies and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_normal_samples
from gp_models import batches, small_model, tensor
from scipy.stats import norm

import nestquad as nq
from nestquad.botorch import KQNormalSampler, NestedLookaheadEI

BEST = 0.6
UNIT = tensor([[0.0], [1.0]])
RULES = ["kq", "qmc", "nmc", "mlmc"]


def dense_truth(model, z, best=BEST, n_next=801, n_normals=401):
    """E[g + max E[g']] of one point in one dimension, by formulas of Gaussian processes alone."""
    X, Y = model.train_inputs[0], model.train_targets
    grid = torch.linspace(0, 1, n_next, dtype=torch.double).unsqueeze(-1)
    every = torch.cat([X, tensor([[z]]), grid])
    gram = model.covar_module(every).to_dense().detach().numpy()
    n, level = len(X), model.mean_module.constant.item()
    data = np.linalg.inv(gram[:n, :n] + 1e-6 * np.eye(n))
    mean = level + gram[n:, :n] @ data @ (Y.numpy() - level)
    cov = gram[n:, n:] - gram[n:, :n] @ data @ gram[:n, n:]
    sd = np.sqrt(cov[0, 0])
    u = np.linspace(-6, 6, n_normals)
    law = norm.pdf(u) / norm.pdf(u).sum()
    first = mean[0] + sd * u
    known = np.maximum(first, best)
    # Given f(z), without noise.
    means = mean[1:, None] + cov[1:, :1] / sd * u
    deviations = np.sqrt(np.maximum(np.diag(cov)[1:] - cov[1:, 0] ** 2 / sd**2, 1e-12))[:, None]
    gain = (means - known) / deviations
    improvement = deviations * (norm.pdf(gain) + gain * norm.cdf(gain))
    return float(law @ (known - best + improvement.max(axis=0)))


@pytest.mark.parametrize("z", [0.15, 0.5, 0.83])
@pytest.mark.parametrize("inner", [None, 64])
def test_one_point_against_dense_quadrature(z, inner):
    model = small_model()
    acqf = NestedLookaheadEI(model, BEST, outer=64, inner=inner, seed=0, bounds=UNIT)
    value = acqf.value(tensor([[z]])).item()
    assert value == pytest.approx(dense_truth(model, z), rel=5e-3)


def test_kq_is_closer_to_the_truth_than_qmc_and_nmc():
    model, places = small_model(), (0.15, 0.5, 0.83)
    truth = np.array([dense_truth(model, z) for z in places])
    X, error = tensor(places).view(-1, 1, 1), {}
    for rule in ("kq", "qmc", "nmc"):
        made = [
            NestedLookaheadEI(
                model, BEST, 1, rule, 16, 16, seed, bounds=UNIT, raw_samples=256, maxiter=0
            )
            for seed in range(20)
        ]
        error[rule] = np.mean([np.abs(acqf.value(X).detach().numpy() - truth) for acqf in made])
    assert error["kq"] < error["qmc"] / 2
    assert error["qmc"] < error["nmc"]


def test_multilevel_agrees_with_the_truth_on_average():
    model = small_model()
    truth = dense_truth(model, 0.5)
    values = [
        NestedLookaheadEI(
            model, BEST, 1, "mlmc", 256, 32, seed, bounds=UNIT, raw_samples=128, maxiter=0
        ).value(tensor([[0.5]])).item()
        for seed in range(12)
    ]  # fmt: skip
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - truth) < 4 * spread
    assert spread < 0.1 * truth


def joint_truth(model, now, then, best=BEST):
    """The same z' after every fantasy: an expectation over one joint law, by many samples."""
    q = len(now)
    posterior = model.posterior(torch.cat([now, then]))
    normals = draw_sobol_normal_samples(d=q + len(then), n=2**17, seed=0, dtype=torch.double)
    root = torch.linalg.cholesky(posterior.distribution.covariance_matrix)
    values = posterior.mean[..., 0] + normals @ root.T
    first = values[:, :q].amax(dim=-1).clamp_min(best)
    second = (values[:, q:].amax(dim=-1) - first).clamp_min(0.0)
    return (first - best + second).mean().item()


@pytest.mark.parametrize("q", [1, 2, 3])
def test_joint_laws_have_their_correlations(q):
    model, now = small_model(2, lengthscale=0.6), batches(q, 2, seed=3)
    then = now + 0.07  # close by, so that all of them are correlated
    acqf = NestedLookaheadEI(model, BEST, q, outer=256, inner=64, seed=1)
    full = torch.cat([now, then.repeat(256, 1)])
    truth = joint_truth(model, now, then)
    assert acqf(full).item() == pytest.approx(truth, rel=0.005)
    # Were the points of a batch driven by one normal, as in the paper's code, it would show.
    shared = acqf.outer_nodes_0[:, :1].expand(-1, q).clone()
    acqf.outer_nodes_0.copy_(shared)
    if q > 1:
        assert abs(acqf(full).item() / truth - 1) > 0.02


def test_fantasies_agree_with_those_of_botorch():
    model, count = small_model(2), 8
    X = batches(3, 1 + count, 2, seed=5)
    now, then = X[:, :1], X[:, 1:].transpose(0, 1).unsqueeze(-2)  # (8, 3, 1, 2)
    sampler = KQNormalSampler(count, seed=4)
    fantasies = model.fantasize(now, sampler=sampler)
    best = fantasies.train_targets.amax(dim=-1)
    posterior = fantasies.posterior(then)
    deviation = posterior.variance.sqrt()[..., 0, 0]
    gain = (posterior.mean[..., 0, 0] - best) / deviation
    normal = torch.distributions.Normal(0.0, 1.0)
    improvement = deviation * (normal.log_prob(gain).exp() + gain * normal.cdf(gain))
    total = best - model.train_targets.max() + improvement

    acqf = NestedLookaheadEI(model, None, outer=count, inner=None, seed=0)
    acqf.outer_nodes_0 = sampler.base_samples.reshape(count, 1)
    acqf.outer_weights_0 = sampler.base_weights
    # BoTorch has noise of 1e-6 on its fantasies.
    torch.testing.assert_close(acqf(X), sampler.base_weights @ total, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(("q", "inner"), [(1, None), (1, 8), (2, 8)])
@pytest.mark.parametrize("rule", ["kq", "nmc"])
def test_the_gradient_is_that_of_finite_differences(q, inner, rule):
    acqf = NestedLookaheadEI(small_model(2, n=4), 0.2, q, rule, outer=4, inner=inner, seed=2)
    X = batches(2, 5 * q, 2, seed=6).requires_grad_()
    assert torch.autograd.gradcheck(acqf, (X,), eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rule", ["kq", "mlmc"])
def test_the_gradient_with_the_next_step_solved(rule):
    acqf = NestedLookaheadEI(
        small_model(), 0.2, 1, rule, 8, 8, seed=2, bounds=UNIT, raw_samples=64, maxiter=100
    )
    X = tensor([[[0.47]]]).requires_grad_()
    acqf.value(X).sum().backward()
    step = 1e-4
    with torch.no_grad():
        difference = (acqf.value(X + step) - acqf.value(X - step)) / (2 * step)
    assert X.grad.item() == pytest.approx(difference.item(), rel=2e-2, abs=1e-3)


@pytest.mark.parametrize("rule", RULES)
def test_same_seed_same_bits_and_batches_do_not_matter(rule):
    model = small_model(2)
    bounds = tensor([[0.0, 0.0], [1.0, 1.0]])

    def made(seed=3):
        return NestedLookaheadEI(
            model, BEST, 2, rule, 4, 4, seed, bounds=bounds, raw_samples=8, maxiter=0
        )

    acqf = made()
    X = batches(3, acqf.get_augmented_q_batch_size(2), 2)
    value = acqf(X)
    assert value.shape == (3,)
    assert torch.equal(value, made()(X))
    assert not torch.equal(value, made(4)(X))
    torch.testing.assert_close(value, torch.cat([acqf(x) for x in X]))
    nested = acqf(X.expand(2, *X.shape))
    torch.testing.assert_close(nested, value.expand(2, 3))
    assert acqf.extract_candidates(X).shape == (3, 2, 2)


@pytest.mark.parametrize("rule", RULES)
def test_optimize_acqf_and_its_starting_points(rule):
    model = small_model()
    acqf = NestedLookaheadEI(
        model, BEST, 1, rule, 8, 8, seed=0, bounds=UNIT, raw_samples=16, maxiter=3
    )
    if rule == "mlmc":
        acqf.maxiter = 0  # seconds instead of a quarter of a minute
    start = acqf.initial_conditions(num_restarts=2, raw_samples=6)
    assert start.shape == (2, acqf.get_augmented_q_batch_size(1), 1)
    candidate, value = optimize_acqf(
        acqf, UNIT, q=1, num_restarts=2, batch_initial_conditions=start, options={"maxiter": 8}
    )
    assert candidate.shape == (1, 1)
    assert value.item() >= acqf(start).max().item() - 1e-9


def test_one_shot_optimisation_reaches_the_value_with_the_next_step_solved():
    model = small_model()
    acqf = NestedLookaheadEI(model, BEST, outer=8, inner=16, seed=0, bounds=UNIT)
    start = acqf.initial_conditions(num_restarts=4, raw_samples=16)
    candidate, value = optimize_acqf(
        acqf, UNIT, q=1, num_restarts=4, batch_initial_conditions=start
    )
    assert value.item() == pytest.approx(acqf.value(candidate).item(), rel=1e-2)
    grid = torch.linspace(0.02, 0.98, 25, dtype=torch.double).view(-1, 1, 1)
    assert value.item() > acqf.value(grid).max().item() * 0.98


def test_outcome_transforms_are_undone():
    model = small_model(transform=True)
    acqf = NestedLookaheadEI(model, outer=4, inner=4, seed=0, bounds=UNIT)
    X, Y = model.train_inputs[0], model.posterior(model.train_inputs[0]).mean
    assert acqf.best_f.item() == pytest.approx(Y.max().item(), abs=1e-3)
    plain = small_model()
    scale = Y.std().item()
    assert X.shape == plain.train_inputs[0].shape
    other = NestedLookaheadEI(model, acqf.best_f - 10 * scale, outer=4, inner=4, seed=0)
    full = batches(5, 1)
    assert other(full).item() > acqf(full).item() + 9 * scale


def test_points_that_coincide_are_no_trouble():
    model = small_model()
    acqf = NestedLookaheadEI(model, BEST, 2, outer=4, inner=8, seed=0)
    X = model.train_inputs[0][:1].repeat(10, 1).requires_grad_()  # all of them on a datum
    value = acqf(X)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(X.grad).all()
    assert value.item() < 1e-2


def test_state_and_precision():
    acqf = NestedLookaheadEI(small_model(), BEST, 1, "kq", 4, 8, seed=0)
    state = {k: v for k, v in acqf.state_dict().items() if not k.startswith("model")}
    assert set(state) == {
        "best_f", "outer_nodes_0", "outer_weights_0", "inner_nodes_0", "inner_weights_0"
    }  # fmt: skip
    assert state["inner_weights_0"].shape == (4, 8)
    torch.testing.assert_close(state["inner_weights_0"].sum(dim=-1), torch.ones(4).double())
    other = NestedLookaheadEI(small_model(), 0.0, 1, "kq", 4, 8, seed=9)
    other.load_state_dict(acqf.state_dict())
    X = batches(2, 5, 1)
    assert torch.equal(other(X), acqf(X))


def test_overwriting_nodes_leaves_those_of_others_alone():
    first, second = (NestedLookaheadEI(small_model(), BEST, outer=4, inner=4, seed=7) for _ in "ab")
    first.outer_nodes_0.zero_()
    first.inner_weights_0.zero_()
    third = NestedLookaheadEI(small_model(), BEST, outer=4, inner=4, seed=7)
    for acqf in (second, third):
        assert acqf.outer_nodes_0.abs().min() > 0
        assert acqf.inner_weights_0.sum() > 3


def test_large_searches_are_made_in_parts(monkeypatch):
    import nestquad.botorch._lookahead as stages

    acqf = NestedLookaheadEI(small_model(), BEST, outer=7, inner=4, seed=7, bounds=UNIT, maxiter=0)
    X = batches(2, 1, 1)
    whole = acqf.value(X)
    few = stages.LookaheadSettings(block=600)
    monkeypatch.setattr(stages, "_SETTINGS", few)  # two fantasies at a time, and one at the end
    torch.testing.assert_close(acqf.value(X), whole, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("rule", {"rule": "kqq"}),
        ("q", {"q": 0}),
        ("outer", {"outer": 1.5}),
        ("inner", {"inner": None, "q": 2}),
        ("inner", {"inner": 0}),
        ("kernel", {"kernel": "gauss"}),
        ("bounds", {"rule": "mlmc"}),
        ("bounds", {"bounds": tensor([0.0, 1.0])}),
        ("bounds", {"bounds": tensor([[1.0], [0.0]])}),
        ("bounds", {"bounds": torch.tensor([[0], [1]])}),
        ("best_f", {"best_f": float("nan")}),
        ("best_f", {"best_f": tensor([1.0, 2.0])}),
    ],
)
def test_bad_arguments_are_named(argument, options):
    with pytest.raises(nq.InputError, match=argument):
        NestedLookaheadEI(small_model(), **options)


def test_bad_points_are_named():
    acqf = NestedLookaheadEI(small_model(), BEST, 1, outer=4, inner=4, seed=0)
    with pytest.raises(nq.InputError, match=r"X.*\(1, 4, 1\).*5"):
        acqf(batches(1, 4, 1))
    with pytest.raises(nq.InputError, match=r"X.*int64"):
        acqf(torch.ones(1, 5, 1, dtype=torch.long))
    with pytest.raises(nq.InputError, match=r"X.*float32.*float64"):
        acqf(torch.ones(1, 5, 1))
    with pytest.raises(nq.InputError, match="bounds"):
        acqf.value(batches(1, 1, 1))
    with pytest.raises(nq.InputError, match="q"):
        acqf.get_augmented_q_batch_size(2)
    with pytest.raises(nq.UnsupportedError, match="pending"):
        acqf.set_X_pending(batches(1, 1))
    acqf.set_X_pending(None)


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(nq.InputError, match="2 outputs"):
        NestedLookaheadEI(small_model(outputs=2))
    X = batches(2, 4, 1)
    with pytest.raises(nq.UnsupportedError, match="single model"):
        NestedLookaheadEI(SingleTaskGP(X, X.sin()))
    pair = ModelListGP(small_model(), small_model(seed=1))
    with pytest.raises(nq.InputError, match="2 outputs"):
        NestedLookaheadEI(pair)
