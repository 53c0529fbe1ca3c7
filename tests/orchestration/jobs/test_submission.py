"""What is sent to a cluster: absolute paths, one id for one piece of work, nothing twice."""

import os
import shlex
from pathlib import Path

import pytest

from orchestration.config import load, to_yaml
from orchestration.jobs import JobFlags, open_job, submission
from orchestration.launch import SubmittedJob
from preprocessing.errors import ResourceError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("A document about nothing.\n")
    return tmp_path


def name_of(*overrides: str, verb: submission.Verb = "run", **more: object) -> str:
    flags = JobFlags(recipe="gpt2", scale="tiny", overrides=overrides, data=("text",), **more)  # type: ignore[arg-type]
    return submission.identity(open_job(flags), flags, verb)


def jobs(**status: str) -> list[SubmittedJob]:
    return [SubmittedJob(id=name.replace("_", "-"), status=each, command="") for name, each in status.items()]


def test_the_command_names_the_same_files_from_any_folder(here: Path) -> None:
    (here / "weights").mkdir()
    (here / "mine.yaml").write_text(to_yaml(load("gpt2")))
    (here / "tok.json").write_text("{}")
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
    assert words[:6] == ["exec", "python", "-m", "sesame", "train", f"{here}/mine.yaml"]
    assert words[6:12] == [
        "optimizer.learning_rate=1e-3",
        "cluster.num_workers=1",
        f"init_checkpoint={here}/weights",
        f"data.tokenizer.path={here}/tok.json",
        f"data.corpus={here}/mine.yaml",
        "cluster.ray_address=auto",
    ]
    assert words[12:] == [
        "--cluster", f"{here}/boxes.yaml", "--data", f"{here}/text", "--data", "demo",
        "--data", f"jsonl:{here}/text#body",
        "--data", f"cc-2019={here}/text", "--data", f"wiki.en=jsonl:{here}/text", "--output-dir", f"{here}/work",
    ]  # fmt: skip


def test_paths_inside_of_a_recipe_file_are_those_of_who_sends_it(here: Path) -> None:
    """They were looked for in the folder of the job, where nothing of ours but the code is."""
    (here / "weights").mkdir()
    (here / "tok.json").write_text("{}")
    (here / "mine.yaml").write_text(
        to_yaml(load("gpt2", ["init_checkpoint=weights", "data.tokenizer.path=tok.json", "data.corpus=mine.yaml"]))
    )
    paths = [f"init_checkpoint={here}/weights", f"data.tokenizer.path={here}/tok.json", f"data.corpus={here}/mine.yaml"]
    sent = submission.with_cluster_paths(JobFlags(recipe="mine.yaml", overrides=["optimizer.learning_rate=1e-3"]))
    assert list(sent.overrides) == ["optimizer.learning_rate=1e-3", *paths, "cluster.ray_address=auto"]
    (here / "demo").mkdir()  # a corpus of Sesame
    sent = submission.with_cluster_paths(
        JobFlags(recipe="mine.yaml", overrides=["init_checkpoint=''", "data.corpus=demo"], scale="tiny")
    )
    assert list(sent.overrides) == ["init_checkpoint=''", "data.corpus=demo", paths[1], "cluster.ray_address=auto"]
    sent = submission.with_cluster_paths(
        JobFlags(recipe="gpt2", overrides=["data.tokenizer={kind: byte_level_bpe, path: 'tok.json'}"])
    )
    assert list(sent.overrides)[1:] == [paths[1], "cluster.ray_address=auto"]
    assert list(submission.with_cluster_paths(JobFlags(recipe="gpt2")).overrides) == ["cluster.ray_address=auto"]


def test_equal_work_has_one_id_from_any_folder_and_other_work_another(here: Path) -> None:
    ids = {
        name_of(),
        name_of("optimizer.learning_rate=1e-3"),
        name_of("cluster.engine.zero_stage=1"),
        name_of(verb="train"),
        name_of(seed=7),
        name_of(holdout_ratio=0.1),
        name_of(output_dir=Path("other")),
    }
    assert len(ids) == 7
    assert all(one.startswith("gpt2_tiny-") for one in ids)
    assert name_of() == name_of(output_dir=here / "work")
    assert name_of("cluster.num_workers=2") == name_of("cluster.ray_address=127.0.0.1:6379", "cluster.num_workers=2")
    os.chdir(here / "text")
    flags = JobFlags(recipe="gpt2", scale="tiny", data=(str(here / "text"),), output_dir=here / "work")
    assert submission.identity(open_job(flags), flags, "run") in ids


@pytest.mark.parametrize(
    ("known", "again", "name", "done"),
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
def test_an_attempt_is_numbered_and_what_is_done_is_not_sent(
    known: dict[str, str], again: bool, name: str, done: bool
) -> None:
    found, one = submission.next_attempt("a-1", jobs(**known), again)
    assert (found, bool(one)) == (name, done)


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_two_jobs_never_write_into_one_folder(status: str) -> None:
    with pytest.raises(ResourceError, match="a-1-2 is already doing this work") as error:
        submission.next_attempt("a-1", jobs(a_1="FAILED", a_1_2=status), force=True)
    assert "sesame stop a-1-2" in str(error.value)


def test_what_is_assumed_of_gpus_that_a_cluster_file_does_not_name_is_said(tmp_path: Path) -> None:
    nameless = tmp_path / "mine.yaml"
    nameless.write_text("{name: mine, gpus_per_worker: 1, num_workers: 2, engine: {device: cuda, precision: bf16}}")
    unnamed = submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2", cluster=str(nameless))))
    assert unnamed[0] == "h100 assumed: mine does not set gpu_type; set cluster.gpu_type"
    assert not any(
        "assumed" in note
        for note in submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2", cluster="8xh100")))
    )
    assert submission.refuse_what_does_not_fit(open_job(JobFlags(recipe="gpt2"))) == []
