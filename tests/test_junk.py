"""Whatever goes in, what comes out is an answer or an error of ours."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import junk

CASES = settings(
    max_examples=6, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
MANY = settings(CASES, max_examples=120)


def junk_for(name):
    one = st.sampled_from(range(len(junk.JUNK)))
    return st.dictionaries(st.sampled_from(junk.names_of(name)), one, min_size=1, max_size=2)


def holds(name, chosen):
    error = junk.call(name, {argument: junk.JUNK[i] for argument, i in chosen.items()})
    assert error is None, f"{name}: {type(error).__name__}: {error}"


NAMES = [name for name in junk.CALLS if junk.names_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_calls(name):
    CASES(given(junk_for(name))(lambda chosen: holds(name, chosen)))()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_calls(name):
    MANY(given(junk_for(name))(lambda chosen: holds(name, chosen)))()


def lines():
    commands = st.sampled_from(
        ["estimate", "compare", "plan", "analyze", "problems", "voi", "risk", "design"]
    )
    rest = st.lists(st.sampled_from(junk.WORDS), max_size=6)
    return st.tuples(commands, rest).map(lambda found: [found[0], *found[1]])


def command_holds(words):
    error = junk.command(words)
    assert error is None, f"{words}: {type(error).__name__}: {error}"


def test_commands():
    settings(CASES, max_examples=60)(given(lines())(command_holds))()


@pytest.mark.slow
def test_many_commands():
    settings(CASES, max_examples=2000)(given(lines())(command_holds))()


BAD_FILES = {
    "not UTF-8": bytes(range(256)),
    "empty": b"",
    "null characters": b"id,value\n\0,\0\n",
    "many columns": b"id," + b"v," * 30_000 + b"\n",
    "no numbers": b"id,value\nx-0,=1+1\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_values_from_a_bad_file(name, tmp_path):
    import nestquad as nq

    for suffix in (".csv", ".parquet"):
        file = tmp_path / f"values{suffix}"
        file.write_bytes(BAD_FILES[name])
        with pytest.raises(nq.NestquadError):
            nq.analyze(junk.POINTS, file)
