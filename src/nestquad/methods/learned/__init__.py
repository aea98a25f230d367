"""Learned methods: a model of J, and the average of f(Ĵ)."""

from nestquad.methods.learned._base import Learned, LearnedMethod, n_draws
from nestquad.methods.learned._certificate import Certificate, model_of
from nestquad.methods.learned._check import Check, LearnedDesign
from nestquad.methods.learned._joint_model import JointModel
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.methods.learned.ckq import CKQ
from nestquad.methods.learned.joint import JointLattice
from nestquad.methods.learned.lsmc import LSMC, RegressionModel

__all__ = [
    "CKQ",
    "LSMC",
    "Certificate",
    "Check",
    "DenseSet",
    "JointLattice",
    "JointModel",
    "Learned",
    "LearnedDesign",
    "LearnedMethod",
    "ModelOfJ",
    "RegressionModel",
    "model_of",
    "n_draws",
]
