"""EVSI: the value of a study's data before they are seen."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import generator, numbers, shown
from nestquad._progress import ProgressLike, as_progress
from nestquad._typing import RNGLike
from nestquad.errors import InputError
from nestquad.voi.table._cells import pandas
from nestquad.voi.table._designs import as_design, design_names
from nestquad.voi.table._evppi import (
    Answer,
    flags_against,
    kept_answers,
    perfect,
    value_of_knowing,
)
from nestquad.voi.table._outputs import as_outputs, input_table
from nestquad.voi.table._population import ungrouped

if TYPE_CHECKING:
    import pandas as pd


# More than any trial had; survival is simulated person by person.
_MOST_PARTICIPANTS = 1_000_000


def evsi(
    outputs: Any,
    inputs: Any,
    design: Any,
    sizes: int | Sequence[int],
    *,
    rng: RNGLike = 0,
    progress: ProgressLike = False,
    answers: MutableMapping[Any, list[Answer]] | None = None,
) -> pd.DataFrame:
    """Expected value of sample information (EVSI) of a study, by its size.

    For each row of the table one data set is simulated and summarized, and the outputs are
    regressed on the summaries as on parameters in `evppi`: Strong, Oakley, Brennan and Breeze
    (2015), “Estimating the expected value of sample information using the probabilistic
    sensitivity analysis sample”; compared with moment matching (Heath et al. (2018)) and Gaussian
    approximation (Jalal and Alarid-Escudero (2018)) by Kunst et al. (2020).

    Parameters
    ----------
    outputs, inputs
        As in `evppi`.
    design
        `BinaryTrial`, `NormalTrial`, `CountTrial`, `SurvivalTrial`, several of them as `Combined`,
        or a function ``(inputs, n, rng)`` that simulates a data set for each row of the inputs and
        returns summaries, (rows,) or (rows, k). A list of them is a list of alternatives.
    sizes
        Participants in each arm: a number or several.
    rng, progress, answers
        As in `evppi`. All sizes share the seed, so that curves are smooth.

    Returns
    -------
    pd.DataFrame
        Table with a row for each size and willingness to pay: design, n (in each arm), participants
        (in all), wtp, evsi, se, lower, upper (95 %), evsi/evpi, flags.

    Notes
    -----
    Summaries that lose information bias the value down, which no table can show: use
    sufficient statistics where they exist.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from nestquad import voi
    >>> mu = np.random.default_rng(0).normal(0.0, 1.0, 5000)
    >>> benefit = np.column_stack((np.zeros(5000), mu))
    >>> trial = voi.NormalTrial("mu", sd=2.0)
    >>> table = voi.evsi(benefit, pd.DataFrame({"mu": mu}), trial, sizes=[1, 4, 16])
    >>> exact = 0.39894 * np.sqrt([1 / 5, 1 / 2, 4 / 5])
    >>> bool((np.abs(table.evsi - exact) < 3 * table.se).all())
    True
    """
    known = as_outputs(outputs)
    frame = input_table(known, inputs)
    studies = [as_design(one) for one in (design if isinstance(design, list) else [design])]
    if not studies:
        raise InputError("design", "an empty list", "a design, or several")
    counts = study_sizes(sizes)
    ceiling = perfect(known)
    show = as_progress(progress, "sizes")
    seed = generator(rng).integers(2**63)
    known_sizes = kept_answers(answers)
    rows = []
    named = zip(studies, design_names(studies), strict=True)
    for i, ((study, name), n) in enumerate(product(named, counts)):
        show(i, len(studies) * len(counts), f"n = {n:,}")
        key = (repr(study), str(n))
        if key not in known_sizes:
            data = study.summaries(frame, n, np.random.default_rng(seed))
            columns = [f"summary {j + 1}" for j in range(data.shape[1])]
            summaries = pandas().DataFrame(data, columns=columns)
            own = np.random.default_rng(seed + 1)
            known_sizes[key] = value_of_knowing(known, summaries, own, check=False)
        for k, answer, limit in zip(known.wtps, known_sizes[key], ceiling, strict=True):
            flagged = replace(answer, flags=(*answer.flags, *flags_against(answer, limit)))
            size = {"design": name, "n": n, "participants": study.participants(n)}
            rows.append({**size, **flagged.row("evsi", k, limit)})
    show(len(rows), len(rows), "")
    if hasattr(show, "close"):
        show.close()
    return pandas().DataFrame(rows)


def study_sizes(sizes: int | Sequence[int]) -> list[int]:
    """Participants in each arm, checked."""
    expected = f"whole numbers from 1 to {_MOST_PARTICIPANTS:,}, as [50, 100, 200]"
    counts = np.atleast_1d(numbers("sizes", sizes, expected))
    within = (counts >= 1) & (counts <= _MOST_PARTICIPANTS) & (counts == np.round(counts))
    if counts.ndim != 1 or not counts.size or not within.all():
        raise InputError("sizes", shown(sizes), expected)
    return [int(n) for n in counts]


def read_sizes(text: str) -> list[int]:
    """Sizes that a person typed, with blanks or commas; 1,600 is refused, as it may be 1600."""
    sizes: list[int] = []
    expected = "whole numbers of at least 1, with blanks between them"
    for token in text.split():
        parts = [part for part in token.split(",") if part]
        if not any(map(ungrouped, parts)) and not all(
            part.isascii() and part.isdigit() and int(part) for part in parts
        ):
            raise InputError("sizes", repr(token), expected, "As 50 100 200.")
        values = [] if any(map(ungrouped, parts)) else list(map(int, parts))
        falls = any(a >= b for a, b in pairwise(values))
        if not values or (ungrouped(token) and (len(parts[0]) == 1 or falls)):
            meant = re.sub(r"\D", "", token)
            raise InputError("sizes", repr(token), expected, f"Did you mean {meant}?")
        sizes += values
    if not sizes:
        raise InputError("sizes", repr(text), expected, "As 50 100 200.")
    return sizes
