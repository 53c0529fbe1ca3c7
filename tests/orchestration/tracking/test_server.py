"""The page of the MLflow UI, with the line of script that is put into it."""

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


async def theirs(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """An application that answers everything with its page, in two parts, or says that it has not changed."""
    if any(key == b"if-none-match" for key, _ in scope["headers"]):
        await send({"type": "http.response.start", "status": 304, "headers": []})
        await send({"type": "http.response.body"})
        return
    headers = [(b"content-type", b"text/html"), (b"content-length", str(len(HTML)).encode()), (b"etag", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": HTML[:20], "more_body": True})
    await send({"type": "http.response.body", "body": HTML[20:]})


def answer(path: str, *headers: tuple[bytes, bytes]) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of what is sent."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "path": path, "headers": list(headers)}
    asyncio.run(server.with_script(theirs)(scope, receive, send))
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


def test_the_page_begins_with_our_script() -> None:
    headers, body = answer("/")
    assert body == HTML.replace(b"<head>", f"<head><script>{server.SCRIPT}</script>".encode())
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"etag" not in headers


def test_a_page_that_the_browser_has_kept_is_sent_anew() -> None:
    assert answer("/", (b"if-none-match", b"1"))[1].startswith(b"<!doctype html><html><head><script>")


def test_everything_else_is_left_alone() -> None:
    assert answer("/static-files/main.js")[1] == HTML


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mlflow.workflowType_v1", '"machine_learning"'),
        ("mlflow.telemetry.info.alert.dismissed_v1", "true"),
        ("mlflow.settings.telemetry.enabled_v1", "false"),
    ],
)
def test_the_script_sets_what_nobody_has_set(key: str, value: str) -> None:
    assert f"localStorage.getItem('{key}')??localStorage.setItem('{key}','{value}');" in server.SCRIPT


def test_the_address_is_that_of_the_view_of_model_training() -> None:
    assert server.address(5000).endswith(":5000/#/experiments?workflowType=machine_learning")


def test_runs_that_go_to_a_server_are_looked_at_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(
        BadInput, match=r"with its own UI at http://127\.0\.0\.1:9; open that UI, or unset the variable"
    ):
        server.ui(tmp_path, 0)


@pytest.mark.parametrize("name", ["nothing", "a b"])
def test_a_folder_without_runs_is_refused_and_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(BadInput, match=rf"{name}: has no runs \(mlflow\.db\); set the --output-dir of a run"):
        server.ui(tmp_path / name, 0)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == ""


def test_where_the_ui_is_is_said_when_it_will_be_there(
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


def test_a_store_that_is_damaged_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(b"this is no store\n" * 100)
    with pytest.raises(ResourceError, match=r"does not answer \(.+\); check MLFLOW_TRACKING_URI$"):
        server.ui(tmp_path, 0)
