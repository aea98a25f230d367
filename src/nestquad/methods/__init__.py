"""The methods, one file each, and their names."""

from nestquad.methods._method import Goal, Method, Turn
from nestquad.methods._names import METHODS, as_method
from nestquad.methods._outer import kernel_outer
from nestquad.methods.auto import Auto
from nestquad.methods.learned import CKQ, LSMC, JointLattice, Learned, LearnedMethod
from nestquad.methods.mlkq import MLKQ
from nestquad.methods.mlmc import MLMC
from nestquad.methods.nkq import NKQ
from nestquad.methods.nmc import NMC
from nestquad.methods.nqmc import NQMC

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
    "Goal",
    "JointLattice",
    "Learned",
    "LearnedMethod",
    "Method",
    "Turn",
    "as_method",
    "kernel_outer",
]
