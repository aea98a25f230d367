"""Every part runs, tiny, and the page has what it should."""

from __future__ import annotations

import csv
import re

import pytest

import nestquad as nq
from studies.__main__ import main
from studies.paper import parts, reproduce
from studies.paper.part import Effort

STATUSES = {"holds", "holds better", "does not hold", "cannot tell", "ours"}
ISSUE = {"synthetic", "dimension", "ablation", "finance", "health", "multilevel"}
ISSUE |= {"conditional", "illustration", "rates", "tails", "theory", "remarks", "bo"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    page, verdicts = reproduce(out=out, effort="tiny", jobs=0, command="paper & more")
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
    assert f'<h2 id="{name}">' in page


def test_every_figure_is_a_png_an_svg_and_on_the_page(results):
    out, page, _ = results
    pngs, svgs = (sorted((out / "figures").glob(f"*.{kind}")) for kind in ("png", "svg"))
    assert len(pngs) >= 12
    assert [path.stem for path in pngs] == [path.stem for path in svgs]
    assert page.count("data:image/png;base64,") == len(pngs)


def test_page_needs_nothing_from_elsewhere(results):
    _, page, _ = results
    assert not re.search(r"<(script|link|iframe)", page)
    assert not re.search(r'src="(?!data:)', page)
    assert "http://" not in page
    assert "https://" not in page
    assert "paper &amp; more" in page


def test_files_the_page_links_to_exist(results):
    out, page, _ = results
    links = re.findall(r'href="([^"#]+)"', page)
    assert links
    for link in links:
        assert (out / link).is_file(), link
    for anchor in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{anchor}"' in page


def test_verdicts_are_a_file_too(results):
    out, _, verdicts = results
    with (out / "data" / "verdicts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["claim"] for row in rows] == [verdict.claim for _, verdict in verdicts]


def test_a_second_call_runs_nothing_and_says_the_same(tmp_path):
    told = []

    def again():
        return reproduce(
            ["theory"],
            tmp_path,
            effort="tiny",
            jobs=0,
            tell=lambda done, total, left: told.append(total),
        )

    page, verdicts = again()
    text, ran = page.read_text(encoding="utf-8"), max(told)
    told.clear()
    assert again() == (page, verdicts)
    assert ran > 0
    assert told == [0]
    assert page.read_text(encoding="utf-8") == text


def test_full_has_the_papers_replicates():
    synthetic = parts()["synthetic"].tasks(Effort("full"))
    assert 1 + max(task.seed for task in synthetic if task.method == "nkq N=T") == 1000
    for name in ("finance", "health"):
        tasks = parts()[name].tasks(Effort("full"))
        for series in (
            "nmc N=√T",
            "nqmc N=√T",
            "nkq N=T",
            "nkq-qmc N=T",
            "mlmc antithetic",
            "auto",
        ):
            counts = {t.size: 0 for t in tasks if t.method == series}
            for task in tasks:
                if task.method == series:
                    counts[task.size] += 1
            assert set(counts.values()) == {100}


@pytest.mark.parametrize("name", list(parts()))
def test_quick_is_a_beginning_of_full_where_sizes_agree(name):
    quick, full = (set(parts()[name].tasks(Effort(e))) for e in ("quick", "full"))
    cells = {(task.problem, task.method, task.goal) for task in full}
    assert {t for t in quick if (t.problem, t.method, t.goal) in cells} <= full


def test_command(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["paper", "illustration", "--tiny", "--jobs", "0", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "illustration" in printed
    assert "index.html" in printed
    assert (out / "figures" / "illustration.svg").is_file()


def test_command_refuses_what_it_does_not_know(tmp_path, capsys):
    assert main(["paper", "finanze", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "finanze" in said
    assert "finance" in said
    assert main(["paper", "all", "--jobs", "-1", "--out", str(tmp_path)]) == 2
    assert "jobs" in capsys.readouterr().err


def test_command_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("studies.paper.reproduce", stop)
    assert main(["paper", "all", "--full", "--out", str(tmp_path)]) == 130
    assert "To continue: python -m studies paper all --full" in capsys.readouterr().err


def test_unknown_effort():
    with pytest.raises(nq.InputError, match="effort"):
        reproduce(effort="huge")


def test_fewer_replicates_of_a_larger_effort(tmp_path, capsys):
    command = ["paper", "synthetic", "--tiny", "--jobs", "0", "--out", str(tmp_path)]
    assert main([*command, "--replicates", "1"]) == 0
    with (tmp_path / "data" / "runs.csv").open(newline="", encoding="utf-8") as file:
        assert {row["seed"] for row in csv.DictReader(file)} == {"0"}
    assert "at most 1 of each cell" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert main([*command, "--replicates", "0"]) == 2
    assert "replicates" in capsys.readouterr().err
