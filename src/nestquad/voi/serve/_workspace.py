"""Analyses of one server, each a folder in a private temporary folder that is removed."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nestquad.errors import InputError
from nestquad.voi.serve._jobs import Job
from nestquad.voi.serve._limits import check_archive
from nestquad.voi.serve._settings import Settings
from nestquad.voi.serve._work import (
    ANSWERS,
    KINDS,
    RESULTS,
    SEEN,
    SETTINGS,
    compute,
    load_settings,
    read,
    write_json,
)

MOST_ANALYSES = 50
SAVED = "analysis.nestquad.zip"
DOWNLOADS = {
    "report.html": "Report",
    "report.docx": "Word document",
    "tables.xlsx": "Excel tables",
    "figures.zip": "Figures",
    SAVED: "Save analysis",
}
_PORTABLE = (SETTINGS, ANSWERS, *KINDS)


class Work:
    """One analysis: its folder, and the job that runs on it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.job: Job | None = None
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        return load_settings(self.folder)

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.running

    def seen(self) -> dict[str, Any] | None:
        """What was understood of the tables, once they were read."""
        return self._json(SEEN)

    def results(self) -> dict[str, Any] | None:
        return self._json(RESULTS)

    def start(self, settings: Settings, *, reading: bool = False) -> None:
        """Start reading or computing with these settings; what runs is cancelled."""
        with self._lock:
            self._stop()
            write_json(self.folder / SETTINGS, settings.to_dict())
            if reading:
                (self.folder / SEEN).unlink(missing_ok=True)
            what, function = ("Reading", read) if reading else ("Computing", compute)
            self.job = Job(what, function, self.folder)

    def advance(self) -> None:
        """Begin to compute once the tables were read and nothing is wrong with them."""
        job, seen = self.job, self.seen()
        if job is None or job.running or job.what != "Reading" or job.error:
            return
        if seen is not None and not seen["problems"]:
            self.start(self.settings)

    def cancel(self) -> None:
        with self._lock:
            self._stop()

    def state(self) -> dict[str, Any]:
        job = self.job
        stamps = [self.folder / name for name in (SEEN, RESULTS)]
        return {
            "job": job.state() if job is not None and job.running else None,
            "error": None if job is None or job.running else job.error,
            "read": (self.folder / SEEN).is_file(),
            "stamp": [path.stat().st_mtime_ns if path.is_file() else 0 for path in stamps],
            "settings": self.settings.to_dict(),
            "files": {name: word for name, word in DOWNLOADS.items() if self._has(name)},
        }

    def download(self, name: str) -> Path | None:
        """A file to download, where there is one; nothing else of the folder can be had."""
        if name not in DOWNLOADS or not self._has(name):
            return None
        if name == SAVED:
            with zipfile.ZipFile(self.folder / SAVED, "w", zipfile.ZIP_DEFLATED) as archive:
                for part in _PORTABLE:
                    if (self.folder / part).is_file():
                        archive.write(self.folder / part, part)
        return self.folder / name

    def _has(self, name: str) -> bool:
        return name == SAVED or (self.folder / name).is_file()

    def _stop(self) -> None:
        if self.job is not None and self.job.running:
            self.job.cancel()

    def _json(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if not path.is_file():
            return None
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content


class Workspace:
    """All analyses of a server."""

    def __init__(self) -> None:
        # Readable by this user alone, as `mkdtemp` promises.
        self.folder = Path(tempfile.mkdtemp(prefix="nestquad-voi-"))
        self._works: dict[str, Work] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Any:
        return iter(list(self._works.values()))

    def get(self, name: str) -> Work | None:
        return self._works.get(name)

    def upload(self, files: Mapping[str, tuple[str, BinaryIO]], given: Mapping[str, Any]) -> Work:
        """A new analysis of uploaded files, by kind: their names and contents."""
        names = {kind: Path(name).name[:100] for kind, (name, _) in files.items()}
        settings = Settings.of({**given, "files": names})

        def fill(folder: Path) -> None:
            for kind, (_, content) in files.items():
                with open(folder / kind, "wb") as file:
                    shutil.copyfileobj(content, file)

        return self._new(fill, settings)

    def reload(self, content: BinaryIO) -> Work:
        """An analysis that was saved: data alone, each part by its known name."""
        try:
            with zipfile.ZipFile(content) as archive:
                check_archive("saved analysis", archive)
                parts = {name: archive.read(name) for name in _PORTABLE if name in archive.NameToInfo}
            settings = Settings.of(json.loads(parts[SETTINGS]))
        except (zipfile.BadZipFile, KeyError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                "saved analysis", "a file that is none", f"a file that “{DOWNLOADS[SAVED]}” made"
            ) from None

        def fill(folder: Path) -> None:
            for name, part in parts.items():
                (folder / name).write_bytes(part)

        return self._new(fill, settings)

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

    def _new(self, fill: Callable[[Path], None], settings: Settings) -> Work:
        with self._lock:
            if len(self._works) >= MOST_ANALYSES:
                raise InputError(
                    "upload",
                    f"{MOST_ANALYSES} analyses already",
                    "fewer",
                    "Save those that you need, and remove some.",
                )
            name = secrets.token_urlsafe(9)
            folder = self.folder / name
            folder.mkdir(mode=0o700)
            work = self._works[name] = Work(name, folder)
        fill(folder)
        work.start(settings, reading=True)
        return work
