"""Pretraining and evaluation share one Ray, which is started only where one of them is still to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestration.jobs import Job, JobFlags, evaluate, held_out, open_job, pretrain, ray_stages, stages
from orchestration.jobs.eval_request import EvalRequest
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
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order: Ray starts and ends, a stage is done."""
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


def do(job: Job, resume: Any = "allow") -> None:
    ray_stages.pretrain_and_evaluate(
        job, resume, ignore_progress, EvalRequest(tasks=job.recipe.eval_tasks, num_seeds=1, max_train_samples=(20,))
    )


def test_both_stages_are_done_on_one_ray(happened: list[str], text: Path) -> None:
    do(job_of(text, "cluster.num_workers=1"))
    assert happened == [f"Ray of {cores()} cores starts", "trained", "evaluated", "Ray ends"]


def test_it_has_room_for_all_workers(happened: list[str], text: Path) -> None:
    do(job_of(text, "cluster.num_workers=16", "cluster.cpus_per_worker=20"))
    assert happened[0] == "Ray of 320 cores starts"


def test_a_recipe_without_evals_is_trained_only(happened: list[str], text: Path) -> None:
    do(job_of(text, "eval_tasks=[]"))
    assert happened[1:] == ["trained", "Ray ends"]


def test_for_a_run_that_is_done_only_the_evaluation_may_start_ray(happened: list[str], text: Path) -> None:
    job = job_of(text)
    finish(job.plan.run)
    do(job)
    assert happened == ["trained", "evaluated"]


def test_a_run_that_is_to_begin_anew_is_trained_on_ray(happened: list[str], text: Path) -> None:
    job = job_of(text, "eval_tasks=[]")
    finish(job.plan.run)
    do(job, "never")
    assert happened[1:] == ["trained", "Ray ends"]


def test_too_little_held_out_for_any_task_is_said_before_training_and_ends_without_scores(
    happened: list[str], text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training went on, and its result was lost in an error."""
    monkeypatch.setattr(held_out, "find_too_few", lambda corpus, tasks, labels: dict.fromkeys(tasks, "too few rows"))
    job = job_of(text, "eval_tasks=[source_classification,next_sentence]")
    finish(job.plan.corpus)
    (job.plan.corpus.folder / stages.COMMITS["corpus"]).touch()
    wanted = EvalRequest(tasks=job.recipe.eval_tasks, num_seeds=1, max_train_samples=(20,))
    assert ray_stages.pretrain_and_evaluate(job, "allow", ignore_progress, wanted) == ({"step": 4}, [])
    assert happened[1:] == ["trained", "Ray ends"]
    assert caplog.text.count("no scores: too few rows") == 2


def test_a_run_that_another_process_is_at_is_left_as_it_is_before_ray_starts(happened: list[str], text: Path) -> None:
    """`--resume never` moved the files of a living run away."""
    job = job_of(text)
    folder = job.plan.run.folder
    with hold_lock(folder):
        for resume in ("allow", "never"):
            with pytest.raises(ResourceError, match=r"process \d+ on .* is writing here"):
                ray_stages.pretrain_and_evaluate(job, resume, ignore_progress, EvalRequest(tasks=[]))
        assert [path.name for path in folder.iterdir()] == [".owner.json"]
    assert happened == []
