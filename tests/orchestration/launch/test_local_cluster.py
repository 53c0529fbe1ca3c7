"""A local Ray cluster: access, listening addresses, shutdown, and a job with credentials."""

import json
import os
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestration.cli import main
from orchestration.launch import local_cluster
from preprocessing.errors import ResourceError
from tests.golden import text
from tests.orchestration.launch.test_environment import APIS, CANARY, command_lines, files_with

LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def fetch(url: str, token: str = "") -> tuple[int, str]:
    """Return the status and the text of an HTTP response."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_directory_with_access_for_others_gets_no_token(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("open", "link"):
        with pytest.raises(ResourceError, match="other users have access"):
            local_cluster.start_cluster(tmp_path / folder)
        assert not (tmp_path / folder / "token").exists()


def test_stopping_without_a_cluster_does_nothing(tmp_path: Path) -> None:
    local_cluster.stop_cluster(tmp_path)
    assert local_cluster.main(["sideways"]) == 2


def test_cluster_has_the_cores_of_the_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The raylets share the cores of the control group, not those of the machine."""
    started = list[list[str]]()

    def stop(folder: Path, name: str, words: list[str]) -> None:
        started.append(words)
        if name != "head":
            raise ResourceError("enough is known")

    monkeypatch.setattr(local_cluster.limits, "cores", lambda: local_cluster.limits.Cores(6.5))
    monkeypatch.setattr(local_cluster, "_start", stop)
    monkeypatch.setattr(local_cluster, "_wait_for_server", lambda *given: None)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # monkeypatch then restores the variable
    (folder := tmp_path / "cluster").mkdir(mode=0o700)
    with pytest.raises(ResourceError, match="enough is known"):
        local_cluster.start_cluster(folder)
    head, raylet = started
    assert ("--num-cpus=0" in head, "--num-cpus=3" in raylet) == (True, True)


@pytest.fixture
def folder(without_token: None) -> Iterator[Path]:
    """A directory with a short path, because Ray creates sockets below it. A cluster in it is stopped at the end."""
    place = Path("/tmp") / f"sh-{os.getpid()}"
    yield place
    local_cluster.stop_cluster(place)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_local_cluster_is_private_and_stops(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = local_cluster.start_cluster(folder, free_port(), free_port())
    token = folder / "token"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, token)] == [0o700, 0o600]
    processes = [
        each
        for pid in local_cluster._pids(folder)
        for each in (psutil.Process(pid), *psutil.Process(pid).children(True))
    ]
    assert len(local_cluster._pids(folder)) == 1 + local_cluster.RAYLETS
    sockets = [each for one in processes for each in one.net_connections("inet") if each.status == "LISTEN"]
    assert len(sockets) > 8
    assert {each.laddr.ip for each in sockets} <= LOOPBACK
    secret = token.read_text()
    assert [fetch(f"{url}/api/jobs/", given)[0] for given in ("", "wrong", secret)] == [401, 403, 200]
    with pytest.raises(ResourceError, match="is already running"):
        local_cluster.start_cluster(folder)

    monkeypatch.setenv("OF_THIS_USER", CANARY)
    text.write(tmp_path / "text.jsonl", num_documents=300)
    values = [
        "cluster.env.HF_TOKEN=${OF_THIS_USER}",
        "cluster.num_workers=2",
        "cluster.sample_prompts=[]",
        "optimizer.warmup_steps=2",
    ]
    recipe = [
        "gpt2",
        'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":6}]',
        "eval_tasks=[]",
        *values,
        "--scale",
        "tiny",
    ]
    place = ["--data", str(tmp_path / "text.jsonl"), "--output-dir", str(tmp_path / "out")]
    with command_lines(CANARY) as lines:
        assert main(["submit", *recipe, *place, "--address", url, "--json"]) == 0
        job = json.loads(capfd.readouterr().out)["job"]
        assert main(["logs", job, "--follow", "--address", url]) == 0
    followed = capfd.readouterr()
    assert main(["status", job, "--address", url, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["jobs"][0]["status"] == "SUCCEEDED"
    responses = {path: fetch(f"{url}/api/{path}", secret) for path in APIS}
    assert {status for status, _ in responses.values()} == {200}
    assert "SESAME_ENVIRONMENT_FILE" in responses["jobs/"][1]  # the file with the values
    assert [path for path, (_, answer) in responses.items() if CANARY in answer] == []
    assert (lines, files_with(folder, CANARY), files_with(tmp_path, CANARY)) == ([], [], [])
    assert CANARY not in followed.out + followed.err
    assert not list((tmp_path / "out" / ".environment").iterdir())
    assert list((tmp_path / "out").glob("runs/*/weights*"))

    local_cluster.stop_cluster(folder)
    assert not [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not token.exists()
