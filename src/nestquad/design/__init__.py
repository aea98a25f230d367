"""Design of experiments: expected information gain, designs compared, optimized and in sequence."""

from nestquad.design._compare import (
    DesignComparison,
    compare,
    plot_designs,
    write_design_report,
)
from nestquad.design._experiment import Experiment
from nestquad.design._gain import Gain, decision_value, eig, variance_reduction
from nestquad.design._inference import from_inference_data
from nestquad.design._linear import optimality
from nestquad.design._optimize import Levels, Optimum, optimize
from nestquad.design._pyro import from_pyro
from nestquad.design._sequential import Posterior, Sequential
from nestquad.design._trial import (
    PriorComparison,
    SampleSize,
    assurance,
    compare_priors,
    sample_size,
    size_curve,
)

__all__ = [
    "DesignComparison",
    "Experiment",
    "Gain",
    "Levels",
    "Optimum",
    "Posterior",
    "PriorComparison",
    "SampleSize",
    "Sequential",
    "assurance",
    "compare",
    "compare_priors",
    "decision_value",
    "eig",
    "from_inference_data",
    "from_pyro",
    "optimality",
    "optimize",
    "plot_designs",
    "sample_size",
    "size_curve",
    "variance_reduction",
    "write_design_report",
]
