"""Every part runs, tiny, and the page has what it should."""

from __future__ import annotations

import re

import pytest

from studies.__main__ import main
from studies.paper import parts, reproduce
from studies.paper.part import Effort
from studies.runner.ledger import Ledger

STATUSES = {"holds", "holds better", "does not hold", "cannot tell", "ours"}
ISSUE = {"synthetic", "dimension", "ablation", "finance", "health", "multilevel"}
ISSUE |= {"conditional", "illustration", "rates", "tails", "theory", "remarks", "bo"}
TINY = Effort(2, tiny=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    page, verdicts = reproduce(list(parts()), out, effort=TINY, jobs=0)
    return out, page.read_text(encoding="utf-8"), verdicts


def test_all_parts_are_there():
    assert set(parts()) >= ISSUE | {"errata"}


@pytest.mark.parametrize("name", list(parts()))
def test_part_says_something(results, name):
    _, page, verdicts = results
    own = [verdict for part, verdict in verdicts if part == name]
    assert own
    assert {verdict.status for verdict in own} <= STATUSES
    assert all(verdict.claim and verdict.measured and verdict.reason for verdict in own)
    assert f"\n## {parts()[name].title}\n" in page


def test_every_figure_is_on_the_page_once(results):
    out, page, _ = results
    files = sorted(path.name for path in (out / "figures").iterdir())
    assert len(files) >= 12
    assert sorted(re.findall(r"\]\(figures/(.*?)\)", page)) == files


def test_claims_of_the_paper_are_counted(results):
    _, page, verdicts = results
    judged = [verdict for _, verdict in verdicts if verdict.status != "ours"]
    assert f"Of {len(judged)} claims of the paper" in page


def test_a_second_call_runs_nothing_and_says_the_same(tmp_path, monkeypatch):
    page, verdicts = reproduce(["theory"], tmp_path, effort=TINY, jobs=0)
    text = page.read_text(encoding="utf-8")

    def run_again(task, root):
        raise AssertionError(f"{task} is there")

    monkeypatch.setattr("studies.paper.run_task", run_again)
    for redraw in (False, True):
        again = reproduce(["theory"], tmp_path, effort=TINY, jobs=0, redraw=redraw)
        assert again == (page, verdicts)
        assert page.read_text(encoding="utf-8") == text


def test_a_part_without_runs_keeps_the_section_that_the_page_has(tmp_path):
    title = parts()["bo"].title
    page = tmp_path / "reproduction.md"
    page.write_text(f"# Page\n\n## {title}\n\n| claim | holds |\n\n## Another\n", encoding="utf-8")
    reproduce(["theory"], tmp_path, effort=TINY, jobs=0)
    text = page.read_text(encoding="utf-8")
    assert f"Earlier runs, not in these numbers: {title}." in text
    assert f"## {title}\n\n| claim | holds |\n" in text
    assert "## Another" not in text


def test_replicates_are_those_asked_for():
    for part in parts().values():
        tasks = part.tasks(Effort(7))
        counts = {(t.problem, t.method, t.goal): 0 for t in tasks}
        for task in set(tasks):
            counts[task.problem, task.method, task.goal] += 1
        assert set(counts.values()) <= {7}


def test_all_leaves_out_what_needs_an_extra(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("studies.paper.collect", lambda ledger, todo, *rest: seen.extend(todo))
    reproduce(["all"], tmp_path)
    methods = {task.method for task in seen}
    assert "nkq N=T" in methods
    assert not any(method.startswith("bo ") for method in methods)


def test_command(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["paper", "theory", "--quick", "--jobs", "0", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "theory" in printed
    assert "reproduction.md" in printed
    assert (out / "figures" / "reproduce_theory.png").is_file()
    assert {run.seed for run in Ledger(out / "data" / "paper_runs.csv.gz").runs.values()} == {0, 1}


def test_command_refuses_what_it_does_not_know(tmp_path, capsys):
    assert main(["paper", "finanze", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "finanze" in said
    assert "finance" in said
    for option, value in (("jobs", "-1"), ("replicates", "0"), ("seed", "-1")):
        assert main(["paper", "all", f"--{option}", value, "--out", str(tmp_path)]) == 2
        assert option in capsys.readouterr().err


def test_command_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("studies.paper.reproduce", stop)
    assert main(["paper", "all", "--seed", "3", "--out", str(tmp_path)]) == 130
    assert "To continue: python -m studies paper all --seed 3" in capsys.readouterr().err
