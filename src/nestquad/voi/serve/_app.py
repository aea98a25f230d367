"""Application: routes, pages, checks of every request, and a server for this machine alone."""

from __future__ import annotations

import hmac
import io
import os
import secrets
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn
from jinja2 import Environment, FileSystemLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nestquad.errors import InputError, NestquadError
from nestquad.voi.serve._jobs import preload
from nestquad.voi.serve._workspace import SAVED, Work, Workspace
from nestquad.voi.table._limits import MOST_BYTES

HOST = "127.0.0.1"
STATIC = Path(__file__).with_name("static")
# Problems on one page; a person corrects the first ones and uploads again.
_MOST_PROBLEMS = 100
# Reading takes a second: a page that has the answer at once is better than one that waits for it.
_PATIENCE = 8.0
_HEADERS = {
    # Scripts and styles from here alone, and from no other host.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# The report: no scripts, no origin, inside our page or alone.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox allow-downloads allow-popups allow-modals"
)


def application(workspace: Workspace, token: str, port: int) -> ASGIApp:
    """The page as an ASGI application, for requests to 127.0.0.1 at this port with this token."""
    pages, one = _Routes(workspace), "/analyses/{name}"
    routes = [
        Route("/", pages.start),
        Route("/static/{file}", pages.static),
        Route("/analyses", pages.upload, methods=["POST"]),
        Route("/example", pages.example, methods=["POST"]),
        Route(f"{one}/", pages.analysis),
        Route(f"{one}/state", pages.state),
        Route(f"{one}/data", pages.data),
        Route(f"{one}/settings", pages.settings, methods=["POST"]),
        Route(f"{one}/parts", pages.parts, methods=["POST"]),
        Route(f"{one}/cancel", pages.cancel, methods=["POST"]),
        Route(f"{one}/remove", pages.remove, methods=["POST"]),
        Route(f"{one}/files/{{file}}", pages.file),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        workspace.close()

    return _Gate(
        Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _message}),
        token,
        port,
    )


