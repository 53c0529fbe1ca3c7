"""Pretraining and evaluation share one Ray session, which starts only if one of them has work to do."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestration.evaluation import evaluate, ray_stages
from orchestration.evaluation.eval_request import EvalRequest
from orchestration.jobs import Job, JobFlags, held_out, open_job, pretrain, stages
from orchestration.launch import cores
from orchestration.progress import Report, ignore_progress
from preprocessing.errors import ResourceError
from preprocessing.lock import hold_lock


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("A document about nothing. It has two sentences.\n")
    return tmp_path / "text.txt"


def job_of(text: Path, *overrides: str) -> Job:
    flags = JobFlags(
        recipe="bert_base", scale="tiny", data=[str(text)], output_dir=text.parent / "out", overrides=overrides
    )
    return open_job(flags)


def finish(stage: stages.JobStage) -> None:
    stage.folder.mkdir(parents=True, exist_ok=True)
    stage.finish()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the events in order: Ray starts and ends, a stage finishes."""
    events: list[str] = []

    @contextmanager
    def ray(address: str, *, cpus: int, gpus: int, dashboard: bool, logs: Path, report: Report) -> Iterator[None]:
        events.append(f"Ray of {cpus} cores starts")
        yield
        events.append("Ray ends")

    def train(job: Job, *more: Any) -> dict[str, Any]:
        if job.plan.run.state != "done":
            finish(job.plan.run)
        events.append("trained")
        return {"step": 4}

    def scored(*given: Any, **more: Any) -> Sequence[Any]:
        events.append("evaluated")
        return []

    monkeypatch.setattr(ray_stages, "ray_session", ray)
    monkeypatch.setattr(pretrain, "train", train)
    monkeypatch.setattr(pretrain, "train_locked", train)
    monkeypatch.setattr(evaluate, "evaluate", scored)
    monkeypatch.setattr(ray_stages.eval_target, "target_of_run", lambda folder: None)
    monkeypatch.setattr(ray_stages, "plan_supported_tasks", lambda net, wanted: wanted.tasks)
    return events


def run_job(job: Job, resume: Any = "allow") -> None:
    ray_stages.pretrain_and_evaluate(
        job, resume, ignore_progress, EvalRequest(tasks=job.recipe.eval_tasks, num_seeds=1, max_train_samples=(20,))
    )


def test_both_stages_share_one_ray_session(events: list[str], text: Path) -> None:
    run_job(job_of(text, "cluster.num_workers=1"))
    assert events == [f"Ray of {cores()} cores starts", "trained", "evaluated", "Ray ends"]


def test_ray_session_has_the_cores_of_all_workers(events: list[str], text: Path) -> None:
    run_job(job_of(text, "cluster.num_workers=16", "cluster.cpus_per_worker=20"))
    assert events[0] == "Ray of 320 cores starts"


def test_recipe_without_eval_tasks_is_only_trained(events: list[str], text: Path) -> None:
    run_job(job_of(text, "eval_tasks=[]"))
    assert events[1:] == ["trained", "Ray ends"]


def test_finished_run_does_not_start_ray_for_training(events: list[str], text: Path) -> None:
    job = job_of(text)
    finish(job.plan.run)
    run_job(job)
    assert events == ["trained", "evaluated"]


def test_finished_run_is_trained_again_with_resume_never(events: list[str], text: Path) -> None:
    job = job_of(text, "eval_tasks=[]")
    finish(job.plan.run)
    run_job(job, "never")
    assert events[1:] == ["trained", "Ray ends"]


def test_run_without_enough_held_out_text_trains_and_returns_no_scores(
    events: list[str], text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training once continued, and its result was then lost in an error."""
    monkeypatch.setattr(held_out, "find_too_few", lambda corpus, tasks, labels: dict.fromkeys(tasks, "too few rows"))
    job = job_of(text, "eval_tasks=[source_classification,next_sentence]")
    finish(job.plan.corpus)
    (job.plan.corpus.folder / stages.COMMITS["corpus"]).touch()
    wanted = EvalRequest(tasks=job.recipe.eval_tasks, num_seeds=1, max_train_samples=(20,))
    assert ray_stages.pretrain_and_evaluate(job, "allow", ignore_progress, wanted) == ({"step": 4}, [])
    assert events[1:] == ["trained", "Ray ends"]
    assert caplog.text.count("no scores: too few rows") == 2


def test_run_used_by_another_process_is_refused_before_ray_starts(events: list[str], text: Path) -> None:
    """`--resume never` once moved the files of a running training away."""
    job = job_of(text)
    folder = job.plan.run.folder
    with hold_lock(folder):
        for resume in ("allow", "never"):
            with pytest.raises(ResourceError, match=r"process \d+ on .* is writing here"):
                ray_stages.pretrain_and_evaluate(job, resume, ignore_progress, EvalRequest(tasks=[]))
        assert [path.name for path in folder.iterdir()] == [".owner.json"]
    assert events == []


def test_the_driver_plans_trainings_and_evaluations_without_torch() -> None:
    """PyTorch takes a second of CPU time, which the workers would otherwise have."""
    code = "import sys, orchestration.evaluation.ray_stages, orchestration.tracking; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
