"""The paper's experiments again: figures and verdicts computed from the runs, and their page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path

from nestquad.errors import unknown_name
from studies.paper.part import Effort, Part, Runs, Series
from studies.runner.collect import collect
from studies.runner.figures import save_small
from studies.runner.ledger import Ledger, Outcome, Task
from studies.runner.page import PAPER, Section, markdown_section
from studies.runner.result import Verdict
from studies.runner.text import duration

__all__ = ["parts", "reproduce"]

# Modules with a tuple PARTS, in the order of the page.
_PLACES = ("synthetic", "dimension", "ablation", "applications", "multilevel", "bayesopt")
_PLACES += ("conditional", "illustration", "rates", "tails", "theory", "remarks", "errata")
_PREFIX = "reproduce_"  # of the files of figures


@lru_cache
def parts() -> dict[str, Part]:
    """All parts by name, in the order of the page."""
    modules = (import_module(f"studies.paper.{place}") for place in _PLACES)
    return {part.name: part for module in modules for part in module.PARTS}


@lru_cache
def _series() -> dict[str, Series]:
    from studies.paper.series import SERIES

    own = {series.name: series for part in parts().values() for series in part.series}
    return {**SERIES, **own}


def run_task(task: Task, root: int) -> Outcome:
    """The run of a task: of one of the common series, or of one that a part brings."""
    return _series()[task.method].outcome(task, root)


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    effort: Effort | None = None,
    seed: int = 0,
    jobs: int = 1,
    fresh: bool = False,
    redraw: bool = False,
) -> tuple[Path, list[tuple[str, Verdict]]]:
    """Run parts of the reproduction; write ``reproduction.md`` and its figures.

    Every run is kept in ``data/paper_runs.csv.gz`` as soon as it is done, so an interrupted call
    continues where it stopped. The page shows all parts whose runs are complete.

    Parameters
    ----------
    names
        Parts, or ``"all"`` of those that need no extra.
    out
        The folder to write to.
    seed, jobs
        The same seed gives the same numbers, whatever the number of processes; ``jobs=0`` runs in
        this process.
    fresh
        Forget the finished runs of this seed.
    redraw
        Run nothing: page and figures from the runs that are there.

    Returns
    -------
    tuple
        The page, and the verdicts with the names of their parts.
    """
    known, effort = parts(), effort or Effort()
    for name in names:
        if name != "all" and name not in known:
            raise unknown_name("part", name, ("all", *known))
    chosen = [p for n, p in known.items() if n in names or ("all" in names and not p.extra)]
    ledger = Ledger(out / "data" / "paper_runs.csv.gz", seed)
    if fresh:
        ledger.drop()
    asked = {part.name: part.tasks(effort) for part in known.values()}
    if not redraw:
        tasks = dict.fromkeys(task for part in chosen for task in asked[part.name])
        # Replicates take turns: runs that were cut short have some of each cell.
        todo = sorted(tasks, key=lambda task: task.seed)
        collect(ledger, todo, partial(run_task, root=seed), jobs)
    shown = {
        name: Runs.of(ledger, tasks) for name, tasks in asked.items() if not ledger.missing(tasks)
    }
    sections = [_section(known[name], runs) for name, runs in shown.items()]
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for finding in (finding for section in sections for finding in section.findings):
        if finding.drawing is not None:
            figure = finding.drawing.draw()
            save_small(figure, out / "figures" / f"{_PREFIX}{finding.drawing.name}.png")
    page = out / "reproduction.md"
    earlier = dict(_EARLIER.findall(page.read_text("utf-8"))) if page.exists() else {}
    page.write_text(_page(sections, list(shown.values()), seed, earlier), encoding="utf-8")
    return page, [(section.name, verdict) for section in sections for verdict in section.verdicts]


def _section(part: Part, runs: Runs) -> Section:
    return Section(part.name, part.title, part.about, part.analyze(runs), part.source)


_PLURAL = {"holds": "hold", "holds better": "hold better", "does not hold": "do not hold"}
_PLURAL |= {"cannot tell": "are left open"}
_TABLE = re.compile(r"((?:^\|.*\n)+)", re.M)
_EARLIER = re.compile(r"^## (.+)\n((?:(?!## ).*\n)*)", re.M)


def _page(
    sections: Sequence[Section], shown: Sequence[Runs], seed: int, earlier: Mapping[str, str]
) -> str:
    """The page; a part without runs keeps the section of an earlier one, and the head says so."""
    text: Callable[[Section], str] = partial(
        markdown_section, words=PAPER, prefix=_PREFIX, tables=False
    )
    # Tables of verdicts are in a box of their own, for narrow screens.
    boxed = r'<div class="verdicts" markdown="1">\n\n\1\n</div>\n'
    texts = {section.title: _TABLE.sub(boxed, text(section)) for section in sections}
    kept = {
        part.title: f"## {part.title}\n{earlier[part.title].rstrip()}\n"
        for part in parts().values()
        if part.title not in texts and part.title in earlier
    }
    notes = [part.kept for part in parts().values() if part.title in kept and part.kept]
    texts = {p.title: (texts | kept)[p.title] for p in parts().values() if p.title in texts | kept}
    body = "\n".join(texts.values())
    used = {task: run for runs in shown for task, run in runs.by_task.items()}
    counts = Counter(re.findall(rf"\| ({'|'.join(_PLURAL)}) \|", body))
    head = _HEAD.format(
        total=counts.total(),
        counts=", ".join(f"{counts[status]} {words}" for status, words in _PLURAL.items()),
        seed=seed,
        runs=len(used),
        states=" and ".join(
            f"{version} (sources {sources})"
            for version, sources in sorted({(run.version, run.sources) for run in used.values()})
        ),
        took=duration(sum(run.seconds for run in used.values())),
        kept=" ".join([f"\nEarlier runs, not in these numbers: {', '.join(kept)}.", *notes])
        if kept
        else "",
    )
    return head + body + _TAIL


_HEAD = """\
<!-- Written by `python -m studies paper`; change studies/paper, not this page. -->
# The paper, reproduced

