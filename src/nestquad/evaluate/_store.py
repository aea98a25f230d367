"""Store of values of g on disk, for interrupted and repeated runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import time
import uuid
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._checks import numbers, shown
from nestquad._typing import Array, RNGLike
from nestquad.distributions import Law
from nestquad.errors import EvaluationError, InputError, NestquadWarning
from nestquad.evaluate._design import Grid, Span, grid_points
from nestquad.points import Given, Sequence, Stream
from nestquad.problem import NestedExpectation


@dataclass(frozen=True)
class StoreSettings:
    """Numbers of the comparison of g with the values in a store.

    Attributes
    ----------
    checked
        Points at which g is evaluated again: a change at a third of all points escapes one time in
        26 (2/3 to the 8th).
    checked_more
        The same where another set of points begins.
    rounding
        Relative difference that is rounding: single precision, a hundred operations.
    level
        Two-sided level of the paired test of a noisy g, of which a user may see many.
    law_numbers
        Coordinates of reference points by which laws are compared.
    """

    checked: int = 8
    checked_more: int = 2
    rounding: float = 1e-5
    level: float = 1e-5
    law_numbers: int = 64


_SETTINGS = StoreSettings()


def fingerprint(problem: NestedExpectation) -> dict[str, Any]:
    """Dimensions and laws at reference points, as JSON.

    f and `combine` do not take part: values of g serve them all. Changes of g are noticed by the
    store, which evaluates it again at stored points.
    """
    theta = _reference_points(problem.outer_law, 3)
    x = _reference_points(problem.inner_law(theta), 2)
    return {
        "outer law": _leading_numbers(theta),
        "inner law": _leading_numbers(x),
        "dimensions": [int(theta.shape[-1]), int(x.shape[-1])],
    }


def _refuse_other_laws(stored: dict[str, Any], given: dict[str, Any], where: str) -> None:
    dims = tuple(given["dimensions"])
    if stored.get("dimensions") != given["dimensions"]:
        came = f"one with dimensions (d_theta, d_x) = {dims}, for {where}"
        raise InputError("problem", came, f"{stored.get('dimensions')}", _OTHER_FOLDER)
    for part, variable in (("outer law", "theta"), ("inner law", "x")):
        old = numbers("store", stored.get(part, ()), f"numbers for the {part} in its manifest")
        new = np.asarray(given[part])
        # Another build of NumPy or SciPy may round differently.
        if old.shape != new.shape or not np.allclose(old, new, rtol=1e-6, atol=1e-9):
            came = f"another {part} ({variable} = {_short(new)} at a point of reference)"
            own = f"its own law ({variable} = {_short(old)})"
            raise InputError("problem", f"{came}, for {where}", own, _OTHER_FOLDER)


def _reference_points(law: Law, n: int) -> Array:
    """Points of a law well inside its support, all coordinates different, (n, d)."""
    if not law.has_transport:
        return law.sample(n, np.random.default_rng(20240229))
    # Additive recurrence with the plastic number (Roberts 2018, R2 sequence).
    steps = np.arange(1, n + 1)[:, None] * 0.7548776662 + np.arange(law.base_dim) * 0.5698402909
    return law.from_uniform(0.05 + 0.9 * (steps % 1.0))


def _leading_numbers(values: Array) -> list[float]:
    return [float(v) for v in values.ravel()[: _SETTINGS.law_numbers]]


def _short(values: Array) -> str:
    return np.array2string(values.ravel()[:3], precision=6, separator=", ")


_FORMAT: dict[str, Any] = {"format": "nestquad store", "version": 1}
_MANIFEST, _POINTS = "manifest.json", "points.json"
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})x(\d{1,15})-(\d{1,15})\.([0-9a-f]{16})\.npy")
_OTHER_FOLDER = "Use another folder, or delete this one."
_NO_CHECK = "store_check=False evaluates no point again."


@dataclass
class Store:
    """A folder with the values of one problem and one seed.

    `manifest.json` says which. Each set of points (sequences, stream, level) has a folder, with
    one file for each chunk: a plain ``.npy`` array, whose name holds its points and its checksum.
    Files are written under another name first and never changed, so that they are complete or
    absent. Processes may share a store and be killed at any moment, and no file is unpickled.
    """

    path: Path
    problem: NestedExpectation
    stream: Stream
    check: bool = True
    _tables: dict[Grid, StoredTable] = field(default_factory=dict)
    _changes: list[Array] = field(default_factory=list)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        problem: NestedExpectation,
        rng: RNGLike = None,
        check: bool = True,
    ) -> Store:
        """The store in a folder, made if it is not there; refused if it belongs to another run.

        With `rng` None an existing store is continued with its own stream. With `check` g is
        evaluated again at a few of the stored points.
        """
        if not isinstance(check, bool | np.bool_):
            raise InputError("store_check", repr(check), "True or False")
        if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
            raise InputError("store", type(path).__name__, "the path of a folder, or None")
        folder = Path(path)
        from nestquad import __version__

        manifest = {**_FORMAT, "nestquad": __version__, "problem": fingerprint(problem)}
        file = folder / _MANIFEST
        # Once: a generator gives another stream the next time.
        seeded = None if rng is None else Stream.from_rng(rng)
        try:
            if folder.exists() and not folder.is_dir():
                given = f"{str(folder)!r}, which is a file"
                raise InputError("store", given, "the path of a folder")
            folder.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                _begin(file, manifest, seeded or Stream.from_rng())
        except InputError:
            raise
        except (OSError, ValueError) as error:  # a name with a null character, say
            given = f"{shown(str(folder))}, which cannot be made or written ({_reason(error)})"
            raise InputError("store", given, "the path of a folder that can be written") from error
        stored = _manifest(file)
        # Without a seed, processes that begin at once share the stream of the first.
        stream = seeded or Stream(tuple(stored["stream"]))
        _refuse_another(folder, stored, manifest, stream)
        _remove_leftovers(folder)
        return cls(folder, problem, stream, bool(check))

    def table(self, grid: Grid) -> StoredTable:
        """The chunks on the points of a grid."""
        key = grid.points
        if key not in self._tables:
            self._tables[key] = StoredTable.open(self.path, grid)
        return self._tables[key]

    def to_check(self, grid: Grid) -> dict[Span, Array]:
        """Stored points of a grid at which g is to be evaluated again, once for each grid."""
        table = self.table(grid)
        if not self.check or table.checked:
            return {}
        table.checked = True
        return table.spread(_SETTINGS.checked_more if self._changes else _SETTINGS.checked)

    def compare(self, grid: Grid, point: Span, stored: Array, again: Array) -> None:
        """Refuse a g whose value at a stored point is another one now."""
        if again.shape == stored.shape:
            self._changes.append(np.ravel(again - stored))
            if self.problem.noisy:
                self._compare_means()
                return
            size = np.maximum(np.maximum(np.abs(again), np.abs(stored)), self.table(grid).typical)
            if (np.abs(again - stored) <= _SETTINGS.rounding * size).all():
                return
        theta, points = grid_points(self.problem, grid, point)
        place = f"theta = {theta[0].tolist()}, x = {points.x[0, 0].tolist()}"
        given = f"another g: at {place} it is now {np.squeeze(again).tolist()}"
        before = f"{np.squeeze(stored).tolist()}, its value in the store in {str(self.path)!r}"
        noisy = "If g is random by itself, state the problem with noisy=True;"
        raise InputError("problem", given, before, f"{_OTHER_FOLDER} {noisy} {_NO_CHECK}")

    def _compare_means(self) -> None:
        """Paired t test: a noisy g differs at each point, but not on average."""
        changes = np.array(self._changes)
        n = len(changes)
        if n < 4 or not changes.any():
            return
        mean, sd = changes.mean(axis=0), changes.std(axis=0, ddof=1)
        if (np.abs(mean) * np.sqrt(n) > stdtrit(n - 1, 1 - _SETTINGS.level / 2) * sd).any():
            change = f"{mean.tolist()} larger on average, ± {(sd / np.sqrt(n)).tolist()}"
            given = f"another g: at {n} stored points it is now {change} (one standard error)"
            before = f"the g of the store in {str(self.path)!r}"
            raise InputError("problem", given, before, f"{_OTHER_FOLDER} {_NO_CHECK}")


@dataclass
class StoredTable:
    """The chunks of grids on the same points."""

    folder: Path
    checked: bool = False
    typical: Array | float = 0.0
    _names: dict[Span, str] = field(default_factory=dict)
    _corners: Array = field(default_factory=lambda: np.zeros((0, 4), dtype=int))
    _cache: OrderedDict[Span, Array] = field(default_factory=OrderedDict)

    @classmethod
    def open(cls, store: Path, grid: Grid) -> StoredTable:
        described = {"stream": list(grid.stream.entropy)} | {
            name: _described(getattr(grid, name))
            for name in ("level", "outer_points", "inner_points", "n_sets", "outer_scale", "joint")
        }
        text = json.dumps(described, sort_keys=True)
        folder = store / f"points-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        file = folder / _POINTS
        try:
            folder.mkdir(exist_ok=True)
            if not file.exists():
                _write(file, json.dumps(described, indent=1).encode() + b"\n", keep=True)
        except (FileExistsError, NotADirectoryError) as error:
            given = f"{str(folder)!r}, which is a file"
            raise InputError("store", given, "a folder of a store", _OTHER_FOLDER) from error
        except OSError as error:
            raise _unwritten(store, error) from error
        return cls(folder)

    def scan(self) -> None:
        """List the chunks on disk, from this process and others."""
        self._names = {}
        try:
            present = sorted(os.listdir(self.folder))
        except OSError as error:
            raise _unwritten(self.folder.parent, error) from error
        for name in present:
            match = _NAME.fullmatch(name)
            if match:
                t0, t1, n0, n1 = map(int, match.groups()[:4])
                if t0 < t1 and n0 < n1:
                    self._names.setdefault(Span(t0, t1, n0, n1), name)
        self._index()

    def read(self, span: Span) -> tuple[list[tuple[Span, Array]], list[Span]]:
        """The parts of a span that are stored, with their values, and the parts that are not."""
        ready: list[tuple[Span, Array]] = []
        missing = [span]
        t0, t1, n0, n1 = self._corners.T
        near = (t0 < span.t1) & (t1 > span.t0) & (n0 < span.n1) & (n1 > span.n0)
        for corners in self._corners[near]:
            chunk = Span(*map(int, corners))
            common = [part for m in missing if (part := m.common(chunk)) is not None]
            values = self._load(chunk) if common else None
            if values is None:
                continue
            ready += [
                (p, values[p.t0 - chunk.t0 : p.t1 - chunk.t0, p.n0 - chunk.n0 : p.n1 - chunk.n0])
                for p in common
            ]
            missing = [rest for m in missing for rest in m.without(chunk)]
        return ready, missing

    def spread(self, n: int) -> dict[Span, Array]:
        """Values at n points or fewer of n chunks, from the least of all to the largest.

        The extremes are where a rare branch of g shows.
        """
        steps = np.unique(np.linspace(0, len(self._corners), n, endpoint=False).astype(int))
        points: list[tuple[float, Span, Array]] = []
        for corners in self._corners[steps[: len(self._corners)]]:
            chunk = Span(*map(int, corners))
            values = self._load(chunk)
            if values is None:
                continue
            flat = values.reshape(chunk.size, -1)
            self.typical = np.maximum(self.typical, np.median(np.abs(flat), axis=0))
            for i in _ranked(flat[:, 0], n):
                t, m = divmod(i, chunk.shape[1])
                point = Span(chunk.t0 + t, chunk.t0 + t + 1, chunk.n0 + m, chunk.n0 + m + 1)
                points.append((flat[i, 0], point, values[t : t + 1, m : m + 1].copy()))
        return {points[i][1]: points[i][2] for i in _ranked(np.array([v for v, _, _ in points]), n)}

    def write(self, span: Span, values: Array) -> None:
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        name = f"{_corners(span)}.{_checksum(span, buffer.getbuffer())}.npy"
        try:
            _write(self.folder / name, buffer.getbuffer())
        except OSError as error:
            raise _unwritten(self.folder.parent, error) from error
        self._names[span] = name

    def _load(self, chunk: Span) -> Array | None:
        """The values of a chunk; None, with a warning, if the file is damaged or out of reach."""
        if chunk in self._cache:
            self._cache.move_to_end(chunk)
            return self._cache[chunk]
        file = self.folder / self._names[chunk]
        try:
            content = file.read_bytes()
            if _checksum(chunk, content) != file.name.split(".")[1]:
                raise ValueError("its checksum is wrong")
            values = np.load(io.BytesIO(content), allow_pickle=False)
            if values.dtype != np.float64 or values.shape[:2] != chunk.shape:
                raise ValueError(f"it has shape {values.shape}")
        except (OSError, ValueError, EOFError) as error:
            unread = isinstance(error, OSError)  # a disk of the network may be back tomorrow
            state = "cannot be read" if unread else "is damaged"
            outer, inner = f"{chunk.t0} to {chunk.t1 - 1}", f"{chunk.n0} to {chunk.n1 - 1}"
            again = f"outer points {outer}, inner points {inner} are evaluated again"
            text = f"{file} {state} ({_reason(error)}); {again}."
            warnings.warn(text, NestquadWarning, stacklevel=2)
            if not unread:
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
            del self._names[chunk]
            self._index()
            return None
        self._cache[chunk] = values
        if len(self._cache) > 4:
            self._cache.popitem(last=False)
        return np.asarray(values)

    def _index(self) -> None:
        corners = [(s.t0, s.t1, s.n0, s.n1) for s in self._names]
        self._corners = np.array(sorted(corners), dtype=int).reshape(-1, 4)


def _ranked(values: Array, n: int) -> list[int]:
    """Places of n values or fewer, from the least to the largest."""
    ranks = np.linspace(0, len(values) - 1, min(n, len(values))).astype(int)
    return [int(i) for i in np.argsort(values, kind="stable")[ranks]]


def _corners(span: Span) -> str:
    return f"{span.t0}-{span.t1}x{span.n0}-{span.n1}"


def _checksum(span: Span, content: bytes | memoryview) -> str:
    # The place takes part, so that a file that was renamed is noticed as well.
    digest = hashlib.blake2b(_corners(span).encode(), digest_size=8)
    digest.update(content)
    return digest.hexdigest()


def _write(file: Path, content: bytes | memoryview, *, keep: bool = False) -> None:
    """Write a file atomically; with `keep`, leave alone what another process made meanwhile."""
    temporary = file.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        if keep:
            with temporary.open("r+b") as written:
                os.fsync(written.fileno())  # chunks that a power cut empties are evaluated again
            try:
                os.link(temporary, file)  # unlike replace it fails if the file is there
                return
            except FileExistsError:
                return
            except OSError:  # a file system without links
                pass
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _unwritten(store: Path, error: OSError) -> EvaluationError:
    return EvaluationError(
        f"the store in {str(store)!r} cannot be written ({_reason(error)})",
        advice="Once the folder can be written, the same call continues with what is in it.",
    )


def _begin(file: Path, given: dict[str, Any], stream: Stream) -> None:
    """Write the manifest of a new store into an empty folder."""
    folder = file.parent
    others = [c for c in folder.iterdir() if not c.name.startswith((".tmp-", _MANIFEST))]
    # Another process may have made the manifest, and more, since the first look.
    if others and not file.exists():
        there = f"{str(folder)!r}, which has other things in it and no {_MANIFEST}"
        raise InputError("store", there, "an empty or new folder, or a store")
    text = json.dumps({**given, "stream": list(stream.entropy)}, indent=1)
    _write(file, text.encode() + b"\n", keep=True)


def _manifest(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        given = f"{str(file)!r}, which cannot be read ({_reason(error)})"
        raise InputError("store", given, "JSON of a store", _OTHER_FOLDER) from error
    if not isinstance(content, dict):
        content = {}
    ours = content.get("format") == _FORMAT["format"]
    if ours and content.get("version") != _FORMAT["version"]:
        version, nestquad = shown(content.get("version")), shown(content.get("nestquad"))
        given = f"{str(file.parent)!r} of format version {version}, written by nestquad {nestquad}"
        expected = f"format version {_FORMAT['version']}, which this nestquad reads"
        raise InputError("store", given, expected, _OTHER_FOLDER)
    entropy, problem = content.get("stream"), content.get("problem")
    whole = isinstance(entropy, list) and all(type(word) is int and word >= 0 for word in entropy)
    if not ours or not whole or not isinstance(problem, dict):
        given = f"{str(file)!r}, which is no manifest of a store"
        raise InputError("store", given, "a store", _OTHER_FOLDER)
    return content


def _refuse_another(
    folder: Path, stored: dict[str, Any], given: dict[str, Any], stream: Stream
) -> None:
    where = f"the store in {str(folder)!r}"
    if _minor(stored.get("nestquad")) != _minor(given["nestquad"]):
        written = f"{where}, written by nestquad {stored.get('nestquad')}"
        expected = f"one of nestquad {_minor(given['nestquad'])}, whose points are the same"
        raise InputError("store", written, expected, _OTHER_FOLDER)
    _refuse_other_laws(stored["problem"], given["problem"], where)
    if list(stream.entropy) != stored["stream"]:
        seed = f"a seed that makes the stream {list(stream.entropy)}, for {where}"
        expected = f"the one that makes {stored['stream']}, the stream of the store"
        advice = "Use the seed of the first call, rng=None to go on with it, or another folder."
        raise InputError("rng", seed, expected, advice)


def _minor(version: Any) -> str:
    return ".".join(str(version).split(".")[:2])


def _described(part: Any) -> Any:
    """A number, or a sequence in words."""
    if isinstance(part, Given):
        digest = hashlib.blake2b(np.ascontiguousarray(part.points).tobytes(), digest_size=8)
        return f"Given({part.points.shape}, {part.space}, {digest.hexdigest()})"
    return repr(part) if isinstance(part, Sequence) else part


def _remove_leftovers(folder: Path) -> None:
    """Unfinished files of processes that died more than a day ago."""
    limit = time.time() - timedelta(days=1).total_seconds()
    for file in folder.rglob(".tmp-*"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < limit:
                file.unlink()
