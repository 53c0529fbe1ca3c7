"""Building a corpus with the Beam runner of a cluster file: local worker processes and their environment."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from orchestration import environment
from orchestration.cli import main
from orchestration.jobs import JobFlags, open_job
from orchestration.jobs import corpus as corpus_job
from orchestration.progress import ignore_progress
from pipeline.runners import beam, pipeline, services, workers
from preprocessing.errors import BadInput
from tests.golden import text

TWO = "name: two\nbeam: {options: {direct_num_workers: 2, direct_running_mode: multi_processing}}\n"


def build_digest(tmp_path: Path, out: str, beam_args: tuple[str, ...] = (), **given: Any) -> str:
    """Build the corpus and return its digest."""
    data = [str(tmp_path / "text.jsonl")]
    job = open_job(JobFlags(recipe="bert_base", scale="tiny", data=data, output_dir=tmp_path / out, **given))
    return corpus_job.build_untracked(job, beam_args, ignore_progress).digest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster_file_builds_the_same_corpus_with_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus has the same bytes as one built in one process. Command-line options override those of the file."""
    text.write(tmp_path / "text.jsonl", num_documents=400)
    (tmp_path / "two.yaml").write_text(TWO)
    seen, started = set[int](), workers._read_started

    def look(pids: Path) -> list[int]:
        seen.update(found := started(pids))
        return found

    monkeypatch.setattr(workers, "_read_started", look)
    alone = build_digest(tmp_path, "alone")
    assert not seen  # so little text is read without worker processes
    assert build_digest(tmp_path, "two", cluster=str(tmp_path / "two.yaml")) == alone
    assert len(seen) >= 2
    assert os.getpid() not in seen
    seen.clear()
    mode = ("--direct_running_mode=in_memory", "--direct_num_workers=1")
    assert build_digest(tmp_path, "again", mode, cluster=str(tmp_path / "two.yaml")) == alone
    assert not seen


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["in_memory", "multi_processing"])
def test_local_beam_workers_get_the_variables_of_the_cluster_file(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OF_BEAM", raising=False)
    for value in ("first", "second"):  # the second value must replace the first within one process
        monkeypatch.setenv("MINE", value)
        file, words = tmp_path / value, [f"--direct_running_mode={mode}", "--direct_num_workers=2"]
        with environment.apply({"OF_BEAM": "${MINE}"}), pipeline(tmp_path, 0, words) as graph:
            (
                graph
                | beam.Create([str(file)])
                | beam.Map(lambda path: Path(path).write_text(os.environ["OF_BEAM"], encoding="utf-8"))
            )
        assert file.read_text() == value


def test_variables_that_a_runner_does_not_pass_on_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    job = open_job(JobFlags(recipe="bert_base", scale="tiny", data=["demo"], cluster="flink"))
    corpus_job._warn_of_local_variables(job.cluster.beam, {"HF_TOKEN": "hidden"})
    (record,) = caplog.records
    assert record.getMessage().startswith("beam: the workers of FlinkRunner do not receive HF_TOKEN of")
    assert "hidden" not in record.getMessage()
    corpus_job._warn_of_local_variables(job.cluster.beam, {})
    corpus_job._warn_of_local_variables(type(job.cluster.beam)(), {"HF_TOKEN": "hidden"})
    assert len(caplog.records) == 1


def test_text_that_changes_after_planning_is_refused(tmp_path: Path) -> None:
    """Otherwise the directory would be named after a text that it does not contain."""
    text.write(tmp_path / "text.jsonl", num_documents=40)
    job = open_job(
        JobFlags(recipe="bert_base", scale="tiny", data=[str(tmp_path / "text.jsonl")], output_dir=tmp_path / "out")
    )
    assert job.plan.text.state == "due"
    text.write(tmp_path / "text.jsonl", num_documents=50)
    with pytest.raises(
        BadInput, match="its text changed while this command ran; wait until no other program writes there"
    ):
        corpus_job.build_untracked(job, (), ignore_progress)
    assert not list((tmp_path / "out").rglob("manifest.json"))


def test_a_dry_run_names_the_services_that_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text.write(tmp_path / "text.jsonl", num_documents=6)
    (tmp_path / "c.yaml").write_text("name: c\nsources: [{kind: jsonl, path: text.jsonl}]\n")
    monkeypatch.setattr(services, "CONNECT_SECONDS", 0.1)  # this server accepts connections, but never answers
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for words in (["bert_base", "--scale", "tiny", "--data", str(tmp_path / "c.yaml")], [str(tmp_path / "c.yaml")]):
            where = ["--output-dir", str(tmp_path / "out"), "--cluster", "portable", "--dry-run"]
            assert main(["corpus", *words, *where, "--", f"--job_endpoint={address}"]) == 0
            assert f"beam: something listens at job_endpoint {address}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_job_server_is_needed_only_to_build_a_part_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(services, "CONNECT_SECONDS", 0.1)
    text.write(tmp_path / "text.jsonl", num_documents=60)
    words = ["corpus", "bert_base", "--scale", "tiny", "--data", str(tmp_path / "text.jsonl"), "--progress", "none"]
    words += ["--output-dir", str(tmp_path / "out"), "--cluster", "portable"]
    more = ["--", "--job_endpoint=127.0.0.1:1"]
    for dry in (["--dry-run"], []):
        assert main([*words, *dry, *more]) == 4
        assert "sesame: Beam: invalid job_endpoint: got 127.0.0.1:1 (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("text/*/*.arrow"))
    build_digest(tmp_path, "out")
    for dry in (["--dry-run"], []):
        assert main([*words, *dry, *more]) == 0
