"""The former home of the paper's experiments, which says where they are."""

raise ImportError(
    "nestquad.reproduce is no longer part of nestquad. From a clone, run "
    "`python -m studies paper all --out results`, or import studies.paper."
)
