"""Studies of nestquad: ``python -m studies paper``, promises, families, risk and others.

Options are declared once in `_OPTIONS`. A command lists those that it has, with its defaults.
Even seeds of random problems are to develop on, odd seeds to report.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nestquad as nq
from studies.runner.collect import say
from studies.runner.study import Settings, run_studies
from studies.runner.text import duration, of_parity

_KEPT = "Finished runs are kept in DIR/data and skipped: interrupt and restart at any time."


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = _parser().parse_args(given)
    args.line = shlex.join(["python", "-m", "studies", *given])
    for option, least in (("jobs", 0), ("runs", 1), ("replicates", 1), ("seed", 0)):
        value = getattr(args, option, None)
        if value is not None and value < least:
            print(f"--{option} has to be at least {least}", file=sys.stderr)
            return 2
    try:
        return args.run(args) or 0
    except nq.NestquadError as error:
        say(f"studies: {error}")
        return 2
    except KeyboardInterrupt:
        say(f"\nstudies: interrupted; finished runs are kept. To continue: {args.line}")
        return 130


# Values of options.


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str) -> tuple[float, ...]:
    return () if text == "none" else tuple(float(part) for part in _parts(text))


def _seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``"0-40"`` or ``"1,3,8-10"``."""
    seeds: set[int] = set()
    for part in _parts(text):
        first, _, last = part.partition("-")
        try:
            seeds |= set(range(int(first), int(last or first) + 1))
        except ValueError:
            raise SystemExit(f"--seeds: cannot read {part!r}; write 0-40 or 1,3,5") from None
    return tuple(sorted(seeds))


def _known(option: str, text: str | None, names: Sequence[str]) -> tuple[str, ...]:
    unknown = [part for part in _parts(text) if part not in names]
    if unknown:
        raise SystemExit(f"unknown {option}: {', '.join(unknown)}; known: {', '.join(names)}")
    return tuple(_parts(text))


