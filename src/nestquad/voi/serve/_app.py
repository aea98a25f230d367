"""The application: routes, and what every request has to pass."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nestquad.errors import InputError, NestquadError, optional_module
from nestquad.voi.serve._example import example
from nestquad.voi.serve._limits import MOST_BYTES, is_zip
from nestquad.voi.serve._pages import analysis_page, message_page, start_page
from nestquad.voi.serve._work import KINDS
from nestquad.voi.serve._workspace import Work, Workspace

_STATIC = Path(__file__).with_name("static")
_SERVED = {"style.css": "text/css", "page.js": "text/javascript"}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".zip": "application/zip",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
# Reading takes a second: a page that has the answer at once is better than one that waits for it.
_PATIENCE = 8.0
# Scripts and styles from here alone, and nothing from anywhere else.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# The report: no scripts, no origin, inside our page or by itself.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; sandbox allow-popups allow-modals"
)


def application(workspace: Workspace, token: str, port: int) -> Any:
    """The page as an ASGI application, for requests to 127.0.0.1 at this port with this token."""
    optional_module("starlette", "The page", "web")
    from starlette.applications import Starlette
    from starlette.routing import Route

    pages = _Routes(workspace)
    one = "/analyses/{name}"
    routes = [
        Route("/", pages.start),
        Route("/static/{name}", pages.static),
        Route("/analyses", pages.upload, methods=["POST"]),
        Route("/open", pages.reload, methods=["POST"]),
        Route("/example", pages.example, methods=["POST"]),
        Route(f"{one}/", pages.analysis),
        Route(f"{one}/state", pages.state),
        Route(f"{one}/data", pages.data),
        Route(f"{one}/settings", pages.settings, methods=["POST"]),
        Route(f"{one}/cancel", pages.cancel, methods=["POST"]),
        Route(f"{one}/remove", pages.remove, methods=["POST"]),
        Route(f"{one}/files/{{file}}", pages.file),
    ]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        workspace.close()

    return _Gate(Starlette(routes=routes, lifespan=lifespan), token, port)


class _Gate:
    """Checks of every request: host, token, origin and size; and headers of every answer.

    Other pages of the browser reach this port, too. They do not know the token, which is the first
    part of every path; a name that was made to point here is not our host; and what they post says
    where it comes from.
    """

    def __init__(self, app: Any, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        from starlette.responses import HTMLResponse

        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        answer = self._app
        if refused is not None:
            status, words = refused
            answer = HTMLResponse(message_page(words), status)
        else:
            path = scope["path"].removeprefix("/").partition("/")[2]
            scope = {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                headers = [
                    (b"content-security-policy", _POLICY.encode()),
                    (b"referrer-policy", b"no-referrer"),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cross-origin-opener-policy", b"same-origin"),
                    (b"cross-origin-resource-policy", b"same-origin"),
                    (b"cache-control", b"no-store"),
                ]
                message["headers"] = [
                    *message["headers"],
                    *(header for header in headers if header[0] not in own),
                ]
            await send(message)

        await answer(scope, receive, with_headers)

    def _refusal(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] != "http" or headers.get("host") not in self._hosts:
            return 421, "This address is not served here."
        given = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode(), self._token):
            return 403, "Open the address that “nestquad voi serve” printed: it has a token."
        if scope["path"].count("/") < 2:
            return 404, "There is no such page."
        if scope["method"] in ("GET", "HEAD"):
            return None
        own = {f"http://{host}" for host in self._hosts}
        if headers.get("origin", next(iter(own))) not in own:
            return 403, "Only pages from here may send anything."
        length = headers.get("content-length", "")
        if not length.isdigit() or "transfer-encoding" in headers:
            return 411, "The size of what is sent has to be known."
        if int(length) > MOST_BYTES:
            return 413, (
                f"{int(length) / 1e6:,.0f} MB are more than the {MOST_BYTES / 1e6:,.0f} MB that can "
                "be sent. 100,000 draws are plenty: keep the first rows of each table."
            )
        return None


class _Routes:
    """What each address answers."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def start(self, request: Any) -> Any:
        return _page(start_page(self.workspace))

    def static(self, request: Any) -> Any:
        from starlette.responses import FileResponse

        name = request.path_params["name"]
        if name not in _SERVED:
            return _missing()
        return FileResponse(_STATIC / name, media_type=_SERVED[name])

    async def upload(self, request: Any) -> Any:
        from starlette.concurrency import run_in_threadpool

        async with request.form(max_files=8, max_fields=20) as form:
            files, given = {}, {}
            for name, value in form.items():
                if isinstance(value, str):
                    given[name] = value
                elif value.size and name in KINDS:
                    files[name] = (value.filename or name, value.file)
            return await run_in_threadpool(self._upload, files, given)

    def _upload(self, files: dict[str, Any], given: dict[str, str]) -> Any:
        if list(files) == ["parameters"] and is_zip(files["parameters"][1]):
            files = {"workbook": files["parameters"]}

        def begin() -> Work:
            missing = [kind for kind in KINDS[:3] if kind not in files]
            if ("workbook" in files) == (len(missing) < 3) or ("workbook" not in files and missing):
                raise InputError(
                    "upload",
                    " and ".join(files) or "no file",
                    "parameters, costs and effects, or one workbook with all three",
                )
            return self.workspace.upload(files, given)

        return self._begin(begin, given)

    async def reload(self, request: Any) -> Any:
        from starlette.concurrency import run_in_threadpool

        async with request.form(max_files=1, max_fields=1) as form:
            saved = form.get("saved")
            if saved is None or isinstance(saved, str):
                return _page(message_page("No file was sent."), 422)
            return await run_in_threadpool(
                self._begin, lambda: self.workspace.reload(saved.file), {}
            )

    def example(self, request: Any) -> Any:
        return self._begin(lambda: self.workspace.upload(*example()), {})

    def _begin(self, begin: Callable[[], Work], given: dict[str, str]) -> Any:
        """Start an analysis, wait a little for the tables, and go to its page."""
        from starlette.responses import RedirectResponse

        try:
            work = begin()
        except NestquadError as error:
            return _page(start_page(self.workspace, str(error), given), 422)
        if work.job is not None:
            work.job.wait(_PATIENCE)
        return RedirectResponse(f"analyses/{work.name}/", 303)

    def analysis(self, request: Any) -> Any:
        work = self._work(request)
        if work is None:
            return _missing()
        work.advance()
        return _page(analysis_page(work))

    def state(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        work = self._work(request)
        if work is None:
            return _missing()
        work.advance()
        return JSONResponse(work.state())

    def data(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        work = self._work(request)
        if work is None:
            return _missing()
        return JSONResponse({"seen": work.seen(), "results": work.results()})

    async def settings(self, request: Any) -> Any:
        from starlette.concurrency import run_in_threadpool

        try:
            given = await request.json()
        except ValueError:
            given = None
        return await run_in_threadpool(self._settings, request, given)

    def _settings(self, request: Any, given: Any) -> Any:
        from starlette.responses import JSONResponse

        work = self._work(request)
        if work is None:
            return _missing()
        try:
            if not isinstance(given, dict):
                raise InputError("settings", "something else", "a JSON object")
            settings = work.settings.changed(given)
            settings.audience()
            settings.the_study()
            # Another match or another range concerns the tables themselves.
            reading = settings.match != work.settings.match or settings.curve != work.settings.curve
            work.start(settings, reading=reading)
        except NestquadError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(work.state())

    def cancel(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        work = self._work(request)
        if work is None:
            return _missing()
        work.cancel()
        return JSONResponse(work.state())

    def remove(self, request: Any) -> Any:
        from starlette.responses import RedirectResponse

        work = self._work(request)
        if work is None:
            return _missing()
        self.workspace.remove(work)
        return RedirectResponse("../../", 303)

    def file(self, request: Any) -> Any:
        from starlette.responses import FileResponse

        work = self._work(request)
        path = None if work is None else work.download(request.path_params["file"])
        if path is None:
            return _missing()
        shown = path.suffix == ".html" and "download" not in request.query_params
        return FileResponse(
            path,
            media_type=_TYPES[path.suffix],
            filename=None if shown else path.name,
            headers={"content-security-policy": _REPORT_POLICY} if path.suffix == ".html" else None,
        )

    def _work(self, request: Any) -> Work | None:
        return self.workspace.get(request.path_params["name"])


def _page(html: str, status: int = 200) -> Any:
    from starlette.responses import HTMLResponse

    return HTMLResponse(html, status)


def _missing() -> Any:
    return _page(message_page("There is no such page. It may have been removed."), 404)
