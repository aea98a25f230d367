"""The methods and their names."""

from nestquad.methods._dense import scores_of
from nestquad.methods._method import Goal, Method, Turn
from nestquad.methods._names import METHODS, as_method
from nestquad.methods._surrogate_choice import Chosen
from nestquad.methods.auto import Auto
from nestquad.methods.ckq import CKQ
from nestquad.methods.joint import JointLattice
from nestquad.methods.lsmc import LSMC
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
    "Chosen",
    "Goal",
    "JointLattice",
    "Method",
    "Turn",
    "as_method",
    "kernel_outer",
    "scores_of",
]
