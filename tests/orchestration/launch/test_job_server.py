"""Jobs on another cluster: uploaded files, and a one-line error for each possible dashboard response."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import main
from orchestration.environment import FILE
from orchestration.jobs import JobFlags, open_job, submission
from orchestration.launch import ENDED, JobServer, job_server, server_url
from preprocessing.errors import BadInput, ResourceError
from tests.golden import text

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
JOB = {"type": "SUBMISSION", "entrypoint": "sesame", "runtime_env": {"env_vars": {"KEY": "secret"}}}


@contextmanager
def dashboard(answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    """Run a server that answers each given path with a status and a body, and other paths with 404; yield its
    address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, "no such path"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write((body if isinstance(body, str) else json.dumps(body)).encode())

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


RAY = {"/api/version": (200, {"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": ""})}


def test_upload_contains_only_the_code_of_sesame(tmp_path: Path) -> None:
    """With the pattern `/*` alone, Ray once uploaded an empty package, and the job ran the installed code."""
    from ray._private.runtime_env.packaging import create_package

    package = tmp_path / "package.zip"
    create_package(str(job_server.ROOT), package, include_gitignore=True, excludes=list(job_server.EXCLUDES))
    files = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[0] for name in files} == set(job_server.SHIPPED)
    assert {"sesame.py", "orchestration/recipes/bert_base.yaml"} < set(files)
    assert not any("__pycache__" in name for name in files)
    assert package.stat().st_size < 20e6  # Ray accepts at most 100 MB


def test_address_option_precedes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://other:8265")
    assert server_url("here:8265") == "http://here:8265"
    assert server_url("") == "http://other:8265"
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    with pytest.raises(BadInput, match="missing --address: expected "):
        server_url("")


