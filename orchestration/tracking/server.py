"""The MLflow UI as Sesame serves it: with the view for model training, without the banner about usage data, and with
tables that fit into the page.

The page stores the selected view and the state of its banner in the browser, where a server cannot set them. So a line
of script in the page sets these values if they are not set yet.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final, NoReturn

from orchestration.tracking.runs import DATABASE, TrackingStore, query_store, tracking_store
from orchestration.tracking.store_timeout import redact
from preprocessing.errors import BadInput, ResourceError

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = "#/experiments?workflowType=machine_learning"
KEPT: Final = {  # values that the page stores in the browser, by the keys and versions of MLflow 3.17
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.telemetry.info.alert.dismissed_v1": "true",
    "mlflow.settings.telemetry.enabled_v1": "false",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",  # a chat panel, which otherwise opens at the first visit
    "_mlflow_model_registry_promo_modal_dismissed_v1": "true",  # a dialog at the first visit of the registry
}
SCRIPT: Final = "".join(f"localStorage.getItem('{key}')??localStorage.setItem('{key}','{KEPT[key]}');" for key in KEPT)
# MLflow 3.17: the table of models in a run is so wide that it pushes the tags and datasets of the run off the page, and
# tables in descriptions have no space between their columns, and none below, and a long command in a description pushes
# the status, tags and datasets of the run off the page
STYLE: Final = (
    "div:has(.ag-root-wrapper){min-width:0}"
    ".note-editor-preview-content :is(td,th){padding:0 16px 2px 0;text-align:left}"
    ".note-editor-preview-content table{margin-bottom:16px}"
    ".note-editor-preview-content pre{white-space:pre-wrap;overflow-wrap:anywhere}"
)
# headers of the page that are not valid for the changed page
CHANGED: Final = (b"content-length", b"cache-control", b"etag", b"last-modified")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]
"""A web application, as uvicorn calls it (ASGI)."""


def address(port: int) -> str:
    """The address of the UI with its default view."""
    return f"http://127.0.0.1:{port}/{PAGE}"


def ui(out: Path, port: int) -> NoReturn:
    """Replace this process by the server of the MLflow UI for `out`, on 127.0.0.1.

    Raises BadInput if runs go to a tracking server, which has its own UI, or if `out` has no runs. Raises ResourceError
    if the port is in use or the store does not answer. Creates nothing in `out`. Prints the address of the UI.
    """
    where = tracking_store(out)
    if where.uri.startswith(("http://", "https://")):
        raise BadInput(
            f"MLFLOW_TRACKING_URI is a server with its own UI at {redact(where.uri)}; open that UI, or unset the "
            "variable"
        )
    if not os.environ.get("MLFLOW_TRACKING_URI") and not (out / DATABASE).is_file():
        raise BadInput(
            f"{out}: has no runs ({DATABASE}); set the --output-dir of a run, or start a run with `sesame run`"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ResourceError(
                f"port {port} of 127.0.0.1 is not available ({error.strerror}); set another --port"
            ) from error
    query_store(where, lambda client: None)  # migrates the store before the server reads it
    from mlflow.server import constants

    environment = os.environ | {
        constants.BACKEND_STORE_URI_ENV_VAR: where.uri,
        constants.REGISTRY_STORE_URI_ENV_VAR: where.uri,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # not needed here, and takes a gigabyte of memory
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
    }
    if where.artifacts:
        environment[constants.ARTIFACT_ROOT_ENV_VAR] = where.artifacts
    command = [sys.executable, "-W", "ignore", "-P", "-m", "uvicorn", "--factory", f"{__name__}:app"]
    command += ["--app-dir", str(ROOT)]  # not the current directory, where a user's training.py would hide ours
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    print(
        f"{address(port)} shows the runs of {describe_source(where, out)} in half a minute; Ctrl-C ends it",
        file=sys.stderr,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)  # the server replaces this process and receives its signals


def describe_source(where: TrackingStore, out: Path) -> str:
    """The source of the runs in the UI: a directory, or the store that MLFLOW_TRACKING_URI names."""
    return redact(where.uri) if os.environ.get("MLFLOW_TRACKING_URI") else str(out)


def app() -> App:
    """MLflow's own application with our script and style in its page; uvicorn calls this function."""
    from mlflow.server.fastapi_app import app as theirs

    return with_script(theirs)


def with_script(theirs: App) -> App:
    """The application, with SCRIPT and STYLE at the head of its page `/`. This page is never cached."""

    async def ours(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/":
            await theirs(scope, receive, send)
            return
        fresh = [(key, value) for key, value in scope["headers"] if not key.startswith(b"if-")]
        page = _Page(send)
        await theirs({**scope, "headers": fresh}, receive, page.take)

    return ours


class _Page:
    """Collects a page until it is complete, then sends it with the script."""

    def __init__(self, send: Send) -> None:
        self._send, self._body = send, b""
        self._start: Message = {}

    async def take(self, message: Message) -> None:
        """Handle one part of the response."""
        if message["type"] == "http.response.start":
            self._start = dict(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = self._body.replace(b"<head>", f"<head><script>{SCRIPT}</script><style>{STYLE}</style>".encode(), 1)
        headers_to_keep = [(key, value) for key, value in self._start["headers"] if key.lower() not in CHANGED]
        headers = [*headers_to_keep, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