def _chosen(args: argparse.Namespace, option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Names that an option selects: all by default, and none by the word."""
    text = getattr(args, option)
    return () if text == "none" else _known(f"--{option}", text, names) or tuple(names)


# Commands.


def _paper(args: argparse.Namespace) -> None:
    from studies.paper import reproduce
    from studies.paper.part import Effort

    started = time.monotonic()
    effort = Effort(2, tiny=True) if args.quick else Effort(args.replicates)
    how = {"seed": args.seed, "jobs": args.jobs, "fresh": args.fresh, "redraw": args.redraw}
    page, verdicts = reproduce(args.parts or ["all"], Path(args.out), effort=effort, **how)
    for name, verdict in verdicts:
        print(f"{verdict.status:14}{name:14}{verdict.claim}: {verdict.measured}")
        print(f"{'':28}{verdict.reason}")
    print(f"wrote {page} ({duration(time.monotonic() - started)})")


def _promises(args: argparse.Namespace) -> None:
    from studies.promises import HEAD, STUDIES
    from studies.promises.measure import ALL_METHODS

    known = {study.name: study for study in STUDIES}
    only = _known("--only", ",".join(args.only or known), list(known))
    if (args.seeds or 2) < 2:
        raise SystemExit("--seeds has to be at least 2")
    settings = Settings(
        seeds=args.seeds or (5 if args.quick else Settings.seeds),
        quick=args.quick,
        problems=_known("--problems", args.problems, nq.problems.names()),
        methods=_known("--methods", args.methods, ALL_METHODS),
        budgets=tuple(float(budget) for budget in _parts(args.budgets)),
        jobs=args.jobs,
        fresh=args.fresh,
        data=Path(args.out) / "data",
    )
    chosen = [] if args.redraw else [known[name] for name in only]
    page, command = Path(args.out) / "benchmarks.md", "python -m studies promises"
    run_studies(STUDIES, chosen, settings, page, HEAD, command)


def _drawn(args: argparse.Namespace) -> None:
    """Families, or risk: problems that are drawn from seeds."""
    if args.command == "risk":
        from studies.risk import families, study
    else:
        from studies.families import families, study  # type: ignore[assignment]
    selection = study.Selection(
        families=_chosen(args, "families", families()),
        seeds=_seeds(args.seeds),
        parity=args.parity,
        budgets=_numbers(args.budgets),
        tolerances=_numbers(args.tolerances),
        methods=_chosen(args, "methods", study.METHODS),
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


def _ablate(args: argparse.Namespace) -> None:
    from studies.families import families
    from studies.families.ablate import ablate

    names, even = (
        _chosen(args, "families", families()),
        [s for s in _seeds(args.seeds) if not s % 2],
    )
    budgets, out = _numbers(args.budgets), Path(args.out)
    ablate(names, even, budgets, args.runs, out, args.jobs, args.line)


def _seconds(args: argparse.Namespace) -> None:
    from studies.families import equal_seconds, families

    drawn = [
        f"{family}-{seed}" for family in families() for seed in range(args.parity == "odd", 41, 2)
    ]
    problems = _known("--problems", args.problems, (*nq.problems.names(), *drawn))
    selection = equal_seconds.Selection(
        problems=problems or equal_seconds.default_problems(args.parity),
        parity=args.parity,
        costs=_numbers(args.costs),
        limits=_numbers(args.limits),
        runs=args.runs,
    )
    command = (
        f"python -m studies seconds --problems {','.join(selection.problems)} --parity "
        f"{args.parity} --limits {args.limits} --costs {args.costs} --runs {args.runs}"
    )
    equal_seconds.report(selection, Path(args.out), args.jobs, args.fresh, command)


def _few(args: argparse.Namespace) -> None:
    from studies.few import Selection, report

    budgets = tuple(int(n) for n in _numbers(args.budgets))
    selection = Selection(args.parity, args.each, args.runs, budgets)
    report(selection, Path(args.out), args.jobs, args.fresh, args.line)


def _design(args: argparse.Namespace) -> None:
    from studies.design import rivals
    from studies.design.families import FAMILIES
    from studies.design.problems import CASES
    from studies.design.study import Selection, report

    selection = Selection(
        problems=_chosen(args, "problems", tuple(CASES)),
        families=_chosen(args, "families", tuple(FAMILIES)),
        seeds=_seeds(args.seeds),
        parity=args.parity,
        budgets=_numbers(args.budgets),
        tolerances=_numbers(args.tolerances),
        runs=args.runs,
        rivals=_known("--rivals", args.rivals, rivals.NAMES),
    )
    report(selection, Path(args.out), args.jobs, args.fresh, args.line)


def _published(args: argparse.Namespace) -> None:
    from studies.published import cases
    from studies.published.study import report

    names = _chosen(args, "only", tuple(cases()))
    budgets = _numbers(args.budgets) if args.budgets else ()
    report(names, args.runs, Path(args.out), args.jobs, fresh=args.fresh, budgets=budgets)


def _repeated(args: argparse.Namespace) -> None:
    from studies.repeated.cases import CASES
    from studies.repeated.families import FAMILIES
    from studies.repeated.study import report

    seeds = of_parity(_seeds(args.seeds), args.parity)
    names = [f"{family}/{seed}" for family in _chosen(args, "families", FAMILIES) for seed in seeds]
    budgets = [int(n) for n in _numbers(args.budgets)]
    cases, rivals = _chosen(args, "cases", tuple(CASES)), int(args.rival_budget)
    report(names, cases, budgets, rivals, args.runs, Path(args.out), args.line, say)


def _seeded(args: argparse.Namespace) -> None:
    from studies import proxies, sensitivities

    study = {"proxies": proxies, "sensitivities": sensitivities}[args.command]
    study.run(Path(args.out), _seeds(args.seeds), args.parity, args.line)


def _costs(args: argparse.Namespace) -> None:
    from studies.costs import report

    report()


def _faults(args: argparse.Namespace) -> int:
    from studies import faults

    return int(bool(faults.run(Path(args.out), args.times, args.line)))


_NAMES = "NAME[,NAME]"
_FLAG = {"action": "store_true"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "parts": {"nargs": "*", "default": ["all"], "metavar": "PART", "help": "all, or parts"},
    "--out": {"default": "docs", "metavar": "DIR", "help": "output folder"},
    "--jobs": {
        "type": int,
        "default": os.cpu_count() or 1,
        "metavar": "N",
        "help": "processes, each with one BLAS thread (default: one for each CPU; 0: in this one)",
    },
    "--fresh": {**_FLAG, "help": "forget finished runs and start over"},
    "--only": {"metavar": _NAMES, "help": "only these (default all)"},
    "--problems": {"metavar": _NAMES, "help": "only these problems"},
    "--families": {"metavar": _NAMES, "help": "only these families (default all), or none"},
    "--cases": {"metavar": _NAMES, "help": "only these cases (default all), or none"},
    "--methods": {"metavar": _NAMES, "help": "at fixed budgets (default all)"},
    "--rivals": {"metavar": _NAMES, "help": "others to run (default none)"},
    "--seeds": {"default": "0-10", "metavar": "A-B", "help": "of problems, as 0-40 or 1,3,5"},
    "--parity": {
        "choices": ("odd", "even", "both"),
        "default": "odd",
        "help": "odd: to report (default); even: to develop on",
    },
    "--budgets": {"default": "1e3,1e4", "metavar": "N[,N]", "help": "evaluations, or none"},
    "--tolerances": {"default": "1e-2,1e-3", "metavar": "T[,T]", "help": "relative, or none"},
    "--costs": {
        "default": "1e-7,1e-6,1e-4,1e-2",
        "metavar": "S[,S]",
        "help": "seconds of an evaluation",
    },
    "--limits": {"default": "1,5", "metavar": "S[,S]", "help": "seconds in all"},
    "--runs": {"type": int, "default": 3, "metavar": "N", "help": "of each"},
    "--each": {"type": int, "default": 5, "metavar": "N", "help": "problems of a family"},
    "--times": {"type": int, "default": 20, "metavar": "N", "help": "trials of each fault"},
    "--rival-budget": {"type": float, "default": 1e6, "metavar": "N", "help": "of rivals"},
    "--replicates": {"type": int, "metavar": "N", "help": "of each cell (default: as listed)"},
    "--seed": {"type": int, "default": 0, "metavar": "S", "help": "default 0"},
    "--quick": {**_FLAG, "help": "few seeds and small sizes: does it run at all?"},
    "--redraw": {**_FLAG, "help": "run nothing; page from saved results"},
}


@dataclass(frozen=True)
class Command:
    """Command with the names of its options, and what differs from their declaration."""

    about: str
    run: Callable[[argparse.Namespace], int | None]
    options: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    examples: tuple[str, ...] = ()


_RUNNER = "--out --jobs --fresh"
_PROBLEMS = "--families --seeds --parity --budgets --runs"
_COMMANDS = {
    "paper": Command(
        "the paper's figures and tables, with verdicts",
        _paper,
        f"parts {_RUNNER} --replicates --seed --quick --redraw",
        {"--out": {"default": "results"}},
        ("all --out results", "finance health --jobs 2", "bo", "all --replicates 1000"),
    ),
    "promises": Command(
        "measurements of what the documentation promises",
        _promises,
        f"{_RUNNER} --only --seeds --quick --redraw --problems --methods --budgets",
        {
            "--only": {"nargs": "+", "action": "extend", "metavar": "NAME"},
            "--seeds": {"type": int, "default": None, "metavar": "N", "help": "replicates"},
            "--budgets": {"default": None, "help": "only these"},
        },
        ("--only accuracy --methods auto --seeds 20", "--redraw"),
    ),
    "families": Command(
        "random problems with exact values",
        _drawn,
        f"{_RUNNER} {_PROBLEMS} --tolerances --methods",
        {"--budgets": {"default": "1e3,1e4,1e5"}, "--runs": {"default": 2}},
        (
            "--parity even --families books,rare --tolerances none",
            "--seeds 0-40 --runs 3",
            "--methods auto,certified,nqmc,mlmc --tolerances none",
        ),
    ),
    "ablate": Command(
        "devices of the posterior of J, one switched off, on even seeds",
        _ablate,
        f"{_RUNNER} --families --seeds --budgets --runs",
        {"--seeds": {"default": "0-38"}},
        ("--families kinks,books --seeds 0-8 --budgets 1e3 --runs 1",),
    ),
    "seconds": Command(
        "errors at equal seconds of a simulated clock, for a g of any cost",
        _seconds,
        f"{_RUNNER} --problems --parity --costs --runs --limits",
        {"--parity": {"choices": ("odd", "even")}, "--runs": {"default": 1}},
        ("--out docs", "--limits 1,5 --costs 1e-7,1e-6,1e-4,1e-2,1"),
    ),
    "few": Command(
        "32 to 256 evaluations of an expensive g",
        _few,
        f"{_RUNNER} --parity --each --runs --budgets",
        {
            "--jobs": {"default": 0},
            "--parity": {"choices": ("odd", "even")},
            "--runs": {"default": 5},
            "--budgets": {"default": "32,64,128,256"},
        },
    ),
    "risk": Command(
        "risk measures on random books, beside rivals",
        _drawn,
        f"{_RUNNER} {_PROBLEMS} --tolerances --methods",
        {
            "--budgets": {"default": "1e3,1e4,1e5"},
            "--tolerances": {"default": "0.05"},
            "--runs": {"default": 4},
        },
        (
            "--parity even --families book5,insurer --runs 2",
            "--methods nmc,mlmc,lsmc --budgets 1e3,1e4",
        ),
    ),
    "published": Command(
        "problems of other papers",
        _published,
        f"{_RUNNER} --only --runs --budgets",
        {"--runs": {"default": 20}, "--budgets": {"default": None, "help": "only these"}},
        ("--runs 20", "--fresh --only chronic-pain --budgets 1e5", "--runs 2 --out results"),
    ),
    "repeated": Command(
        "more than two levels",
        _repeated,
        f"--out {_PROBLEMS} --cases --rival-budget",
        {
            "--seeds": {"default": "0-20"},
            "--parity": {"choices": ("odd", "even")},
            "--budgets": {"default": "2e3"},
        },
        ("--seeds 0-20 --budgets 2e3 --runs 3",),
    ),
    "proxies": Command("certificates of proxies planted wrong", _seeded, "--out --seeds --parity"),
    "sensitivities": Command(
        "derivatives of random books, and a hundred parameters", _seeded, "--out --seeds --parity"
    ),
    "costs": Command("constants of the cost model of an analysis", _costs, ""),
    "faults": Command("kills, full disks, dead workers, slow g", _faults, "--out --times"),
    "design": Command(
        "information gain of experiments",
        _design,
        f"{_RUNNER} {_PROBLEMS} --problems --tolerances --rivals",
        {
            "--tolerances": {"default": "0.02"},
            "--runs": {"default": 100, "help": "of the six; families a twentieth"},
        },
        ("--out docs --runs 100", '--rivals "nmc,mlmc,laplace is,pyro nmc" --runs 20'),
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="STUDIES", dest="command")
    for name, command in _COMMANDS.items():
        lines = [f"  python -m studies {name} {example}" for example in command.examples]
        one = commands.add_parser(
            name,
            help=command.about,
            epilog="\n".join(["examples:", *lines, "", _KEPT] if lines else [_KEPT]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for option in command.options.split():
            one.add_argument(option, **{**_OPTIONS[option], **command.changes.get(option, {})})
        one.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
