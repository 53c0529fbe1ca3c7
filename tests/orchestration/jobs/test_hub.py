"""`sesame export --push-to-hub`: the requests sent to a test server; without the flag none is sent."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestration.jobs import export
from preprocessing.errors import BadInput, ResourceError, SesameError
from tests.orchestration.jobs.test_pretrain import SPANBERT, write_finished_run

TOKEN = "hf_of_a_test"


class Hub(ThreadingHTTPServer):
    """A model hub with the endpoints that an upload needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.asked: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.large: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        hub, path = self.server, self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        hub.asked.append(f"{self.command} {path}")
        if self.headers.get("authorization") != f"Bearer {TOKEN}" and not path.startswith("/put/"):
            return self._send(401, {"error": "Invalid username or password."})
        if path == "/api/whoami-v2":
            return self._send(200, {"name": "ernie", "type": "user"})
        if hub.refuses and path.startswith("/api/models/"):
            return self._send(404, {"error": "Repository not found"})
        if path == "/api/repos/create":
            hub.created.append(json.loads(body))
            return self._send(403 if hub.refuses else 200, {"url": f"{hub.url}/ernie/net", "error": "no more room"})
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            files = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
            return self._send(200, {"files": files})
        if path.endswith("/lfs/objects/batch"):
            objects = [
                one | {"actions": {"upload": {"href": f"{hub.url}/put/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self._send(200, {"transfer": "basic", "objects": objects})
        if path.startswith("/put/"):
            hub.large[path.removeprefix("/put/")] = body
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                if line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.large[value["oid"]]
            return self._send(200, {"commitUrl": f"{hub.url}/ernie/net/commit/1", "commitOid": "1", "success": True})
        return self._send(200, {"errors": [], "warnings": []})

    do_GET = do_POST = do_PUT = _answer

    def _send(self, code: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def server() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    yield hub
    hub.shutdown()
    thread.join()
    hub.server_close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_finished_run(SPANBERT, tmp_path_factory.mktemp("runs") / "bert_base_tiny-12345678")


@pytest.fixture
def settings(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set the variables of a user who uploads. huggingface_hub read its own settings at import, so they are patched
    too."""
    from huggingface_hub import constants

    found = {"HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return found


@pytest.mark.slow
def test_push_uploads_the_exported_directory_unchanged(
    server: Hub, settings: dict[str, str], run: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestration.cli",
            "export",
            str(run),
            str(tmp_path / "hf"),
            "--push-to-hub",
            "ernie/net",
        ],
        env=os.environ | settings | {"HF_HUB_DISABLE_XET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, f"{server.url}/ernie/net/commit/1" in done.stdout.replace("\n", "")) == (0, True)
    assert server.files == {path.name: path.read_bytes() for path in (tmp_path / "hf").iterdir()}
    assert server.files["README.md"].startswith(b'---\nlicense: "unknown"\n')
    (created,) = server.created
    assert "private" in json.dumps(created)
    assert not [path for path in server.asked if "telemetry" in path or "harness" in path]


def test_export_without_the_flag_sends_no_request(
    server: Hub, settings: dict[str, str], run: Path, tmp_path: Path
) -> None:
    export(run, tmp_path / "hf")
    assert server.asked == []


@pytest.mark.parametrize(
    ("environment", "repo", "error", "message"),
    [
        (
            {"HF_HUB_OFFLINE": "1"},
            "ernie/net",
            BadInput,
            r"HF_HUB_OFFLINE is set \(make sets it\), which forbids uploads",
        ),
        (
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "ernie/net",
            ResourceError,
            "http://127.0.0.1:9 cannot be reached, or refuses the token",
        ),
        ({"HF_TOKEN": "another"}, "ernie/net", ResourceError, "log in with `hf auth login` or HF_TOKEN"),
        ({}, "no name/of one/", BadInput, "invalid repository name"),
    ],
)
def test_unusable_hub_is_reported_before_anything_is_written(
    server: Hub,
    settings: dict[str, str],
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    repo: str,
    error: type[SesameError],
    message: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message) as refused:
        export(run, tmp_path / "hf", repo=repo)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("*hf*"))
    assert not server.files


def test_failed_upload_keeps_the_directory_and_names_the_upload_command(
    server: Hub, settings: dict[str, str], run: Path, tmp_path: Path
) -> None:
    server.refuses = True
    with pytest.raises(ResourceError) as refused:
        export(run, tmp_path / "hf", repo="ernie/net")
    assert f"upload it with `hf upload ernie/net {tmp_path / 'hf'}`" in str(refused.value)
    assert (tmp_path / "hf" / "config.json").is_file()
