"""Studies of nestquad: ``python -m studies paper``, promises, families, risk and others."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nestquad as nq
from studies.runner.collect import Progress, say
from studies.runner.study import Settings, run_studies
from studies.runner.text import duration

_PAPER = """\
examples:
  python -m studies paper all --out results
  python -m studies paper finance health --jobs 2
  python -m studies paper all --full --out results-full
  python -m studies paper bo --full --replicates 40

Every run is kept in DIR/data/runs.csv. Interrupt at any time: the same command continues from
there, and a quick run is the beginning of a full one. Open DIR/index.html in a browser.
"""
_PROMISES = """\
examples:
  python -m studies promises --only accuracy
  python -m studies promises --only unseen --methods auto --seeds 20
  python -m studies promises --redraw
"""
_FAMILIES = """\
examples:
  python -m studies families --parity even --seeds 0-10 --families books,rare --tolerances none
  python -m studies families --seeds 0-40 --runs 3
  python -m studies families --methods auto,certified,nqmc,mlmc --tolerances none

Even seeds are to develop on, odd seeds to report. Every run is kept in DIR/data/families_runs.csv
and finished runs are skipped; tables are made of the runs that the command asks for. With --fresh
they are run again, and those of earlier code stay for the history.
"""
_SECONDS = """\
examples:
  python -m studies seconds --out docs --jobs 1
  python -m studies seconds --parity even --problems finance,smooth-2 --costs 1e-7,1e-4
  python -m studies seconds --limits 1,5 --costs 1e-7,1e-6,1e-4,1e-2,1 --runs 1

Times are wall times: use one process, on a machine that does nothing else.
"""
_DESIGN = """\
examples:
  python -m studies design --parity even --seeds 0-8 --runs 8 --problems linear,death
  python -m studies design --out docs --runs 100
  python -m studies design --rivals "nmc,mlmc,laplace is,pyro nmc" --runs 20

Even seeds of the families are to develop on, odd seeds to report. Every run is kept in
DIR/data/design_runs.csv and finished runs are skipped.
"""

_RISK = """\
examples:
  python -m studies risk --parity even --seeds 0-10 --families book5,insurer --runs 2
  python -m studies risk --seeds 0-10 --runs 4
  python -m studies risk --methods nmc,mlmc,lsmc --budgets 1e3,1e4

Even seeds are to develop on, odd seeds to report. Every run is kept in DIR/data/risk_runs.csv and
finished runs are skipped; --fresh runs them again.
"""

_ABLATE = """\
examples:
  python -m studies ablate --out docs
  python -m studies ablate --families kinks,books --seeds 0-8 --budgets 1e3 --runs 1

Only even seeds are used.
"""
_PUBLISHED = """\
examples:
  python -m studies published --runs 20
  python -m studies published --runs 2 --only insurance,calls-1 --out results

Every run is kept in DIR/data/published_runs.csv.gz and finished runs are skipped; the page has the
problems that the command names.
"""


_REPEATED = """\
examples:
  python -m studies repeated --parity even --seeds 0-8 --cases none
  python -m studies repeated --seeds 0-20 --budgets 2e3 --runs 3

