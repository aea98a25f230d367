"""Max-value entropy search with weights: against dense quadrature over the maximum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

import nestquad as nq

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.models import SingleTaskGP  # noqa: E402

from nestquad.botorch import KQMaxValueEntropy  # noqa: E402

POINTS = torch.linspace(0.02, 0.98, 9, dtype=torch.double)[:, None, None]


@pytest.fixture(scope="module")
def model():
    x = torch.tensor([[0.0], [0.2], [0.45], [0.7], [1.0]], dtype=torch.double)
    return SingleTaskGP(x, (7 * x).sin() + 0.3 * x)


@pytest.fixture(scope="module")
def candidates():
    return torch.rand(120, 1, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def exact(model, candidates, points, sign=1.0, n=4001):
    """∫ h(γ(y)) dF(y) on a fine grid of y, with F the law of the maximum."""
    with torch.no_grad():
        at = model.posterior(candidates.unsqueeze(-2))
        mean, sd = sign * at.mean.ravel().numpy(), at.variance.sqrt().ravel().numpy()
        here = model.posterior(points)
        mu, sigma = sign * here.mean.ravel().numpy(), here.variance.sqrt().ravel().numpy()
    y = np.linspace((mean - 8 * sd).max(), (mean + 8 * sd).max(), n)
    cdf = np.exp(log_ndtr((y[:, None] - mean) / sd).sum(axis=1))
    middle, mass = (y[1:] + y[:-1]) / 2, np.diff(cdf)
    gamma = (middle - mu[:, None]) / sigma[:, None]
    log_cdf = log_ndtr(gamma)
    gain = 0.5 * gamma * np.exp(-0.5 * gamma**2 - 0.5 * np.log(2 * np.pi) - log_cdf) - log_cdf
    return gain @ mass / mass.sum()


@pytest.mark.parametrize("maximize", [True, False])
def test_few_values_are_enough(model, candidates, maximize):
    truth = exact(model, candidates, POINTS, 1.0 if maximize else -1.0)
    acqf = KQMaxValueEntropy(model, candidates, num_values=16, maximize=maximize)
    result = acqf(POINTS).detach().numpy()
    equal = KQMaxValueEntropy(model, candidates, num_values=16, maximize=maximize)
    equal.weights.fill_(1 / 16)
    plain = equal(POINTS).detach().numpy()
    errors = [np.abs(one - truth).mean() / truth.mean() for one in (result, plain)]
    assert errors[0] < 0.005
    assert errors[0] < errors[1]


def test_values_are_quantiles_of_the_maximum(model, candidates):
    acqf = KQMaxValueEntropy(model, candidates, num_values=8)
    with torch.no_grad():
        at = model.posterior(candidates.unsqueeze(-2))
        mean, sd = at.mean.ravel(), at.variance.sqrt().ravel()
    cdf = torch.special.log_ndtr((acqf.values[:, None] - mean) / sd).sum(dim=-1).exp()
    np.testing.assert_allclose(cdf, (np.arange(8) + 0.5) / 8, rtol=1e-6)
    assert float(acqf.weights.sum()) == pytest.approx(1.0)


def test_gradient_is_that_of_the_value(model, candidates):
    acqf = KQMaxValueEntropy(model, candidates)
    x = torch.tensor([[[0.33]]], dtype=torch.double, requires_grad=True)
    (slope,) = torch.autograd.grad(acqf(x).sum(), x)
    step = 1e-5
    ends = [float(acqf(x.detach() + s * step).detach()) for s in (1, -1)]
    assert float(slope) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_bad_input_is_told(model, candidates):
    with pytest.raises(nq.InputError, match="num_values"):
        KQMaxValueEntropy(model, candidates, num_values=1)
    with pytest.raises(nq.InputError, match="candidate_set"):
        KQMaxValueEntropy(model, candidates[:, 0])
    with pytest.raises(nq.InputError, match="kernel"):
        KQMaxValueEntropy(model, candidates, kernel="cubic")
