"""The program: estimate, compare, problems, demo, and the parser of all commands."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.cli._arguments import (
    GOAL,
    OUTPUT,
    TARGET,
    Exit,
    add_options,
    answer,
    count,
    listed,
    load_expectation,
    load_problem,
    pool,
    progress,
)
from nestquad.cli._certify import add_certify
from nestquad.cli._design import add_design
from nestquad.cli._plan import add_plan
from nestquad.cli._risk import add_risk
from nestquad.cli._sensitivity import add_sensitivity
from nestquad.cli._serve import add_serve
from nestquad.cli._voi import add_voi
from nestquad.methods import METHODS
from nestquad.pages import write_report
from nestquad.plots import new_axes, save
from nestquad.result import plain

_DESCRIPTION = """\
Nested expectations E[f(E[g(x, theta) | theta])] with few evaluations of g and honest error bars."""

_EPILOG = """\
examples:
  nestquad demo
  nestquad problems
  nestquad estimate finance --tol 0.01
  nestquad estimate model.py:problem --budget 1e5 --report page.html
  nestquad compare finance --budget 1e3,1e4
  nestquad plan model.py:problem --budget 1e3 --out points.csv
  nestquad analyze points.plan.json values.csv
  nestquad voi --parameters p.csv --costs c.csv --effects e.csv --wtp 20000
  nestquad voi serve
  nestquad risk model.py:problem --var 0.99 --es 0.975 --budget 1e4
  nestquad design trial.py:experiment --designs designs.csv --budget 2e4
  nestquad certify model.py:problem model.py:proxy --budget 2000

exit codes:
  0  done; where a tolerance was asked for, it was met
  2  wrong input; the message says what to do
  3  a tolerance was asked for and not met
"""

_ESTIMATE = """\
examples:
  nestquad estimate finance --tol 0.01 --seed 1
  nestquad estimate model.py:problem --budget 1e5 --method nkq --report page.html
  nestquad estimate model.py:problem --rtol 1e-3 --max-seconds 60 --json > answer.json
  nestquad estimate model.py:problem --tol 0.01 --store values --workers 4

A FILE.py can be as short as this:
  import nestquad as nq
  problem = nq.NestedExpectation(
      outer=nq.Normal(), inner=lambda theta: nq.Normal(theta, 1.0),
      g=lambda x, theta: x[..., 0] ** 2, f=lambda j: j.clip(1.0))

exit codes:
  0  done; where a tolerance was asked for, it was met
  2  wrong input
  3  a tolerance was asked for and not met: the budget or the time ended before
