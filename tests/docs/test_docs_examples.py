"""The scripts in examples/ run in seconds and are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import doc_pages as pages
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import qmc

import nestquad as nq
from nestquad.cli import load_problem

EXAMPLES = pages.ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
# What a dependency of BoTorch does when it is imported.
TORCH_IMPORT = "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
# What QuantLib's wrapper does when it is imported by Python 3.12 or later.
SWIG_IMPORT = "ignore:builtin type:DeprecationWarning"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_example_runs(script, tmp_path):
    if "quantlib" in script.name:
        pytest.importorskip("QuantLib")
        if not hasattr(pytest.importorskip("nestquad.risk"), "measure"):
            pytest.skip("nestquad.risk.measure is needed")
    source = str(Path(nq.__file__).parents[1])  # also where it is not installed
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_IMPORT, "-W", SWIG_IMPORT, str(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"\d\.\d{3,}", run.stdout), "prints no answer"
    assert not any(tmp_path.iterdir()), "an example leaves nothing behind"


def test_quickstart_is_the_readme():
    (example,) = pages.blocks(pages.ROOT / "README.md", "python")
    assert example.text == (EXAMPLES / "quickstart.py").read_text(encoding="utf-8")


def test_quickstart_is_right():
    from scipy.stats import norm

    # J(θ) = exp(0.1 θ + 0.02) - 1 is positive from θ = -0.2 on.
    exact = np.exp(0.025) * norm.cdf(0.3) - norm.cdf(0.2)
    problem = load_problem(f"{EXAMPLES / 'quickstart.py'}:problem")
    est = nq.estimate(problem, tol=1e-3, rng=0)
    assert est.status == "converged"
    assert abs(est.value - exact) < 1e-3


@pytest.mark.parametrize("name", ["black_scholes_risk", "from_scipy"])
def test_exact_value_of_the_example_is_right(name):
    # Against nested Monte Carlo, which shares nothing with the closed forms. f is steep or kinked,
    # so N is large enough for the bias to drown in the noise.
    problem = load_problem(f"{EXAMPLES / name}.py:problem")
    est = nq.estimate(problem, method=nq.NMC(n_outer=10_000, n_inner=400), rng=0)
    assert np.all(np.abs(est.value - np.asarray(problem.exact)) < 4 * est.std_error)
    assert np.all(est.std_error < 0.1 * np.abs(problem.exact))


@pytest.mark.parametrize(
    ("name", "method", "budget"), [("black_scholes_risk", "ckq", 512), ("from_scipy", "nkq", 8192)]
)
def test_example_finds_it(name, method, budget):
    problem = load_problem(f"{EXAMPLES / name}.py:problem")
    est = nq.estimate(problem, budget=budget, method=method, rng=1)
    assert np.all(np.abs(est.value - np.asarray(problem.exact)) < 5 * est.std_error)
    assert np.all(np.abs(est.value - np.asarray(problem.exact)) < 0.05 * np.abs(problem.exact))


def test_black_box_is_nearly_optimized(capsys):
    import runpy

    example = runpy.run_path(str(EXAMPLES / "black_box.py"), run_name="__main__")
    (result,) = re.findall(r"profit (\S+) at", capsys.readouterr().out)
    ends = example["BOUNDS"].T.tolist()
    grid = np.meshgrid(*(np.linspace(low, high, 101) for low, high in ends))
    best = max(example["profit"](setting) for setting in zip(*map(np.ravel, grid), strict=True))
    assert float(result) > 0.9 * best


@pytest.fixture
def knock_in(monkeypatch):
    pytest.importorskip("QuantLib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return pytest.importorskip("quantlib_knock_in")


def test_paths_of_quantlib_price_a_put_as_its_closed_form(knock_in, monkeypatch):
    import QuantLib as ql

    monkeypatch.setattr(knock_in, "BARRIER", np.inf)  # always in: a put
    theta, z = np.array([95.0, 0.05]), qmc.Sobol(24, rng=0).random_base2(11)
    paid = [knock_in.cost(x, theta) for x in ndtri(z)]
    expiry = ql.EuropeanExercise(knock_in.TODAY + ql.Period(182, ql.Days))
    put = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, knock_in.STRIKE), expiry)
    put.setPricingEngine(ql.AnalyticHestonEngine(ql.HestonModel(knock_in.heston(*theta))))
    assert np.mean(paid) == pytest.approx(put.NPV(), rel=0.02)


def test_a_sold_knock_in_put_costs_less_than_a_put_and_more_when_prices_fall(knock_in):
    z = ndtri(qmc.Sobol(24, rng=1).random_base2(8))
    paid = [[knock_in.cost(x, np.array([s, 0.04])) for x in z] for s in (85.0, 100.0, 115.0)]
    low, middle, high = np.mean(paid, axis=1)
    assert low > middle > high > 0
    assert (np.array(paid) <= knock_in.STRIKE).all()


def test_quantlib_in_processes_and_from_a_store_gives_the_same_bits(
    knock_in, tmp_path, monkeypatch
):
    alone = nq.estimate(knock_in.problem, budget=256, method="nqmc", rng=0)
    with ProcessPoolExecutor(2) as executor:
        shared = nq.estimate(
            knock_in.problem, budget=256, method="nqmc", rng=0, executor=executor, store=tmp_path
        )
    # Any further path would raise.
    monkeypatch.setattr(type(knock_in.PROCESS), "evolve", None, raising=False)
    again = nq.estimate(
        knock_in.problem, budget=256, method="nqmc", rng=0, store=tmp_path, store_check=False
    )
    assert alone.value == shared.value == again.value
