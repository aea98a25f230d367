"""Studies that return a result: settings, saved results, and the page of them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from studies.runner.collect import collect, say
from studies.runner.figures import save_small
from studies.runner.ledger import Ledger, Outcome, Run, Task, sources
from studies.runner.page import PROMISES, Section, markdown_page
from studies.runner.result import Drawing, Finding, Result, environment


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    seeds: int = 50
    quick: bool = False
    # For studies with a ledger, which keep every run in `data` and run what is missing.
    problems: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    budgets: tuple[float, ...] = ()
    jobs: int = 1
    fresh: bool = False
    data: Path = Path("docs/data")

    @property
    def options(self) -> str:
        """The command-line options that say so."""
        seeds = "" if self.seeds == Settings.seeds else f" --seeds {self.seeds}"
        return seeds + (" --quick" if self.quick else "")

    def selects(self, one: Task) -> bool:
        """Whether a run is asked for; nothing given stands for everything."""
        return (
            (not self.problems or one.problem in self.problems)
            and (not self.methods or one.method in self.methods)
            and (not self.budgets or one.goal in self.budgets)
        )

    def share(self, part: float) -> int:
        """A part of the seeds, for runs that take longer; two at least."""
        return max(round(part * self.seeds), 2)

    def ledger(self, study: str) -> Ledger:
        """The runs of a study so far; with `fresh`, without those that are selected."""
        ledger = Ledger(self.data / f"{study}_runs.csv.gz")
        if self.fresh:
            ledger.drop(self.selects)
        return ledger

    def collect(
        self,
        ledger: Ledger,
        tasks: Iterable[Task],
        run: Callable[[Task], Outcome],
        warm_up: Callable[[], None] | None = None,
    ) -> list[Run]:
        """All runs of the ledger, after those that are selected and missing."""
        selected = [task for task in tasks if self.selects(task)]
        todo = len(ledger.missing(selected))
        say(f"  {todo:,} runs to do, {len(selected) - todo:,} finished")
        collect(ledger, selected, run, self.jobs, warm_up=warm_up)
        return list(ledger.runs.values())

    def runs_of(
        self,
        study: str,
        tasks: Iterable[Task],
        run: Callable[[Task], Outcome],
        *,
        fresh: bool = False,
        warm_up: Callable[[], None] | None = None,
    ) -> list[Run]:
        """The runs of these tasks, after those that the ledger lacks; `fresh` repeats all."""
        ledger, wanted = self.ledger(study), dict.fromkeys(tasks)
        if fresh:
            ledger.drop(lambda run: run.task in wanted)
        old = sum(run.sources != sources() for task, run in ledger.runs.items() if task in wanted)
        if old:
            say(f"  {old:,} finished runs come from other code; --fresh runs them again")
        self.collect(ledger, wanted, run, warm_up)
        return [ledger.runs[task] for task in wanted]


@dataclass(frozen=True)
class Study:
    """A question and how to answer it.

    `about` is Markdown: what is run, and why. `command` runs it again, where ``--only`` does not.
    """

    name: str
    title: str
    about: str
    run: Callable[[Settings], Result]
    drawings: tuple[Drawing, ...] = ()
    command: str = ""

    def drawn(self, result: Result) -> list[Drawing]:
        """Its figures of a result, by the names of their files."""
        return [
            replace(
                drawing,
                name="_".join(filter(None, ("bench", self.name, drawing.name))),
                draw=partial(drawing.draw, result),
            )
            for drawing in self.drawings
        ]

    def write(self, settings: Settings, page: Path, head: str) -> None:
        """Run the study alone, and write its page."""
        run_studies([self], [self], settings, page, head, self.command)

    def section(self, result: Result) -> Section:
        findings = [Finding(tables=result.tables)]
        findings += [Finding(drawing=drawing) for drawing in self.drawn(result)]
        findings.append(Finding(notes=result.notes, verdicts=result.verdicts))
        return Section(self.name, self.title, self.about, findings, provenance=_provenance(result))


def run_studies(
    studies: Sequence[Study],
    chosen: Sequence[Study],
    settings: Settings,
    page: Path,
    head: str,
    command: str,
) -> None:
    """Run the chosen studies, save their results, and write the page of all saved ones."""
    figures = page.parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for study in chosen:
        say(f"{study.name}: {study.title}")
        result = _run(study, settings, command)
        result.save(_path(settings, study))
        for verdict in result.verdicts:
            word = PROMISES.status[verdict.status].strip("*")
            say(f"  {verdict.claim}: {verdict.measured} (target {verdict.target}), {word}")
        say(f"  {result.seconds:.0f} s")
    saved = [study for study in studies if _path(settings, study).exists()]
    results = {study.name: Result.load(_path(settings, study)) for study in saved}
    for study in saved:
        for drawing in study.drawn(results[study.name]):
            path = figures / f"{drawing.name}.png"
            if study in chosen or not chosen or not path.exists():
                save_small(drawing.draw(), path)
    verdicts = [verdict.met for result in results.values() for verdict in result.verdicts]
    counts = f"{verdicts.count(True)} of {len(verdicts)} targets are met.\n\n"
    sections = [study.section(results[study.name]) for study in saved]
    text = markdown_page(f"{head}\n## Summary\n\n{counts}", sections, PROMISES)
    missing = [study.name for study in studies if study not in saved]
    text += f"\nNot run yet: {', '.join(missing)}.\n" if missing else ""
    page.write_text(text, encoding="utf-8")
    say(f"wrote {page}")


def _path(settings: Settings, study: Study) -> Path:
    return settings.data / f"bench_{study.name}.json"


def _run(study: Study, settings: Settings, command: str) -> Result:
    start = time.perf_counter()
    result = study.run(settings)
    return replace(
        result,
        command=study.command or f"{command} --only {study.name}{settings.options}",
        # A study with a ledger knows better what all of its runs took.
        environment={**environment(), **result.environment},
        seconds=result.seconds or time.perf_counter() - start,
    )


def _provenance(result: Result) -> str:
    env = result.environment
    counts = " / ".join(dict.fromkeys((env.get("threads") or {}).values())) or "not fixed"
    took = f"took {result.seconds:.0f} s"
    if (runs := env.get("runs")) is not None:
        value = result.seconds
        spent = f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} minutes"
        took = f"makes {runs:,} runs, which took {spent} of CPU time,"
    return (
        f"`{result.command}` {took} on {env.get('cpus')} CPUs (BLAS threads: "
        f"{counts}; Python {env.get('python')}, NumPy {env.get('numpy')}, "
        f"SciPy {env.get('scipy')})."
    )
