"""Design of experiments: expected information gain, designs compared, optimized and in sequence."""

from nestquad.design._experiment import Experiment
from nestquad.design._gain import eig

__all__ = ["Experiment", "eig"]
