"""The extra: nothing of it is imported before it is asked for, and missing it is said plainly."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nestquad_alone_imports_neither_torch_nor_botorch():
    code = "import sys, nestquad, nestquad.cli; print({'torch', 'botorch'} & set(sys.modules))"
    assert _run(code) == "set()"


@pytest.mark.parametrize("missing", ["torch", "botorch"])
def test_without_the_extra_the_error_names_it(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import nestquad
try:
    import nestquad.botorch
except nestquad.MissingExtraError as error:
    print(error)
"""
    assert ".[botorch]" in _run(code)


def test_other_names_are_missing_as_usual():
    import nestquad.botorch as nb

    assert not hasattr(nb, "no_such_name")
