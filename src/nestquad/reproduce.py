"""Former home of the paper's experiments; points to their new place."""

raise ImportError(
    "nestquad.reproduce is no longer part of nestquad. From a clone, run "
    "`python -m studies paper all --out results`, or import studies.paper."
)
