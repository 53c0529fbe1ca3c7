"""The values of `env` reach the workers, and appear in no file, Ray API response, log or command line."""

import json
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestration.cli import main
from orchestration.launch import placement, ray_session, session
from orchestration.launch.worker import Worker
from tests.golden import text
from training.specs import EngineSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
CANARY = "canary-93c1f0"
VALUES = ["env.HF_TOKEN=${OF_THIS_USER}", "env.GLOO_SOCKET_IFNAME=lo"]
APIS = ("jobs/", "v0/actors?detail=1", "v0/tasks?detail=1", "v0/workers?detail=1", "v0/runtime_envs?detail=1")


def files_with(folder: Path, words: str) -> list[str]:
    """Return the files below a directory, including hidden ones, that contain this text; links are not followed."""
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place) / name for name in names):
            if path.is_file() and not path.is_symlink() and words.encode() in path.read_bytes():
                found.append(str(path))
    return found


@contextmanager
def command_lines(words: str) -> Iterator[list[str]]:
    """Collect the command lines that contain this text; processes are checked five times per second in the block."""
    found, ended = list[str](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for process in psutil.process_iter():
                try:
                    line = " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if words in line:
                    found.append(line)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def worker_state(worker: Worker) -> dict[str, Any]:
    """Return HF_TOKEN and whether torch is imported in a worker's process."""
    return {"HF_TOKEN": os.environ.get("HF_TOKEN"), "torch": "torch" in sys.modules}


def test_worker_gets_variables_before_it_imports_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("HF_TOKEN", raising=False)
    with (
        ray_session(cpus=1),
        placement.place_workers(
            placement.WorkerRequirements(num_workers=1, cpus=1, gpus=0), EngineSettings(), {"HF_TOKEN": CANARY}
        ) as group,
    ):
        (worker,) = group.start(Worker)
        assert ray.get(worker.__ray_call__.remote(worker_state))["HF_TOKEN"] is None
        ray.get(worker.start.remote(str(tmp_path), group.env))
        assert ray.get(worker.__ray_call__.remote(worker_state)) == {"HF_TOKEN": CANARY, "torch": False}
        assert CANARY not in repr(group)


def test_credentials_appear_in_no_file_log_or_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A whole run: a corpus with two Beam processes, two Ray workers, fine-tuning, MLflow, and requests to Ray's
    dashboard."""
    monkeypatch.setenv("OF_THIS_USER", CANARY)
    text.write(tmp_path / "text.jsonl", num_documents=1_500)
    of_ray, asked, end = list[str](), dict[str, str](), session._end

    def look_and_end(temporary: Path) -> None:
        import ray

        logs = temporary / "session_latest" / "logs"
        assert list(logs.glob("worker-*")), "Ray has no logs"
        of_ray.extend(files_with(temporary.parent, CANARY))
        url, token = ray._private.worker._global_node.webui_url, (temporary.parent / "token").read_text()
        for path in APIS:
            request = urllib.request.Request(f"http://{url}/api/{path}", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                asked[path] = answer.read().decode()
        end(temporary)

    monkeypatch.setattr(session, "_end", look_and_end)
    recipe = [
        "bert_base",
        'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":6}]',
        "optimizer.warmup_steps=2",
        "eval_tasks=[next_sentence]",
    ]
    values = [*(f"cluster.{one}" for one in VALUES), "cluster.num_workers=2", "--scale", "tiny", "--ray-dashboard"]
    place = [
        "--data",
        str(tmp_path / "text.jsonl"),
        "--holdout-ratio",
        "0.1",
        "--output-dir",
        str(tmp_path / "out"),
        "--num-seeds",
        "1",
    ]
    with command_lines(CANARY) as lines:
        code = main(["run", *recipe, *values, *place, "--", "--direct_num_workers=2"])
    actual = capfd.readouterr()
    assert code == 0, actual.err
    assert "Ray dashboard: " in actual.err
    assert len(asked) == len(APIS)
    assert [path for path, answer in asked.items() if CANARY in answer] == []
    assert "Worker" in asked["v0/actors?detail=1"]
    assert (of_ray, lines) == ([], [])
    assert files_with(tmp_path, CANARY) == []
    assert CANARY not in actual.out + actual.err
    assert files_with(tmp_path / "out", "OF_THIS_USER")  # the variable name is stored in MLflow with the cluster file
    assert json.dumps(CANARY) not in json.dumps(dict(os.environ)).replace(f'"OF_THIS_USER": "{CANARY}"', "")


def test_network_interface_of_the_cluster_file_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Gloo refuses a missing interface, so this error shows that the variable was set before Gloo's first
    connection."""
    text.write(tmp_path / "text.jsonl", num_documents=200)
    place = ["--data", str(tmp_path / "text.jsonl"), "--output-dir", str(tmp_path / "out"), "--scale", "tiny"]
    recipe = [
        "gpt2",
        'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":3}]',
        "optimizer.warmup_steps=2",
        "eval_tasks=[]",
        "cluster.num_workers=2",
    ]
    with pytest.raises(Exception, match="nowhere0"):
        main(["run", *recipe, "cluster.env.GLOO_SOCKET_IFNAME=nowhere0", *place])
