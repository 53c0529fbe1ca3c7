"""The page of the MLflow UI, with Sesame's script inserted."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration.tracking import server
from orchestration.tracking.runs import query_store, tracking_store
from preprocessing.errors import BadInput, ResourceError

HTML = b"<!doctype html><html><head><title>MLflow</title></head></html>"


async def fake_ui(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """An application that answers every request with its page in two parts, or with 304 if the browser has a copy."""
    if any(key == b"if-none-match" for key, _ in scope["headers"]):
        await send({"type": "http.response.start", "status": 304, "headers": []})
        await send({"type": "http.response.body"})
        return
    headers = [(b"content-type", b"text/html"), (b"content-length", str(len(HTML)).encode()), (b"etag", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": HTML[:20], "more_body": True})
    await send({"type": "http.response.body", "body": HTML[20:]})


def get_response(path: str, *headers: tuple[bytes, bytes]) -> tuple[dict[bytes, bytes], bytes]:
    """Return the headers and the body of the response."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "path": path, "headers": list(headers)}
    asyncio.run(server.with_script(fake_ui)(scope, receive, send))
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


def test_page_starts_with_the_script() -> None:
    headers, body = get_response("/")
    head = f"<head><script>{server.SCRIPT}</script><style>{server.STYLE}</style>"
    assert body == HTML.replace(b"<head>", head.encode())
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"etag" not in headers


def test_the_script_sets_values_that_the_page_of_mlflow_reads() -> None:
    """A dialog on the registry once covered the page at the first visit."""
    import mlflow.server

    scripts = Path(mlflow.server.__file__).parent / "js" / "build" / "static" / "js"
    names = {key.rpartition("_v")[0].encode() for key in server.KEPT}
    for file in scripts.glob("*.js"):
        content = file.read_bytes()
        names -= {name for name in names if name in content}
    assert names == set()


def test_cached_page_is_sent_again() -> None:
    assert get_response("/", (b"if-none-match", b"1"))[1].startswith(b"<!doctype html><html><head><script>")


def test_other_files_are_unchanged() -> None:
    assert get_response("/static-files/main.js")[1] == HTML


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mlflow.workflowType_v1", '"machine_learning"'),
        ("mlflow.telemetry.info.alert.dismissed_v1", "true"),
        ("mlflow.settings.telemetry.enabled_v1", "false"),
    ],
)
def test_script_sets_only_unset_values(key: str, value: str) -> None:
    assert f"localStorage.getItem('{key}')??localStorage.setItem('{key}','{value}');" in server.SCRIPT


def test_address_opens_the_model_training_view() -> None:
    assert server.address(5000).endswith(":5000/#/experiments?workflowType=machine_learning")


def test_ui_of_a_tracking_server_is_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(
        BadInput, match=r"with its own UI at http://127\.0\.0\.1:9; open that UI, or unset the variable"
    ):
        server.ui(tmp_path, 0)


@pytest.mark.parametrize("name", ["nothing", "a b"])
def test_directory_without_runs_is_refused_and_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(BadInput, match=rf"{name}: has no runs \(mlflow\.db\); set the --output-dir of a run"):
        server.ui(tmp_path / name, 0)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == ""


def test_address_of_the_ui_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(server.os, "execve", lambda path, command, environment: started.extend(command))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    query_store(tracking_store(tmp_path), lambda client: None)
    server.ui(tmp_path, 0)
    assert started[:3] == [sys.executable, "-W", "ignore"]
    assert (
        capsys.readouterr().err
        == f"{server.address(0)} shows the runs of {tmp_path} in half a minute; Ctrl-C ends it\n"
    )
    other = f"sqlite:///{tmp_path / 'other.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    server.ui(tmp_path, 0)
    assert f"shows the runs of {other} in" in capsys.readouterr().err


def test_damaged_store_gives_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(b"this is no store\n" * 100)
    with pytest.raises(ResourceError, match=r"does not answer \(.+\); check MLFLOW_TRACKING_URI$"):
        server.ui(tmp_path, 0)
