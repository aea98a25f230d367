"""Learned methods: a model of J, and the average of f(Ĵ)."""

from nestquad.methods.learned._base import Learned, LearnedMethod, n_draws
from nestquad.methods.learned._certificate import Certificate, model_of
from nestquad.methods.learned._check import LearnedDesign
from nestquad.methods.learned._model import ModelOfJ
from nestquad.methods.learned.ckq import CKQ
from nestquad.methods.learned.joint import JointLattice
from nestquad.methods.learned.lsmc import LSMC

__all__ = [
    "CKQ",
    "LSMC",
    "Certificate",
    "JointLattice",
    "Learned",
    "LearnedDesign",
    "LearnedMethod",
    "ModelOfJ",
    "model_of",
    "n_draws",
]
