"""Changes of g between two runs on one store, and whether the store notices them."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import nestquad as nq

_OTHER = """
def cost(x):
    return SCALE * x
class Model:
    scale = SCALE
"""


def _kinds(text: str) -> dict[str, str]:
    """Texts of model.py by the comment above them."""
    parts = [part.partition("\n") for part in ("\n" + text.strip()).split("\n# ")[1:]]
    return {name: f"import numpy as np\n{body}\n" for name, _, body in parts}


# A user's model.py, which defines g, by kind of change: SCALE is what changes.
CHANGES = _kinds("""
# a number in the code
def g(x, t):
    return SCALE * x[..., 0]
# a global number
S = SCALE
def g(x, t):
    return S * x[..., 0]
# an argument's default
def g(x, t, s=SCALE):
    return s * x[..., 0]
# a keyword's default
def g(x, t, *, s=SCALE):
    return s * x[..., 0]
# a closure in a closure
def a(s):
    def b(x):
        return s * x
    def c(x):
        return b(x)
    return c
h = a(SCALE)
def g(x, t):
    return h(x[..., 0])
# a function three calls away
def a(x):
    return SCALE * x
def b(x):
    return a(x)
def h(x):
    return b(x)
def g(x, t):
    return h(x[..., 0])
# a decorator's argument
import functools
def times(s):
    def wrap(f):
        @functools.wraps(f)
        def inner(x):
            return s * f(x)
        return inner
    return wrap
@times(SCALE)
def h(x):
    return x
def g(x, t):
    return h(x[..., 0])
# text that is evaluated
T = 'SCALE * x'
def g(x, t):
    return eval(T, {'x': x[..., 0]})
# a name from a module
from other import cost
def g(x, t):
    return cost(x[..., 0])
# a lambda in a dict
T = {'h': lambda x: SCALE * x}
def g(x, t):
    return T['h'](x[..., 0])
# functools.partial
from functools import partial
def a(s, x):
    return s * x
h = partial(a, SCALE)
def g(x, t):
    return h(x[..., 0])
# functools.cache
import functools
@functools.cache
def s():
    return SCALE
def g(x, t):
    return s() * x[..., 0]
# a method of an instance
class M:
    def __init__(self, s):
        self.s = s
    def g(self, x, t):
        return self.s * x[..., 0]
g = M(SCALE).g
# __slots__
class M:
    __slots__ = ('s',)
    def __init__(self, s):
        self.s = s
    def __call__(self, x, t):
        return self.s * x[..., 0]
g = M(SCALE)
# a class attribute
class M:
    s = SCALE
def g(x, t):
    return M.s * x[..., 0]
# a property
class M:
    @property
    def r(*own):
        return SCALE
    def __call__(s, x, t):
        return s.r * x[..., 0]
g = M()
# an attribute of g
def g(x, t):
    return g.s * x[..., 0]
g.s = SCALE
# np.frompyfunc
u = np.frompyfunc(lambda x: SCALE * x, 1, 1)
def g(x, t):
    return u(x[..., 0]).astype(float)
# an array
A = np.array([0.0, SCALE])
def g(x, t):
    return A[1] * x[..., 0]
# a data frame
import pandas as pd
D = pd.DataFrame({'s': [SCALE]})
def g(x, t):
    return D.s.iloc[0] * x[..., 0]
# a network of torch
import torch
N = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.constant_(N.weight, SCALE)
def g(x, t):
    return N(torch.as_tensor(x, dtype=torch.float32))[..., 0].detach()
# trees of scikit-learn
from sklearn.tree import DecisionTreeRegressor
R = DecisionTreeRegressor().fit([[0.0], [0.5], [1.0]], [0.0, 0.5, SCALE])
def g(x, t):
    return R.predict(x.reshape(-1, 1)).reshape(x.shape[:2]) + 0 * t[..., 0]
# joblib.Memory
import joblib, os
m = joblib.Memory('.', verbose=0)
@m.cache
def s():
    return SCALE
def g(x, t):
    return s() * x[..., 0]
# a module
import other
def g(x, t):
    return other.cost(x[..., 0])
# a submodule imported in g
def g(x, t):
    import package.deep
    return package.deep.cost(x[..., 0])
# a context variable
import contextvars
V = contextvars.ContextVar('V', default=SCALE)
def g(x, t):
    return V.get() * x[..., 0]
# a name looked up by text
S = SCALE
def g(x, t):
    return globals()['S'] * x[..., 0]
# an array that g writes into
A = np.array([0.0, SCALE])
def g(x, t):
    A[0] += 1
    return A[1] * x[..., 0]
# a file
def g(x, t):
    return float(open('scale.txt').read()) * x[..., 0]
# a data base
import sqlite3
def g(x, t):
    with sqlite3.connect('scale.db') as c:
        return c.execute('select s from t').fetchone()[0] * x[..., 0]
# a shell script
import subprocess
def g(x, t):
    return float(subprocess.run(['sh', 'scale.sh'], capture_output=True).stdout) * x[..., 0]
# an environment variable
import os
def g(x, t):
    return float(os.environ['LEVEL']) * x[..., 0]
""")


@contextmanager
def written(kind: str, scale: float) -> Iterator[Callable[..., Any]]:
    """The g of a user's model.py, with its files in a folder of their own."""
    with (
        tempfile.TemporaryDirectory() as name,
        chdir(name),
        warnings.catch_warnings(action="ignore"),
        mock.patch.dict(os.environ, LEVEL=str(scale)),
    ):
        folder = Path(name)
        texts = {
            "model.py": CHANGES[kind],
            "other.py": _OTHER,
            "package/__init__.py": "",
            "package/deep.py": "def cost(x):\n    from . import near\n    return near.cost(x)\n",
            "package/near.py": _OTHER,
            "scale.txt": "SCALE",
            "scale.sh": "echo SCALE",
        }
        (folder / "package").mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text.replace("SCALE", repr(scale)))
        with sqlite3.connect(folder / "scale.db") as base:
            base.execute("create table t (s)")
            base.execute("insert into t values (?)", (scale,))
        base.close()
        sys.path.insert(0, name)
        importlib.invalidate_caches()
        try:
            yield importlib.import_module("model").g
        finally:
            sys.path.remove(name)
            for module in ("model", "other", "package", "package.deep", "package.near"):
                sys.modules.pop(module, None)


def refused(kind: str, before: float, after: float) -> bool:
    """Whether a store notices that g is another one."""
    with tempfile.TemporaryDirectory() as store:
        for scale in (before, after):
            with written(kind, scale) as g:
                problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square)
                try:
                    nq.estimate(problem, method="nqmc", budget=64, rng=0, store=store)
                except nq.InputError as error:
                    return "another g" in str(error)
    return False


_HEAD = """
## Changes of g

A store refuses a g that changed, by its values at a few stored points. Each kind of change is one
that users make: a default argument, a lambda in a dict, a module that g imports itself, a file that
it reads. *False alarms* are refusals of a g that did not change but was made again.

| kinds of change | noticed | false alarms |
| ---: | ---: | ---: |
"""


def table() -> str:
    """The section of the page, measured."""
    noticed = sum(refused(kind, 1.0, 1.5) for kind in CHANGES)
    alarms = sum(refused(kind, 1.0, 1.0) for kind in CHANGES)
    row = f"| {len(CHANGES)} | {noticed} | {alarms} |"
    print(row, flush=True)
    return f"{_HEAD}{row}\n"
