"""Jobs in separate processes, with progress, cancellation and a certain end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from nestquad.errors import NestquadError

Report: TypeAlias = Callable[[int, int, str], None]
"""Progress: done, total, message."""

# A server of processes that has imported numpy and pandas forks in milliseconds; not on Windows.
_FORKS = "forkserver" in multiprocessing.get_all_start_methods()
_CONTEXT: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
_NEEDED = ["nestquad.voi.serve._work", "pandas", "openpyxl", "python_calamine", "scipy.stats"]
_NEEDED += ["matplotlib.backends.backend_agg", "sklearn.ensemble"]


def preload() -> None:
    """Start the server of processes, which imports the packages of jobs once."""
    if _FORKS:
        from multiprocessing import forkserver

        _CONTEXT.set_forkserver_preload(_NEEDED)
        # Ctrl-C is for the page, which ends its jobs; they inherit that they do not hear it.
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, heard)


class Job:
    """A function that runs in a process: ``function(*args, report)``."""

    def __init__(self, what: str, function: Callable[..., None], *args: Any) -> None:
        self.what, self.done, self.total, self.message = what, 0, 0, ""
        self.error: str | None = None
        self._cancelled = False
        self._started = time.monotonic()
        self._connection, child = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_run, args=(child, function, args), daemon=True)
        self._process.start()
        child.close()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def cancel(self) -> None:
        """End the process at once; written files stay."""
        self._cancelled = True
        self._process.kill()
        self.wait()

    def state(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in ("what", "done", "total", "message")}
        return {**state, "pid": self.pid, "seconds": round(time.monotonic() - self._started, 1)}

    def _listen(self) -> None:
        finished = False
        with suppress(EOFError, OSError):
            while not finished:
                kind, *content = self._connection.recv()
                if kind == "progress":
                    self.done, self.total, self.message = content
                else:
                    finished, self.error = True, content[0]
        self._process.join()
        if self._cancelled:
            self.error = "Cancelled. What had been computed before is kept."
        elif not finished:
            self.error = (
                f"The computation was ended from outside (exit code {self._process.exitcode}), "
                "perhaps for want of memory. What had been computed before is kept: try again, "
                "or with fewer draws."
            )


def _run(connection: Any, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Body of the process: results go to files, progress and errors to the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory()
    error = None
    try:
        function(*args, lambda *progress: connection.send(("progress", *progress)))
    except NestquadError as problem:
        error = str(problem)
    except MemoryError:
        error = "The tables need more memory than this machine has. Keep fewer draws."
    except Exception as problem:  # shown to the user instead of a page that waits for ever
        error = f"The computation failed with {type(problem).__name__}: {problem}"
    connection.send(("end", error))


def _limit_memory() -> None:
    """Half of the memory of the machine, so that a bad file ends its process alone."""
    try:
        import resource
    except ImportError:  # Windows
        return
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = half if hard == resource.RLIM_INFINITY else min(half, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
