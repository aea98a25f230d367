"""Bayesian optimisation of a black box: a small loop for the paper's experiments and for reading.

It needs the extra ``botorch``. Constraints, several objectives, integers and asynchronous
evaluation are the business of BoTorch and Ax.
"""

from __future__ import annotations

from studies.bayesopt.acquisitions import acquisition
from studies.bayesopt.loop import Trace, optimize

__all__ = ["Trace", "acquisition", "optimize"]
