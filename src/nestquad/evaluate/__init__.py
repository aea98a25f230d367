"""Evaluating g: designs, chunks, executors. Nothing else in the library calls it."""

from nestquad.evaluate._call import call_f, call_h
from nestquad.evaluate._design import Design, Grid, Span
from nestquad.evaluate._evaluations import Evaluations, Evaluator, InnerRule, OutOfTimeError
from nestquad.evaluate._points import InnerPoints, OuterPoints, inner_points, outer_points

__all__ = [
    "Design",
    "Evaluations",
    "Evaluator",
    "Grid",
    "InnerPoints",
    "InnerRule",
    "OutOfTimeError",
    "OuterPoints",
    "Span",
    "call_f",
    "call_h",
    "inner_points",
    "outer_points",
]
