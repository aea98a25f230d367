"""Units of J, f(J) and the answer: powers of two for numbers whose squares are out of range."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.errors import EvaluationError
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate


@dataclass
class Units:
    """One power of two for each output of g, each answer of f and each final answer.

    Methods see values divided by them, so that their squares are in range; the division is exact.
    They are fixed by the first values that are not zero, and stay 1 for ordinary numbers, and where
    they are not `wanted`.
    """

    wanted: bool = True

    j: Array = field(default_factory=lambda: np.zeros(0))
    f: Array = field(default_factory=lambda: np.zeros(0))
    final: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def ordinary(self) -> bool:
        return _is_one(self.j) and _is_one(self.f) and _is_one(self.final)

    @property
    def j_or_one(self) -> Array:
        return _set(self.j)

    @property
    def final_or_one(self) -> Array:
        return _set(self.final)

    def seen(self, problem: NestedExpectation, values: Array) -> Array:
        """Values (T, N) or (T, N, p) as methods see them."""
        if not self.wanted:
            return values
        flat = values.reshape(-1, 1) if values.ndim == 2 else values.reshape(-1, values.shape[2])
        if not (self.j.size and self.j.all() and self.f.size and self.f.all()):
            self.j = _observed(self.j, flat)
            self._observe_f(problem, values[:1024, 0])  # enough for an order of magnitude
        return values if _is_one(self.j) else values / _set(self.j)

    def _observe_f(self, problem: NestedExpectation, j: Array) -> None:
        try:
            with np.errstate(all="ignore"):
                f = np.asarray(problem.apply_f(np.array(j)), dtype=float)
                f = np.where(np.isfinite(f), f, 0.0)
                self.f = _observed(self.f, f)
                if problem.combine is None:  # answers are the expectations themselves
                    self.final = self.f
                    return
                self.final = _observed(self.final, np.atleast_2d(problem.finish(f.mean(axis=0))))
        except Exception:  # it is reported where it counts
            return

    def natural(self, estimate: Estimate) -> Estimate:
        """An estimate in the units of the user."""
        if self.ordinary:
            return estimate
        final, f = _set(self.final), _set(self.f)
        with np.errstate(all="ignore"):
            value, error = (_times(part, final) for part in (estimate.value, estimate.std_error))
            covariance, sample, draws = estimate.covariance, estimate.sample, estimate.draws
            if draws is not None:
                draws = draws * (final[0] if draws.ndim == 1 else final)
            if covariance is not None:
                covariance = covariance * final * final[:, None]
            if sample is not None:
                j = _times(sample.j, _set(self.j))
                sample = replace(sample, j=j, f=sample.f * f)
            diagnostics = dict(estimate.diagnostics)
            if "answers" in diagnostics:
                diagnostics["answers"] = np.asarray(diagnostics["answers"]) * f
            if "error_parts" in diagnostics:
                largest = float(final.max())
                parts = diagnostics["error_parts"]
                diagnostics["error_parts"] = {k: largest * v for k, v in parts.items()}
        exponents = [np.log2(_set(unit)).astype(int).tolist() for unit in (self.j, self.f)]
        note = (
            "numbers in other notes are divided by powers of two, since their squares are out of "
            f"range: J by the exponents {exponents[0]}, f(J) by {exponents[1]}"
        )
        diagnostics["notes"] = [*diagnostics.get("notes", []), note]
        certified, candidates = estimate.certified, estimate.candidates.items()
        changes: dict[str, Any] = {"covariance": covariance, "sample": sample, "draws": draws}
        changes["candidates"] = {name: self.natural(part) for name, part in candidates}
        changes["certified"] = None if certified is None else self.natural(certified)
        return replace(estimate, value=value, std_error=error, diagnostics=diagnostics, **changes)


@dataclass(frozen=True)
class SeenProblem(NestedExpectation):
    """A problem as methods see it: J, f(J) and the answer divided by their units."""

    units: Units = field(default_factory=Units, compare=False)

    @classmethod
    def of(cls, problem: NestedExpectation, units: Units) -> SeenProblem:
        same = {item.name: getattr(problem, item.name) for item in fields(NestedExpectation)}
        return cls(**same, units=units)

    def natural_j(self, j: Array) -> Array:
        unit = self.units.j
        return j if _is_one(unit) else np.asarray(_times(j, _set(unit)))

    @property
    def n_answers(self) -> int | None:
        return self.units.f.size or None

    def apply_f(self, j: Array) -> Array:
        values, unit = super().apply_f(self.natural_j(j)), self.units.f
        return values if _is_one(unit) else values / _set(unit)

    def finish(self, answers: Array) -> Array:
        ordinary = self.units.ordinary
        final = super().finish(answers if ordinary else answers * _set(self.units.f))
        if self.combine is not None and self.units.final.size not in (0, final.size):
            raise EvaluationError(
                f"combine returned {final.size} numbers after {self.units.final.size}",
                advice="The number of final answers has to be the same for all I.",
            )
        if ordinary:
            return final
        return final / _set(self.units.final).reshape(() if self.units.final.size == 1 else (-1,))


def _observed(known: Array, values: Array) -> Array:
    """Known units of columns, completed for columns that are not all zero."""
    with np.errstate(all="ignore"):
        scale = scale_of(values)
    # Units stay 1 within 2^±64: bars use fourth powers, far from the end of the range at 2^±1022.
    extreme = np.abs(np.frexp(scale)[1] - 1) > 64
    units = np.where(np.any(values, axis=0), np.where(extreme, scale, 1.0), 0.0)
    return units if known.shape != units.shape else np.where(known > 0, known, units)


def _set(unit: Array) -> Array:
    """Units, with 1 where unknown."""
    return np.where(unit > 0, unit, 1.0) if unit.size else np.ones(1)


def _is_one(unit: Array) -> bool:
    """Whether all units are 1, or not known yet; lists of a few numbers are faster than arrays."""
    return all(size in (0.0, 1.0) for size in unit.ravel().tolist())


def _times(value: Any, unit: Array) -> Any:
    if np.ndim(value) == 0:
        return float(value * unit[0])
    return value * (unit[0] if np.ndim(value) == 1 and unit.size == 1 else unit)
