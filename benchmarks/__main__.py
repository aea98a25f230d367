"""Run studies, save what they found, write the page: ``python -m benchmarks --out docs``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import nestquad as nq
from benchmarks import unseen
from benchmarks._collect import ALL_METHODS
from benchmarks._measure import environment
from benchmarks._page import page
from benchmarks._study import Result, Settings, Study
from benchmarks.studies import STUDIES
from nestquad.plots import save


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    chosen = _chosen(given.only)
    out = Path(given.out)
    data, figures = out / "data", out / "figures"
    settings = _settings(given, data)
    figures.mkdir(parents=True, exist_ok=True)
    for study in [] if given.redraw else chosen:
        _say(f"{study.name}: {study.title}")
        result = _run(study, settings)
        result.save(data / f"bench_{study.name}.json")
        for verdict in result.verdicts:
            word = {True: "met", False: "NOT MET", None: "not measured"}[verdict.met]
            _say(f"  {verdict.claim}: {verdict.measured} (target {verdict.target}), {word}")
        _say(f"  {result.seconds:.0f} s")
    results = {}
    for study in STUDIES:
        path = data / f"bench_{study.name}.json"
        if path.exists():
            results[study.name] = Result.load(path)
            for drawing in study.drawings if given.redraw or study in chosen else ():
                save(drawing.draw(results[study.name]), figures / drawing.file(study.name))
    (out / "benchmarks.md").write_text(page(results, STUDIES), encoding="utf-8")
    _say(f"wrote {out / 'benchmarks.md'}")
    return 0


def _run(study: Study, settings: Settings) -> Result:
    start = time.perf_counter()
    result = study.run(settings)
    return replace(
        result,
        command=f"python -m benchmarks --only {study.name}{settings.options}",
        # A study that goes on where it was left knows better what all of it took.
        environment={**environment(), **result.environment},
        seconds=result.seconds or time.perf_counter() - start,
    )


def _settings(given: argparse.Namespace, data: Path) -> Settings:
    for option in ("seeds", "other_seeds"):
        if (getattr(given, option) or 2) < 2:
            raise SystemExit(f"--{option.replace('_', '-')} has to be at least 2")
    if given.jobs < 0:
        raise SystemExit("--jobs has to be at least 0")
    return Settings(
        seeds=given.seeds or (5 if given.quick else Settings.seeds),
        quick=given.quick,
        other_seeds=given.other_seeds or (2 if given.quick else Settings.other_seeds),
        problems=_known("--problems", given.problems, (*nq.problems.names(), *unseen.names())),
        methods=_known("--methods", given.methods, ALL_METHODS),
        budgets=tuple(float(budget) for budget in _parts(given.budgets)),
        jobs=given.jobs,
        fresh=given.fresh,
        data=data,
    )


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _known(option: str, text: str | None, names: Sequence[str]) -> tuple[str, ...]:
    unknown = [part for part in _parts(text) if part not in names]
    if unknown:
        raise SystemExit(f"unknown {option}: {', '.join(unknown)}; known: {', '.join(names)}")
    return tuple(_parts(text))


def _chosen(only: str | None) -> list[Study]:
    if only is None:
        return list(STUDIES)
    names = {study.name: study for study in STUDIES}
    return [names[name] for name in _known("--only", only, list(names))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="NAME[,NAME]",
        help="run these studies: " + ", ".join(study.name for study in STUDIES),
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"replicates of each run (default {Settings.seeds})"
    )
    parser.add_argument(
        "--out", default="docs", metavar="DIR", help="where page, figures and data go"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few seeds and small sizes: does it run at all?"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="run nothing; page and figures from saved data"
    )
    long = parser.add_argument_group(
        "the long studies (accuracy, tolerance, unseen, multilevel)",
        "They append every run to data/NAME_runs.csv and skip what is there: stop them when you "
        "like, start them again, and do them in parts. Tables are made of all that is there.",
    )
    long.add_argument("--problems", metavar="NAME[,NAME]", help="only these problems")
    long.add_argument("--methods", metavar="NAME[,NAME]", help="only these methods, auto included")
    long.add_argument("--budgets", metavar="N[,N]", help="only these budgets, such as 1e3,1e4")
    long.add_argument(
        "--other-seeds",
        type=int,
        metavar="N",
        help="replicates of methods other than auto in tolerance and unseen "
        f"(default {Settings.other_seeds})",
    )
    long.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        default=os.cpu_count() or 1,
        help="processes, each with one BLAS thread (default: one for each CPU; 0: in this one)",
    )
    long.add_argument(
        "--fresh", action="store_true", help="forget the runs that are selected, and start over"
    )
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        _say("stopped; the long studies go on from here when they are started again")
        sys.exit(130)
