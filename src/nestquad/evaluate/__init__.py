"""Evaluation of g: designs, chunks, executors, store. Only this package calls g."""

from nestquad.clock import OutOfTimeError as OutOfTimeError
from nestquad.evaluate._call import call_f as call_f
from nestquad.evaluate._call import call_h as call_h
from nestquad.evaluate._call import f_or_nan as f_or_nan
from nestquad.evaluate._design import Design as Design
from nestquad.evaluate._design import Grid as Grid
from nestquad.evaluate._design import InnerPoints as InnerPoints
from nestquad.evaluate._design import OuterPoints as OuterPoints
from nestquad.evaluate._design import Span as Span
from nestquad.evaluate._design import grid_points as grid_points
from nestquad.evaluate._design import inner_points as inner_points
from nestquad.evaluate._design import outer_points as outer_points
from nestquad.evaluate._evaluator import Evaluations as Evaluations
from nestquad.evaluate._evaluator import Evaluator as Evaluator
from nestquad.evaluate._pilot import Pilot as Pilot
from nestquad.evaluate._store import Store as Store
from nestquad.evaluate._store import fingerprint as fingerprint
from nestquad.evaluate._tangents import Derivative as Derivative
from nestquad.evaluate._tangents import Driving as Driving
from nestquad.evaluate._tangents import Parametrized as Parametrized
from nestquad.evaluate._tangents import TangentG as TangentG
from nestquad.evaluate._tangents import Tangents as Tangents
from nestquad.evaluate._task import InnerRule as InnerRule
from nestquad.evaluate._task import chunks as chunks
from nestquad.evaluate._task import opened as opened
from nestquad.evaluate._task import packed as packed
