"""Problems that nothing was tuned on, each with its exact value.

They are defined from their fields alone: no method was run on them before they were written down,
no setting of any method was chosen by them, and none is taken out for what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import nestquad as nq
from studies.unseen._design import exponential_decay, linear_trio, logistic_doses
from studies.unseen._extremes import no_influence, rough
from studies.unseen._finance import chooser, default_exposure, digital_loss, five_puts
from studies.unseen._health import response_rate, trial
from studies.unseen._insurance import annuity, claims_shortfall

__all__ = ["FIELDS", "get", "names"]

_BUILDERS: dict[str, tuple[str, Callable[[], nq.NestedExpectation]]] = {
    "chooser": ("finance", chooser),
    "default-exposure": ("finance", default_exposure),
    "digital-loss": ("finance", digital_loss),
    "five-puts": ("finance", five_puts),
    "claims-shortfall": ("insurance", claims_shortfall),
    "annuity": ("insurance", annuity),
    "logistic-doses": ("design", logistic_doses),
    "exponential-decay": ("design", exponential_decay),
    "linear-trio": ("design", linear_trio),
    "response-rate": ("health", response_rate),
    "trial": ("health", trial),
    "no-influence": ("extreme", no_influence),
    "rough": ("extreme", rough),
}
FIELDS = {name: field for name, (field, _) in _BUILDERS.items()}


def names() -> tuple[str, ...]:
    return tuple(_BUILDERS)


@lru_cache
def get(name: str) -> nq.NestedExpectation:
    """The problem of that name; its exact value may take half a second to compute."""
    return _BUILDERS[name][1]()