Even seeds are to develop on, odd seeds to report. Every run is kept in DIR/data/repeated_runs.csv
and finished runs are skipped.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = _parser().parse_args(given)
    args.line = shlex.join(["python", "-m", "studies", *given])
    try:
        return args.run(args)
    except nq.NestquadError as error:
        say(f"studies: {error}")
        return 2
    except KeyboardInterrupt:
        say(f"\nstudies: interrupted; finished runs are kept. To continue: {args.line}")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="STUDIES", dest="command")
    how = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    _paper_options(
        commands.add_parser(
            "paper", help="the paper's figures and tables, with verdicts", epilog=_PAPER, **how
        )
    )
    _promises_options(
        commands.add_parser(
            "promises", help="what the documentation promises", epilog=_PROMISES, **how
        )
    )
    _families_options(
        commands.add_parser(
            "families", help="random problems with exact values", epilog=_FAMILIES, **how
        )
    )
    _ablate_options(
        commands.add_parser(
            "ablate", help="devices of the posterior of J, one switched off", epilog=_ABLATE, **how
        )
    )
    _seconds_options(
        commands.add_parser(
            "seconds", help="time to a tolerance, for a g of any cost", epilog=_SECONDS, **how
        )
    )
    _few_options(commands.add_parser("few", help="32 to 256 evaluations of an expensive g", **how))
    _risk_options(
        commands.add_parser(
            "risk", help="risk measures on random books, beside rivals", epilog=_RISK, **how
        )
    )
    _published_options(
        commands.add_parser("published", help="problems of other papers", epilog=_PUBLISHED, **how)
    )
    _repeated_options(
        commands.add_parser("repeated", help="more than two levels", epilog=_REPEATED, **how)
    )
    for name, about in (
        ("proxies", "certificates of proxies planted wrong"),
        ("sensitivities", "derivatives of random books, and a hundred parameters"),
    ):
        study = commands.add_parser(name, help=about, **how)
        study.add_argument("--out", default="docs", metavar="DIR", help="output folder")
        study.add_argument("--seeds", type=_seeds, default="0-10", metavar="A-B", help="problems")
        study.add_argument("--parity", choices=("odd", "even", "both"), default="odd")
        study.set_defaults(run=_seeded)
    faults = commands.add_parser("faults", help="kills, full disks, dead workers, slow g", **how)
    faults.add_argument("--out", default="docs", metavar="DIR", help="output folder")
    faults.add_argument("--times", type=int, default=20, metavar="N", help="trials of each fault")
    faults.set_defaults(run=_faults)
    _design_options(
        commands.add_parser("design", help="information gain of experiments", epilog=_DESIGN, **how)
    )
    return parser


def _seeded(args: argparse.Namespace) -> int:
    from studies import proxies, sensitivities

    study = {"proxies": proxies, "sensitivities": sensitivities}[args.command]
    study.run(Path(args.out), args.seeds, args.parity, args.line)
    return 0


def _faults(args: argparse.Namespace) -> int:
    from studies import faults

    return 1 if faults.run(Path(args.out), args.times, args.line) else 0


def _common(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument("--out", default=out, metavar="DIR", help=f"output folder (default {out})")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes, each with one BLAS thread (default: one for each CPU; 0: in this one)",
    )
    parser.add_argument("--fresh", action="store_true", help="forget finished runs and start over")


def _paper_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", default=["all"], metavar="PART", help="all, or parts")
    _common(parser, "results")
    effort = parser.add_mutually_exclusive_group()
    for name, words in (
        ("quick", "fewer replicates: minutes (default)"),
        ("full", "the paper's replicates, 1000 and 100: hours"),
        ("tiny", "two or three replicates: does it run?"),
    ):
        effort.add_argument(
            f"--{name}", dest="effort", action="store_const", const=name, help=words
        )
    parser.add_argument("--replicates", type=int, metavar="N", help="most replicates of each cell")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default 0")
    parser.add_argument("--no-progress", action="store_true", help="do not show the time left")
    parser.set_defaults(effort="quick", run=_paper)


def _paper(args: argparse.Namespace) -> int:
    from studies.paper import reproduce

    tell, started = Progress(), time.monotonic()
    try:
        page, verdicts = reproduce(
            args.parts or ["all"],
            args.out,
            effort=args.effort,
            seed=args.seed,
            replicates=args.replicates,
            jobs=args.jobs,
            fresh=args.fresh,
            command=args.line,
            tell=(lambda *_: None) if args.no_progress else tell,
        )
    finally:
        tell.close()
    for name, verdict in verdicts:
        print(f"{verdict.status:14}{name:14}{verdict.claim}: {verdict.measured}")
    print(f"wrote {page} ({duration(time.monotonic() - started)})")
    return 0


