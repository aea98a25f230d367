"""The command line: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import main
from nestquad.methods import METHODS
from nestquad.result import plain

MODEL = """
import nestquad as nq

problem = nq.NestedExpectation(
    outer=nq.Normal(),
    inner=lambda theta: nq.Normal(theta, 1.0),
    g=lambda x, theta: x[..., 0],
    f=lambda j: j**2,
    exact=1.0,
)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def without_time(result: dict) -> dict:
    return {key: value for key, value in result.items() if key != "seconds"}


def run(*arguments: str, cwd=None, **variables: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(nq.__file__).parents[1])  # also where it is not installed
    return subprocess.run(
        [sys.executable, "-m", "nestquad", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source, **variables},
    )


# estimate


def test_estimate_prints_one_line_with_the_exact_value(model, capsys):
    assert (
        main(["estimate", f"{model}:problem", "--method", "nkq", "--budget", "1e3", "--seed", "1"])
        == 0
    )
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert out.startswith("problem: ")  # the name it has in the file
    assert "±" in out
    assert out.rstrip().endswith("exact value 1.0")
    assert err == ""


def test_json_is_the_estimate_and_nothing_else(capsys):
    arguments = ["estimate", "finance", "--budget", "2000", "--seed", "7", "--method", "nqmc"]
    assert main([*arguments, "--json"]) == 0
    est = nq.estimate(nq.problems.finance(), budget=2000, method="nqmc", rng=7)
    result = json.loads(capsys.readouterr().out)
    assert without_time(result) == without_time(est.to_dict())


