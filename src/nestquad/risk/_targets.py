"""Measures of risk that were asked for, and their values under a corrected law of J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import ndtr

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.methods.nested import few_event_errors
from nestquad.risk._law import CorrectedLaw, Pairs

Kind: TypeAlias = Literal["var", "es", "exceed", "ee", "ene", "pfe"]
Key: TypeAlias = tuple[Kind, float]
# Fewer hits beyond a threshold than this are few, and three more are possible.
_HITS = 20.0
_BELOW_ONE = "probabilities strictly between 0 and 1, such as 0.99"


@dataclass(frozen=True)
class Targets:
    """Measures of each line: a kind, and its level or threshold."""

    keys: tuple[Key, ...]

    @classmethod
    def of(
        cls, var: float | Sequence[float], es: float | Sequence[float], exceed: object
    ) -> Targets:
        keys: list[Key] = [("var", p) for p in _numbers("var", var, levels=True)]
        keys += [("es", p) for p in _numbers("es", es, levels=True)]
        keys += [("exceed", c) for c in _numbers("exceed", exceed)]
        if not keys:
            raise InputError("var, es, exceed", "no measure", "at least one", "Such as var=0.99.")
        return cls(tuple(keys))

    @classmethod
    def exposure(cls, pfe: float | Sequence[float]) -> Targets:
        levels = _numbers("var", pfe, levels=True)
        return cls((("ee", 0.0), ("ene", 0.0), *(("pfe", p) for p in levels)))

    def interest(self, law: CorrectedLaw, s: Array) -> Array:
        """Density of draws (M,) relative to the law, over dense Ĵ = s: where answers depend on J.

        A quantile or a probability depends on J near its level, shortfall beyond it, exposure
        everywhere. Near means within the error of Ĵ, or a few percent of its spread.
        """
        best = slice(0, 1)
        sd = float(np.sqrt(law.variance))
        m, e = law.m, law.e
        total = np.zeros(len(s))
        for kind, level in self.keys:
            if kind in ("ee", "ene"):
                share = np.ones(len(s))
            else:
                c = level if kind == "exceed" else float(law.quantile(level, best)[0])
                chance = ndtr((m - c) / np.hypot(e, max(_NEAR * sd, 1e-300)))
                chance = np.interp(s, law.s, chance)
                share = chance * (1.0 - chance) + (chance**2 if kind == "es" else 0.0)
            mean = float(share.mean())
            total += share / mean if mean > 0 else 0.0
        return total

    def values(self, law: CorrectedLaw) -> Array:
        """Measures (k, 1 + K) by the best correction and by draws of it."""
        return np.stack([_value(law, kind, level) for kind, level in self.keys])

    def dense_errors(self, law: CorrectedLaw, values: Array) -> Array:
        """Directions (k, R) of the error of the average over dense θ."""
        rows = []
        for (kind, level), value in zip(self.keys, values, strict=True):
            if kind == "exceed":
                rows.append(law.replicate_survival(level))
            elif kind in ("var", "pfe"):
                density = float(law.density(value, slice(0, 1))[0])
                rows.append(law.replicate_survival(value) / max(density, 1e-300))
            elif kind == "es":
                # The derivative of q + E max(J − q, 0)/(1 − p) in q vanishes.
                c = float(law.quantile(level, slice(0, 1))[0])
                rows.append(law.replicate_excess(c) / (1.0 - level))
            else:
                both = law.replicate_excess(0.0)
                mean = law.replicate_mean()
                rows.append(both if kind == "ee" else both - mean)
        return np.stack(rows)

    def measured(
        self, law: CorrectedLaw, pairs: Pairs, n_learned: int, dim: float
    ) -> tuple[Array, dict[str, Array]]:
        """Measures (k,) of one loss, and directions (k, ·) of their errors by cause."""
        n, found = len(pairs.s), self.values(law)
        values = found[:, 0]
        # The error of Ĵ does not average out over the θ at a level if these are few. It is all but
        # orthogonal to cubics, so that it changes sign at least four times along a coordinate:
        # 4^(d − 1) patches of independent errors.
        local = 2.0 ** (1.0 - dim) * self.local_errors(law, values)
        mean = pairs.r.mean(axis=1)[:, None]
        events = np.full(len(values), float(few_event_errors(mean, np.full((n, 1), 1.0 / n))[0]))
        # Nodes are wider than what they stand for, by up to their width.
        wider = replace(law.few(0), spread=2.0 * law.spread)
        columns = {
            "nodes": self.values(wider)[:, 0] - values,
            "local": self.shifted(law, values, local),
            "events": self.shifted(law, values, events),
            "shape": self._shapes(law, values),
            "hits": self._unseen(law, pairs, values, n_learned),
        }
        return values, {
            "correction": (found[:, 1:] - found[:, :1]) / np.sqrt(found.shape[1] - 1.0),
            "average": self.dense_errors(law, values),
            **{name: column[:, None] for name, column in columns.items()},
        }

    def _shapes(self, law: CorrectedLaw, values: Array) -> Array:
        """Errors (k,) by J given Ĵ not being normal."""
        out = np.empty(len(values))
        for i, (kind, level) in enumerate(self.keys):
            c = {"exceed": level, "ee": 0.0, "ene": 0.0}.get(kind, float(values[i]))
            if kind == "es":
                c = float(law.quantile(level, slice(0, 1))[0])
            out[i] = law.shape_error(c, kind in ("es", "ee", "ene"))
            if kind == "es":
                out[i] /= 1.0 - level
            elif kind in ("var", "pfe"):
                out[i] = _of_quantile(out[i], law, c)
        return out

    def _unseen(self, law: CorrectedLaw, pairs: Pairs, values: Array, n: int) -> Array:
        """Errors (k,) where few of n scenarios are on one side of a level, or none.

        The number of hits is a Poisson variable, and h + 3 an upper limit at 95 % for small h. It
        counts for the share of hits that Ĵ does not decide: they rest on the shape of the law of J
        given Ĵ. Where pairs have met few θ beyond a threshold, it counts for all.
        """
        out = np.zeros(len(values))
        for i, (kind, level) in enumerate(self.keys):
            if kind in ("ee", "ene"):
                continue
            c = level if kind == "exceed" else float(law.quantile(level, slice(0, 1))[0])
            probability = float(np.clip(law.survival(c, slice(0, 1))[0], 0.0, 1.0))
            beyond = np.interp(pairs.s, law.s, law.m) > c
            below = probability > 0.5 and kind != "es"
            if below:
                probability, beyond = 1.0 - probability, ~beyond
            if probability * n >= _HITS:
                continue
            few = kind == "exceed" and beyond.sum() < _HITS
            share = 1.0 if few else law.undecided(c, below)
            out[i] = np.sqrt(share * (probability * n + 3.0)) / n
            if kind == "es":
                out[i] *= (values[i] - c) / (1.0 - level)
            elif kind != "exceed":
                out[i] = _of_quantile(out[i], law, c)
        return out

    def local_errors(self, law: CorrectedLaw, values: Array) -> Array:
        """√v (k,) at the levels of the measures."""
        order = np.argsort(law.m, kind="stable")
        levels = [
            level if kind == "exceed" else value
            for (kind, level), value in zip(self.keys, values, strict=True)
        ]
        return np.asarray(np.sqrt(np.interp(levels, law.m[order], law.v[0, order])))

    def shifted(self, law: CorrectedLaw, values: Array, shifts: Array) -> Array:
        """Changes (k,) of the measures if all J were larger or smaller by small shifts (k,)."""
        found, best = np.abs(shifts), slice(0, 1)
        for i, (kind, level) in enumerate(self.keys):
            if kind == "exceed":
                sides = [law.survival(level + sign * shifts[i], best)[0] for sign in (1.0, -1.0)]
                found[i] = max(abs(side - values[i]) for side in sides)
        return found


# Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth on
# the scale of one.
_NEAR = 0.15


def _of_quantile(error: float, law: CorrectedLaw, c: float) -> float:
    """Error of a quantile c from that of P(J > c); without a density there, it may be anywhere."""
    if error == 0:
        return 0.0
    best = slice(0, 1)
    if law.atoms:  # the other scenarios that an interval of two standard errors reaches
        p = 1.0 - float(law.survival(c, best)[0]) + 2.0 * np.array([-error, error])
        ends = [law.quantile(float(one), best)[0] for one in np.clip(p, 1e-9, 1.0 - 1e-9)]
        return 0.5 * max(abs(float(end) - c) for end in ends)
    density = float(law.density(c, best)[0])
    return error / density if density > 1e-100 * error else np.inf


def label(kind: Kind, level: float) -> str:
    """The name of a measure.

    Examples
    --------
    >>> label("var", 0.99), label("exceed", 100.0)
    ('VaR 99 %', 'P(J > 100)')
    """
    if kind == "exceed":
        return f"P(J > {level:g})"
    words = {"var": "VaR", "es": "ES", "pfe": "PFE", "ee": "EE", "ene": "ENE"}
    return words[kind] if kind in ("ee", "ene") else f"{words[kind]} {100 * level:g} %"


def _value(law: CorrectedLaw, kind: Kind, level: float) -> Array:
    if kind == "exceed":
        return np.clip(law.survival(level), 0.0, 1.0)
    if kind in ("var", "pfe"):
        return law.quantile(level)
    if kind == "es":
        c = law.quantile(level)
        return c + law.excess(c) / (1.0 - level)
    positive = law.excess(0.0)
    return positive if kind == "ee" else positive - law.mean()


def _numbers(argument: str, given: object, levels: bool = False) -> tuple[float, ...]:
    expected = _BELOW_ONE if levels else "finite thresholds"
    try:
        found = np.atleast_1d(np.asarray(given))
        if found.size and found.dtype.kind not in "iuf":
            raise TypeError(found.dtype)
        found = found.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(argument, repr(given), expected) from error
    bad = ~np.isfinite(found) | (levels & ((found <= 0) | (found >= 1)))
    if found.ndim > 1 or bad.any():
        raise InputError(argument, repr(given), expected)
    return tuple(dict.fromkeys(found.tolist()))
