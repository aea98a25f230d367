"""The server: a socket of this machine alone, a token, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import secrets
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from nestquad.errors import InputError
from nestquad.voi.serve._app import application
from nestquad.voi.serve._jobs import preload
from nestquad.voi.serve._workspace import Workspace

HOST = "127.0.0.1"


def serve(
    port: int = 0, *, open_browser: bool = True, say: Callable[[str], object] = print
) -> None:
    """Serve the page until interrupted.

    Parameters
    ----------
    port
        Port on 127.0.0.1; 0 for a free one.
    open_browser
        Open the page.
    say
        What prints the address.
    """
    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if os.name == "posix":  # elsewhere it would let others take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise InputError(
                "--port", f"{port} ({error})", "a free port", "Without --port one is chosen."
            ) from None
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
