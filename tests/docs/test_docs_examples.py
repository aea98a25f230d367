"""The scripts in examples/ run in seconds and are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import doc_pages as pages
import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import load_problem

EXAMPLES = pages.ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
# What a dependency of BoTorch does when it is imported.
TORCH_IMPORT = "ignore:`torch.jit.script` is deprecated:DeprecationWarning"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_example_runs(script, tmp_path):
    source = str(Path(nq.__file__).parents[1])  # also where it is not installed
    run = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_IMPORT, str(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
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
    (found,) = re.findall(r"profit (\S+) at", capsys.readouterr().out)
    ends = example["BOUNDS"].T.tolist()
    grid = np.meshgrid(*(np.linspace(low, high, 101) for low, high in ends))
    best = max(example["profit"](setting) for setting in zip(*map(np.ravel, grid), strict=True))
    assert float(found) > 0.9 * best
