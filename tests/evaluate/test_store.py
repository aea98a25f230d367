"""What is finished stays finished, and nothing else is believed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import killing
import numpy as np
import pytest
from counting import CountingG, counting_problem

import nestquad as nq
from nestquad.evaluate import Grid, Span, Store
from nestquad.points import Given, Lattice, Sobol

METHODS = ["nmc", "nqmc", "nkq", "ckq", "joint", "mlmc", "mlkq", "lsmc"]
INDEPENDENT = nq.NKQ(
    sharing="independent", inner=nq.KernelQuadrature(nq.Matern(1.5), lengthscale="median")
)


def files(store):
    return sorted(Path(store).rglob("*.npy"))


@pytest.mark.parametrize("method", [*METHODS, INDEPENDENT], ids=str)
@pytest.mark.parametrize("goal", [{"budget": 1500}, {"tol": 1e-2, "budget": 8000}])
def test_a_store_changes_no_bit_and_nothing_is_evaluated_twice(method, goal, tmp_path):
    problem, _ = counting_problem()
    plain = nq.estimate(problem, method=method, rng=3, **goal)
    for reused in (False, True):
        problem, g = counting_problem()
        answer = nq.estimate(problem, method=method, rng=3, store=tmp_path / "store", **goal)
        assert answer.value == plain.value
        assert answer.std_error == plain.std_error
        assert answer.n_evaluations == plain.n_evaluations
        assert answer.trace == plain.trace
        checked = answer.diagnostics["n_checked"]
        assert g.n_evaluations == (checked if reused else plain.n_evaluations)
        assert checked <= 32
        assert answer.diagnostics["n_reused"] == (plain.n_evaluations if reused else 0)


@pytest.mark.parametrize("method", ["nmc", "nkq", "ckq", "mlmc", "mlkq", "lsmc"])
def test_a_tighter_tolerance_pays_only_for_what_is_new(method, tmp_path):
    problem, first = counting_problem()
    loose = nq.estimate(problem, method=method, rng=3, tol=0.03, store=tmp_path / "store")
    problem, g = counting_problem()
    tight = nq.estimate(problem, method=method, rng=3, tol=0.01, store=tmp_path / "store")
    alone = nq.estimate(counting_problem()[0], method=method, rng=3, tol=0.01)
    assert tight.value == alone.value
    checked = tight.diagnostics["n_checked"]
    assert g.n_evaluations == tight.n_evaluations - loose.n_evaluations + checked
    assert first.n_evaluations == loose.n_evaluations


def test_a_larger_budget_and_another_kernel_and_another_f_reuse_what_fits(tmp_path):
    store = tmp_path / "store"
    problem, _ = counting_problem()
    nq.estimate(problem, method=nq.NKQ(16, 16, sharing=4), rng=3, store=store, store_check=False)
    other = nq.KernelQuadrature(nq.Matern(0.5))
    larger = nq.NKQ(32, 32, sharing=4, inner=other, outer=other)
    problem, g = counting_problem()
    answer = nq.estimate(problem, method=larger, rng=3, store=store, store_check=False)
    assert g.n_evaluations == 32 * 32 - 16 * 16
    assert answer.value == nq.estimate(counting_problem()[0], method=larger, rng=3).value
    problem, g = counting_problem()
    cubed = nq.NestedExpectation(problem.outer, problem.inner, g, lambda j: j**3)
    answer = nq.estimate(
        cubed, method=nq.NKQ(20, 32, sharing=4), rng=3, store=store, store_check=False
    )
    assert g.n_evaluations == 0
    # Other point sets are other points: nothing fits.
    nq.estimate(problem, method=nq.NKQ(32, 32, sharing=8), rng=3, store=store, store_check=False)
    assert g.n_evaluations == 32 * 32


def test_everything_that_makes_points_is_part_of_the_key(tmp_path):
    problem, _ = counting_problem()
    store = Store.open(tmp_path / "store", problem, 0)
    stream = store.stream
    given = [Given(np.full((4, 1), u)) for u in (0.25, 0.75)]
    grids = [
        Grid(4, 4, Sobol(), Sobol(), None, stream),
        Grid(4, 4, Lattice(), Sobol(), None, stream),
        Grid(4, 4, Sobol(), Lattice(), None, stream),
        Grid(4, 4, Sobol(), Sobol(), 2, stream),
        Grid(4, 4, Sobol(), Sobol(), None, stream.child(1)),
        Grid(4, 4, Sobol(), Sobol(), None, stream, level=1),
        Grid(4, 4, Sobol(), Sobol(), None, stream, outer_scale=1.25),
        Grid(4, 1, Sobol(), Sobol(), None, stream, joint=True),
        *(Grid(4, 4, Sobol(), points, 1, stream) for points in given),
    ]
    for i, grid in enumerate(grids):
        table = store.table(grid)
        table.scan()
        assert table.read(Span(0, 1, 0, 1)) == ([], [Span(0, 1, 0, 1)])
        table.write(Span(0, 1, 0, 1), np.full((1, 1), float(i)))
    again = Store.open(tmp_path / "store", problem, 0)
    for i, grid in enumerate(grids):
        again.table(grid).scan()
        ((_, values),), missing = again.table(grid).read(Span(0, 1, 0, 1))
        assert (values.item(), missing) == (i, [])
    assert len({grid.points for grid in grids}) == len(grids)


def test_overlapping_chunks_are_read_once_each(tmp_path):
    problem, _ = counting_problem()
    store = Store.open(tmp_path / "store", problem, 0)
    grid = Grid(20, 20, Sobol(), Sobol(), None, store.stream)
    truth = np.random.default_rng(0).random((20, 20))
    rng = np.random.default_rng(1)
    known = np.zeros((20, 20), dtype=bool)
    for _ in range(12):
        t0, n0 = rng.integers(0, 18, 2)
        t1, n1 = t0 + rng.integers(1, 20 - t0 + 1), n0 + rng.integers(1, 20 - n0 + 1)
        store.table(grid).write(Span(int(t0), int(t1), int(n0), int(n1)), truth[t0:t1, n0:n1])
        known[t0:t1, n0:n1] = True
        store.table(grid).scan()
        ready, missing = store.table(grid).read(Span(3, 17, 2, 19))
        seen = np.zeros((20, 20), dtype=int)
        for span, values in ready:
            np.testing.assert_array_equal(values, truth[span.t0 : span.t1, span.n0 : span.n1])
            seen[span.t0 : span.t1, span.n0 : span.n1] += 1
        for span in missing:
            seen[span.t0 : span.t1, span.n0 : span.n1] += 2
        np.testing.assert_array_equal(seen[3:17, 2:19], np.where(known, 1, 2)[3:17, 2:19])


# Whose store it is.


def refused(tmp_path, match, problem=None, **options):
    with pytest.raises(nq.InputError, match=match) as caught:
        nq.estimate(
            problem or counting_problem()[0],
            **{"method": "nmc", "budget": 100, "rng": 3, "store": tmp_path / "store", **options},
        )
    return caught.value


@pytest.fixture
def stored(tmp_path):
    nq.estimate(counting_problem()[0], method="nmc", budget=100, rng=3, store=tmp_path / "store")
    return tmp_path / "store"


def make_g(scale):
    return lambda x, theta: scale * x[..., 0] + theta[..., 0]


def test_another_problem_is_refused_with_what_differs(stored, tmp_path):
    base, g = counting_problem()
    laws = (base.outer, base.inner)
    for problem, match in (
        (nq.NestedExpectation(nq.Uniform(0.0, 2.0), base.inner, g), "another outer law"),
        (nq.NestedExpectation(base.outer, nq.Normal(0.2, 0.5), g), "another inner law"),
        (nq.NestedExpectation(*laws, make_g(1.0)), "another g"),
        (nq.NestedExpectation(base.outer, nq.Uniform([0.0, 0.0], [1.0, 1.0]), g), "dimensions"),
    ):
        assert refused(tmp_path, match, problem).argument == "problem"


def test_another_constant_of_g_is_noticed_and_a_counter_is_not(tmp_path):
    calls = {"n": 0}
    seen = []

    def counted(scale):
        def g(x, theta):
            calls["n"] += 1
            seen.append(x.shape)
            return scale * x[..., 0] + theta[..., 0]

        return g

    def run(g, store):
        problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g)
        return nq.estimate(problem, method="nmc", budget=100, rng=0, store=tmp_path / store)

    for make in (make_g, counted, Scaled):
        name = make.__name__
        run(make(1.0), name)
        run(make(1.0), name)
        with pytest.raises(nq.InputError, match="another g"):
            run(make(2.0), name)
    assert calls["n"] > 0


class Scaled:
    def __init__(self, scale):
        self.scale, self.calls = scale, 0

    def __call__(self, x, theta):
        self.calls += 1
        return self.scale * x[..., 0] + theta[..., 0]


def test_another_seed_is_refused_and_none_continues(stored, tmp_path):
    error = refused(tmp_path, "stream", rng=4)
    assert error.argument == "rng"
    problem, g = counting_problem()
    answer = nq.estimate(problem, method="nmc", budget=100, store=stored, store_check=False)
    assert g.n_evaluations == 0
    assert answer.value == nq.estimate(problem, method="nmc", budget=100, rng=3).value


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("version", 99, "format version 99"),
        ("nestquad", "0.0.7", "nestquad 0.0.7"),
        ("format", "something else", "no manifest"),
        ("stream", "text", "no manifest"),
    ],
)
def test_another_version_is_refused(stored, tmp_path, key, value, match):
    file = stored / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    assert refused(tmp_path, match).argument == "store"


def test_a_damaged_manifest_and_other_folders_are_refused(stored, tmp_path):
    (stored / "manifest.json").write_text("{")
    refused(tmp_path, "cannot be read")
    later = {"format": "nestquad store", "version": 2, "nestquad": "9.0", "other": "fields"}
    (stored / "manifest.json").write_text(json.dumps(later))
    refused(tmp_path, r"version 2, written by nestquad '9.0'")
    (stored / "manifest.json").unlink()
    refused(tmp_path, "other things")
    refused(tmp_path, "is a file", store=__file__)
    refused(tmp_path, "folder", store=3)


# Accidents.

DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
    "header": lambda content: b"garbage" + content[7:],
    "pickle": lambda content: b"\x80\x04K\x01.",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_only_the_damaged_chunk_is_evaluated_again(damage, tmp_path):
    store, method = tmp_path / "store", nq.NMC(2000, 50)
    expected = nq.estimate(counting_problem()[0], method=method, rng=3, store=store)
    chunks = files(store)
    assert len(chunks) >= 3
    hurt = chunks[1]
    size = np.load(hurt).size
    hurt.write_bytes(DAMAGE[damage](hurt.read_bytes()))
    problem, g = counting_problem()
    with pytest.warns(nq.NestquadWarning, match="damaged") as caught:
        answer = nq.estimate(problem, method=method, rng=3, store=store)
    checked = answer.diagnostics["n_checked"]
    assert len(caught) == 1
    assert answer.value == expected.value
    assert g.n_evaluations == size + checked
    problem, g = counting_problem()  # and it is mended
    mended = nq.estimate(problem, method=method, rng=3, store=store, store_check=False)
    assert mended.value == expected.value
    assert g.n_evaluations == 0


def test_a_renamed_chunk_is_not_believed(tmp_path):
    store, method = tmp_path / "store", nq.NMC(60, 50)
    expected = nq.estimate(counting_problem()[0], method=method, rng=3, store=store)
    chunk = max(store.rglob("*.npy"), key=lambda file: file.stat().st_size)
    span, _, rest = chunk.name.partition("x")
    low, high = map(int, span.split("-"))
    chunk.rename(chunk.with_name(f"{low + 1}-{high + 1}x{rest}"))
    with pytest.warns(nq.NestquadWarning, match="damaged"):
        answer = nq.estimate(counting_problem()[0], method=method, rng=3, store=store)
    assert answer.value == expected.value


def test_chunks_are_plain_arrays(stored):
    total = sum(np.load(file, allow_pickle=False).size for file in files(stored))
    assert total == 100
    names = {p.suffix for p in stored.rglob("*") if p.is_file()}
    assert names == {".npy", ".json"}


def test_a_failure_keeps_what_is_finished(tmp_path):
    full = tmp_path / "full"

    class Fails(CountingG):
        def __call__(self, x, theta):
            if full.exists() and self.n_evaluations > 1000:
                raise OSError("disk full")
            return super().__call__(x, theta)

    full.touch()

    problem, _ = counting_problem()
    g = Fails()
    failing = nq.NestedExpectation(problem.outer, problem.inner, g, problem.f)
    options = {
        "method": nq.NMC(1000, 100),
        "rng": 3,
        "store": tmp_path / "store",
        "store_check": False,
    }
    for executor in (None, ThreadPoolExecutor(2)):
        with pytest.raises(nq.EvaluationError, match="disk full"):
            nq.estimate(failing, executor=executor, **options)
    before = g.n_evaluations
    full.unlink()
    answer = nq.estimate(failing, **options)
    assert answer.value == nq.estimate(problem, method=nq.NMC(1000, 100), rng=3).value
    assert g.n_evaluations == 100_000
    assert before > 1000


def test_ctrl_c_leaves_the_store_intact(tmp_path):
    def press(done, total, message):
        if done > 3000:
            raise KeyboardInterrupt

    problem, g = counting_problem()
    options = {"method": "nqmc", "tol": 1e-4, "budget": 30_000, "rng": 3}
    answer = nq.estimate(problem, store=tmp_path / "store", progress=press, **options)
    assert answer.status == "interrupted"
    before = g.n_evaluations
    finished = nq.estimate(problem, store=tmp_path / "store", **options)
    checked = finished.diagnostics["n_checked"]
    assert g.n_evaluations == finished.n_evaluations + checked > before
    assert finished.value == nq.estimate(problem, **options).value


def test_memory_is_bounded_with_a_store(tmp_path):
    import tracemalloc

    method = nq.NMC(8_000, 200)  # 1.6 million values are 13 MB
    problem = nq.problems.finance()
    nq.estimate(problem, method=nq.NMC(100, 200), rng=0)
    tracemalloc.start()
    try:
        results = [nq.estimate(problem, method=method, rng=0, store=tmp_path / "s") for _ in "ab"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6
    assert results[0].value == results[1].value
    assert results[1].diagnostics["n_reused"] == 1_600_000


# Real processes.


def killed(tmp_path, method, kills):
    store = tmp_path / method
    run = subprocess.run(
        [sys.executable, killing.__file__, str(store), method, str(kills)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize(("method", "kills"), [("nmc", 21), ("nkq", 6), ("mlkq", 6), ("mlmc", 6)])
def test_killed_again_and_again(method, kills, tmp_path):
    expected = killing.estimate(method)
    result = killed(tmp_path, method, kills)
    if "early" in result:
        pytest.skip(f"done after {result['early']} kills")
    assert result["killed"] == kills
    assert result["value"] == expected.value
    assert result["std_error"] == expected.std_error
    assert result["n_evaluations"] == expected.n_evaluations
    # Nothing is lost but what was under way: at most one chunk of a quarter of a second each.
    assert result["evaluated"] <= expected.n_evaluations + kills * 600
    assert not list((tmp_path / method).rglob("*.pkl"))


def test_two_processes_on_one_store(tmp_path):
    store = str(tmp_path / "store")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import killing;"
        "print(repr(killing.estimate('nmc', sys.argv[2], sys.argv[2] + '.log').value))"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(Path(__file__).parent), store]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {run.communicate(timeout=600)[0].strip() for run in runs}
    assert answers == {repr(killing.estimate("nmc").value)}
    again = killing.estimate("nmc", store)
    assert again.diagnostics["n_reused"] == again.n_evaluations


@pytest.mark.parametrize("method", ["nmc", "nkq", INDEPENDENT, "mlkq"], ids=str)
def test_a_store_filled_by_workers(method, tmp_path):
    problem, _ = counting_problem()
    plain = nq.estimate(problem, method=method, rng=3, budget=3000)
    with ThreadPoolExecutor(3) as pool:
        for executor in (pool, pool, None):
            answer = nq.estimate(
                problem, method=method, rng=3, budget=3000, store=tmp_path / "s", executor=executor
            )
            assert answer.value == plain.value
    assert answer.diagnostics["n_reused"] == plain.n_evaluations


def test_ctrl_c_with_workers_keeps_what_they_finished(tmp_path):
    def press(done, total, message):
        if done > 2000:
            raise KeyboardInterrupt

    problem, g = counting_problem()
    options = {
        "method": nq.NMC(100, 100),
        "rng": 3,
        "store": tmp_path / "store",
        "store_check": False,
    }
    with ThreadPoolExecutor(3) as pool, pytest.raises(KeyboardInterrupt):
        nq.estimate(problem, executor=pool, progress=press, **options)
    before = g.n_evaluations
    answer = nq.estimate(problem, **options)
    assert answer.diagnostics["n_reused"] > 2000
    assert g.n_evaluations - before == 10_000 - answer.diagnostics["n_reused"]
    assert answer.value == nq.estimate(problem, method=nq.NMC(100, 100), rng=3).value


# Disks and files that others broke.


def test_a_full_disk_keeps_the_answer_so_far(tmp_path, monkeypatch):
    written = []

    def full(temporary, file):
        if len(written) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(file)
        replaced(temporary, file)

    replaced = os.replace
    monkeypatch.setattr("os.replace", full)
    options = {"method": "nqmc", "tol": 1e-5, "budget": 100_000, "rng": 3}
    with pytest.raises(nq.EvaluationError, match="No space left") as caught:
        nq.estimate(counting_problem()[0], store=tmp_path / "store", **options)
    assert caught.value.estimate.n_evaluations > 0
    monkeypatch.undo()
    answer = nq.estimate(counting_problem()[0], store=tmp_path / "store", **options)
    assert answer.value == nq.estimate(counting_problem()[0], **options).value


@pytest.mark.parametrize(
    "change",
    [{"problem": 3}, {"problem": {}}, {"problem": {"dimensions": "x"}}, {"stream": ["a"]},
     {"stream": [-1]}, {"problem": {"dimensions": [1, 1], "outer law": {"a": 1}}}],
)  # fmt: skip
def test_manifests_that_were_changed(stored, tmp_path, change):
    file = stored / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    refused(tmp_path, ".")


def test_odd_names_are_left_alone(stored):
    (points,) = stored.rglob("points.json")
    for name in ("0-1x0-1.npy", f"{'9' * 40}-1x0-1.{'0' * 16}.npy", f"5-2x0-1.{'0' * 16}.npy", "ä"):
        (points.parent / name).write_bytes(b"junk")
    answer = nq.estimate(counting_problem()[0], method="nmc", budget=100, rng=3, store=stored)
    assert answer.diagnostics["n_reused"] == 100


@pytest.mark.parametrize("rng", [3, None])
def test_a_store_that_another_process_makes_at_the_same_time(rng, tmp_path, monkeypatch):
    """The other one is first, after this one saw that there is no manifest."""
    problem, options = counting_problem()[0], {"method": nq.NMC(60, 50), "rng": rng}
    other, exists = [], Path.exists

    def racing(path):
        result = exists(path)
        if path.name == "manifest.json" and not result and not other:
            other.append(None)
            other.append(nq.estimate(counting_problem()[0], store=tmp_path / "store", **options))
        return result

    monkeypatch.setattr(Path, "exists", racing)
    assert nq.estimate(problem, store=tmp_path / "store", **options).value == other[1].value


def test_the_loser_of_a_race_for_the_manifest_takes_its_stream(tmp_path, monkeypatch):
    problem, options = counting_problem()[0], {"method": nq.NMC(60, 50)}
    other, link = [], os.link

    def racing(source, target):
        if not other:
            other.append(None)
            other.append(nq.estimate(counting_problem()[0], store=tmp_path / "store", **options))
        link(source, target)

    monkeypatch.setattr(os, "link", racing)
    assert nq.estimate(problem, store=tmp_path / "store", **options).value == other[1].value


def test_damage_of_other_kinds_is_refused(stored, tmp_path):
    def run(store):
        nq.estimate(counting_problem()[0], method="nmc", budget=100, rng=3, store=store)

    (folder,) = stored.glob("points-*")
    file = stored / "manifest.json"
    text = file.read_text()
    file.write_text("[" * 100_000)
    with pytest.raises(nq.InputError, match="cannot be read"):
        run(stored)
    file.write_text(text)
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.raises(nq.InputError, match="is a file"):
        run(stored)
    with pytest.raises(nq.InputError, match="cannot be made"):
        run(str(tmp_path / "\ud800"))


def test_a_full_disk_before_the_first_chunk(tmp_path, monkeypatch):
    write = Path.write_bytes

    def full(path, *args, **kwargs):
        write(path, *args, **kwargs)
        if path.parent.name.startswith("points-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(nq.EvaluationError, match="No space left"):
        nq.estimate(counting_problem()[0], budget=100, rng=3, store=tmp_path / "store")
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_chunk_out_of_reach_is_not_deleted(tmp_path, monkeypatch):
    options = {"method": "nmc", "budget": 100, "rng": 3, "store": tmp_path / "store"}
    first = nq.estimate(counting_problem()[0], **options)
    before = {file: file.read_bytes() for file in files(tmp_path)}

    def fail(path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.warns(nq.NestquadWarning, match="cannot be read"):
            unread = nq.estimate(counting_problem()[0], **options)
    assert unread.value == first.value
    assert {file: file.read_bytes() for file in before} == before
    again = nq.estimate(counting_problem()[0], **options)
    assert again.diagnostics["n_reused"] == first.n_evaluations


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs another user")
def test_a_store_that_one_may_only_read(tmp_path):
    # What is complete is read; what has to be written ends with an error that says so.
    options = {"method": "nqmc", "rng": 3, "store": tmp_path / "store"}
    first = nq.estimate(counting_problem()[0], budget=400, **options)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        lines = []
        try:
            (tmp_path / "store").chmod(0o555)
            for folder in (tmp_path / "store").glob("points-*"):
                folder.chmod(0o555)
            if os.geteuid() == 0:
                os.setuid(65534)
            for budget in (400, 4000):
                try:
                    answer = nq.estimate(counting_problem()[0], budget=budget, **options)
                    lines.append(repr(answer.value))
                except nq.NestquadError as error:
                    lines.append(str(error))
        finally:  # a second pytest must not go on
            os.write(write_end, "\n".join(lines).encode())
            os._exit(0)
    os.waitpid(child, 0)
    value, message = os.read(read_end, 10_000).decode().split("\n")
    assert float(value) == first.value
    assert "cannot be written (Permission denied)" in message
    for folder in (tmp_path / "store", *(tmp_path / "store").glob("points-*")):
        folder.chmod(0o755)
    answer = nq.estimate(counting_problem()[0], budget=4000, **options)
    assert (
        answer.value == nq.estimate(counting_problem()[0], method="nqmc", budget=4000, rng=3).value
    )
