"""Submission to a cluster: absolute paths, one ID for equal work, and no duplicate jobs."""

import os
import shlex
from pathlib import Path

import pytest

from orchestration.config import load, to_yaml
from orchestration.jobs import JobFlags, open_job, submission
from orchestration.launch import SubmittedJob
from preprocessing.errors import ResourceError


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a text file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("A document about nothing.\n")
    return tmp_path


def job_id(*overrides: str, verb: submission.Verb = "run", **more: object) -> str:
    flags = JobFlags(recipe="gpt2", scale="tiny", overrides=overrides, data=("text",), **more)  # type: ignore[arg-type]
    return submission.identity(open_job(flags), flags, verb)


def make_jobs(**status: str) -> list[SubmittedJob]:
    return [SubmittedJob(id=name.replace("_", "-"), status=each, command="") for name, each in status.items()]


def test_submitted_command_has_absolute_paths(cwd: Path) -> None:
    (cwd / "weights").mkdir()
    (cwd / "mine.yaml").write_text(to_yaml(load("gpt2")))
    (cwd / "tok.json").write_text("{}")
    given = (
        "init_checkpoint=weights",
        "optimizer.learning_rate=1e-3",
        "data.tokenizer.path=tok.json",
        "data.corpus=mine.yaml",
        "cluster.ray_address=other:1",
        "cluster.num_workers=1",
    )
    data = ("text", "demo", "jsonl:text#body", "cc-2019=text", "wiki.en=jsonl:text")
    flags = JobFlags(recipe="mine.yaml", overrides=given, data=data, cluster="./boxes.yaml")
    words = shlex.split(submission.command(flags, "train"))
    assert words[:5] == ["exec", "sh", submission.JOB_PYTHON, "train", f"{cwd}/mine.yaml"]
    assert words[5:11] == [
        "optimizer.learning_rate=1e-3",
        "cluster.num_workers=1",
        f"init_checkpoint={cwd}/weights",
        f"data.tokenizer.path={cwd}/tok.json",
        f"data.corpus={cwd}/mine.yaml",
        "cluster.ray_address=auto",
    ]
    assert words[11:] == [
        "--cluster", f"{cwd}/boxes.yaml", "--data", f"{cwd}/text", "--data", "demo",
        "--data", f"jsonl:{cwd}/text#body",
        "--data", f"cc-2019={cwd}/text", "--data", f"wiki.en=jsonl:{cwd}/text", "--output-dir", f"{cwd}/work",
    ]  # fmt: skip


def test_relative_paths_in_a_recipe_file_are_resolved_before_submission(cwd: Path) -> None:
    """Otherwise the job would look for them in its own directory, which contains only Sesame's code."""
    (cwd / "weights").mkdir()
    (cwd / "tok.json").write_text("{}")
    (cwd / "mine.yaml").write_text(
        to_yaml(load("gpt2", ["init_checkpoint=weights", "data.tokenizer.path=tok.json", "data.corpus=mine.yaml"]))
    )
    paths = [f"init_checkpoint={cwd}/weights", f"data.tokenizer.path={cwd}/tok.json", f"data.corpus={cwd}/mine.yaml"]
    sent = submission.with_cluster_paths(JobFlags(recipe="mine.yaml", overrides=["optimizer.learning_rate=1e-3"]))
    assert list(sent.overrides) == ["optimizer.learning_rate=1e-3", *paths, "cluster.ray_address=auto"]
    (cwd / "demo").mkdir()  # `demo` still means the built-in corpus
    sent = submission.with_cluster_paths(
        JobFlags(recipe="mine.yaml", overrides=["init_checkpoint=''", "data.corpus=demo"], scale="tiny")
    )
    assert list(sent.overrides) == ["init_checkpoint=''", "data.corpus=demo", paths[1], "cluster.ray_address=auto"]
    sent = submission.with_cluster_paths(
        JobFlags(recipe="gpt2", overrides=["data.tokenizer={kind: byte_level_bpe, path: 'tok.json'}"])
    )
    assert list(sent.overrides)[1:] == [paths[1], "cluster.ray_address=auto"]
    assert list(submission.with_cluster_paths(JobFlags(recipe="gpt2")).overrides) == ["cluster.ray_address=auto"]


def test_job_id_depends_only_on_the_work(cwd: Path) -> None:
    ids = {
        job_id(),
        job_id("optimizer.learning_rate=1e-3"),
        job_id("cluster.engine.zero_stage=1"),
        job_id(verb="train"),
        job_id(seed=7),
        job_id(holdout_ratio=0.1),
        job_id(output_dir=Path("other")),
    }
    assert len(ids) == 7
    assert all(one.startswith("gpt2_tiny-") for one in ids)
    assert job_id() == job_id(output_dir=cwd / "work")
    assert job_id("cluster.num_workers=2") == job_id("cluster.ray_address=127.0.0.1:6379", "cluster.num_workers=2")
    os.chdir(cwd / "text")
    flags = JobFlags(recipe="gpt2", scale="tiny", data=(str(cwd / "text"),), output_dir=cwd / "work")
    assert submission.identity(open_job(flags), flags, "run") in ids


@pytest.mark.parametrize(
    ("known", "force", "name", "done"),
    [
        ({}, False, "a-1", False),
        ({"a": "FAILED", "a_1_x": "RUNNING", "b": "RUNNING"}, False, "a-1", False),
        ({"a_1": "FAILED"}, False, "a-1-2", False),
        ({"a_1": "STOPPED", "a_1_2": "FAILED"}, False, "a-1-3", False),
        ({"a_1_2": "FAILED", "a_1_10": "FAILED"}, False, "a-1-11", False),
        ({"a_1": "STOPPED", "a_1_2": "SUCCEEDED"}, False, "a-1-2", True),
        ({"a_1": "SUCCEEDED"}, True, "a-1-2", False),
    ],
)
def test_attempts_are_numbered_and_finished_work_is_not_submitted_again(
    known: dict[str, str], force: bool, name: str, done: bool
) -> None:
    found, one = submission.next_attempt("a-1", make_jobs(**known), force)
    assert (found, bool(one)) == (name, done)


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_work_of_a_pending_or_running_job_is_refused(status: str) -> None:
    with pytest.raises(ResourceError, match="a-1-2 is already doing this work") as error:
        submission.next_attempt("a-1", make_jobs(a_1="FAILED", a_1_2=status), force=True)
    assert "sesame stop a-1-2" in str(error.value)
    with pytest.raises(ResourceError, match="`sesame logs a-1-2 --address http://head:8265 --follow`"):
        submission.next_attempt("a-1", make_jobs(a_1="FAILED", a_1_2=status), address="http://head:8265")


def test_assumed_gpu_type_is_reported(tmp_path: Path) -> None:
    nameless = tmp_path / "mine.yaml"
    nameless.write_text("{name: mine, gpus_per_worker: 1, num_workers: 2, engine: {device: cuda, precision: bf16}}")
    unnamed = submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2", cluster=str(nameless))))
    assert unnamed[0] == "h100 assumed: mine does not set gpu_type; set cluster.gpu_type"
    assert not any(
        "assumed" in note
        for note in submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2", cluster="8xh100")))
    )
    assert submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2"))) == []
