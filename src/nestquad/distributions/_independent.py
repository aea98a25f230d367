"""Products of independent laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nestquad._typing import Array
from nestquad.distributions._law import Law, common_batch
from nestquad.errors import InputError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Independent(Law):
    """Independent laws whose coordinates stand side by side.

    Parameters
    ----------
    *laws
        Laws; batches have the same T, single laws and batches of one are shared
        by all T. An `Independent` among them is taken apart.

    Attributes
    ----------
    laws
        The parts, none of them an `Independent`.

    Notes
    -----
    `dim` and `base_dim` are sums over the parts, and the
    driving variables are dealt out in the order of the parts.

    Examples
    --------
    >>> from nestquad.distributions import Independent, Normal, Uniform
    >>> law = Independent(Uniform(0, 4), Normal([1.0, 2.0]))
    >>> law.from_uniform([[0.25, 0.5, 0.5]])
    array([[1., 1., 2.]])
    """

    laws: tuple[Law, ...]

    def __init__(self, *laws: Law) -> None:
        parts: list[Law] = []
        for i, law in enumerate(laws):
            if not isinstance(law, Law):
                raise InputError(
                    f"laws[{i}]",
                    type(law).__name__,
                    "a law of nestquad",
                    "A tuple of laws and frozen scipy.stats distributions is taken wherever a law "
                    "is; nestquad.distributions.as_law turns one into a law.",
                )
            parts.extend(law.laws if isinstance(law, Independent) else [law])
        if not parts:
            raise InputError("laws", "none", "at least one law")
        dims = [law.dim for law in parts]
        base: Literal["uniform", "normal"] = (
            "normal" if all(law.base == "normal" for law in parts) else "uniform"
        )
        vars(self).update(
            laws=tuple(parts),
            dim=None if None in dims else sum(d for d in dims if d is not None),
            base_dim=sum(law.base_dim for law in parts),
            batch=common_batch("laws", [law.batch for law in parts]),
            base=base,
            has_transport=all(law.has_transport for law in parts),
        )

    def mean(self) -> Array:
        """Return the means of the parts side by side, (dim,) or (T, dim)."""
        return _side_by_side([law.mean() for law in self.laws])

    def _for_batch(self, batch: int | None, argument: str) -> Law:
        super()._for_batch(batch, argument)
        bound = [law if law.batch else law._for_batch(batch, argument) for law in self.laws]
        return Independent(*bound)

    def _from_uniform(self, u: Array) -> Array:
        return self._split_and_join(u, lambda law, part: law._from_uniform(part))

    def _from_normal(self, z: Array) -> Array:
        return self._split_and_join(z, lambda law, part: law._from_normal(part))

    def _sample(self, n: int, rng: np.random.Generator) -> Array:
        parts = []
        for law in self.laws:
            if self.batch is None or law.batch == self.batch:
                parts.append(law._sample(n, rng))
            else:
                # The draws of a shared part differ from law to law of the batch.
                draws = law._sample(self.batch * n, rng)
                parts.append(draws.reshape(self.batch, n, draws.shape[-1]))
        return _side_by_side(parts)

    def _to_uniform(self, x: Array) -> Array:
        if self.dim is None:
            return super()._to_uniform(x)
        return self._split_and_join(x, lambda law, part: law._to_uniform(part), points=True)

    def _split_and_join(
        self, rows: Array, each: Callable[[Law, Array], Array], *, points: bool = False
    ) -> Array:
        """Apply `each` part to its columns of the driving variables, or of the points."""
        widths = [(law.dim if points else law.base_dim) or 0 for law in self.laws]
        columns = np.split(rows, np.cumsum(widths)[:-1], axis=-1)
        return _side_by_side([each(*pair) for pair in zip(self.laws, columns, strict=True)])

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.laws))})"


def _side_by_side(parts: list[Array]) -> Array:
    lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return np.concatenate(
        [np.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1
    )
