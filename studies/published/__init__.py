"""Problems of other papers with their printed results: ``python -m studies published``."""

from __future__ import annotations

from functools import lru_cache

from studies.published.problem import Printed, PublishedProblem

__all__ = ["PublishedProblem", "Printed", "cases"]


@lru_cache
def cases() -> dict[str, PublishedProblem]:
    """All cases by name, in the order of the page."""
    from studies.published import decisions, information, risk, stages

    results = [*risk.cases(), *decisions.cases(), *information.cases(), *stages.cases()]
    return {case.name: case for case in results}