"""

_COMPARE = """\
examples:
  nestquad compare finance --budget 1e4
  nestquad compare model.py:problem --budget 1e3,1e4,1e5 --methods nkq,nmc --report page.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command line with these arguments, by default of the process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ± must not end a run
            stream.reconfigure(errors="replace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    words = arguments
    if words[:2] == ["voi", "serve"]:  # one command of two words
        words = ["voi serve", *words[2:]]
    args = parser.parse_args(words)
    if args.command is None:
        parser.print_help(sys.stderr)
        return Exit.WRONG_INPUT
    if "seed" in args and args.seed is None and getattr(args, "store", None) is None:
        # Chosen here and not below, so that the command in a report makes the same numbers again.
        args.seed = int(np.random.SeedSequence().generate_state(1)[0])
        arguments += ["--seed", str(args.seed)]
    args.line = shlex.join(["nestquad", *arguments])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(args.run(args))
    except BrokenPipeError:  # such as `| head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (nq.NestquadError, OSError) as error:
        print(f"nestquad: {error}", file=sys.stderr)
        return Exit.WRONG_INPUT
    except KeyboardInterrupt:
        store = getattr(args, "store", None)
        kept = f"; evaluations are kept in {store}: the same command continues" if store else ""
        print(f"nestquad: interrupted before there was an answer{kept}", file=sys.stderr)
        return Exit.INTERRUPTED


def _estimate(args: argparse.Namespace) -> int:
    if not any((args.budget, args.tol, args.rtol, args.max_seconds)):
        given = "neither --budget nor --tol nor --rtol nor --max-seconds"
        raise nq.InputError("estimate", given, "at least one of them", "For instance --tol 0.01.")
    problem = load_expectation(args.target)
    names = ("budget", "tol", "rtol", "method", "store", "max_seconds", "certify")
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    options |= {"store_check": not args.no_store_check, "progress": progress(args)}
    options["retries"] = args.retries or 0
    with pool(args) as executor:
        est = nq.estimate(problem, rng=args.seed, executor=executor, **options)
    write = partial(write_report, estimate=est, command=args.line)
    return answer(args, est, write, _line(est))


def _compare(args: argparse.Namespace) -> int:
    options = {name: getattr(args, name) for name in ("budget", "methods", "replicates")}
    show = progress(args)
    table = nq.compare(load_problem(args.target), rng=args.seed, progress=show, **options)
    return answer(args, table, partial(write_report, comparison=table, command=args.line))


def _problems(args: argparse.Namespace) -> int:
    rows = []
    for name in nq.problems.names():
        problem = nq.problems.get(name)
        law = problem.outer_law
        sizes = {"d_x": problem.inner_law(law.middle()).dim, "d_theta": law.dim}
        exact = {"exact": plain(problem.exact), "tags": list(problem.tags)}
        rows.append({"name": name} | sizes | exact)
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(f"{'name':<18}{'d_x':>5}{'d_theta':>9}  {'exact':<18}tags")
    for row in rows:
        line = "{name:<18}{d_x:>5}{d_theta:>9}  {exact:<18.12g}".format(**row)
        print(line + ", ".join(row["tags"]))
    return 0


def _demo(args: argparse.Namespace) -> int:
    problem = nq.problems.finance()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    est = nq.estimate(problem, tol=args.tol, rng=args.seed, progress=progress(args))
    print(_line(est))
    print("A tolerance alone asks for the fastest way to it, a budget for the smallest error:")
    print("\n".join(f"  {note}" for note in est.diagnostics["notes"]), end="\n\n")
    options: dict[str, Any] = {"rng": args.seed, "progress": progress(args)}
    # The fastest way to a tolerance may be a million cheap evaluations: minutes for other methods.
    budget = min(est.n_evaluations, 10_000)
    table = nq.compare(problem, budget=budget, replicates=5, **options)
    print(f"{table}\n")
    shown: dict[str, Any] = {"estimate": est, "comparison": table, "command": args.line}
    print(f"wrote {write_report(out / 'report.html', title='nestquad demo', **shown)}")
    try:
        figure, (left, right) = new_axes(12.0, 4.0, columns=2)
        est.plot(left)
        table.plot(right)
        for path in (save(figure, out / "demo.png"), save(figure, out / "demo.svg")):
            print(f"wrote {path}")
    except nq.MissingExtraError as error:
        print(f"done, without figures. {error}")
    return 0 if est.status == "converged" else Exit.NOT_MET


def _line(est: nq.Estimate) -> str:
    exact = "" if est.exact is None else f", exact value {plain(est.exact)}"
    return f"{est}{exact}"


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"nestquad: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nestquad",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"nestquad {nq.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    command = partial(_command, commands)
    single = command("estimate", _estimate, "estimate one problem", _ESTIMATE)
    further = "max-seconds", "store", "workers", "retries"
    add_options(single, *GOAL, *further, *OUTPUT, target=TARGET)
    add, flag = single.add_argument, "store_true"
    add("--certify", action=flag, help="a second interval, from fresh draws alone")
    add("--no-store-check", action=flag, help="evaluate no stored point again")

    side_by_side = command("compare", _compare, "methods side by side", _COMPARE)
    add_options(side_by_side, *OUTPUT, target=TARGET)
    add = side_by_side.add_argument
    each = "evaluations of g for each run; several make a convergence table"
    add("--budget", type=listed(count), required=True, metavar="N[,N...]", help=each)
    every = f"default: all ({','.join(METHODS)})"
    add("--methods", type=listed(str), metavar="A,B", help=every)
    add("--replicates", type=count, default=20, metavar="R", help="runs of each (default 20)")

    doors = add_plan, add_voi, add_serve, add_risk, add_design, add_sensitivity, add_certify
    for add_door in doors:
        add_door(command)

    example = "example:\n  nestquad problems --json\n"
    add_options(command("problems", _problems, "the shipped problems", example), "json")

    what = "finance to a requested accuracy, all methods, a figure and a report"
    example = "example:\n  nestquad demo --out demo-output --tol 0.01\n"
    demo = command("demo", _demo, what, example)
    add = demo.add_argument
    where = "where to write (default demo-output)"
    add("--out", default="demo-output", metavar="DIR", help=where)
    add("--tol", type=float, default=0.02, metavar="X", help="95 %% half-width (default 0.02)")
    add("--seed", type=int, default=0, metavar="S", help="default 0")
    add_options(demo, "no-progress")
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, epilog: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser
