"""Proxy: a model of J that somebody else made, in the interface of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nestquad._checks import shown
from nestquad._scale import SIZES
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.methods._events import few_event_errors
from nestquad.methods.learned._joint_model import JointModel
from nestquad.methods.learned._model import DenseSet, ModelOfJ, Paths, sketch_points
from nestquad.points import Periodization, moved, periodic
from nestquad.problem import NestedExpectation

_EXPECTED = (
    "a function of theta (n, d) that returns J as (n,) or (n, p), or an object with .predict"
)


@dataclass(frozen=True)
class ProxySettings:
    """Tuning numbers of a proxy.

    Attributes
    ----------
    cost
        Numbers that a prediction is taken to compute, which limits dense averages to 2^18
        predictions; measured time would make answers depend on the machine.
    n_control
        x at each θ for the mean of a given control: random shifts leave it unbiased, with an error
        of about a thousandth of its standard deviation.
    doubt
        Error of the proxy where nothing else tells it, as a share of the spread of its predictions:
        decides only where fresh draws are taken.
    """

    cost: int = 64
    n_control: int = 256
    doubt: float = 0.1


@dataclass(frozen=True, eq=False)
class ProxyModel(ModelOfJ):
    """Predictions of a proxy as Ĵ.

    Attributes
    ----------
    problem
        The problem whose J is predicted.
    predict
        Predictions (n, p) at θ (n, d_θ).
    theta_of
        θ (n, d_θ) at coordinates (n, d): uniforms behind θ, or others.
    n_coordinates
        d.
    own
        A learned model of J: the part of its ĝ that varies with x is a control variate of the
        proxy's residuals, and its distance to the proxy says where to draw. None for neither.
    control
        ĝ (n, p) at x (n, d_x) and θ (n, d_θ) of the user's own. Its mean over x, which takes no
        evaluation of g, is replaced by Ĵ.
    """

    problem: NestedExpectation
    predict: Callable[[Array], Array]
    theta_of: Callable[[Array], Array]
    n_coordinates: int
    own: ModelOfJ | None = None
    control: Callable[[Array, Array], Array] | None = None
    settings: ProxySettings = ProxySettings()

    @property
    def dim(self) -> int:
        return self.n_coordinates

    @property
    def best(self) -> ModelOfJ:
        return self.own or self

    @property
    def n_points(self) -> int:
        return 1 if self.own is None else self.own.n_points

    @property
    def cost(self) -> int:
        """Standard deviation of the learned model, which `sd` calls."""
        return max(self.settings.cost, 0 if self.own is None else self.own.cost)

    @property
    def periodization(self) -> Periodization:
        return "tent" if self.own is None else self.own.periodization

    @cached_property
    def sketch(self) -> DenseSet:
        uniform = sketch_points(self.dim, 1024)
        return DenseSet(uniform, np.ones(len(uniform)), self.mean(uniform))

    @property
    def design(self) -> DenseSet:
        return self.sketch

    def mean(self, uniform: Array) -> Array:
        return self.predict(self.theta_of(uniform))

    def sd(self, uniform: Array) -> Array:
        """Distance to the learned model, or the uncertain share of the spread of Ĵ."""
        if self.own is not None:
            return np.asarray(np.abs(self.mean(uniform) - self.own.mean(uniform)))
        spread = self.settings.doubt * self.sketch.j.std(axis=0)
        return np.broadcast_to(spread, (len(uniform), len(spread)))

    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        mean = self.mean(uniform)
        if self.control is not None:
            theta = self.theta_of(uniform)
            x = self.problem.inner_law(theta).from_uniform(inner[:, None])[:, 0]
            return mean + self.control(x, theta) - self._control_mean(theta)
        if self.own is None:
            return mean
        return mean + self.own.at(uniform, inner, cautious=cautious) - self.own.mean(uniform)

    def _control_mean(self, theta: Array) -> Array:
        """Means (n, p) of the control over x, by lattices with a random shift for each θ."""
        assert self.control is not None
        places, which = np.unique(theta, axis=0, return_inverse=True)
        lattice = sketch_points(self.problem.inner_base_dim, self.settings.n_control)
        base = periodic("tent", lattice)
        rng, means = np.random.default_rng(0), []
        for block in np.array_split(places, -(-len(places) // 64)):
            shift = rng.random((len(block), 1, base.shape[1]))
            x = self.problem.inner_law(block).from_uniform(moved("tent", (base + shift) % 1.0))
            x = np.broadcast_to(x, (len(block), *x.shape[1:]))
            values = self.control(x.reshape(-1, x.shape[-1]), np.repeat(block, len(base), axis=0))
            means.append(values.reshape(len(block), len(base), -1).mean(axis=1))
        return np.asarray(np.concatenate(means)[which.ravel()])

    @property
    def n_met(self) -> int:
        """Scenarios that the learned model has met, as of a sample of their law."""
        if not isinstance(self.own, JointModel):
            return 0
        return int(self.own.n_points / max(float(self.own.data.weights.max()), 1.0))

    def met_errors(self, f: Callable[[Array], Array]) -> Array | float:
        """Standard errors (q,) of E f(J) for rare values of g that the learned model has met.

        Where few of its residuals, each by the other points, carry their variance, fresh draws may
        have met no such value.
        """
        if not isinstance(self.own, JointModel):
            return 0.0
        data, rest = self.own.data, self.own.residuals()
        shares = (data.weights / len(data.weights))[:, None]
        few = few_event_errors(rest, shares) > 0
        j = self.mean(data.uniform[:, : self.dim])
        return few_event_errors(f(j + np.where(few, rest, 0.0)) - f(j), shares)

    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        raise NotImplementedError("a proxy has no posterior of its own")

    def residuals(self) -> Array:
        """Zeros: the residuals of somebody else's fit are unknown."""
        return np.zeros_like(self.sketch.j)

    def describe(self) -> dict[str, Any]:
        return {"notes": []}


def as_predictor(proxy: Any, theta: Array) -> Callable[[Array], Array]:
    """The proxy as a function from θ (n, d_θ) to J (n, p), tried at θ (t, d_θ)."""
    call = getattr(proxy, "predict", proxy)
    if isinstance(proxy, type) or not callable(call):
        raise InputError(
            "proxy", shown(proxy), _EXPECTED, "For instance lambda theta: theta[:, 0] ** 2."
        )
    predict = _checked("proxy", lambda theta: call(theta), _EXPECTED)
    predict(theta)
    return predict


def as_control(control: Any, outputs: int) -> Callable[[Array, Array], Array]:
    """The user's ĝ as a function from x (n, d_x) and θ (n, d_θ) to (n, p)."""
    expected = "a function of x (n, d_x) and theta (n, d_theta) that returns (n,) or (n, p)"
    if not callable(control):
        raise InputError("control", shown(control), expected, "None learns one.")
    predict = _checked("control", control, expected)

    def with_outputs(x: Array, theta: Array) -> Array:
        values = predict(x, theta)
        if values.shape[1] != outputs:
            given = f"{values.shape[1]} outputs"
            raise InputError("control", given, f"{outputs}, as the proxy has")
        return values

    return with_outputs


def _checked(argument: str, function: Callable[..., Any], expected: str) -> Callable[..., Array]:
    """The function with its errors, shapes and values checked; values become (n, p)."""

    def call(*arrays: Array) -> Array:
        n = len(arrays[-1])
        try:
            raw = function(*(array.copy() for array in arrays))
        except Exception as error:  # of the user's function
            given = f"one that raised {type(error).__name__}: {error}"
            raise InputError(argument, given, expected) from error
        try:
            if np.iscomplexobj(raw):
                raise TypeError("complex numbers")
            values = np.asarray(raw, dtype=np.float64)
        except (TypeError, ValueError) as error:
            given = f"one that returned {shown(raw)}"
            raise InputError(argument, given, expected) from error
        if values.ndim not in (1, 2) or len(values) != n or values.size == 0:
            raise InputError(
                argument,
                f"one that returned shape {values.shape} for theta of shape {arrays[-1].shape}",
                f"shape ({n},), or ({n}, p) for p outputs",
                "It is called with many scenarios at once, a row each.",
            )
        finite = (np.abs(values.reshape(n, -1)) < SIZES[1]).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise InputError(
                argument,
                f"one that returned {values[row]} at theta = {arrays[-1][row].tolist()}",
                f"numbers below {SIZES[1]:g} at all scenarios that the outer law can draw",
            )
        return values.reshape(n, -1)

    return call