def _promises_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", action="extend", metavar="NAME", help="run these studies only"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"replicates of each run (default {Settings.seeds})"
    )
    _common(parser, "docs")
    parser.add_argument(
        "--quick", action="store_true", help="few seeds and small sizes: does it run at all?"
    )
    parser.add_argument(
        "--redraw", "--page-only", action="store_true", help="run nothing; page from saved results"
    )
    long = parser.add_argument_group(
        "studies with a ledger (accuracy, tolerance, unseen, multilevel)",
        "Every run is appended to data/NAME_runs.csv and finished runs are skipped: interrupt and "
        "restart at any time, or run in parts. Tables are made from all runs of the ledger.",
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
    parser.set_defaults(run=_promises)


def _promises(args: argparse.Namespace) -> int:
    from studies import unseen
    from studies.promises import HEAD, STUDIES
    from studies.promises.measure import ALL_METHODS

    known = {study.name: study for study in STUDIES}
    only = _known("--only", ",".join(args.only or known), list(known))
    for option in ("seeds", "other_seeds"):
        if (getattr(args, option) or 2) < 2:
            raise SystemExit(f"--{option.replace('_', '-')} has to be at least 2")
    if args.jobs < 0:
        raise SystemExit("--jobs has to be at least 0")
    settings = Settings(
        seeds=args.seeds or (5 if args.quick else Settings.seeds),
        quick=args.quick,
        other_seeds=args.other_seeds or (2 if args.quick else Settings.other_seeds),
        problems=_known("--problems", args.problems, (*nq.problems.names(), *unseen.names())),
        methods=_known("--methods", args.methods, ALL_METHODS),
        budgets=tuple(float(budget) for budget in _parts(args.budgets)),
        jobs=args.jobs,
        fresh=args.fresh,
        data=Path(args.out) / "data",
    )
    chosen = [] if args.redraw else [known[name] for name in only]
    page, command = Path(args.out) / "benchmarks.md", "python -m studies promises"
    run_studies(STUDIES, chosen, settings, page, HEAD, command)
    return 0


def _families_options(parser: argparse.ArgumentParser) -> None:
    _drawn_options(parser, tolerances="1e-2,1e-3", runs=2)
    parser.set_defaults(run=_families)


def _families(args: argparse.Namespace) -> int:
    from studies.families import families, study

    return _drawn(args, families(), study)


def _ablate_options(parser: argparse.ArgumentParser) -> None:
    _common(parser, "docs")
    parser.add_argument("--families", metavar="NAME[,NAME]", help="only these (default all)")
    parser.add_argument("--seeds", default="0-38", metavar="A-B", help="even ones are used")
    parser.add_argument("--budgets", default="1e3,1e4", metavar="N[,N]")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each (default 3)")
    parser.set_defaults(run=_ablate)


def _ablate(args: argparse.Namespace) -> int:
    from studies.families import families
    from studies.families.ablate import ablate

    ablate(
        _known("--families", args.families, families()) or families(),
        [seed for seed in _seeds(args.seeds) if seed % 2 == 0],
        _numbers(args.budgets),
        args.runs,
        Path(args.out),
        args.jobs,
        args.line,
    )
    return 0


def _drawn_options(parser: argparse.ArgumentParser, tolerances: str, runs: int) -> None:
    """Options of studies on problems that are drawn from seeds."""
    _common(parser, "docs")
    parser.add_argument("--families", metavar="NAME[,NAME]", help="only these (default all)")
    parser.add_argument(
        "--seeds", default="0-10", metavar="A-B", help="seeds of problems, as 0-40 or 1,3,5"
    )
    parser.add_argument(
        "--parity",
        choices=("odd", "even", "both"),
        default="odd",
        help="odd: to report (default); even: to develop on",
    )
    parser.add_argument("--budgets", default="1e3,1e4,1e5", metavar="N[,N]", help="or none")
    parser.add_argument("--tolerances", default=tolerances, metavar="T[,T]", help="or none")
    parser.add_argument("--methods", metavar="NAME[,NAME]", help="at fixed budgets (default all)")
    parser.add_argument(
        "--runs", type=int, default=runs, metavar="N", help=f"of each (default {runs})"
    )


def _drawn(args: argparse.Namespace, families: tuple[str, ...], study: Any) -> int:
    """Run a study on problems that are drawn from seeds."""
    if args.runs < 1 or args.jobs < 0:
        raise SystemExit("--runs has to be at least 1 and --jobs at least 0")
    selection = study.Selection(
        families=_known("--families", args.families, families) or families,
        seeds=_seeds(args.seeds),
        parity=args.parity,
        budgets=_numbers(args.budgets),
        tolerances=_numbers(args.tolerances),
        methods=_known("--methods", args.methods, study.METHODS) or study.METHODS,
        runs=args.runs,
    )
    if not selection.chosen:
        raise SystemExit(f"--seeds {args.seeds} has no {args.parity} seeds")
    command = (
        f"python -m studies {args.command} --families {','.join(selection.families)} "
        f"--seeds {args.seeds} --parity {args.parity} --budgets {args.budgets} "
        f"--tolerances {args.tolerances} --methods {','.join(selection.methods)} "
        f"--runs {args.runs}"
    )
    study.report(selection, Path(args.out), args.jobs, args.fresh, command)
    return 0


def _seconds_options(parser: argparse.ArgumentParser) -> None:
    _common(parser, "docs")
    parser.set_defaults(jobs=1)
    parser.add_argument(
        "--problems", metavar="NAME[,NAME]", help="shipped or as books-2 (default: some of both)"
    )
    parser.add_argument(
        "--parity", choices=("odd", "even"), default="odd", help="seeds of families (default odd)"
    )
    parser.add_argument("--tolerances", default="1e-2,1e-3", metavar="T[,T]", help="relative")
    parser.add_argument(
        "--costs", default="1e-7,1e-6,1e-4,1e-2", metavar="S[,S]", help="seconds of an evaluation"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each (default 3)")
    parser.add_argument(
        "--limits", metavar="S[,S]", help="errors at equal seconds instead of seconds to tolerances"
    )
    parser.set_defaults(run=_seconds)


def _seconds(args: argparse.Namespace) -> int:
    from studies.families import families
    from studies.families.seconds import Selection, default_problems, report

    if args.runs < 1 or args.jobs < 0:
        raise SystemExit("--runs has to be at least 1 and --jobs at least 0")
    drawn = [
        f"{family}-{seed}" for family in families() for seed in range(args.parity == "odd", 41, 2)
    ]
    known = (*nq.problems.names(), *drawn)
    if args.limits is not None:
        return _equal_seconds(args, known)
    selection = Selection(
        problems=_known("--problems", args.problems, known) or default_problems(args.parity),
        parity=args.parity,
        tolerances=_numbers(args.tolerances),
        costs=_numbers(args.costs),
        runs=args.runs,
    )
    command = (
        f"python -m studies seconds --problems {','.join(selection.problems)} "
        f"--parity {args.parity} --tolerances {args.tolerances} --costs {args.costs} "
        f"--runs {args.runs} --jobs {args.jobs}"
    )
    report(selection, Path(args.out), args.jobs, args.fresh, command)
    return 0


def _few_options(parser: argparse.ArgumentParser) -> None:
    _common(parser, "docs")
    parser.set_defaults(jobs=0, run=_few)
    parser.add_argument("--parity", choices=("odd", "even"), default="odd", help="default odd")
    parser.add_argument("--each", type=int, default=5, metavar="N", help="problems of a family")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of shipped problems")
    parser.add_argument("--budgets", default="32,64,128,256", metavar="N[,N]")


def _few(args: argparse.Namespace) -> int:
    from studies.few import Selection, report

    budgets = tuple(int(n) for n in _numbers(args.budgets))
    selection = Selection(args.parity, args.each, args.runs, budgets)
    report(selection, Path(args.out), args.jobs, args.fresh, args.line)
    return 0


def _equal_seconds(args: argparse.Namespace, known: Sequence[str]) -> int:
    from studies.families import equal_seconds

    selection = equal_seconds.Selection(
        problems=_known("--problems", args.problems, known)
        or equal_seconds.default_problems(args.parity),
        parity=args.parity,
        costs=_numbers(args.costs),
        limits=_numbers(args.limits),
        runs=args.runs,
    )
    command = (
        f"python -m studies seconds --problems {','.join(selection.problems)} "
        f"--parity {args.parity} --limits {args.limits} --costs {args.costs} --runs {args.runs}"
    )
    equal_seconds.report(selection, Path(args.out), args.jobs, args.fresh, command)
    return 0


def _design_options(parser: argparse.ArgumentParser) -> None:
    _common(parser, "docs")
    parser.add_argument("--problems", metavar="NAME[,NAME]", help="of the six, or none")
    parser.add_argument("--families", metavar="NAME[,NAME]", help="or none (default all)")
    parser.add_argument("--seeds", default="0-10", metavar="A-B", help="of families (default 0-10)")
    parser.add_argument(
        "--parity",
        choices=("odd", "even", "both"),
        default="odd",
        help="odd: to report (default); even: to develop on",
    )
    parser.add_argument("--budgets", default="1e3,1e4", metavar="N[,N]", help="or none")
    parser.add_argument("--tolerances", default="0.02", metavar="T[,T]", help="or none")
    parser.add_argument("--rivals", metavar="NAME[,NAME]", help="others to run (default none)")
    parser.add_argument(
        "--runs", type=int, default=100, metavar="N", help="of the six; families a twentieth"
    )
    parser.set_defaults(run=_design)


def _design(args: argparse.Namespace) -> int:
    from studies.design import rivals
    from studies.design.families import FAMILIES
    from studies.design.problems import CASES
    from studies.design.study import Selection, report

    def chosen(option: str, known: Sequence[str]) -> tuple[str, ...]:
        text = getattr(args, option)
        return () if text == "none" else _known(f"--{option}", text, known) or tuple(known)

    selection = Selection(
        problems=chosen("problems", tuple(CASES)),
        families=chosen("families", tuple(FAMILIES)),
        seeds=_seeds(args.seeds),
        parity=args.parity,
        budgets=_numbers(args.budgets),
        tolerances=_numbers(args.tolerances),
        runs=args.runs,
        rivals=_known("--rivals", args.rivals, rivals.NAMES),
    )
    report(selection, Path(args.out), args.jobs, args.fresh, args.line)
    return 0


def _risk_options(parser: argparse.ArgumentParser) -> None:
    _drawn_options(parser, tolerances="0.05", runs=4)
    parser.set_defaults(run=_risk)


def _risk(args: argparse.Namespace) -> int:
    from studies.risk import families, study

    return _drawn(args, families(), study)


def _published_options(parser: argparse.ArgumentParser) -> None:
    _common(parser, "docs")
    parser.add_argument("--only", metavar="NAME[,NAME]", help="only these problems (default all)")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="of each (default 20)")
    parser.add_argument("--most", type=float, default=math.inf, metavar="N", help="largest budget")
    parser.set_defaults(run=_published)


def _published(args: argparse.Namespace) -> int:
    from studies.published import cases
    from studies.published.study import report

    if args.runs < 1 or args.jobs < 0:
        raise SystemExit("--runs has to be at least 1 and --jobs at least 0")
    names = _known("--only", args.only, tuple(cases())) or tuple(cases())
    how = {"fresh": args.fresh, "most": args.most, "command": args.line}
    report(names, args.runs, Path(args.out), args.jobs, **how)
    return 0


def _repeated_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="docs", metavar="DIR", help="output folder")
    parser.add_argument("--families", metavar="NAME[,NAME]", help="or none (default all)")
    parser.add_argument("--cases", metavar="NAME[,NAME]", help="or none (default all)")
    parser.add_argument("--seeds", default="0-20", metavar="A-B", help="of families (default 0-20)")
    parser.add_argument("--parity", choices=("odd", "even"), default="odd")
    parser.add_argument("--budgets", default="2e3", metavar="N[,N]")
    parser.add_argument("--rival-budget", default=1e6, type=float, metavar="N")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each case (default 3)")
    parser.set_defaults(run=_repeated)


