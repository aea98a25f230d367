"""Learned methods: a model of J, and the average of f(Ĵ)."""

from nestquad.methods.learned._base import Learned, LearnedMethod, n_draws
from nestquad.methods.learned._certificate import (
    Certificate,
    CertificateSettings,
    mean_products,
    model_of,
)
from nestquad.methods.learned._discrepancy import (
    Evidence,
    Pairs,
    draw_bias,
    draw_variances,
)
from nestquad.methods.learned._evidence import Check, LearnedDesign
from nestquad.methods.learned._joint_model import JointModel
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.methods.learned._proxy import ProxyModel, as_control, as_predictor
from nestquad.methods.learned.ckq import CKQ
from nestquad.methods.learned.joint import JointLattice
from nestquad.methods.learned.lsmc import LSMC, RegressionModel
from nestquad.methods.learned.process import JointProcess
from nestquad.methods.learned.repeated import RepeatedLattice

__all__ = [
    "CKQ",
    "LSMC",
    "Certificate",
    "CertificateSettings",
    "Check",
    "DenseSet",
    "Evidence",
    "JointLattice",
    "JointModel",
    "JointProcess",
    "Learned",
    "LearnedDesign",
    "LearnedMethod",
    "ModelOfJ",
    "Pairs",
    "ProxyModel",
    "RegressionModel",
    "RepeatedLattice",
    "as_control",
    "as_predictor",
    "draw_bias",
    "draw_variances",
    "mean_products",
    "model_of",
    "n_draws",
]
