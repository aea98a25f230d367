"""The R package, by Rscript; skipped where R is not installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nestquad as nq

PACKAGE = Path(__file__).parents[2] / "r" / "nestquad"
RSCRIPT = shutil.which("Rscript")
pytestmark = pytest.mark.skipif(
    RSCRIPT is None or not PACKAGE.is_dir(), reason="no R, or no folder r"
)


def run(code, tmp_path, **variables):
    source = str(Path(nq.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "NESTQUAD": f"{sys.executable} -m nestquad"}
    file = tmp_path / "script.R"
    file.write_text(code, encoding="utf-8")
    return subprocess.run(
        [RSCRIPT, "--vanilla", str(file)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**env, **variables},
    )


def test_sources_and_results(tmp_path):
    """Against closed forms, from a script that loads the sources without installing them."""
    source = (PACKAGE / "R" / "nestquad.R").as_posix()
    script = (PACKAGE / "tests" / "voi.R").read_text(encoding="utf-8")
    loaded = f'setNames <- stats::setNames\nsource("{source}")\n'
    done = run(script.replace("library(nestquad)", loaded), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "all of R is well" in done.stdout


def test_the_package_installs(tmp_path):
    command = [shutil.which("R"), "CMD", "INSTALL", f"--library={tmp_path}", "--no-docs"]
    done = subprocess.run([*command, str(PACKAGE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = f'library(nestquad, lib.loc = "{tmp_path.as_posix()}")\n'
    code += "x <- rnorm(500); print(names(evpi(data.frame(a = 0 * x, b = x))))"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"evpi"' in done.stdout


def test_without_the_command_it_says_how_to_get_it(tmp_path):
    source = (PACKAGE / "R" / "nestquad.R").as_posix()
    done = run(f'source("{source}")\nnestquad_command()', tmp_path, NESTQUAD="", PATH="/usr/bin")
    assert "Install it with pip" in done.stderr


def test_the_vignette_runs(tmp_path):
    """All of its code but the part that needs BCEA."""
    text = (PACKAGE / "vignettes" / "nestquad.Rmd").read_text(encoding="utf-8")
    parts = [part for part in re.findall(r"```r\n(.*?)```", text, re.DOTALL) if "BCEA" not in part]
    source = (PACKAGE / "R" / "nestquad.R").as_posix()
    code = "\n".join(parts[1:]).replace("library(nestquad)", f'source("{source}")')
    done = run(f"setNames <- stats::setNames\n{code}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "enbsmax" in done.stdout