def _repeated(args: argparse.Namespace) -> int:
    from studies.repeated.cases import CASES
    from studies.repeated.families import FAMILIES
    from studies.repeated.study import report

    def chosen(option: str, known: Sequence[str]) -> tuple[str, ...]:
        text = getattr(args, option)
        return () if text == "none" else _known(f"--{option}", text, known) or tuple(known)

    seeds = [seed for seed in _seeds(args.seeds) if seed % 2 == (args.parity == "odd")]
    names = [f"{family}/{seed}" for family in chosen("families", FAMILIES) for seed in seeds]
    budgets = [int(n) for n in _numbers(args.budgets)]
    cases, rivals = chosen("cases", tuple(CASES)), int(args.rival_budget)
    report(names, cases, budgets, rivals, args.runs, Path(args.out), args.line, say)
    return 0


def _seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``"0-40"`` or ``"1,3,8-10"``."""
    found: set[int] = set()
    for part in _parts(text):
        first, _, last = part.partition("-")
        try:
            found |= set(range(int(first), int(last or first) + 1))
        except ValueError:
            raise SystemExit(f"--seeds: cannot read {part!r}; write 0-40 or 1,3,5") from None
    return tuple(sorted(found))


def _numbers(text: str) -> tuple[float, ...]:
    return () if text == "none" else tuple(float(part) for part in _parts(text))


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _known(option: str, text: str | None, names: Sequence[str]) -> tuple[str, ...]:
    unknown = [part for part in _parts(text) if part not in names]
    if unknown:
        raise SystemExit(f"unknown {option}: {', '.join(unknown)}; known: {', '.join(names)}")
    return tuple(_parts(text))


if __name__ == "__main__":
    sys.exit(main())