Every figure and table of the experiments and appendices of *Nested Expectations with Kernel
Quadrature*, computed again: the published configuration first, our default beside it. Below each
figure stand the claims that it supports. Of {total} claims of the paper {counts}.

“Holds better” means that what is claimed is reached and the number is better; “does not hold” that
the 95 % interval of these runs excludes the claim; “cannot tell” that they leave it open. “Ours”
marks what the paper does not claim: it is measured without a verdict, and not counted.
“Sensitivity” is the same measurement with a setting that the paper leaves open. These are runs
with seed {seed} ([run them yourself](#run-it-yourself)): {runs:,} runs, {took} of CPU
time, with nestquad {states}; “ours” is the default of that version.{kept}

“As published” is `nq.NKQ.as_published(problem)`. The paper leaves some choices open, or they
cannot be followed to the letter:

* Its Matérn kernels are isotropic with s = ν + d/2; ours are products over coordinates with
  ν = s − ½ in each. For one coordinate they are the same.
* λ<sub>0</sub> comes from the paper's grid {{0.01, 0.1, 1}}. The paper names no criterion; here it
  is the smallest leave-one-out error, which needs no truth.
* A Gaussian kernel has no finite s, and the schedule of λ no limit but zero: the smallest ridge
  that keeps the weights tame takes its place. For s ≥ 0.6 the schedule is followed as printed.
* Health names closed-form embeddings under normal laws, and not whether variables were
  standardized; all readings are [below](#which-variables).
* Methods with Sobol points, the rival NQMC included, have powers of two.

Of the point sets that the paper mentions for kernel quadrature, determinantal point processes and
fully symmetric sets are not implemented. Importance sampling is a change of the law, and adaptive
designs are those of `ckq` and `joint`.

"""
_TAIL = """
## Run it yourself

One command in a clone, or its short form `make reproduce`, which writes this page and its figures:

```console
python -m studies paper all --out results
```

Every run is a line of `data/paper_runs.csv.gz`. Interrupt it at any time: the same command
continues from there. The paper's replicates, 1000 and 100, are `--replicates 1000` and take hours;
`--jobs` sets the number of processes, and the same `--seed` gives the same numbers whatever their
number. One part alone:

```console
python -m studies paper finance --jobs 2
```

Bayesian optimisation (`python -m studies paper bo`) takes longer than all others together, needs
the extra `botorch`, and is no part of `all`.
"""
