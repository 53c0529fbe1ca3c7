"""Evaluation trials on Ray: number of parallel trials, retries, and reported errors."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayError

from orchestration.config import tasks_from_words
from orchestration.evaluation import eval_target
from orchestration.evaluation.eval_request import EvalRequest
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.launch import (
    EvalTrial,
    StopRequest,
    TrialResources,
    eval_trial,
    eval_trials,
    ray_session,
    run_trials,
)
from orchestration.progress import ignore_progress
from preprocessing.errors import Preempted, ResourceError
from tests.orchestration.evaluation.runs import finished_run, write_questions, write_reviews
from training.evaluation import EvalResult
from training.evaluation.tasks import TaskFile
from training.specs import EngineSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a busy machine takes minutes to start Ray's processes


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with ray_session(cpus=2, gpus=2):  # Ray is configured with two GPUs, which need not exist
        yield


@pytest.fixture
def trials(tmp_path: Path) -> list[EvalTrial]:
    """Four trials of SST-2 with two steps each."""
    net = eval_target.target_of_run(finished_run(tmp_path / "out" / "runs" / "bert_base_tiny-12345678"))
    wanted = EvalRequest(
        tasks=tasks_from_words("sst2"),
        task_data_dir=write_reviews(tmp_path / "data"),
        learning_rates=(3e-3,),
        batch_sizes=(8,),
        max_steps=2,
        num_seeds=4,
    )
    (plan,) = plan_tasks(net, wanted)
    return list(plan.cells)


def run_all(
    given: list[EvalTrial], resources: TrialResources, asked: StopRequest | None = None
) -> tuple[dict[int, EvalResult], dict[int, Any]]:
    found = dict[int, EvalResult]()

    def on_done(number: int, one: EvalResult) -> str:
        found[number] = one
        return "done"

    return found, run_trials(given, resources, on_done, asked or StopRequest(), ignore_progress)


def test_trials_on_ray_have_the_scores_of_local_trials(trials: list[EvalTrial]) -> None:
    found, failed = run_all(trials, TrialResources())
    assert failed == {}
    assert [found[number].scores for number in range(4)] == [eval_trials.evaluate_cell(cell).scores for cell in trials]


def count_parallel(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    """Return as accuracy the number of trials that run at the same time, counted by files in a directory."""
    mark = cell.folder / f"at-work-{os.getpid()}-{time.monotonic_ns()}"
    mark.touch()
    time.sleep(2)
    together = len(list(cell.folder.glob("at-work-*")))
    mark.unlink()
    return EvalResult({"dev": {"accuracy": float(together)}}, {})


@pytest.mark.parametrize(
    ("resources", "expected"), [(TrialResources(), 2), (TrialResources(cpus=1, gpus=2), 1), (TrialResources(cpus=2), 1)]
)
def test_number_of_parallel_trials_follows_the_cluster_file(
    trials: list[EvalTrial], resources: TrialResources, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", count_parallel)
    found, _ = run_all(trials, resources)
    assert max(one.scores["dev"]["accuracy"] for one in found.values()) == expected


def fail_once(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    mark = cell.folder / "has-died"
    if not mark.exists():
        mark.touch()
        raise RuntimeError("a library lost its way")
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_unexpected_error_is_retried(trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", fail_once)
    found, failed = run_all(trials[:1], TrialResources())
    assert (len(found), failed) == (1, {})


def kill_third(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    if cell.tuning and cell.tuning.seed == 2:
        os._exit(1)
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_trial_whose_process_always_dies_is_reported_and_others_finish(
    trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", kill_third)
    found, failed = run_all(trials, TrialResources())
    assert set(found) == {0, 1, 3}
    assert {number: str(error) for number, error in failed.items()} == {
        2: "the process died in each attempt; check in dmesg whether memory ran out"
    }


def fail_third(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    if cell.tuning and cell.tuning.seed == 2:
        (cell.folder / f"tried-{time.monotonic_ns()}").touch()
        raise RuntimeError("a library lost its way\nand says more")
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_repeated_error_is_reported_and_other_trials_finish(
    trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", fail_third)
    found, failed = run_all(trials, TrialResources())
    assert set(found) == {0, 1, 3}
    assert {number: str(error) for number, error in failed.items()} == {2: "RuntimeError: a library lost its way"}
    assert len(list(trials[0].folder.glob("tried-*"))) == 2


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("Task was killed due to the node running low on memory.\nMemory on the node was 31 GB"),
        NodeDiedError("the machine is gone"),
        ObjectLostError("a" * 56, None, ""),
    ],
)
def test_ray_error_is_retried_once_and_reported(
    error: RayError, trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third trial raises the error each time, the second trial once."""
    tries, whole = Counter[int](), ray.get

    def get(future: Any) -> EvalResult:
        number = int(whole(future).scores["dev"]["accuracy"])
        tries[number] += 1
        if number == 2 or (number == 1 and tries[1] == 1):
            raise error
        return whole(future)

    monkeypatch.setattr(eval_trials, "evaluate_cell", seed_as_accuracy)
    monkeypatch.setattr(ray, "get", get)
    found, failed = run_all(trials, TrialResources())
    assert set(found) == {0, 1, 3}
    assert tries == {0: 1, 1: 2, 2: 2, 3: 1}
    assert str(failed[2]) == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def seed_as_accuracy(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    assert cell.tuning is not None
    return EvalResult({"dev": {"accuracy": float(cell.tuning.seed)}}, {})


def test_interrupt_ends_the_command(trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    def get(future: Any) -> EvalResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_trials, "evaluate_cell", seed_as_accuracy)
    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(KeyboardInterrupt):
        run_all(trials[:1], TrialResources())


def test_trial_that_never_fits_gives_a_one_line_error(trials: list[EvalTrial]) -> None:
    with pytest.raises(
        ResourceError, match=r"an evaluation needs 3 GPUs according to the cluster file, but Ray has 2 in all; select"
    ):
        run_all(trials, TrialResources(gpus=3))


def test_signal_ends_the_grid_with_a_resume_message(trials: list[EvalTrial]) -> None:
    with pytest.raises(Preempted, match=r"stopped with 4 of 4 evaluations unfinished; repeat the command to resume"):
        run_all(trials, TrialResources(), StopRequest(signal=15))


def test_bfloat16_trial_runs_with_deepspeed(trials: list[EvalTrial]) -> None:
    half = replace(trials[0], machine=EngineSettings(precision="bf16", zero_stage=2))
    found, failed = run_all([half], TrialResources())
    assert failed == {}
    assert 0 <= found[0].scores["dev"]["accuracy"] <= 1
    assert len(found[0].losses) == 2


@pytest.mark.parametrize("zero", [2, 3])
def test_fine_tuning_with_two_workers_matches_one_worker(trials: list[EvalTrial], zero: Any, tmp_path: Path) -> None:
    net, squad = (
        eval_target.target_of_run(trials[0].folder),
        write_questions(tmp_path / "data/SQuAD", train=17).parent,
    )  # the last batch of an epoch has one example
    wanted = EvalRequest(
        tasks=tasks_from_words("squad1"),
        task_data_dir=squad,
        learning_rates=(3e-3,),
        batch_sizes=(8,),
        max_steps=6,
        num_seeds=1,
    )
    (cell,) = plan_tasks(net, wanted)[0].cells
    assert cell.tuning is not None
    # dropout is off because each worker has its own random generator
    still = replace(cell, tuning=replace(cell.tuning, dropout=0.0))
    alone = eval_trials.evaluate_cell(still)
    machine = replace(
        still.machine, zero_stage=zero, param_persistence_threshold=0, micro_batch_tokens=32
    )  # several micro-batches per worker
    together = replace(still, machine=machine)
    found, failed = run_all([together, together], TrialResources(workers=2))
    assert failed == {}
    assert found[0].losses == pytest.approx(alone.losses, abs=1e-4)
    assert found[0].scores == alone.scores
    assert found[0] == found[1]


def test_error_of_one_of_two_workers_is_raised_unchanged(trials: list[EvalTrial]) -> None:
    assert trials[0].tuning is not None
    unfrozen = replace(trials[0], tuning=replace(trials[0].tuning, gradual_unfreezing=True))
    _, failed = run_all([unfrozen], TrialResources(workers=2))
    assert "use one worker without ZeRO" in str(failed[0])


def test_worker_group_that_never_fits_gives_a_one_line_error(trials: list[EvalTrial]) -> None:
    with pytest.raises(ResourceError, match=r"needs 4 CPUs according to the cluster file, but Ray has 2 in all"):
        run_all(trials, TrialResources(cpus=2, workers=2))


def test_workers_share_and_save_the_initial_task(trials: list[EvalTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    """SST-2 is its own initial task. The second group and a single process reuse the weights that the first group
    saved."""
    (task,) = tasks_from_words("sst2")
    assert isinstance(task, TaskFile)
    assert trials[0].tuning is not None
    begins = replace(trials[0], begin=(task, trials[0].tuning), tuning=replace(trials[0].tuning, init_task="sst2"))
    both = replace(begins, machine=EngineSettings(zero_stage=2))
    found, failed = run_all([both, both], TrialResources(workers=2))
    assert failed == {}
    assert found[0] == found[1]
    monkeypatch.setattr(eval_trial, "_train_before", lambda *_: pytest.fail("trained twice"))
    assert eval_trials.evaluate_cell(begins).losses
    assert len(list((begins.folder / eval_trial.BEGUN).glob("sst2-*/spec.json"))) == 1


def test_processes_of_an_earlier_ray_are_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process, such as a notebook, may start Ray several times; futures of an ended Ray never finish."""
    import ray

    from orchestration.launch import eval_trials
    from orchestration.signals import stop_signals

    waited = list[list[str]]()
    monkeypatch.setattr(eval_trials, "_starting", {"node of the first Ray": ["old"], "node of this Ray": ["new"]})
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: type("Context", (), {"get_node_id": lambda self: "node of this Ray"})()
    )
    monkeypatch.setattr(ray, "wait", lambda futures, **how: (waited.append(futures), (futures, []))[1])
    with stop_signals() as request:
        eval_trials._wait_for_processes(request)
    assert waited == [["new"]]
    assert eval_trials._starting == {}
