"""``nestquad risk``: measures of risk of a problem, or from a table of nested simulations."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import risk
from nestquad._files import text_table
from nestquad.cli._arguments import (
    OUTPUT,
    TARGET,
    Command,
    add_options,
    answer,
    listed,
    load_problem,
    number,
    pool,
    progress,
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
_EVALUATED = "budget", "tol", "rtol", "max-seconds", "store", "workers", "retries"
_MEASURED = "outputs", "exposure", "default-curve", "recovery", "portfolio", "stress"
_OF_PROBLEMS = (*_EVALUATED, *_MEASURED, "certify", "prior", "forecast")


def add_risk(command: Command) -> None:
    """Add ``risk``."""
    parser = command("risk", _run, _SUMMARY, _EPILOG)
    add_options(parser, *_EVALUATED, *OUTPUT, target=f"{TARGET}; or FILE.csv")
    add, flag, levels = parser.add_argument, "store_true", "P[,P...]"
    add("--var", type=listed(number), metavar=levels, help="default 0.99")
    add("--es", type=listed(number), metavar=levels, help="default 0.975")
    add("--exceed", type=listed(number), default=[], metavar="C[,C...]")
    add("--outputs", type=listed(str), metavar="A,B", help="names, or dates")
    parts = "outputs with measures of their own"
    add("--portfolio", action="append", metavar="NAME=A,B", help=parts)
    stress = "a scenario θ: J and its place"
    add("--stress", action="append", metavar="NAME=V,V", help=stress)
    add("--certify", action=flag, help="intervals by fresh draws alone")
    add("--prior", metavar="DIR", help="store of an earlier run, as control variate")
    add("--forecast", action=flag, help="evaluations and seconds that a tolerance takes")
    add("--exposure", action=flag, help="outputs of g are dates")
    add("--default-curve", type=listed(number), metavar="H", help="hazard rate")
    add("--recovery", type=float, metavar="R", help="default 0.4")
    add("--scenario", metavar="COLUMN", help="of a CSV (default scenario)")
    columns = "COLUMN[,COLUMN...]"
    add("--loss", type=listed(str), metavar=columns, help="of a CSV (default loss)")
    learned = "columns of a CSV that J is learned from"
    add("--factors", type=listed(str), metavar="A,B", help=learned)


def _run(args: argparse.Namespace) -> int:
    measures: dict[str, Any] = {"exceed": args.exceed}
    measures |= {k: getattr(args, k) for k in ("var", "es") if getattr(args, k) is not None}
    if args.report:
        page_path(args.report)  # before the evaluations
    report: risk.RiskReport | risk.Forecast
    if args.target.lower().endswith(".csv"):
        told = {k: getattr(args, k.replace("-", "_")) for k in _OF_PROBLEMS}
        given = [f"--{k}" for k, value in told.items() if value is not None and value is not False]
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
    return answer(args, report, partial(report.save, command=args.line))


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
