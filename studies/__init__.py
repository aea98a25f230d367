"""Studies of nestquad, beside the library and not part of it.

``python -m studies paper`` runs the paper's experiments again; ``python -m studies promises``
measures what the documentation promises and writes docs/benchmarks.md; ``python -m studies
families`` measures coverage, tolerances and cost on families of random problems, and ``python -m
studies seconds`` errors at equal seconds. All stand on `runner`: tasks become rows of a ledger,
rows become tables and verdicts, and these become a page. `quadrature` holds what exact values
need.
"""
