"""Nested rules: T outer points with N inner points each, and a rule for each stage."""

from nestquad.methods._events import NO_VARIATION, effective_number
from nestquad.methods.nested._base import SAMPLE_ROWS, NestedRule, NestedState
from nestquad.methods.nested._inner import (
    InnerFit,
    KernelRuleByTheta,
    MeanRule,
    WeightedRule,
    noise_changes,
    weighted_sum,
)
from nestquad.methods.nested._outer import (
    OuterFit,
    cancellation,
    describe_rules,
    interpolation_variance,
    kernel_outer,
    mean_outer,
)
from nestquad.methods.nested.nkq import NKQ
from nestquad.methods.nested.nmc import NMC
from nestquad.methods.nested.nqmc import NQMC
from nestquad.methods.nested.repeated import RepeatedNMC

__all__ = [
    "NKQ",
    "NMC",
    "NO_VARIATION",
    "NQMC",
    "SAMPLE_ROWS",
    "InnerFit",
    "KernelRuleByTheta",
    "MeanRule",
    "NestedRule",
    "NestedState",
    "OuterFit",
    "RepeatedNMC",
    "WeightedRule",
    "cancellation",
    "describe_rules",
    "effective_number",
    "interpolation_variance",
    "kernel_outer",
    "mean_outer",
    "noise_changes",
    "weighted_sum",
]
