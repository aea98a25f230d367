"""``nestquad risk``: measures of risk of a problem, or from a table of nested simulations."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import risk
from nestquad._files import text_table
from nestquad.cli._arguments import (
    TARGET,
    Command,
    add_output,
    count,
    listed,
    load_problem,
    number,
    pool,
    progress,
    wrote,
)
from nestquad.errors import InputError
from nestquad.risk._report import page_path

_SUMMARY = "value at risk, expected shortfall and exceedance of E[loss | scenario]"
_EPILOG = """\
examples:
  nestquad risk model.py:book --var 0.99 --es 0.975 --exceed 100 --budget 1e4 --report risk.html
  nestquad risk model.py:problem --var 0.95,0.99 --rtol 0.02 --json
  nestquad risk model.py:book --outputs fx,rates,credit --portfolio macro=fx,rates \\
      --portfolio rest=credit --stress "rates +200"=0,0.02 --certify --budget 1e4
  nestquad risk model.py:book --prior yesterday --budget 2e3 --store today
  nestquad risk model.py:book --rtol 0.01 --forecast
  nestquad risk model.py:swaps --exposure --outputs 0.5,1,2 --default-curve 0.02 --budget 1e4
  nestquad risk simulation.csv --scenario scenario --loss desk_a,desk_b --var 0.99
  nestquad risk simulation.csv --factors rate,equity --var 0.99

A CSV has a header and a row for each inner draw: its scenario, losses in one or more columns, and
with --factors the risk factors of the scenario.

exit codes:
  0  done; where a tolerance was asked for, it was met
  2  wrong input
  3  a tolerance was asked for and not met
