"""Evaluation of g: designs, chunks, executors, store. Nothing else in the library calls g."""

from nestquad.clock import OutOfTimeError
from nestquad.evaluate._call import call_f, call_h, f_or_nan
from nestquad.evaluate._chunks import chunks
from nestquad.evaluate._design import (
    Design,
    Grid,
    InnerPoints,
    OuterPoints,
    Span,
    grid_points,
    inner_points,
    outer_points,
)
from nestquad.evaluate._evaluations import Evaluations
from nestquad.evaluate._evaluator import Evaluator
from nestquad.evaluate._fingerprint import fingerprint
from nestquad.evaluate._store import Store
from nestquad.evaluate._tangents import Derivative, Driving, Parametrized, TangentG, Tangents
from nestquad.evaluate._task import InnerRule

__all__ = [
    "Derivative",
    "Design",
    "Driving",
    "Evaluations",
    "Evaluator",
    "Grid",
    "InnerPoints",
    "InnerRule",
    "OutOfTimeError",
    "OuterPoints",
    "Parametrized",
    "Span",
    "Store",
    "TangentG",
    "Tangents",
    "call_f",
    "call_h",
    "chunks",
    "f_or_nan",
    "fingerprint",
    "grid_points",
    "inner_points",
    "outer_points",
]