def test_submission_is_described_without_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    words = ["submit", "gpt2", "--scale", "tiny", "--data", "demo", "--output-dir", str(tmp_path / "out")]
    assert main([*words, "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "would submit gpt2_tiny-" in out
    assert "exec sh orchestration/launch/job_python.sh run gpt2" in out
    assert "no cluster was contacted, because --address is missing" in out
    assert main(words) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", ["ray://head:10001", "http://", "auto:x", "http://me:password@head:8265"])
def test_invalid_dashboard_address_is_refused_without_its_password(wrong: str) -> None:
    with pytest.raises(BadInput) as error:
        server_url(wrong)
    assert "expected http://HOST:PORT" in str(error.value)
    assert "password" not in str(error.value)


def test_environment_does_not_redirect_to_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own client prefers RAY_API_SERVER_ADDRESS over its address argument."""
    with dashboard({**RAY, "/api/jobs/": (200, [])}) as url:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
        monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
        assert JobServer(url).jobs() == []


def test_jobs_are_listed_by_age_without_environment_values(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        JOB | {"submission_id": "new", "status": "RUNNING", "start_time": int(time.time() * 1000)},
        JOB | {"submission_id": "old", "status": "FAILED", "start_time": 1000, "end_time": 3000, "message": "it [x]"},
        JOB | {"submission_id": None, "type": "DRIVER", "status": "RUNNING", "job_id": "01000000"},
    ]
    with dashboard({**RAY, "/api/jobs/": (200, jobs)}) as url:
        assert [one.id for one in JobServer(url).jobs()] == ["old", "new"]
        assert main(["status", "--address", url]) == 0
        shown = capsys.readouterr().out
        assert "FAILED" in shown
        assert "0:00:02   it [x]" in shown
        assert f"next  sesame logs new --address {url}" in shown
        assert main(["status", "--address", url, "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in values["jobs"]] == ["FAILED", "RUNNING"]
    assert "secret" not in json.dumps(values) + shown


def test_status_has_the_progress_of_a_running_job_and_the_error_of_a_failed_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For a failure, the dashboard says "last available logs (truncated to 20,000 chars)" and not the reason."""
    jobs = [
        JOB | {"submission_id": name, "status": status, "start_time": 1000, "message": "last available logs"}
        for name, status in (("fine", "RUNNING"), ("bad", "FAILED"), ("gone", "FAILED"), ("over", "SUCCEEDED"))
    ]
    jobs += [
        JOB | {"submission_id": "stopped", "status": "STOPPED", "message": "Job was intentionally stopped."},
        JOB | {"submission_id": "waiting", "status": "RUNNING", "start_time": 1000, "message": ""},
    ]
    logs = {
        "fine": "run: to do\npretrain: 10/400\npretrain: 160/400  3:10 left  loss 5.818\n(raylet) a note\n",
        "bad": "pretrain: 1/400\nsesame: gpt2: no text; name it with --data\n",
        "over": "pretrain: 400/400\n",
        "stopped": "pretrain: 58/60\nsesame: out: stopped after step 58 of 60; repeat the command to resume\n",
        "waiting": "starting workers: 0:01\nwaiting for 8 workers of 1 CPU: 2:30  Ray has 2 CPUs (2 free)\n",
    }
    answers = {f"/api/jobs/{name}/logs": (200, {"logs": text}) for name, text in logs.items()}
    with dashboard({**RAY, "/api/jobs/": (200, jobs), **answers}) as url:
        assert main(["status", "--address", url, "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
    assert {one["id"]: one["message"] for one in values["jobs"]} == {
        "fine": "pretrain: 160/400  3:10 left  loss 5.818",
        "bad": "gpt2: no text; name it with --data",
        "gone": "last available logs",
        "over": "last available logs",
        "stopped": "out: stopped after step 58 of 60; repeat the command to resume",
        "waiting": "waiting for 8 workers of 1 CPU: 2:30  Ray has 2 CPUs (2 free)",
    }


def test_unknown_job_gives_a_one_line_error(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard(RAY) as url:
        for verb in (["status"], ["logs"], ["logs", "--follow"], ["stop"]):
            assert main([*verb, "mine", "--address", url]) == 2
            line = capsys.readouterr().err.splitlines()[-1]
            assert line == f"sesame: invalid job mine: {url} has no such job; list the jobs with `sesame status`"


def test_unused_environment_files_are_deleted_on_stop_and_submit(tmp_path: Path) -> None:
    folder = tmp_path / submission.LEFT
    folder.mkdir()
    stopped, failed = folder / "mine.0a", folder / "old.0b"
    flags = JobFlags(recipe="gpt2", scale="tiny", data=("demo",), output_dir=tmp_path)
    name = submission.identity(open_job(flags), flags, "run")
    mine = JOB | {"status": "STOPPED", "submission_id": "mine", "runtime_env": {"env_vars": {FILE: str(stopped)}}}
    jobs = [JOB | {"submission_id": "old", "status": "FAILED"}, JOB | {"submission_id": name, "status": "SUCCEEDED"}]
    answers = {"/api/jobs/mine": (200, mine), "/api/jobs/mine/stop": (200, {"stopped": False})}
    with dashboard({**RAY, **answers, "/api/jobs/": (200, jobs)}) as url:
        for file in (stopped, failed):
            file.write_text("canary")
        assert main(["stop", "mine", "--address", url]) == 0
        assert list(folder.iterdir()) == [failed]
        words = ["submit", "gpt2", "--scale", "tiny", "--data", "demo", "--output-dir", str(tmp_path), "--address", url]
        assert main([*words, "--dry-run"]) == 0
        assert list(folder.iterdir()) == [failed]
        assert main(words) == 0
        assert list(folder.iterdir()) == []


def node_response(*resources: dict[str, float], dead: int = 0) -> dict[str, tuple[int, Any]]:
    """Return the dashboard's node list: live nodes with these resources, and `dead` nodes."""
    there = [{"state": "ALIVE", "resources_total": one} for one in resources]
    gone = [{"state": "DEAD", "resources_total": {"CPU": 64.0}}] * dead
    return {"/api/v0/nodes?limit=10000": (200, {"data": {"result": {"result": [*there, *gone]}}})}


def test_cluster_reports_how_many_workers_fit() -> None:
    machines = node_response({"memory": 1e9}, {"CPU": 9.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 8.0}, dead=1)
    with dashboard(RAY | machines) as url:
        server = JobServer(url)
        assert server.num_nodes() == 3
        assert (server.room(4, 0), server.room(4, 1), server.room(1, 1), server.room(32, 0)) == (6, 6, 10, 0)


def test_client_waits_for_the_nodes_of_a_new_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard of a new cluster answers before its first node is registered."""
    monkeypatch.setattr(job_server, "POLL_S", 0.01)
    with dashboard(RAY) as url:
        server = JobServer(url)
        found = iter([[], [], [{"resources_total": {"CPU": 2.0}}]])
        monkeypatch.setattr(server, "_nodes", lambda: next(found))
        assert server.room(1, 0) == 2
        monkeypatch.setattr(job_server, "AGENT_S", 0.0)
        monkeypatch.setattr(server, "_nodes", list)
        assert server.room(1, 0) == 0


def test_missing_num_workers_is_taken_from_the_target_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command once used the core count of the head node, which has no cores for training."""
    words = [
        "submit",
        "gpt2",
        "--scale",
        "tiny",
        "--data",
        "demo",
        "--output-dir",
        str(tmp_path),
        "--dry-run",
        "--json",
    ]
    names = set()
    # the batch of 32 sequences limits the second case
    for machines, number in (([{}, {"CPU": 3.0}, {"CPU": 3.0}], 6), ([{"CPU": 64.0}], 32)):
        with dashboard(RAY | {"/api/jobs/": (200, [])} | node_response(*machines)) as url:
            assert main([*words, "--address", url]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert f" cluster.num_workers={number} " in answer["command"]
        names.add(answer["job"])
    assert len(names) == 1  # all commands describe the same work
    with dashboard(RAY | {"/api/jobs/": (200, [])} | node_response({})) as url:
        assert main([*words, "--address", url]) == 4
    assert "has resources for 0 workers, but local needs at least 1" in capsys.readouterr().err


def test_submit_says_that_the_cluster_has_too_few_resources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such a job waits, because nodes may be added."""
    words = ["submit", "gpt2", "--scale", "tiny", "--data", "demo", "--output-dir", str(tmp_path), "--dry-run"]
    for number, notes in ((8, 1), (2, 0)):
        with dashboard(RAY | {"/api/jobs/": (200, [])} | node_response({"CPU": 2.0})) as url:
            assert main([*words, f"cluster.num_workers={number}", "--address", url, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["notes"]
        assert len(found) == notes
    with dashboard(RAY | {"/api/jobs/": (200, [])} | node_response({"CPU": 2.0})) as url:
        assert main([*words, "cluster.num_workers=8", "--address", url]) == 0
    assert "has resources for 2 of 8 workers: the job waits for more;" in " ".join(capsys.readouterr().out.split())


def test_job_that_does_not_fit_is_not_submitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPUs of the local machine do not matter; the memory of the largest known GPU does."""
    words = ["submit", "mt_nlg_530b", "--data", "demo", "--output-dir", str(tmp_path)]
    with dashboard(RAY | {"/api/jobs/": (200, [])}) as url:
        for on in (["one_gpu"], ["one_gpu", "cluster.gpu_type=l4"]):
            assert main([*words, "--cluster", *on, "--address", url]) == 4
            (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sesame: ")]
            assert "mt_nlg_530b on one_gpu: each device needs" in line
        words[1] = "bert_base"
        assert main([*words, "--cluster", "one_gpu", "--address", url, "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "set RAY_AUTH_MODE=token"),
        (403, "set RAY_AUTH_MODE=token"),
        (404, "cannot follow the logs of mine (HTTP 404); run `sesame logs mine` without --follow"),
        (500, "cannot follow the logs of mine (HTTP 500)"),
        (200, "cannot follow the logs of mine (HTTP 200)"),
    ],
)
def test_log_stream_error_gives_a_one_line_error(status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = JOB | {"submission_id": "mine", "status": "RUNNING"}
    stream = {"/api/jobs/mine": (200, job), "/api/jobs/mine/logs/tail": (status, "x")}
    with dashboard({**RAY, **stream}) as url:
        assert main(["logs", "mine", "--follow", "--address", url]) == 4
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sesame: ")]
    assert message in line


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "not a dashboard of Ray 2"),
        ({"/api/version": (200, "<html>")}, "not a dashboard of Ray 2"),
        ({"/api/version": (500, "busy")}, "not a dashboard of Ray 2"),
        ({"/api/version": (401, "no token")}, "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE"),
        ({"/api/version": (403, "another")}, "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE"),
    ],
)
def test_unexpected_server_response_gives_a_one_line_error(answers: dict[str, Any], message: str) -> None:
    with dashboard(answers) as url, pytest.raises(ResourceError, match=message) as error:
        JobServer(url)
    assert "\n" not in str(error.value)


def test_token_file_of_an_ended_cluster_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with dashboard({"/api/version": (401, "no token")}) as url:
        with pytest.raises(ResourceError, match=r"token does not exist, so its cluster may have ended; start it again"):
            JobServer(url)
        (tmp_path / "token").write_text("wrong")
        with pytest.raises(ResourceError, match="the token is missing or wrong"):
            JobServer(url)


def test_dead_or_silent_address_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_server, "FIRST_S", 0.3)
    with pytest.raises(ResourceError, match="no Ray dashboard answers"):
        JobServer("http://127.0.0.1:1")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(ResourceError, match="accepts connections but does not answer"):
            JobServer(f"http://127.0.0.1:{server.getsockname()[1]}")


def test_submission_waits_for_a_new_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard of a new head answers with 500: "No available agent to submit job, please try again later"."""
    answers = [RuntimeError("Request failed with status code 500: No available agent to submit job"), None]

    class Client:
        def submit_job(self, **given: Any) -> None:
            if error := answers.pop(0):
                raise error

    monkeypatch.setattr(job_server, "_client", lambda url: Client())
    monkeypatch.setattr(job_server, "POLL_S", 0.01)
    JobServer("http://head:8265").submit("mine", "sesame")
    assert answers == []
    answers += [RuntimeError("Request failed with status code 500: Traceback ...\n Job mine already exists")]
    with pytest.raises(ResourceError, match="already exists"):
        JobServer("http://head:8265").submit("mine", "sesame")


def test_follow_and_json_are_mutually_exclusive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "mine", "--follow", "--json", "--address", "http://127.0.0.1:1"]) == 2
    assert "expected only one of them; remove one" in capsys.readouterr().err


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard address of a Ray head, which is stopped at the end."""
    folder = Path("/tmp") / f"sj-{os.getpid()}"  # a short path, because Ray creates sockets below it
    port = free_port()
    words = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={free_port()}",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={port}", "--num-cpus=2", "--include-dashboard=true",
        f"--temp-dir={folder}", "--object-store-memory=100000000",
        "--dashboard-agent-listen-port=0",
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("w") as written:
        head = subprocess.Popen(words, env=environment, stdout=written, stderr=written)
        try:
            upto = time.monotonic() + 120
            while True:
                try:
                    JobServer(f"http://127.0.0.1:{port}").jobs()
                    break
                except ResourceError:
                    assert head.poll() is None, log.read_text()
                    assert time.monotonic() < upto, log.read_text()
                    time.sleep(1)
            yield f"http://127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_job_is_submitted_stopped_resubmitted_and_finished(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text.write(tmp_path / "text.jsonl", num_documents=300)
    phases = 'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":3000}]'
    values = [
        phases,
        "optimizer.warmup_steps=10",
        "eval_tasks=[]",
        "cluster.num_workers=1",
        "cluster.sample_prompts=[]",
    ]
    recipe = [
        "gpt2",
        *values,
        "--scale",
        "tiny",
        "--data",
        str(tmp_path / "text.jsonl"),
        "--output-dir",
        str(tmp_path / "out"),
    ]
    address = ["--address", cluster]
    assert JobServer(cluster).room(1, 0) == 2

    def answer(*words: str, code: int = 0) -> dict[str, Any]:
        assert main([*words, *address, "--json"]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out or "{}")

    name = answer("submit", *recipe)["job"]
    answer("submit", *recipe, code=4)  # the job is already running
    upto = time.monotonic() + 300
    while "pretrain: " not in (written := answer("logs", name)["logs"]):
        assert time.monotonic() < upto, written
        assert answer("status", name)["jobs"][0]["status"] not in ENDED, written
        time.sleep(1)
    assert answer("status", name)["jobs"][0]["message"].startswith("pretrain: ")
    assert answer("stop", name) == answer("stop", name) | {"stopped": True}
    assert answer("status", name)["jobs"][0]["status"] == "STOPPED"
    assert "repeat the command to resume" in answer("logs", name)["logs"]
    second = answer("submit", *recipe)["job"]
    assert second == f"{name}-2"
    assert main(["logs", second, "--follow", *address]) == 0
    followed = capsys.readouterr().out
    assert "pretrain: " in followed
    assert answer("status", second)["jobs"][0]["exit_code"] == 0
    done = answer("submit", *recipe)
    assert (done["job"], done["submitted"]) == (second, False)
    assert list((tmp_path / "out").glob("runs/*/weights*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_of_the_guide_submits_a_training_with_ray(cluster: str, tmp_path: Path) -> None:
    """`ray job submit --working-dir .`: Ray refuses a second working directory, so Sesame must not add one."""
    text.write(tmp_path / "text.jsonl", num_documents=300)
    (tmp_path / "one.yaml").write_text("name: one\nray_address: auto\nnum_workers: 1\nsample_prompts: []\n")
    phases = 'phases=[{"seq_length": 32, "global_batch_size": 8,"steps":6}]'
    place = ["--data", str(tmp_path / "text.jsonl"), "--output-dir", str(tmp_path / "out")]
    of_job = ["gpt2", phases, "optimizer.warmup_steps=2", "eval_tasks=[]", "--scale", "tiny", *place]
    assert main(["corpus", *of_job, "--progress", "none"]) == 0
    asked = shlex.split(re.search(r"\$ (ray job submit .*)", GUIDE)[1])  # type: ignore[index]
    sent = asked[: asked.index("--")]
    sent[sent.index("--address") + 1] = cluster
    command = ["sesame", "train", *of_job, "--cluster", str(tmp_path / "one.yaml")]
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [str(folder / "ray"), *sent[1:], "--submission-id", "raw", "--", *command],
        cwd=job_server.ROOT,
        env={**os.environ, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert JobServer(cluster).job("raw").status == "SUCCEEDED"
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    assert json.loads((folder / "result.json").read_text())["step"] == 6
