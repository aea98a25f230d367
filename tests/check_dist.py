"""Smoke test of a wheel in fresh environments: `python tests/check_dist.py dist`.

Each interpreter that is present gets an environment with numpy, scipy and the wheel, nothing else.
There the package is imported, estimates, is asked for an extra that it lacks, and runs as a
command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SMOKE = """
    import importlib.metadata, sys
    import nestquad as nq

    assert "site-packages" in nq.__file__, nq.__file__
    assert nq.__version__ == importlib.metadata.version("nestquad")
    problem = nq.problems.finance()
    est = nq.estimate(problem, tol=0.05, budget=10_000, rng=0)
    assert est.status == "converged" and abs(est.value - problem.exact) < 0.05, est
    J = nq.conditional(problem, budget=512, rng=0)
    assert "J of finance" in str(J)
    try:
        est.plot()
    except nq.MissingExtraError as error:
        assert 'pip install "nestquad[plot]"' in str(error), error
    else:
        raise SystemExit("drew a figure without matplotlib")
    extra = {m.split(".")[0] for m in sys.modules} & {"matplotlib", "pandas", "torch"}
    assert not extra, extra
    print(f"Python {sys.version.split()[0]}: {est}")
"""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def main(folder: str) -> None:
    """Check the only wheel in the folder with every interpreter."""
    (wheel,) = Path(folder).resolve().glob("*.whl")
    found = interpreters()
    if not found:
        raise SystemExit("no interpreter found")
    for python in found:
        check(python, wheel)


def interpreters() -> list[str]:
    """Interpreters on the path and of pyenv, one for each minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for version in VERSIONS:
        ours = sys.executable if sys.version.startswith(f"{version}.") else None
        named = [ours, shutil.which(f"python{version}")]
        for python in [*named, *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]:
            # The name may be a shim of a version that is not active.
            if python and subprocess.run([python, "-V"], capture_output=True).returncode == 0:
                found.append(python)
                break
    return found


def check(python: str, wheel: Path) -> None:
    """Install and use the wheel in an environment that is then removed."""
    # Neither our settings nor our sources reach the new environment.
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *words: subprocess.run(words, check=True, cwd=folder, env=env)  # noqa: E731
        run(python, "-m", "venv", folder)
        new = str(Path(folder, "Scripts" if os.name == "nt" else "bin"))
        install = (f"{new}/python", "-m", "pip", "install", "--quiet")
        run(*install, "numpy", "scipy")
        run(*install, "--no-deps", str(wheel))
        run(f"{new}/python", "-W", "error", "-c", textwrap.dedent(SMOKE))
        run(f"{new}/nestquad", "estimate", "synthetic", "--budget", "500", "--seed", "0")


if __name__ == "__main__":
    main(sys.argv[1])
