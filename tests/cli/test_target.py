"""FILE.py:name: what is found, and what is said when it is not."""

from __future__ import annotations

import sys

import pytest

import nestquad as nq
from nestquad.cli import load_problem

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
import nestquad as nq

def build(g=lambda x, theta: x[..., 0], **more):
    return nq.NestedExpectation(nq.Normal(), nq.Normal(), g, **more)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write a file and return what to put before the colon; undo what loading it does."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)

    def write(text: str, name: str = "model.py") -> str:
        path = tmp_path / name
        path.write_text(HEAD + text, encoding="utf-8")
        return str(path)

    yield write
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def message(target: str) -> str:
    with pytest.raises(nq.InputError) as error:
        load_problem(target)
    text = str(error.value)
    assert text.startswith("TARGET")
    return text


def test_shipped_problem_by_name():
    assert load_problem("health").exact == nq.problems.health().exact


def test_object_keeps_its_name(file):
    assert load_problem(file("p = build(name='mine')") + ":p").name == "mine"


def test_object_without_a_name_takes_that_of_the_variable(file):
    assert load_problem(file("p = build()") + ":p").name == "p"


def test_function_without_required_arguments_is_called(file):
    result = load_problem(file("def make(scale=2.0):\n    return build(exact=scale)") + ":make")
    assert result.exact == 2.0
    assert result.name == "make"


def test_file_may_hold_dataclasses_and_import_its_neighbors(file):
    file("answer = 42.0", "neighbor_of_model.py")
    text = "from neighbor_of_model import answer\n@dataclass\nclass A:\n    b: int = 0\n"
    assert load_problem(file(text + "p = build(exact=answer)") + ":p").exact == 42.0


def test_file_may_be_called_like_a_library(file):
    import numpy as np

    load_problem(file("p = build()", "numpy.py") + ":p")
    assert sys.modules["numpy"] is np


def test_file_is_not_run_as_main(file):
    load_problem(file("if __name__ == '__main__':\n    1 / 0\np = build()") + ":p")


def test_missing_file_with_the_nearest(file):
    right = file("")
    text = message(right.replace("model.py", "modle.py:p"))
    assert "not a file" in text
    assert f"Did you mean {right!r}?" in text


def test_missing_folder():
    assert "not a file" in message("no/such/folder/model.py:p")


def test_missing_name_with_the_nearest(file):
    path = file("problem = build()\ndef make():\n    return build()")
    text = message(path + ":probelm")
    assert "Did you mean 'problem'?" in text
    assert "'make'" in text
    assert "'dataclass'" not in text  # imported, not defined there


def test_file_without_any_problem(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n", encoding="utf-8")
    assert "defines no such object" in message(f"{path}:p")


@pytest.mark.parametrize("ending", ["", ":"])
def test_file_without_a_name(file, ending):
    path = file("p = build()")
    assert f"{path}:problem" in message(path + ending)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p = 3", "of type int"),
        ("def p():\n    return 'nothing'", "of type str"),
        ("def p(scale):\n    return build()", "'scale'"),
        ("p = nq.NestedExpectation", "'outer'"),
    ],
)
def test_object_of_the_wrong_type(file, text, words):
    result = message(file(text) + ":p")
    assert words in result
    assert "function without arguments" in result


LINE = HEAD.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p = 1 / 0", f"at line {LINE} (p = 1 / 0) with ZeroDivisionError: division by zero"),
        ("p = build(", f"at line {LINE} with SyntaxError: '(' was never closed"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(1)", f"at line {LINE}"),
        ("p = build(g=3)", "g: got int"),
        ("import json\njson.loads('{')", f"at line {LINE + 1} (json.loads('{{')) with json"),
    ],
)
def test_file_that_fails_says_where_and_how(file, text, words):
    result = message(file(text) + ":p")
    assert words in result
    assert "\n" not in result


def test_function_that_fails_says_where_and_how(file):
    result = message(file("def p():\n    raise ValueError('too bad')") + ":p")
    assert f"at line {LINE + 1}" in result
    assert "ValueError: too bad" in result
