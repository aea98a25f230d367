"""Run studies, save what they found, write the page: ``python -m benchmarks --out docs``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks._measure import environment
from benchmarks._page import page
from benchmarks._study import Result, Settings, Study
from benchmarks.studies import STUDIES
from nestquad.plots import save


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.seeds is not None and given.seeds < 2:
        raise SystemExit("--seeds has to be at least 2")
    chosen = _chosen(given.only)
    settings = Settings(given.seeds or (5 if given.quick else Settings.seeds), given.quick)
    out = Path(given.out)
    data, figures = out / "data", out / "figures"
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
            if study.draw is not None and (given.redraw or study in chosen):
                save(study.draw(results[study.name]), figures / f"bench_{study.name}.png")
    (out / "benchmarks.md").write_text(page(results, STUDIES), encoding="utf-8")
    _say(f"wrote {out / 'benchmarks.md'}")
    return 0


def _run(study: Study, settings: Settings) -> Result:
    start = time.perf_counter()
    result = study.run(settings)
    return replace(
        result,
        command=f"python -m benchmarks --only {study.name}{settings.options}",
        environment=environment(),
        seconds=time.perf_counter() - start,
    )


def _chosen(only: str | None) -> list[Study]:
    if only is None:
        return list(STUDIES)
    names = {study.name: study for study in STUDIES}
    wanted = [name.strip() for name in only.split(",")]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"unknown study {', '.join(unknown)}; known: {', '.join(names)}")
    return [names[name] for name in wanted]


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
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
