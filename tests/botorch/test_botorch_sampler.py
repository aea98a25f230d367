"""The sampler under posteriors, and acquisition functions that use its weights."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    ExpectedImprovement,
    qExpectedImprovement,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qLowerBoundMaxValueEntropy,
    qLowerConfidenceBound,
    qMaxValueEntropy,
    qMultiStepLookahead,
    qNoisyExpectedImprovement,
    qProbabilityOfImprovement,
    qSimpleRegret,
    qUpperConfidenceBound,
)
from botorch.acquisition.analytic import PosteriorMean
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.knowledge_gradient import qMultiFidelityKnowledgeGradient
from botorch.acquisition.monte_carlo import qPosteriorStandardDeviation
from botorch.acquisition.multi_objective import (
    qExpectedHypervolumeImprovement,
)
from botorch.acquisition.objective import LinearMCObjective, ScalarizedPosteriorTransform
from botorch.optim import optimize_acqf
from botorch.sampling import IIDNormalSampler, SobolQMCNormalSampler
from botorch.utils.multi_objective.box_decompositions import FastNondominatedPartitioning
from gp_models import batches, small_model, tensor

import nestquad as nq
from nestquad.botorch import KQNormalSampler, normal_rule, with_kq

BEST = 0.6
pytestmark = pytest.mark.filterwarnings("ignore:.*Improvement has known numerical issues")


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("q", [1, 3])
def test_base_samples_are_those_of_botorch_and_weights_belong_to_them(q, outputs):
    posterior = small_model(2, outputs=outputs).posterior(batches(4, q, 2))
    sampler, plain = KQNormalSampler(torch.Size([32]), seed=5), SobolQMCNormalSampler(
        torch.Size([32]), seed=5
    )  # fmt: skip
    torch.testing.assert_close(sampler(posterior), plain(posterior), rtol=0, atol=0)
    nodes = sampler.base_samples.reshape(32, q * outputs).numpy()
    assert sampler.base_weights.tolist() == normal_rule(nodes).weights.tolist()
    assert sampler.rule.dim == q * outputs


def test_weighted_samples_have_the_posterior_moments():
    model, X = small_model(2), batches(2, 2)
    posterior = model.posterior(X)
    sampler = KQNormalSampler(256, seed=0)
    samples = sampler(posterior)[..., 0]
    mean = sampler.base_weights @ samples
    torch.testing.assert_close(mean, posterior.mean[..., 0], rtol=0, atol=1e-3)
    centered = samples - posterior.mean[..., 0]
    covariance = (centered.T * sampler.base_weights) @ centered
    torch.testing.assert_close(
        covariance, posterior.distribution.covariance_matrix, rtol=0, atol=2e-2
    )


def test_new_shapes_make_new_weights_and_old_ones_stay():
    model, sampler = small_model(), KQNormalSampler(16, seed=0)
    sampler(model.posterior(batches(1, 1)))
    one = sampler.base_weights.clone()
    sampler(model.posterior(batches(5, 1, 1)))  # batches do not matter
    assert torch.equal(sampler.base_weights, one)
    sampler(model.posterior(batches(2, 1)))
    assert sampler.rule.dim == 2
    assert not torch.equal(sampler.base_weights, one)
    sampler(model.posterior(batches(1, 1)))
    assert torch.equal(sampler.base_weights, one)


def test_state_is_saved_loaded_and_converted():
    model, sampler = small_model(), KQNormalSampler(16, seed=3)
    samples = sampler(model.posterior(batches(2, 1)))
    state = sampler.state_dict()
    assert set(state) == {"base_samples", "base_weights"}
    other = KQNormalSampler(16, seed=99)
    other.load_state_dict(state)
    torch.testing.assert_close(other(model.posterior(batches(2, 1))), samples, rtol=0, atol=0)
    assert torch.equal(other.base_weights, sampler.base_weights)
    assert copy.deepcopy(sampler).to(torch.float).base_weights.dtype == torch.float


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_single_precision_posteriors_get_single_precision_weights():
    from botorch.models import SingleTaskGP

    X = torch.linspace(0, 1, 4).unsqueeze(-1)
    sampler = KQNormalSampler(16, seed=0)
    assert sampler(SingleTaskGP(X, X.sin()).posterior(X[:1])).dtype == torch.float
    assert sampler.base_weights.dtype == torch.float
    assert sampler.base_weights.sum().item() == pytest.approx(1.0, abs=1e-6)


def test_seeds_decide():
    def weights(seed):
        sampler = KQNormalSampler(16, seed=seed)
        sampler(small_model().posterior(batches(2, 1)))
        return sampler.base_weights

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    torch.manual_seed(0)
    drawn = KQNormalSampler(16).seed
    torch.manual_seed(0)
    assert drawn == KQNormalSampler(16).seed


@pytest.mark.parametrize("shape", ["16", 1.5, None, torch.Size([]), 0, torch.Size([0])])
def test_bad_sample_shapes_are_named(shape):
    with pytest.raises(nq.InputError, match="sample_shape"):
        KQNormalSampler(shape)


def test_other_bad_arguments_are_named():
    with pytest.raises(nq.InputError, match="kernel"):
        KQNormalSampler(16, kernel="gauss")
    # A true posterior of so many points would take minutes; this is all that is looked at first.
    many = SimpleNamespace(base_sample_shape=torch.Size([21_202, 1]), batch_range=(0, -2))
    with pytest.raises(nq.InputError, match=r"21202.*21201"):
        KQNormalSampler(2, seed=0)(many)


# Acquisition functions, each against the same sum written out.


def improvement(samples):
    return (samples - BEST).clamp_min(0).amax(dim=-1)


def upper(samples, weights, sign=1):
    mean = torch.einsum("n,nbq->bq", weights, samples)
    return (mean + sign * math.sqrt(0.5 * math.pi / 2) * (samples - mean).abs()).amax(dim=-1)


def spread(samples, weights):
    mean = torch.einsum("n,nbq->bq", weights, samples)
    return (math.sqrt(math.pi / 2) * (samples - mean).abs()).amax(dim=-1)


WRITTEN_OUT = {
    "qEI": (lambda m: qExpectedImprovement(m, BEST), lambda s, w: improvement(s)),
    "qPI": (
        lambda m: qProbabilityOfImprovement(m, BEST),
        lambda s, w: torch.sigmoid((s - BEST) / 1e-3).amax(dim=-1),
    ),
    "qSR": (qSimpleRegret, lambda s, w: s.amax(dim=-1)),
    "qUCB": (lambda m: qUpperConfidenceBound(m, 0.5), upper),
    "qLCB": (lambda m: qLowerConfidenceBound(m, 0.5), lambda s, w: upper(s, w, sign=-1)),
    "qPSTD": (qPosteriorStandardDeviation, spread),
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
@pytest.mark.parametrize("q", [1, 2])
def test_weighted_acquisition_is_the_weighted_sum(name, q):
    make, utility = WRITTEN_OUT[name]
    model, X = small_model(2), batches(3, q, 2)
    sampler = KQNormalSampler(32, seed=4)
    acqf = with_kq(make(model), sampler)
    samples = KQNormalSampler(32, seed=4)(model.posterior(X))[..., 0]
    value = acqf(X)
    weights = sampler.base_weights
    assert weights.std() > 0
    torch.testing.assert_close(value, weights @ utility(samples, weights))
    assert value.shape == (3,)


def test_log_improvement_is_the_log_of_the_improvement():
    model, X = small_model(2), batches(3, 1, 2)
    log = with_kq(qLogExpectedImprovement(model, BEST), KQNormalSampler(64, seed=4))(X)
    plain = with_kq(qExpectedImprovement(model, BEST), KQNormalSampler(64, seed=4))(X)
    torch.testing.assert_close(log.exp(), plain, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(log).all()


def test_zero_weights_leave_gradients_finite():
    model, X = small_model(), batches(1, 1, 1).requires_grad_()
    sampler = next(
        s for s in (KQNormalSampler(64, seed=k) for k in range(20))
        if s(model.posterior(batches(1, 1))) is not None and s.rule.n_zero
    )  # fmt: skip
    with_kq(qLogExpectedImprovement(model, BEST), sampler)(X).sum().backward()
    assert torch.isfinite(X.grad).all()


def test_constraints_objectives_and_pending_points_go_through():
    model, X = small_model(2, outputs=2), batches(3, 2, 2)
    acqf = qExpectedImprovement(
        model,
        BEST,
        objective=LinearMCObjective(tensor([1.0, 0.5])),
        constraints=[lambda Y: Y[..., 1] - 0.5],
        X_pending=batches(1, 2, seed=7),
    )
    sampler = KQNormalSampler(32, seed=4)
    value = with_kq(acqf, sampler)(X)
    full = torch.cat([X, batches(1, 2, seed=7).expand(3, 1, 2)], dim=-2)
    samples = KQNormalSampler(32, seed=4)(model.posterior(full))
    gain = (samples @ tensor([1.0, 0.5]) - BEST).clamp_min(0)
    feasible = torch.sigmoid(-(samples[..., 1] - 0.5) / 1e-3)
    torch.testing.assert_close(value, sampler.base_weights @ (gain * feasible).amax(dim=-1))
    assert sampler.rule.dim == 6


@pytest.mark.parametrize("cls", [qNoisyExpectedImprovement, qLogNoisyExpectedImprovement])
def test_noisy_improvement_without_a_cached_root(cls):
    model, X = small_model(noise=1e-2), batches(3, 1, 1)
    base = batches(2, 1, seed=8)
    acqf = cls(model, base, prune_baseline=False, cache_root=False)
    sampler = KQNormalSampler(64, seed=4)
    value = with_kq(acqf, sampler)(X)
    value = value.exp() if cls is qLogNoisyExpectedImprovement else value
    full = torch.cat([base.expand(3, 2, 1), X], dim=-2)
    samples = KQNormalSampler(64, seed=4)(model.posterior(full))[..., 0]
    gain = (samples[..., 2] - samples[..., :2].amax(dim=-1)).clamp_min(0)
    torch.testing.assert_close(value, sampler.base_weights @ gain, rtol=1e-3, atol=1e-5)


def test_the_sampler_is_made_to_measure():
    model = small_model()
    acqf = with_kq(qExpectedImprovement(model, BEST, sampler=IIDNormalSampler(torch.Size([48]), 9)))
    assert acqf.sampler.sample_shape == torch.Size([48])
    assert (acqf.sampler.seed, acqf.sampler.kernel) == (9, "spline")
    assert with_kq(qProbabilityOfImprovement(model, BEST), 16).sampler.kernel == "matern12"
    own = KQNormalSampler(24, seed=1)
    assert with_kq(qSimpleRegret(model, sampler=own)).sampler is own


def test_q1_improvement_is_closer_to_the_closed_form_than_sobol():
    model, X = small_model(2), batches(30, 1, 2)
    exact = ExpectedImprovement(model, BEST)(X)
    errors = {KQNormalSampler: [], SobolQMCNormalSampler: []}
    for cls, item in errors.items():
        for seed in range(40):
            acqf = qExpectedImprovement(model, BEST, sampler=cls(torch.Size([32]), seed=seed))
            if cls is KQNormalSampler:
                with_kq(acqf)
            item.append((acqf(X) - exact).abs().mean().item())
    assert sum(errors[KQNormalSampler]) < sum(errors[SobolQMCNormalSampler]) / 2


def test_multi_step_lookahead_reads_the_weights():
    model, X = small_model(), batches(2, 9, 1)
    sampler = KQNormalSampler(8, seed=2)
    value = qMultiStepLookahead(model, batch_sizes=[1], samplers=[sampler])(X)
    fantasies = model.fantasize(X[:, :1], sampler=KQNormalSampler(8, seed=2))
    means = PosteriorMean(fantasies)(X[:, 1:].transpose(0, 1).unsqueeze(-2))
    torch.testing.assert_close(value, sampler.base_weights @ means)


def test_knowledge_gradient_is_the_weighted_mean_over_fantasies():
    model, X = small_model(), batches(2, 9, 1)
    plain = qKnowledgeGradient(model, num_fantasies=8, current_value=tensor(0.3))
    sampler = KQNormalSampler(8, seed=2)
    acqf = with_kq(plain, sampler)
    fantasies = model.fantasize(X[:, :1], sampler=KQNormalSampler(8, seed=2))
    means = PosteriorMean(fantasies)(X[:, 1:].transpose(0, 1).unsqueeze(-2))
    torch.testing.assert_close(acqf(X), sampler.base_weights @ means - 0.3)
    assert isinstance(acqf, qKnowledgeGradient)
    assert torch.equal(acqf.extract_candidates(X), X[:, :1])
    with pytest.raises(nq.UnsupportedError, match="evaluate"):
        acqf.evaluate(X[:, :1], bounds=tensor([[0.0], [1.0]]))


class _Own(AcquisitionFunction):
    def forward(self, X):
        return X.sum(dim=(-1, -2))


class _OwnForward(qExpectedImprovement):
    def forward(self, X):
        return X.sum(dim=(-1, -2))


REFUSED = {
    "ExpectedImprovement": lambda m: ExpectedImprovement(m, BEST),
    "qNoisyExpectedImprovement": lambda m: qNoisyExpectedImprovement(
        m, batches(3, 1), prune_baseline=False, cache_root=True
    ),
    "qLogNoisyExpectedImprovement": lambda m: qLogNoisyExpectedImprovement(
        m, batches(3, 1), prune_baseline=False, cache_root=True
    ),
    "qMaxValueEntropy": lambda m: qMaxValueEntropy(m, batches(20, 1)),
    "qLowerBoundMaxValueEntropy": lambda m: qLowerBoundMaxValueEntropy(m, batches(20, 1)),
    "qJointEntropySearch": lambda m: qJointEntropySearch(m, batches(2, 1), batches(2, 1)),
    "qMultiStepLookahead": lambda m: qMultiStepLookahead(m, batch_sizes=[1], num_fantasies=[2]),
    "qMultiFidelityKnowledgeGradient": lambda m: qMultiFidelityKnowledgeGradient(
        m, num_fantasies=2
    ),
    "qExpectedHypervolumeImprovement": lambda m: qExpectedHypervolumeImprovement(
        small_model(outputs=2),
        ref_point=[-2.0, -2.0],
        partitioning=FastNondominatedPartitioning(tensor([-2.0, -2.0]), tensor([[0.1, 0.2]])),
    ),
    "_Own": _Own,
    "_OwnForward": lambda m: _OwnForward(m, BEST),
    "objective": lambda m: qKnowledgeGradient(
        m, num_fantasies=2, objective=LinearMCObjective(tensor([1.0]))
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::Warning")  # of the constructors of what is refused
def test_what_ignores_weights_is_refused_by_name(name):
    acqf = REFUSED[name](small_model())
    with pytest.raises(nq.UnsupportedError, match=name):
        with_kq(acqf)


def test_a_cached_root_cannot_take_the_sampler_either():
    sampler = KQNormalSampler(8, seed=0)
    acqf = qLogNoisyExpectedImprovement(
        small_model(), batches(3, 1), sampler=sampler, prune_baseline=False, cache_root=True
    )
    with pytest.raises(nq.UnsupportedError, match="cache_root=False"):
        acqf(batches(1, 1, 1))


def test_what_is_no_acquisition_function_is_refused():
    with pytest.raises(nq.InputError, match="acqf"):
        with_kq(small_model())


def test_optimize_acqf_finds_the_maximum_of_expected_improvement():
    model, bounds = small_model(), tensor([[0.0], [1.0]])
    grid = torch.linspace(0, 1, 2001, dtype=torch.double).view(-1, 1, 1)
    exact = ExpectedImprovement(model, BEST)(grid)
    acqf = with_kq(qLogExpectedImprovement(model, BEST), KQNormalSampler(64, seed=0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        candidate, _ = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=32)
    result = ExpectedImprovement(model, BEST)(candidate.unsqueeze(0))
    assert result.item() > 0.99 * exact.max().item()


def test_scalarized_outputs_are_one():
    model, X = small_model(2, outputs=2), batches(3, 2, 2)
    transform = ScalarizedPosteriorTransform(tensor([0.3, 0.7]))
    sampler = KQNormalSampler(32, seed=4)
    value = with_kq(qSimpleRegret(model, posterior_transform=transform), sampler)(X)
    samples = KQNormalSampler(32, seed=4)(model.posterior(X, posterior_transform=transform))
    torch.testing.assert_close(value, sampler.base_weights @ samples[..., 0].amax(dim=-1))
    assert sampler.rule.dim == 2
