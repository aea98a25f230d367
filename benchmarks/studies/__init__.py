"""All studies, in the order of the page. A new one is a module with a `STUDY`, listed here."""

from __future__ import annotations

from benchmarks._study import Study
from benchmarks.studies import (
    accuracy,
    bo_accuracy,
    cluster,
    defaults,
    imports,
    multilevel,
    overhead,
    published,
    speed,
    tolerance,
    tridiagonal,
    unseen,
    voi,
    voi_model,
)

STUDIES: tuple[Study, ...] = (
    accuracy.STUDY,
    tolerance.STUDY,
    unseen.STUDY,
    multilevel.STUDY,
    published.STUDY,
    defaults.STUDY,
    speed.STUDY,
    overhead.STUDY,
    cluster.STUDY,
    tridiagonal.STUDY,
    imports.STUDY,
    voi.STUDY,
    voi_model.STUDY,
    bo_accuracy.STUDY,
)
