"""Test servers for MLflow: one that only answers health checks, and a proxy that delays the answers of a real
server."""

import http.client
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from orchestration.tracking.runs import client_of, tracking_store

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


class Health(BaseHTTPRequestHandler):
    """A server that answers every request with 401, because it requires a password."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


class Proxy(ThreadingHTTPServer):
    """A proxy that forwards requests to another server and delays each answer; `asked` counts requests by path.

    While `status` is set, it answers everything except /health with `status` and `body`.
    """

    daemon_threads = True

    def __init__(self, target: str, delay_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.target, self.delay_s, self.status = urlsplit(target), delay_s, 0
        self.body = b"no"
        self.asked = Counter[str]()
        self.uri = f"http://127.0.0.1:{self.server_port}"

    @property
    def requests(self) -> int:
        """Number of requests so far, without health checks."""
        return sum(count for path, count in self.asked.items() if path != "GET /health")


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _forward(self) -> None:
        server, path = self.server, urlsplit(self.path).path
        server.asked[f"{self.command} {path}"] += 1
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        time.sleep(server.delay_s)
        try:
            if server.status and path != "/health":
                self._answer(server.status, [], server.body)
                return
            target = http.client.HTTPConnection(str(server.target.hostname), server.target.port)
            kept = {key: value for key, value in self.headers.items() if key.lower() not in HOP_BY_HOP}
            target.request(self.command, self.path, body, kept)
            found = target.getresponse()
            headers = [(key, value) for key, value in found.getheaders() if key.lower() not in HOP_BY_HOP]
            self._answer(found.status, headers, found.read())
            target.close()
        except OSError:  # the client or the server has gone
            self.close_connection = True

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _forward

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def proxy(target: str, delay_s: float = 0.0) -> Iterator[Proxy]:
    """Run a proxy in front of the server at `target`."""
    with Proxy(target, delay_s) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Run MLflow's own server in threads of this process, with store and artifacts in `folder`; yield its address."""
    with warnings.catch_warnings():  # imported modules emit warnings
        warnings.simplefilter("ignore")
        from mlflow.server import app, constants, fastapi_app, handlers  # noqa: F401
    from mlflow.tracking._model_registry import utils as registry_utils
    from mlflow.tracking._tracking_service import utils
    from werkzeug.serving import make_server

    settings = {
        constants.BACKEND_STORE_URI_ENV_VAR: tracking_store(folder).uri,
        constants.REGISTRY_STORE_URI_ENV_VAR: tracking_store(folder).uri,
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: (folder / "artifacts").as_uri(),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    client_of(tracking_store(folder).uri)  # creates the store
    stores = ("_tracking_store", "_model_registry_store", "_artifact_repo")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        for name in stores:
            patch.setattr(handlers, name, None, raising=False)
        # The server must use the settings above. It sets these addresses for the process; monkeypatch restores them.
        patch.setattr(utils, "_tracking_uri", None)
        patch.setattr(registry_utils, "_registry_uri", None)
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
            patch.setenv(name, "")
            patch.delenv(name)
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