"""


# Options that say how a problem is evaluated.
_OF_PROBLEMS = (
    "budget",
    "tol",
    "rtol",
    "max_seconds",
    "store",
    "workers",
    "retries",
    "outputs",
    "exposure",
    "default_curve",
    "recovery",
    "portfolio",
    "stress",
    "certify",
    "prior",
    "forecast",
)


def add_risk(command: Command) -> None:
    """Add ``risk``."""
    parser = command("risk", _run, _SUMMARY, _EPILOG)
    parser.add_argument("target", metavar="TARGET", help=f"{TARGET}; or FILE.csv")
    levels, thresholds = "P[,P...]", "C[,C...]"
    parser.add_argument("--var", type=listed(number), metavar=levels, help="default 0.99")
    parser.add_argument("--es", type=listed(number), metavar=levels, help="default 0.975")
    parser.add_argument("--exceed", type=listed(number), default=[], metavar=thresholds)
    parser.add_argument("--outputs", type=listed(str), metavar="A,B", help="names, or dates")
    parser.add_argument(
        "--portfolio",
        action="append",
        metavar="NAME=A,B",
        help="outputs with measures of their own",
    )
    parser.add_argument(
        "--stress", action="append", metavar="NAME=V,V", help="a scenario θ: J and its place"
    )
    parser.add_argument("--certify", action="store_true", help="intervals by fresh draws alone")
    parser.add_argument(
        "--prior", metavar="DIR", help="store of an earlier run, as control variate"
    )
    parser.add_argument(
        "--forecast", action="store_true", help="evaluations and seconds that a tolerance takes"
    )
    parser.add_argument("--exposure", action="store_true", help="outputs of g are dates")
    parser.add_argument("--default-curve", type=listed(number), metavar="H", help="hazard rate")
    parser.add_argument("--recovery", type=float, metavar="R", help="default 0.4")
    parser.add_argument("--budget", type=count, metavar="N", help="at most N evaluations of g")
    parser.add_argument("--tol", type=float, metavar="X", help="95 %% half-width of each measure")
    parser.add_argument("--rtol", type=float, metavar="X", help="stop at X times the value")
    parser.add_argument(
        "--max-seconds", type=float, metavar="X", help="start nothing new after X s"
    )
    parser.add_argument("--store", metavar="DIR", help="keep values of g there")
    parser.add_argument("--workers", type=count, metavar="N", help="evaluate g in N processes")
    parser.add_argument("--retries", type=int, metavar="N", help="where g fails")
    parser.add_argument("--scenario", metavar="COLUMN", help="of a CSV (default scenario)")
    parser.add_argument(
        "--loss", type=listed(str), metavar="COLUMN[,COLUMN...]", help="of a CSV (default loss)"
    )
    parser.add_argument(
        "--factors", type=listed(str), metavar="A,B", help="columns of a CSV that J is learned from"
    )
    add_output(parser)


def _run(args: argparse.Namespace) -> int:
    measures: dict[str, Any] = {"exceed": args.exceed}
    measures |= {k: getattr(args, k) for k in ("var", "es") if getattr(args, k) is not None}
    if args.report:
        page_path(args.report)  # before the evaluations
    report: risk.RiskReport | risk.Forecast
    if args.target.lower().endswith(".csv"):
        unused = (None, False)
        given = [k for k in _OF_PROBLEMS if not any(getattr(args, k) is value for value in unused)]
        given = [f"--{k.replace('_', '-')}" for k in given]
        if given:
            advice = "A table is there already, and nothing is evaluated."
            raise InputError("TARGET", f"a table with {', '.join(given)}", "a table alone", advice)
        scenario, losses = args.scenario or "scenario", args.loss or ["loss"]
        report = risk.from_table(
            _read(Path(args.target), (scenario, *losses, *(args.factors or ()))),
            scenario=scenario,
            factors=args.factors,
            loss=losses[0] if len(losses) == 1 else losses,
            rng=args.seed,
            name=Path(args.target).stem,
            **measures,
        )
    else:
        report = _measured(args, measures)
    if isinstance(report, risk.Forecast):
        print(json.dumps(asdict(report), indent=2) if args.json else report)
        return 0
    print(report.to_json(indent=2) if args.json else report)
    if args.report:
        wrote(args, report.save(args.report, command=args.line))
    asked = args.tol is not None or args.rtol is not None
    return 0 if not asked or report.status == "converged" else 3


def _named(option: str, given: list[str] | None) -> dict[str, list[str]] | None:
    """NAME=A,B, several times, as a mapping."""
    if given is None:
        return None
    parts = [text.rpartition("=") for text in given]
    if not all(name and values for name, _, values in parts):
        raise InputError(option, " ".join(given), "NAME=A,B")
    return {name: values.split(",") for name, _, values in parts}


def _measured(
    args: argparse.Namespace, measures: dict[str, Any]
) -> risk.RiskReport | risk.Forecast:
    if any(one is not None for one in (args.scenario, args.loss, args.factors)):
        given = f"{args.target} with --scenario, --loss or --factors"
        raise InputError("TARGET", given, "a CSV", "A problem has its scenarios and its loss.")
    if args.budget is None and args.tol is None and args.rtol is None and args.max_seconds is None:
        given = "neither --budget nor --tol nor --rtol nor --max-seconds"
        raise InputError("risk", given, "at least one of them", "For instance --budget 1e4.")
    problem, curve = load_problem(args.target), args.default_curve
    stresses = _named("--stress", args.stress)
    if args.forecast and args.budget is not None:
        measures["budget"] = args.budget
    elif not args.forecast:
        measures |= {"budget": args.budget, "progress": progress(args)}
    with pool(args) as executor:
        return (risk.forecast if args.forecast else risk.measure)(
            problem,
            **measures,
            portfolios=_named("--portfolio", args.portfolio),
            stresses=None
            if stresses is None
            else {name: [number(v) for v in values] for name, values in stresses.items()},
            certify=args.certify,
            prior=args.prior,
            outputs=args.outputs,
            exposure=args.exposure,
            default_curve=curve[0] if curve is not None and len(curve) == 1 else curve,
            recovery=0.4 if args.recovery is None else args.recovery,
            tol=args.tol,
            rtol=args.rtol,
            rng=args.seed,
            executor=executor,
            store=args.store,
            max_seconds=args.max_seconds,
            retries=args.retries or 0,
        )


def _read(path: Path, columns: tuple[str, ...]) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a CSV, as text; losses become numbers where they are used."""
    there, rows = text_table(path, "TARGET")
    missing = [name for name in columns if name not in there]
    if missing:
        raise InputError(
            "TARGET",
            f"{path.name} without a column {missing[0]!r}",
            f"one of {', '.join(map(repr, there))}",
            "Name the columns by --scenario, --loss and --factors.",
        )
    twice = [name for name in columns if there.count(name) > 1]
    if twice:
        given = f"{path.name} with {there.count(twice[0])} columns {twice[0]!r}"
        raise InputError("TARGET", given, "one column of a name")
    return {name: np.array([row[there.index(name)] for row in rows]) for name in columns}
