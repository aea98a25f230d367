"""Smoke test of a wheel and an sdist in fresh environments: `python tests/check_dist.py dist`.

Each interpreter that is present gets two environments, with the oldest and with the newest NumPy
and SciPy that the package allows, the wheel, and nothing else. There the package is imported,
estimates, is asked for an extra that it lacks, and runs as a command. The sdist is built and
checked with the newest interpreter. Versions that are not present are named.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

SMOKE = """
    import importlib.metadata, sys
    import nestquad as nq

    assert "site-packages" in nq.__file__, nq.__file__
    assert "numpy" not in sys.modules, "public names are to be imported on first use"
    assert nq.__version__ == importlib.metadata.version("nestquad")
    problem = nq.problems.finance()
    est = nq.estimate(problem, tol=0.05, budget=10_000, rng=0)
    assert est.status == "converged" and abs(est.value - problem.exact) < 0.05, est
    J = nq.conditional(problem, budget=512, rng=0)
    assert "J of finance" in str(J)
    try:
        est.plot()
    except nq.MissingExtraError as error:
        assert 'pip install ".[plot]"' in str(error), error
    else:
        raise SystemExit("drew a figure without matplotlib")
    extra = {m.split(".")[0] for m in sys.modules} & {"matplotlib", "pandas", "torch"}
    assert not extra, extra
    import numpy, scipy
    versions = f"NumPy {numpy.__version__}, SciPy {scipy.__version__}"
    print(f"Python {sys.version.split()[0]}, {versions}: {est}")
"""
# The oldest versions that have wheels for an interpreter, within the bounds of pyproject.toml.
LOWEST = {
    "3.11": ("numpy==1.26.0", "scipy==1.13.0", "threadpoolctl==3.0.0", "tqdm==4.60.0"),
    "3.12": ("numpy==1.26.0", "scipy==1.13.0", "threadpoolctl==3.0.0", "tqdm==4.60.0"),
    "3.13": ("numpy==2.1.0", "scipy==1.14.1", "threadpoolctl==3.0.0", "tqdm==4.60.0"),
}
NEWEST = ("numpy", "scipy", "threadpoolctl", "tqdm")


def main(folder: str) -> None:
    """Check the only wheel and the only sdist in the folder with every interpreter."""
    (wheel,) = Path(folder).resolve().glob("*.whl")
    (source,) = Path(folder).resolve().glob("*.tar.gz")
    check_recipe(wheel)
    found = interpreters()
    if not found:
        raise SystemExit("no interpreter found")
    for version, python in found.items():
        for requirements in (LOWEST[version], NEWEST):
            check(python, wheel, requirements)
    check(list(found.values())[-1], source, NEWEST)
    missing = [version for version in LOWEST if version not in found]
    print(f"checked: {', '.join(found)}; not present: {', '.join(missing) or 'none'}")


def check_recipe(wheel: Path) -> None:
    """Render the conda recipe with rattler-build, and compare its requirements with the wheel's."""
    import rattler_build

    folder = Path(__file__).resolve().parents[1] / "packaging" / "conda"
    recipe = rattler_build.Stage0Recipe.from_file(folder / "recipe.yaml")
    variants = rattler_build.VariantConfig.from_file(folder / "variants.yaml")
    (rendered,) = recipe.render(variants)
    described = rendered.recipe.to_dict()
    with zipfile.ZipFile(wheel) as files:
        (name,) = [one for one in files.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(files.read(name))
    required = {one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one}
    required.add(f"python{metadata['Requires-Python']}")
    listed = {one.replace(" ", "") for one in described["requirements"]["run"]}
    if listed != required:
        raise SystemExit(f"conda asks for {sorted(listed)}, the wheel for {sorted(required)}")
    print(f"conda: {described['package']['name']} {described['package']['version']} rendered")


def interpreters() -> dict[str, str]:
    """Interpreters on the path and of pyenv by minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in LOWEST:
        ours = sys.executable if sys.version.startswith(f"{version}.") else None
        named = [ours, shutil.which(f"python{version}")]
        for python in [*named, *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]:
            # The name may be a shim of a version that is not active.
            if python and subprocess.run([python, "-V"], capture_output=True).returncode == 0:
                found[version] = python
                break
    return found


def check(python: str, package: Path, requirements: tuple[str, ...]) -> None:
    """Install and use the wheel or the sdist in an environment that is then removed."""
    # Neither our settings nor our sources reach the new environment.
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *words: subprocess.run(words, check=True, cwd=folder, env=env)  # noqa: E731
        run(python, "-m", "venv", folder)
        new = str(Path(folder, "Scripts" if os.name == "nt" else "bin"))
        # Requirements of the package are resolved together with the versions asked for: a bound
        # in pyproject.toml that excludes them is an error.
        install = (f"{new}/python", "-m", "pip", "install", "--quiet")
        run(*install, *requirements, str(package))
        run(f"{new}/python", "-W", "error", "-c", textwrap.dedent(SMOKE))
        run(f"{new}/nestquad", "estimate", "synthetic", "--budget", "500", "--seed", "0")


if __name__ == "__main__":
    main(sys.argv[1])
