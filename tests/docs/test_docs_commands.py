"""Every command in the documents exists and does what it says, here with small budgets."""

from __future__ import annotations

import csv
import re
import shlex
from functools import partial
from itertools import pairwise

import doc_pages as pages
import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import main
from studies.__main__ import _parser as studies_parser

SHELL = ("console", "bash", "sh", "shell")
# Inline code counts as a command if it has arguments: `nestquad` alone is the name of the project.
INLINE = re.compile(r"`((?:nestquad|python -m studies) [^`…]+)`")


def commands(page):
    lines = [line for block in pages.blocks(page, *SHELL) for line in block.text.splitlines()]
    lines += INLINE.findall(pages.prose(page).replace("\n", " "))
    return [" ".join(line.strip().removeprefix("$ ").split()) for line in lines]


ALL = sorted({(page, line) for page in pages.PAGES for line in commands(page)})
NESTQUAD = sorted({line for _, line in ALL if line.startswith("nestquad ")})
STUDIES = sorted({line for _, line in ALL if line.startswith("python -m studies ")})
MAKE = sorted({line for _, line in ALL if line.startswith("make ")} | {"make demo", "make test"})


def smaller(line: str) -> list[str]:
    """The arguments of a command, with budgets and accuracies that take no time."""
    line = line.partition("#")[0]
    arguments = shlex.split(line.partition(" > ")[0])[1:]
    if arguments[:2] == ["voi", "serve"]:  # it serves until it is interrupted
        return [*arguments, "--help"]
    for i, (option, value) in enumerate(pairwise(arguments), start=1):
        if option == "--budget":
            budgets = [min(float(one), 600 * 2**k) for k, one in enumerate(value.split(","))]
            arguments[i] = ",".join(f"{one:.0f}" for one in budgets)
        elif option in ("--tol", "--rtol"):
            arguments[i] = "2.0"
        elif option == "--replicates":
            arguments[i] = "2"
    extra = {
        "compare": ["--replicates", "2"] if len(arguments) > 1 else ["--help"],
        "estimate": [] if len(arguments) > 1 else ["--help"],
        "demo": ["--tol", "2.0"],
        "certify": ["--budget", "600"] if len(arguments) > 1 else ["--help"],
        "plan": [] if len(arguments) > 1 else ["--help"],
        "analyze": [] if len(arguments) > 1 else ["--help"],
        "design": [] if len(arguments) > 1 else ["--help"],
        "voi": [] if len(arguments) > 1 else ["--help"],
        "sensitivity": [] if len(arguments) > 1 else ["--help"],
        "risk": [] if len(arguments) > 1 else ["--help"],
    }
    return arguments + extra.get(arguments[0], [])


def write_model() -> None:
    """The file that the page about the command line uses."""
    page = pages.ROOT / "docs" / "command-line.md"
    models = [b.text for b in pages.blocks(page, "python") if b.text.startswith("# model.py")]
    assert len(models) == 1
    with open("model.py", "w", encoding="utf-8") as file:
        file.write(models[0])


def write_tables() -> None:
    """The tables that the pages about value of information use."""
    page = pages.ROOT / "docs" / "voi-from-a-table.md"
    (makes,) = (b.text for b in pages.blocks(page, "python") if b.text.startswith("# tables.py"))
    exec(compile(makes.replace("5_000", "400"), str(page), "exec"), {"__name__": "__page__"})


def write_simulation() -> None:
    """The table that `nestquad risk` reads."""
    rng = np.random.default_rng(0)
    with open("simulation.csv", "w", encoding="utf-8") as file:
        file.write("scenario,loss,rate,equity\n")
        for scenario, (rate, equity) in enumerate(rng.normal(size=(100, 2))):
            losses = rate + equity + rng.normal(size=4)
            file.writelines(f"{scenario},{loss},{rate},{equity}\n" for loss in losses)


def write_trial() -> None:
    """The experiment and the designs of the page about the command line."""
    page = pages.ROOT / "docs" / "command-line.md"
    (trial,) = (b.text for b in pages.blocks(page, "python") if b.text.startswith("# trial.py"))
    (rows,) = (b.text for b in pages.blocks(page, "text") if b.text.startswith("name,"))
    for name, text in (("trial.py", trial), ("designs.csv", rows)):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)


def test_there_are_commands_to_test():
    assert len(NESTQUAD) >= 8
    used = {shlex.split(line)[1] for line in NESTQUAD}
    assert used >= {"estimate", "compare", "plan", "analyze", "problems", "demo"}


def write_values() -> None:
    """The files that `nestquad analyze` reads, of a method that asks for more."""
    plan = ["plan", "model.py:problem", "--budget", "300", "--method", "ckq", "--seed", "1"]
    assert main([*plan, "--out", "points.csv"]) == 0
    with open("points.csv", encoding="utf-8") as points, open("values.csv", "w") as values:
        values.write("id,value\n")
        for row in csv.DictReader(points):
            values.write(f"{row['id']},{float(row['x_1']) ** 2}\n")


@pytest.mark.parametrize("line", NESTQUAD)
def test_command_runs(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(pages.ROOT / "examples")
    write_model()
    if " analyze" in line:
        write_values()
    if line.startswith("nestquad voi"):
        write_tables()
    if line.startswith("nestquad risk"):
        write_simulation()
    if line.startswith("nestquad design"):
        write_trial()
    if "demo" in line:  # which has no options for this
        quick = partial(nq.compare, methods=["nmc", "nkq"], replicates=2)
        monkeypatch.setattr(nq, "compare", quick)
    try:
        code = main(smaller(line))
    except SystemExit as stop:  # --help and --version
        code = stop.code
    assert not code, capsys.readouterr().err
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", STUDIES)
def test_studies_take_the_arguments(line):
    arguments = shlex.split(line)[3:]
    parser = studies_parser()
    if arguments[-1] != "NAME":
        parser.parse_args(arguments)


@pytest.mark.parametrize("line", MAKE)
def test_make_target_exists(line):
    makefile = (pages.ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(shlex.split(line)[1])}:", makefile, re.M)


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/quickstart.md"])
def test_nobody_promises_a_release(name):
    assert "pip install nestquad" not in pages.read(pages.ROOT / name)
