"""Nested rules: T outer points with N inner points each, and a rule for each stage."""

from nestquad.methods._events import NO_VARIATION as NO_VARIATION
from nestquad.methods._events import effective_number as effective_number
from nestquad.methods.nested._base import NestedRule as NestedRule
from nestquad.methods.nested._base import NestedState as NestedState
from nestquad.methods.nested._stages import InnerFit as InnerFit
from nestquad.methods.nested._stages import KernelRuleByTheta as KernelRuleByTheta
from nestquad.methods.nested._stages import MeanRule as MeanRule
from nestquad.methods.nested._stages import OuterFit as OuterFit
from nestquad.methods.nested._stages import WeightedRule as WeightedRule
from nestquad.methods.nested._stages import cancellation as cancellation
from nestquad.methods.nested._stages import describe_rules as describe_rules
from nestquad.methods.nested._stages import kernel_outer as kernel_outer
from nestquad.methods.nested._stages import mean_outer as mean_outer
from nestquad.methods.nested._stages import noise_changes as noise_changes
from nestquad.methods.nested._stages import weighted_sum as weighted_sum
from nestquad.methods.nested.nkq import NKQ as NKQ
from nestquad.methods.nested.nmc import NMC as NMC
from nestquad.methods.nested.nqmc import NQMC as NQMC
from nestquad.methods.nested.repeated import RepeatedNMC as RepeatedNMC
