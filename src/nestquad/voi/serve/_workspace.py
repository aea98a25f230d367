"""Analyses of one server, each a folder in a private temporary folder."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nestquad.errors import InputError
from nestquad.voi.report._analysis import check_groups
from nestquad.voi.serve._jobs import Job
from nestquad.voi.serve._settings import Settings, amount
from nestquad.voi.serve._work import (
    ANSWERS,
    RESULTS,
    SEEN,
    SETTINGS,
    UPLOADS,
    compute,
    load_settings,
    part_file,
    read,
    write,
    write_json,
)
from nestquad.voi.table import KINDS
from nestquad.voi.table._limits import check_archive, check_size, unpacking

MOST_ANALYSES = 50
SAVED = "analysis.nestquad.zip"
DOWNLOADS = {
    "report.html": "Report",
    "report.docx": "Word document",
    "tables.xlsx": "Excel tables",
    "figures.zip": "Figures",
    SAVED: "Save analysis",
}
# Names and numbers of groups and a study: some kilobytes.
_MOST_SETTINGS = 1_000_000
MOST_PARTS = 20


def _portable(settings: Settings) -> list[str]:
    """Files of a saved analysis."""
    tables = [part_file(part, k) for part in settings.parts for k in ("costs", "effects")]
    return [SETTINGS, ANSWERS, *UPLOADS, *tables]


class Work:
    """One analysis: its folder, and the job that runs on it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.job: Job | None = None
        # Two tabs may show the same analysis.
        self._lock = threading.RLock()
        self._writing = threading.Lock()

    @property
    def settings(self) -> Settings:
        return load_settings(self.folder)

    def seen(self) -> Any:
        """Reading of the tables; None before they were read."""
        return self._json(SEEN)

    def results(self) -> Any:
        return self._json(RESULTS)

    def change(self, given: Mapping[str, Any]) -> None:
        """Compute with other settings; another match or range concerns the tables themselves."""
        with self._lock:
            before, after, seen = self.settings, self.settings.changed(given), self.seen()
            several = [label for label, members in after.groups.items() if members != (label,)]
            check_groups(several, (seen or {}).get("parameters", ()))
            reads = [
                (s.match, s.columns, s.sheets, s.as_given, s.is_swapped, s.curve)
                for s in (before, after)
            ]
            self.start(after, reading=reads[0] != reads[1] or seen is None)

    def add_part(self, given: Mapping[str, Any], files: Mapping[str, tuple[str, BinaryIO]]) -> None:
        """Add a scenario or a subgroup with its costs and effects, and compute."""
        if sorted(files) != ["costs", "effects"]:
            expected = "a table of costs and one of effects"
            raise InputError("upload", " and ".join(files) or "no file", expected)
        names = [Path(files[kind][0]).name[-100:] for kind in ("costs", "effects")]
        part = {**given, "files": names, "code": secrets.token_hex(6)}
        with self._lock:
            before = self.settings
            same = [
                p
                for p in before.parts
                if (p["kind"], p["name"]) == (part.get("kind"), part.get("name"))
            ]
            if same or len(before.parts) >= MOST_PARTS:
                raise InputError("name", repr(part.get("name")), "another name, and fewer parts")
            after = Settings.of({**before.to_dict(), "parts": [*before.parts, part]})
            for kind, (_, content) in files.items():
                with open(self.folder / part_file(part, kind), "wb") as file:
                    shutil.copyfileobj(content, file)
            self.start(after, reading=self.seen() is None)

    def start(self, settings: Settings, *, reading: bool) -> None:
        """Start reading or computing; a running job is cancelled."""
        with self._lock:
            self._stop()
            write_json(self.folder / SETTINGS, settings.to_dict())
            for name in (SEEN, RESULTS) if reading else ():  # of another range or match
                (self.folder / name).unlink(missing_ok=True)
            what, function = ("Reading", read) if reading else ("Computing", compute)
            self.job = Job(what, function, self.folder)

    def advance(self) -> None:
        """Begin to compute once the tables were read without problems."""
        with self._lock:
            job, seen = self.job, self.seen()
            done = job is not None and job.what == "Reading" and not job.running and not job.error
            if done and seen is not None and not seen["problems"]:
                self.start(self.settings, reading=False)

    def wait(self, seconds: float) -> None:
        if self.job is not None:
            self.job.wait(seconds)

    def cancel(self) -> None:
        with self._lock:
            self._stop()

    def state(self) -> dict[str, Any]:
        job, seen = self.job, self.seen()
        # A file computes what a cancelled analysis lacks.
        is_idle = not (job is not None and job.running) and seen is not None and "now" in seen
        makes_files = is_idle or (self.folder / RESULTS).is_file()
        files = (self.folder / name for name in (SEEN, RESULTS))
        return {
            "job": job.state() if job is not None and job.running else None,
            "error": None if job is None or job.running else job.error,
            "stamp": [path.stat().st_mtime_ns if path.is_file() else 0 for path in files],
            "settings": self.settings.to_dict(),
            "files": DOWNLOADS if makes_files else {SAVED: DOWNLOADS[SAVED]},
        }

    def download(self, name: str, wtp: str | None = None) -> Path | None:
        """A file, made now at a willingness to pay; no other file of the folder can be had."""
        if name not in DOWNLOADS or not (name == SAVED or "now" in (self.seen() or {})):
            return None
        if name == SAVED:
            with zipfile.ZipFile(self.folder / SAVED, "w", zipfile.ZIP_DEFLATED) as archive:
                for part in _portable(self.settings):
                    if (self.folder / part).is_file():
                        archive.write(self.folder / part, part)
            return self.folder / name
        at = self.settings.wtp if wtp is None else amount("wtp", wtp)
        if at not in self.settings.curve:
            raise InputError("wtp", f"{at:g}", "a position of the slider")
        with self._writing:
            writer = Job("Writing", write, self.folder, name, at)
            writer.wait()
        if writer.error:
            raise InputError(name, writer.error, "a file that can be written")
        return self.folder / name

    def _stop(self) -> None:
        if self.job is not None and self.job.running:
            self.job.cancel()

    def _json(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


class Workspace:
    """All analyses of a server."""

    def __init__(self) -> None:
        # Readable by this user alone, by `mkdtemp`.
        self.folder = Path(tempfile.mkdtemp(prefix="nestquad-voi-"))
        self._works: dict[str, Work] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Work]:
        return iter(list(self._works.values()))

    def get(self, name: str) -> Work | None:
        return self._works.get(name)

    def upload(self, files: Mapping[str, tuple[str, BinaryIO]], given: Mapping[str, Any]) -> Work:
        """A new analysis of files by kind, each a name and its content; or one that was saved."""
        if "saved" in files:
            return self._saved(files["saved"][1])
        if list(files) == ["parameters"]:
            start = files["parameters"][1].read(2)
            files["parameters"][1].seek(0)
            files = {"workbook": files["parameters"]} if start == b"PK" else files
        if sorted(files) not in (["workbook"], sorted(KINDS)):
            expected = "one workbook, or parameters, costs and effects"
            raise InputError("upload", " and ".join(files) or "no file", expected)
        names = {kind: Path(name).name[-100:] for kind, (name, _) in files.items()}
        settings = Settings.of({**given, "files": names})
        return self._new({kind: content for kind, (_, content) in files.items()}, settings)

    def remove(self, work: Work) -> None:
        work.cancel()
        with self._lock:
            self._works.pop(work.name, None)
        shutil.rmtree(work.folder, ignore_errors=True)

    def close(self) -> None:
        """End all jobs and remove all files."""
        for work in self:
            self.remove(work)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _saved(self, content: BinaryIO) -> Work:
        """An analysis that was saved: data alone, each part by its known name and within limits."""
        what, expected = "saved analysis", f"a file that the button “{DOWNLOADS[SAVED]}” made"
        with unpacking(what, expected), zipfile.ZipFile(content) as archive:
            check_archive(what, archive)
            known = {part.filename: part.file_size for part in archive.infolist()}
            if known[SETTINGS] > _MOST_SETTINGS:
                found = f"settings of {known[SETTINGS] / 1e6:,.0f} MB"
                raise InputError(what, found, expected)
            settings = Settings.of(json.loads(archive.read(SETTINGS)))
            names = [name for name in _portable(settings) if name in known]
            for name in names:
                check_size(f"{what}, {name}", known[name])
            return self._new({name: archive.open(name) for name in names}, settings)

    def _new(self, parts: Mapping[str, Any], settings: Settings) -> Work:
        if len(self._works) >= MOST_ANALYSES:
            advice = "Save those that you need, and remove some."
            raise InputError("upload", f"{MOST_ANALYSES} analyses already", "fewer", advice)
        name = secrets.token_urlsafe(9)
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        work = Work(name, folder)
        try:
            for part, content in parts.items():
                with open(folder / part, "wb") as file:
                    shutil.copyfileobj(content, file)
            work.start(settings, reading=True)
        except BaseException:  # such as a part that cannot be unpacked
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self._lock:
            self._works[name] = work
        return work