class _Gate:
    """Checks of every request: host, token, origin and size; and headers of every answer.

    Other pages of the browser reach this port, too. They do not know the token, which is the first
    part of every path; a name that was made to point here is not our host; and their posts say
    where they come from.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in _HEADERS.items():
                    MutableHeaders(scope=message).setdefault(name, value)
            await send(message)

        given, _, path = scope["path"].removeprefix("/").partition("/")
        refused = self._refusal(scope, given)
        if refused is None:
            scope = {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}
        answer = (
            self._app if refused is None else HTMLResponse(message_page(refused[1]), refused[0])
        )
        await answer(scope, receive, with_headers)

    def _refusal(self, scope: Scope, token: str) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if scope["type"] != "http" or headers.get("host") not in self._hosts:
            return 421, "This address is not served here."
        if not hmac.compare_digest(token.encode(), self._token):
            return 403, "Open the address that “nestquad voi serve” printed: it has a token."
        if scope["method"] in ("GET", "HEAD"):
            return None
        if headers.get("origin", f"http://{headers['host']}") != f"http://{headers['host']}":
            return 403, "Only pages from here may send anything."
        length = headers.get("content-length", "")
        if not length.isdigit() or "transfer-encoding" in headers:
            return 411, "The size of what is sent has to be known."
        if int(length) > MOST_BYTES:
            return 413, (
                f"{int(length) / 1e6:,.0f} MB are more than the {MOST_BYTES / 1e6:,.0f} MB that "
                "can be sent. 100,000 draws are plenty: keep the first rows of each table."
            )
        return None


class _Routes:
    """Handlers of all addresses."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def start(self, request: Request) -> Response:
        return HTMLResponse(start_page(self.workspace))

    def static(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in ("style.css", "page.js"):
            raise HTTPException(404)
        return FileResponse(STATIC / name)

    async def upload(self, request: Request) -> Response:
        async with request.form(max_files=8, max_fields=20) as form:
            files, given = _sent(form)
            return await run_in_threadpool(
                self._begin, lambda: self.workspace.upload(files, given), given
            )

    async def parts(self, request: Request) -> Response:
        work = self._work(request)
        async with request.form(max_files=2, max_fields=20) as form:
            files, given = _sent(form)
            return await run_in_threadpool(
                self._answered, work, lambda: work.add_part(given, files)
            )

    def example(self, request: Request) -> Response:
        return self._begin(lambda: self.workspace.upload(*example()), {})

    def _begin(self, begin: Callable[[], Work], given: dict[str, str]) -> Response:
        """Start an analysis, wait a little for the tables, and go to its page."""
        try:
            work = begin()
        except NestquadError as error:
            return HTMLResponse(start_page(self.workspace, str(error), given), 422)
        work.wait(_PATIENCE)
        return RedirectResponse(f"analyses/{work.name}/", 303)

    def analysis(self, request: Request) -> Response:
        work = self._work(request)
        work.advance()
        return HTMLResponse(analysis_page(work))

    def state(self, request: Request) -> Response:
        work = self._work(request)
        work.advance()
        return JSONResponse(work.state())

    def data(self, request: Request) -> Response:
        work = self._work(request)
        return JSONResponse({"seen": work.seen(), "results": work.results()})

    async def settings(self, request: Request) -> Response:
        try:
            given = await request.json()
        except (ValueError, RecursionError):  # no JSON, or brackets without end
            given = None
        if not isinstance(given, dict):
            return JSONResponse({"error": "settings: expected a JSON object"}, 422)
        work = self._work(request)
        return await run_in_threadpool(self._answered, work, lambda: work.change(given))

    def _answered(self, work: Work, change: Callable[[], None]) -> Response:
        """State of an analysis after a change, or the reason why it is refused."""
        try:
            change()
        except NestquadError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(work.state())

    def cancel(self, request: Request) -> Response:
        work = self._work(request)
        work.cancel()
        return JSONResponse(work.state())

    def remove(self, request: Request) -> Response:
        self.workspace.remove(self._work(request))
        return RedirectResponse("../../", 303)

    def file(self, request: Request) -> Response:
        name, wtp = request.path_params["file"], request.query_params.get("wtp")
        try:
            path = self._work(request).download(name, wtp)
        except NestquadError as error:
            return HTMLResponse(message_page(str(error)), 422)
        if path is None:
            raise HTTPException(404)
        shown = path.suffix == ".html" and "download" not in request.query_params
        own = {"content-security-policy": _REPORT_POLICY} if path.suffix == ".html" else None
        stem, suffix = name.split(".", 1)
        named = f"{stem}-{wtp}.{suffix}" if wtp and path.name != SAVED else name
        return FileResponse(path, filename=None if shown else named, headers=own)

    def _work(self, request: Request) -> Work:
        work = self.workspace.get(request.path_params["name"])
        if work is None:
            raise HTTPException(404)
        return work


def _sent(form: Any) -> tuple[dict[str, tuple[str, Any]], dict[str, str]]:
    """Files by field, each a name and its content, and other fields of a form."""
    files = {k: v for k, v in form.items() if isinstance(v, UploadFile) and v.filename}
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    return {name: (file.filename or name, file.file) for name, file in files.items()}, fields


def _message(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = "There is no such page. It may have been removed." if status == 404 else str(error)
    return HTMLResponse(message_page(words), status)


def start_page(
    workspace: Workspace, problem: str | None = None, given: Mapping[str, str] | None = None
) -> str:
    """Upload, example, saved analyses; a problem of the upload before."""
    problems = [problem] if problem else []
    return _rendered("start", root="./", works=list(workspace), problems=problems, given=given)


def analysis_page(work: Work) -> str:
    """Page of an analysis: the reading of its tables, and the parts that the script fills."""
    seen = work.seen()
    problems = [] if seen is None else [one["message"] for one in seen["problems"]]
    if seen is None and work.job is not None and not work.job.running and work.job.error:
        problems = [work.job.error]
    left = len(problems) - _MOST_PROBLEMS
    bad = {} if seen is None else {(p["table"], p["column"]) for p in seen["problems"]}
    return _rendered(
        "analysis",
        root="../../",
        work=work,
        seen=seen,
        bad=bad,
        given=vars(work.settings),
        problems=[*problems[:_MOST_PROBLEMS], *([f"and {left:,} more"] if left > 0 else [])],
    )


def message_page(words: str) -> str:
    """A sentence without style or script: it also answers strangers."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>nestquad</title>'
        f"<body><p>{escape(words)}</p></body></html>\n"
    )


def _rendered(name: str, **values: Any) -> str:
    page: str = _templates().get_template(f"{name}.html").render(most=MOST_BYTES, **values)
    return page


@cache
def _templates() -> Environment:
    found = Environment(loader=FileSystemLoader(STATIC), autoescape=True, trim_blocks=True)
    found.filters["short"] = lambda x: (
        "–" if x is None else format(x, ",.0f" if abs(x) >= 1e4 else ",.5g")
    )
    found.filters["plain"] = lambda x: f"{x:.12g}" if isinstance(x, float) else x
    return found


def example() -> tuple[dict[str, tuple[str, BinaryIO]], dict[str, Any]]:
    """File and settings to try the page on, as an upload has them: a new drug and usual care."""
    file = io.BytesIO((STATIC / "example.csv").read_bytes())
    settings = {"wtp": 20_000, "title": "Example: a new drug against usual care"}
    return {"workbook": ("example.csv", file)}, settings


def serve(
    port: int = 0, *, open_browser: bool = True, say: Callable[[str], object] = print
) -> None:
    """Serve the page on 127.0.0.1 until interrupted; port 0 is a free one."""
    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if os.name == "posix":  # elsewhere it would let others take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            advice = "Without --port one is chosen."
            raise InputError("--port", f"{port} ({error})", "a free port", advice) from None
        listener.listen()
        port = int(listener.getsockname()[1])
        workspace = Workspace()
        try:
            preload()
            address = f"http://{HOST}:{port}/{token}/"
            say(f"nestquad voi: {address}\nOnly this machine can open it. Ctrl-C ends it.")
            if open_browser:
                # A file that only this user can read: command lines can be seen by others.
                page = workspace.folder / "open.html"
                page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
                webbrowser.open(page.as_uri())
            config = uvicorn.Config(
                application(workspace, token, port),
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
            with suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            workspace.close()
