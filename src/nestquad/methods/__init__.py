"""Methods: nested rules, learners, multilevel methods, and the automatic choice."""

from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods._names import METHODS, as_method, as_repeated
from nestquad.methods._time import budget_in_time, correct_plan, start_plan
from nestquad.methods.auto import Auto
from nestquad.methods.learned import (
    CKQ,
    LSMC,
    Certificate,
    JointLattice,
    JointProcess,
    Learned,
    LearnedDesign,
    LearnedMethod,
    ModelOfJ,
    model_of,
)
from nestquad.methods.multilevel import MLKQ, MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC, kernel_outer

__all__ = [
    "CKQ",
    "LSMC",
    "METHODS",
    "MLKQ",
    "MLMC",
    "NKQ",
    "NMC",
    "NQMC",
    "Auto",
    "Certificate",
    "Goal",
    "JointLattice",
    "JointProcess",
    "Learned",
    "LearnedDesign",
    "LearnedMethod",
    "Method",
    "ModelOfJ",
    "Turn",
    "as_method",
    "as_repeated",
    "budget_in_time",
    "correct_plan",
    "has_transports",
    "kernel_outer",
    "model_of",
    "start_plan",
]
