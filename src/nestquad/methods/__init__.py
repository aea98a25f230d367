"""The methods, one file each, and their names."""

from nestquad.methods._dense import scores_of
from nestquad.methods._method import Goal, Method, Turn
from nestquad.methods._names import METHODS, as_method
from nestquad.methods._outer import kernel_outer
from nestquad.methods._surrogate_choice import Chosen
from nestquad.methods.auto import Auto
from nestquad.methods.ckq import CKQ
from nestquad.methods.joint import JointLattice
from nestquad.methods.lsmc import LSMC
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
    "Chosen",
    "Goal",
    "JointLattice",
    "Method",
    "Turn",
    "as_method",
    "kernel_outer",
    "scores_of",
]
