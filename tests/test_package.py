"""The package itself: what it imports, exports and promises."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

import nestquad as nq

HEAVY = ("threadpoolctl", "tqdm", "matplotlib", "pandas", "scipy.stats", "torch", "IPython")


def test_import_needs_numpy_and_scipy_only():
    code = (
        "import sys, nestquad; nestquad.estimate; "
        "print([m for m in sys.modules if m.split('.')[0] not in sys.stdlib_module_names])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(re.findall(r"'([^']+)'", out.stdout))
    assert "nestquad.estimate" in modules
    for name in HEAVY:
        assert name not in modules, f"import nestquad pulls in {name}"


def test_names_are_imported_on_first_use():
    code = (
        "import sys, nestquad; "
        "print([m for m in ('numpy', 'scipy', 'nestquad.methods') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_lazy_names_are_those_of_type_checkers():
    """The imports for type checkers and the table for the interpreter name the same objects."""
    tree = ast.parse(inspect.getsource(nq))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        name.name: node.module.removeprefix("nestquad").lstrip(".")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    packages = {name for name, module in typed.items() if not module}
    assert packages == set(nq._SUBPACKAGES)
    assert {n: m for n, m in typed.items() if m} == nq._MODULE_OF
    assert set(nq.__all__) == {*nq._MODULE_OF, "problems"}
    for name, home in nq._MODULE_OF.items():
        module = sys.modules[f"nestquad.{home}"] if getattr(nq, name) is not None else None
        assert getattr(module, name) is getattr(nq, name)


@pytest.mark.parametrize("first", ["nestquad.compare", "nestquad.plan", "nestquad.estimate"])
def test_functions_keep_their_names_when_modules_are_imported(first):
    code = (
        f"import {first}, nestquad as nq; "
        "print(all(callable(getattr(nq, n)) for n in "
        "('estimate', 'compare', 'plan', 'conditional', 'expectation')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True"


def test_the_package_travels_by_name():
    """A lambda that uses ``nq`` goes to worker processes with the module in its globals."""
    import pickle

    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(pickle.dumps(nq)) is nq
    law = cloudpickle.loads(cloudpickle.dumps(lambda theta: nq.Normal(theta, 1.0)))
    assert isinstance(law(np.zeros((1, 1))), nq.Normal)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        _ = nq.estimat
    assert {"estimate", "risk", "NKQ"} <= set(dir(nq))


def test_estimates_need_no_more():
    code = (
        "import sys, nestquad as nq; nq.estimate(nq.problems.finance(), budget=400, rng=0); "
        "print([m for m in ('matplotlib', 'pandas', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_typed():
    assert resources.files("nestquad").joinpath("py.typed").is_file()


def test_everything_exported_exists():
    assert len(set(nq.__all__)) == len(nq.__all__)
    for name in nq.__all__:
        assert getattr(nq, name) is not None
    assert all(hasattr(nq.methods, name) for name in nq.methods.__all__)


def test_names_of_the_design_are_there():
    names = """NestedExpectation estimate compare allocate expectation Uniform Normal LogNormal
    MultivariateT Independent Transport Sampler Empirical NMC NQMC NKQ KernelQuadrature Matern
    Gaussian Anova Estimate problems"""
    for name in names.split():
        assert name in nq.__all__


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z0-9.]+)?", nq.__version__)


def test_public_things_are_documented():
    for name in nq.__all__:
        thing = getattr(nq, name)
        assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


def test_all_errors_are_ours():
    errors = [getattr(nq, name) for name in nq.__all__ if name.endswith("Error")]
    assert len(errors) >= 6
    assert all(issubclass(error, nq.NestquadError) for error in errors)
    assert issubclass(nq.InputError, ValueError)


@pytest.mark.parametrize(
    "error", [nq.InputError("a", "b", "c", "d"), nq.MissingExtraError("a", "b")]
)
def test_errors_survive_a_trip_to_another_process(error):
    import pickle

    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    located = nq.EvaluationError("g failed", theta=np.ones(1), x=np.zeros(2), advice="Do this.")
    again = pickle.loads(pickle.dumps(located))
    assert str(again) == str(located)
    np.testing.assert_array_equal(again.x, located.x)
