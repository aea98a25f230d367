"""Value of information in health economics: EVPI, EVPPI, EVSI and ENBS, from tables and models.

>>> from nestquad import voi
"""

from __future__ import annotations

from nestquad.voi._evppi import evpi, evppi
from nestquad.voi._outputs import Outputs

__all__ = ["Outputs", "evpi", "evppi"]
