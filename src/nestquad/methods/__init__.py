"""Methods: nested rules, learners, multilevel methods, and the automatic choice."""

from nestquad.methods._candidate import Candidate
from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods._names import METHODS, as_method, as_repeated
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
    "Candidate",
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
    "has_transports",
    "kernel_outer",
    "model_of",
]