def test_tolerance_met_is_0_and_not_met_is_3(capsys):
    tight = ["estimate", "synthetic", "--seed", "0", "--budget", "1e4", "--method", "nkq", "--json"]
    assert main([*tight, "--tol", "0.01"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "converged"
    for option in ("--tol", "--rtol"):
        assert main([*tight, option, "1e-12"]) == 3
        assert json.loads(capsys.readouterr().out)["status"] == "budget"
    assert main(tight) == 0


def test_rtol_is_relative(capsys):
    problem = ["estimate", "synthetic10", "--method", "nqmc", "--seed", "0", "--json"]
    assert main([*problem, "--rtol", "0.05"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["interval95"][1] - result["value"] <= 0.05 * result["value"]


def test_report_of_an_estimate_can_be_made_again(tmp_path, capsys):
    page = tmp_path / "page.html"
    options = ["--budget", "256", "--method", "nkq", "--report", str(page), "--json"]
    assert main(["estimate", "synthetic", *options]) == 0
    out, err = capsys.readouterr()
    assert str(page) in err
    text = page.read_text(encoding="utf-8")
    command = text.partition("<pre>")[2].partition("</pre>")[0]
    arguments = shlex.split(command)
    assert arguments[0] == "nestquad"
    assert "--seed" in arguments  # although none was given
    assert main(arguments[1:]) == 0
    again = capsys.readouterr().out
    assert without_time(json.loads(again)) == without_time(json.loads(out))


# compare


def test_compare_prints_the_table(capsys):
    assert main(["compare", "synthetic", "--budget", "64", "--replicates", "1"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in METHODS)


def test_compare_json_is_the_comparison(capsys, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["compare", "synthetic", "--budget", "100,1e3", "--methods", "nkq, nmc"]
    options = ["--replicates", "2", "--seed", "3", "--json", "--report", str(page)]
    assert main([*arguments, *options]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = nq.compare(
        nq.problems.synthetic(), budget=[100, 1000], methods=["nkq", "nmc"], replicates=2, rng=3
    )
    for row, wanted in zip(result["rows"], expected.rows, strict=True):
        assert without_time(row) == without_time(plain(asdict(wanted)))
    assert page.stat().st_size > 10_000


# problems, version, help


def test_problems_lists_all_of_them(capsys):
    assert main(["problems"]) == 0
    table = capsys.readouterr().out
    assert main(["problems", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == nq.problems.names()
    for name, row in rows.items():
        problem = nq.problems.get(name)
        assert row["exact"] == problem.exact
        assert row["tags"] == list(problem.tags)
        assert any(line.split()[:1] == [name] for line in table.splitlines())
    assert (rows["health"]["d_x"], rows["health"]["d_theta"]) == (17, 2)
    assert (rows["synthetic10"]["d_x"], rows["synthetic10"]["d_theta"]) == (10, 10)


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"nestquad {nq.__version__}\n"


@pytest.mark.parametrize("command", [[], ["estimate"], ["compare"], ["problems"], ["demo"]])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "example" in out
    assert f"nestquad {' '.join(command)}".strip() in out


def test_help_tells_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["estimate", "--help"])
    out = capsys.readouterr().out
    assert "3  a tolerance was asked for and not met" in out


def test_no_command_prints_the_help(capsys):
    assert main([]) == 2
    assert "nestquad estimate" in capsys.readouterr().err


# demo


def test_demo_shows_and_writes_what_it_says(tmp_path, capsys, monkeypatch):
    asked = {}

    def compare(problem, **arguments):
        asked.update(arguments)
        return real(problem, **{**arguments, "replicates": 2, "methods": ["nmc", "nkq"]})

    real = nq.compare
    monkeypatch.setattr(nq, "compare", compare)  # the same with less of it
    out = tmp_path / "new" / "folder"
    assert main(["demo", "--out", str(out), "--tol", "0.1"]) == 0
    assert "methods" not in asked  # all of them
    assert asked["replicates"] == 5
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert "3.07365140973624" in first
    spent = int(first.partition(" evaluations")[0].split()[-1].replace(",", ""))
    assert asked["budget"] == min(spent, 10_000)
    half_width = float(first.partition("±")[2].split()[0])
    assert half_width <= 0.1
    assert "auto took" in text or "auto chose" in text  # and why
    assert all(f"\n{name} " in text for name in ("nmc", "nkq"))
    for name in ("demo.png", "demo.svg", "report.html"):
        assert f"wrote {out / name}" in text
        assert (out / name).stat().st_size > 10_000
    pixels = matplotlib.image.imread(out / "demo.png")
    assert pixels.shape[1] > 1500
    assert pixels[..., :3].std() > 0.01


def test_without_matplotlib_the_demo_ends_and_its_report_has_no_figures(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    real = nq.compare
    less = {"replicates": 2, "methods": ["nmc"]}
    monkeypatch.setattr(nq, "compare", lambda problem, **given: real(problem, **given | less))
    assert main(["demo", "--out", str(tmp_path), "--tol", "0.1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("done, without figures.")
    assert 'pip install ".[plot]"' in last
    (page,) = tmp_path.iterdir()
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("A figure is left out.") == 3


def test_demo_into_a_file_is_refused(model, capsys):
    assert main(["demo", "--out", str(model)]) == 2
    assert str(model) in capsys.readouterr().err


# wrong input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["estimate", "finance"], ["--budget", "--tol"]),
        (["estimate", "finace", "--budget", "100"], ["'finace'", "Did you mean 'finance'?"]),
        (["estimate", "finance", "--budget", "3"], ["at least 4"]),
        (["estimate", "finance", "--tol", "-1"], ["tol", "positive"]),
        (["estimate", "finance", "--budget", "100", "--method", "nqk"], ["'nqk'", "'nkq'"]),
        (["compare", "finance", "--budget", "100", "--methods", "nkq,"], ["''", "'nkq'"]),
        (["compare", "finance", "--budget", "3", "--methods", "nmc"], ["at least 4"]),
    ],
)
def test_library_errors_are_one_line(arguments, words, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nestquad: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["estimate", "finance", "--budget", "many"], "'many' is not a number"),
        (["estimate", "finance", "--budget", "1.5"], "'1.5' is not a positive whole number"),
        (["estimate", "finance", "--budget", "inf"], "'inf' is not a positive whole number"),
        (["estimate", "finance", "--budget", "nan"], "'nan' is not a positive whole number"),
        (["compare", "finance", "--budget", "100,-5"], "'-5' is not a positive whole number"),
        (["compare", "finance"], "--budget"),
        (["compare", "finance", "--budget", "9", "--replicates", "0"], "'0' is not a positive"),
        (["estimate", "finance", "--report", "no/such/folder/a.html"], "cannot be written"),
        (["estimate", "finance", "--report", "."], "cannot be written"),
        (["estimate"], "TARGET"),
        (["estimat"], "estimate"),
    ],
)
def test_parsing_errors_end_with_2(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_an_error_of_g_is_no_traceback(model, capsys):
    model.write_text(MODEL.replace("x[..., 0]", "x[..., 1]"), encoding="utf-8")
    assert main(["estimate", f"{model}:problem", "--method", "nkq", "--budget", "100"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "IndexError" in err


def test_warnings_are_one_line_on_stderr(model, capsys):
    model.write_text("import warnings\nwarnings.warn('mind the gap')\n" + MODEL, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        assert (
            main(["estimate", f"{model}:problem", "--method", "nkq", "--budget", "100", "--json"])
            == 0
        )
        assert warnings.showwarning is before
    out, err = capsys.readouterr()
    assert err == "nestquad: warning: mind the gap\n"
    json.loads(out)


def test_interrupt_before_an_answer(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(nq, "estimate", interrupt)
    assert main(["estimate", "finance", "--budget", "100"]) == 130
    assert "interrupted" in capsys.readouterr().err


# as a program


def test_progress_goes_to_a_terminal_only(monkeypatch, capsys):
    arguments = ["estimate", "finance", "--budget", "1000", "--method", "nkq", "--json"]
    main(arguments)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(arguments)
    out, err = capsys.readouterr()
    assert "evaluations" in err
    json.loads(out)
    main([*arguments, "--no-progress"])
    assert capsys.readouterr().err == ""


def test_the_program_runs_and_ends_with_the_exit_code(model):
    options = ["--tol", "1e-12", "--budget", "1000", "--method", "nkq", "--json", "--seed", "5"]
    done = run("estimate", "model.py:problem", *options, cwd=model.parent)
    assert done.returncode == 3
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert np.isfinite(result["value"])


def test_a_terminal_without_unicode_does_not_end_the_run():
    arguments = ["estimate", "finance", "--budget", "100", "--method", "nmc"]
    done = run(*arguments, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "95 %" in done.stdout


def test_a_reader_that_leaves_early_is_no_error():
    source = str(Path(nq.__file__).parents[1])
    program = subprocess.Popen(
        [sys.executable, "-m", "nestquad", "problems"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"},
    )
    program.stdout.close()
    with program.stderr as errors:
        assert errors.read() == b""
    assert program.wait(60) == 0


def test_help_does_not_import_matplotlib():
    code = (
        "import sys\n"
        "from nestquad.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    sys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("command", [["risk"], ["analyze"]])
@pytest.mark.parametrize("kind", ["binary", "utf-16", "null", "fifo", "zero", "short", "deep"])
def test_files_that_are_no_tables(command, kind, tmp_path, capsys):
    file = tmp_path / "table.csv"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind in ("null", "zero"):
        file = Path("a\0b.csv" if kind == "null" else "/dev/zero")
    else:
        content = {
            "binary": bytes(range(255, 0, -1)),
            "utf-16": "scenario,loss\n1,2\n".encode("utf-16"),
            "short": b"scenario,loss\n1,2\n3\n",
            "deep": b"[" * 100_000,
        }
        file.write_bytes(content[kind])
    assert main([*command, str(file), *([str(file)] if command == ["analyze"] else [])]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "null.py").write_bytes(b"a = 1\0")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["estimate", "null.csv:problem", "--budget", "100"]) == 2
    assert "SyntaxError" in capsys.readouterr().err
