"""All studies, in the order of the page. A new one is a module with a `STUDY`, listed here."""

from __future__ import annotations

from benchmarks._study import Study
from benchmarks.studies import defaults, imports, published, speed, tridiagonal, voi

STUDIES: tuple[Study, ...] = (
    published.STUDY,
    defaults.STUDY,
    speed.STUDY,
    tridiagonal.STUDY,
    imports.STUDY,
    voi.STUDY,
)
