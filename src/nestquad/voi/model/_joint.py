"""Joint law of a model's parameters, and conditional laws given some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Independent, Law, LogNormal, Normal, as_law
from nestquad.errors import InputError, UnsupportedError, unknown_name


@dataclass(frozen=True)
class Block:
    """Parameters with a law of their own, independent of all others."""

    names: tuple[str, ...]
    law: Law


@dataclass(frozen=True, eq=False)
class Joint:
    """Jointly Gaussian parameters (some of them by their logarithm), and independent blocks."""

    gaussian: tuple[str, ...]
    mean: Array
    cov: Array
    logs: frozenset[str]
    blocks: tuple[Block, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.gaussian + tuple(name for block in self.blocks for name in block.names)

    def split(self, known: Iterable[str]) -> Split:
        """Known and unknown parameters; refuses to take a block of unknown structure apart."""
        chosen = set(known)
        for block in self.blocks:
            inside = [name for name in block.names if name in chosen]
            if inside and len(inside) < len(block.names):
                rest = [name for name in block.names if name not in chosen]
                raise UnsupportedError(
                    f"The law of {', '.join(rest)} given {', '.join(inside)} is not known: they "
                    f"share {block.law!r}, which has no closed form for it. Learn all of "
                    f"{', '.join(block.names)} together, or make them jointly normal, or draw a "
                    "table with model.sample and use voi.evppi on it."
                )
        return Split(self, frozenset(chosen))


@dataclass(frozen=True, eq=False)
class Split:
    """A joint law with some parameters known.

    Arrays of known or unknown parameters have the Gaussian ones first (logarithms where the
    parameter is log-normal), then the blocks.
    """

    joint: Joint
    known: frozenset[str]

    def names(self, *, known: bool) -> tuple[str, ...]:
        return tuple(name for name in self.joint.names if (name in self.known) == known)

    def values(self, array: Array, *, known: bool) -> dict[str, Array]:
        """Parameters by name, from an array with them along its last axis."""
        columns = zip(self.names(known=known), np.moveaxis(array, -1, 0), strict=True)
        return {n: np.exp(v) if n in self.joint.logs else v for n, v in columns}

    @cached_property
    def outer(self) -> Law:
        """The law of the known parameters."""
        at = self._gaussian_at(known=True)
        gaussian = [_normal(self.joint.mean[at], self.joint.cov[np.ix_(at, at)])] if at else []
        return _together([*gaussian, *self._blocks(known=True)])

    @cached_property
    def inner(self) -> Any:
        """The law of the unknown ones: one law where the known say nothing, else a function."""
        if not self._gaussian_at(known=False) or not np.any(self._regression[1]):
            return self.given(None)
        return self.given

    def given(self, theta: Array | None) -> Law:
        """The law of the unknown parameters given the known ones (T, d)."""
        parts: list[Law] = []
        if self._gaussian_at(known=False):
            intercept, slope, cov = self._regression
            mean = intercept
            if theta is not None:
                mean = np.broadcast_to(intercept, (len(theta), len(intercept)))
                # Not a matrix product: BLAS rounds a row differently in chunks of other sizes.
                for k in range(slope.shape[1]):
                    mean = mean + theta[:, k : k + 1] * slope[:, k]
            parts.append(_normal(mean, cov))
        return _together([*parts, *self._blocks(known=False)])

    @cached_property
    def _regression(self) -> tuple[Array, Array, Array]:
        """Intercept (m,), slope (m, k) and covariance (m, m) of the unknown Gaussian parameters."""
        a, b = self._gaussian_at(known=False), self._gaussian_at(known=True)
        mean, cov = self.joint.mean, self.joint.cov
        if not b:
            return mean[a], np.zeros((len(a), 0)), cov[np.ix_(a, a)]
        cross = cov[np.ix_(b, a)]
        slope = np.asarray(np.linalg.lstsq(cov[np.ix_(b, b)], cross, rcond=1e-12)[0]).T
        rest = cov[np.ix_(a, a)] - slope @ cross
        # Rounding leaves the two triangles a few units apart in the last place.
        return mean[a] - slope @ mean[b], slope, (rest + rest.T) / 2

    def _gaussian_at(self, *, known: bool) -> list[int]:
        names = self.joint.gaussian
        return [i for i, name in enumerate(names) if (name in self.known) == known]

    def _blocks(self, *, known: bool) -> list[Law]:
        return [b.law for b in self.joint.blocks if (b.names[0] in self.known) == known]


def joint_law(parameters: Any, correlations: Any) -> Joint:
    """The joint law of parameters and correlations, given as in `Model`."""
    if not isinstance(parameters, Mapping) or not parameters:
        raise InputError(
            "parameters", type(parameters).__name__, "a mapping from names to laws", "As a dict."
        )
    means: dict[str, float] = {}
    covariances: list[tuple[tuple[str, ...], Array]] = []
    logs: set[str] = set()
    blocks: list[Block] = []
    for key, given in parameters.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        law = as_law(given, argument=f"parameters[{key!r}]")
        if law.batch is not None or (law.dim is not None and law.dim != len(names)):
            raise InputError(
                f"parameters[{key!r}]",
                f"a law of {law.dim} coordinates",
                f"one of {len(names)}, as there {'is' if len(names) == 1 else 'are'} {len(names)} "
                f"name{'' if len(names) == 1 else 's'}",
                "Name each coordinate, as in ('a', 'b'): nq.Normal([0, 0], cov=…).",
            )
        repeated = [n for n in names if n in means or any(n in b.names for b in blocks)]
        if repeated or len(set(names)) < len(names):
            raise InputError(
                "parameters", f"{(repeated or list(names))[0]!r} twice", "different names"
            )
        if isinstance(law, Normal | LogNormal):
            means.update(zip(names, law.loc.tolist(), strict=True))
            if law.sd is not None:
                covariances.append((names, np.diag(np.square(law.sd))))
            elif law.cov is not None:
                covariances.append((names, law.cov))
            logs.update(names if isinstance(law, LogNormal) else ())
        else:
            blocks.append(Block(names, law))
    gaussian = tuple(means)
    cov = np.zeros((len(gaussian), len(gaussian)))
    for names, part in covariances:
        at = [gaussian.index(name) for name in names]
        cov[np.ix_(at, at)] = part
    _correlate(cov, gaussian, correlations, [b.names for b in blocks])
    return Joint(gaussian, np.array(list(means.values())), cov, frozenset(logs), tuple(blocks))


def _correlate(
    cov: Array, gaussian: tuple[str, ...], correlations: Any, others: list[tuple[str, ...]]
) -> None:
    """Write correlations into a covariance."""
    if correlations is None:
        return
    if not isinstance(correlations, Mapping):
        raise InputError(
            "correlations",
            type(correlations).__name__,
            "a mapping from tuples of names to a correlation",
            "As {('a', 'b'): 0.6}.",
        )
    known = (*gaussian, *(name for names in others for name in names))
    for key, value in correlations.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        for name in names:
            if name not in known:
                raise unknown_name("correlations", name, known)
            if name not in gaussian:
                raise UnsupportedError(
                    f"correlations: {name} is neither normal nor log-normal, so that a correlation "
                    "does not say what its law is given the others. Make it a function of "
                    "correlated normal parameters inside net_benefit, or draw a table and use "
                    "voi.evppi on it."
                )
        if len(names) < 2 or not (isinstance(value, int | float) and -1 < value < 1):
            raise InputError(
                "correlations", f"{key!r}: {value!r}", "two names or more, and a number in (-1, 1)"
            )
        for a, b in combinations([gaussian.index(name) for name in names], 2):
            cov[a, b] = cov[b, a] = value * np.sqrt(cov[a, a] * cov[b, b])
    sd = np.sqrt(np.diagonal(cov))
    lowest = float(np.linalg.eigvalsh(cov / np.outer(sd, sd)).min())
    if lowest < -1e-9:
        raise InputError(
            "correlations",
            f"correlations that contradict each other (smallest eigenvalue {lowest:.2g})",
            "a positive semi-definite correlation matrix",
            "Correlations that are not given are 0: have all pairs of a group been given?",
        )


def _normal(mean: Array, cov: Array) -> Law:
    """A normal law, with standard deviations alone where nothing is correlated."""
    variances = np.diagonal(cov)
    if np.array_equal(cov, np.diag(variances)) and (variances > 0).all():
        return Normal(mean, sd=np.sqrt(variances))
    return Normal(mean, cov=cov)


def _together(laws: list[Law]) -> Law:
    return laws[0] if len(laws) == 1 else Independent(*laws)
