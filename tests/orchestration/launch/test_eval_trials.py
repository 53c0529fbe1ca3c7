"""Grids of evaluations on Ray: sized from the cluster, tried again, named."""

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

from orchestration.jobs import eval_target
from orchestration.jobs.eval_request import EvalRequest, tasks_from_words
from orchestration.jobs.score_plan import plan_tasks
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
from tests.orchestration.jobs.runs import finished_run, questions, reviews
from training.evaluation import EvalResult
from training.specs import EngineSettings
from training.tasks import TaskFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a busy machine takes minutes to start Ray's processes


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with ray_session(cpus=2, gpus=2):  # that there are two is what Ray is told, not what there is
        yield


@pytest.fixture
def some(tmp_path: Path) -> list[EvalTrial]:
    """Four cells of SST-2, of two steps each."""
    net = eval_target.target_of_run(finished_run(tmp_path / "out" / "runs" / "bert_base_tiny-12345678"))
    wanted = EvalRequest(
        tasks=tasks_from_words("sst2"),
        task_data_dir=reviews(tmp_path / "data"),
        learning_rates=(3e-3,),
        batch_sizes=(8,),
        max_steps=2,
        num_seeds=4,
    )
    (plan,) = plan_tasks(net, wanted)
    return list(plan.cells)


def done(
    given: list[EvalTrial], room: TrialResources, asked: StopRequest | None = None
) -> tuple[dict[int, EvalResult], dict[int, Any]]:
    found = dict[int, EvalResult]()

    def on_done(number: int, one: EvalResult) -> str:
        found[number] = one
        return "done"

    return found, run_trials(given, room, on_done, asked or StopRequest(), ignore_progress)


def test_cells_on_ray_have_the_scores_that_they_have_here(some: list[EvalTrial]) -> None:
    found, failed = done(some, TrialResources())
    assert failed == {}
    assert [found[number].scores for number in range(4)] == [eval_trials.evaluate_cell(cell).scores for cell in some]


def at_once(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    """How many cells were at work together, by files in a folder."""
    mark = cell.folder / f"at-work-{os.getpid()}-{time.monotonic_ns()}"
    mark.touch()
    time.sleep(2)
    together = len(list(cell.folder.glob("at-work-*")))
    mark.unlink()
    return EvalResult({"dev": {"accuracy": float(together)}}, {})


@pytest.mark.parametrize(
    ("room", "most"), [(TrialResources(), 2), (TrialResources(cpus=1, gpus=2), 1), (TrialResources(cpus=2), 1)]
)
def test_there_are_as_many_at_once_as_the_cluster_file_says(
    some: list[EvalTrial], room: TrialResources, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", at_once)
    found, _ = done(some, room)
    assert max(one.scores["dev"]["accuracy"] for one in found.values()) == most


def dies_once(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    mark = cell.folder / "has-died"
    if not mark.exists():
        mark.touch()
        raise RuntimeError("a library lost its way")
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_an_error_that_is_none_of_ours_is_tried_again(some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", dies_once)
    found, failed = done(some[:1], TrialResources())
    assert (len(found), failed) == (1, {})


def the_third_dies(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    if cell.tuning and cell.tuning.seed == 2:
        os._exit(1)
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_a_cell_whose_process_dies_each_time_is_named_and_the_others_are_done(
    some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", the_third_dies)
    found, failed = done(some, TrialResources())
    assert set(found) == {0, 1, 3}
    assert {number: str(error) for number, error in failed.items()} == {
        2: "the process died in each attempt; check in dmesg whether memory ran out"
    }


def the_third_has_a_bug(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    if cell.tuning and cell.tuning.seed == 2:
        (cell.folder / f"tried-{time.monotonic_ns()}").touch()
        raise RuntimeError("a library lost its way\nand says more")
    return EvalResult({"dev": {"accuracy": 1.0}}, {})


def test_an_error_that_comes_again_is_named_and_the_others_are_done(
    some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_trials, "evaluate_cell", the_third_has_a_bug)
    found, failed = done(some, TrialResources())
    assert set(found) == {0, 1, 3}
    assert {number: str(error) for number, error in failed.items()} == {2: "RuntimeError: a library lost its way"}
    assert len(list(some[0].folder.glob("tried-*"))) == 2


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("Task was killed due to the node running low on memory.\nMemory on the node was 31 GB"),
        NodeDiedError("the machine is gone"),
        ObjectLostError("a" * 56, None, ""),
    ],
)
def test_an_error_of_rays_own_is_tried_again_and_named(
    error: RayError, some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third cell has it each time, the second once."""
    tries, whole = Counter[int](), ray.get

    def get(future: Any) -> EvalResult:
        number = int(whole(future).scores["dev"]["accuracy"])
        tries[number] += 1
        if number == 2 or (number == 1 and tries[1] == 1):
            raise error
        return whole(future)

    monkeypatch.setattr(eval_trials, "evaluate_cell", its_seed)
    monkeypatch.setattr(ray, "get", get)
    found, failed = done(some, TrialResources())
    assert set(found) == {0, 1, 3}
    assert tries == {0: 1, 1: 2, 2: 2, 3: 1}
    assert str(failed[2]) == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def its_seed(cell: EvalTrial, count: Path | None = None) -> EvalResult:
    assert cell.tuning is not None
    return EvalResult({"dev": {"accuracy": float(cell.tuning.seed)}}, {})


def test_an_error_of_the_command_itself_is_none_of_a_cell(
    some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(future: Any) -> EvalResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_trials, "evaluate_cell", its_seed)
    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(KeyboardInterrupt):
        done(some[:1], TrialResources())


def test_a_cell_for_which_there_is_no_machine_is_one_line_and_no_endless_wait(some: list[EvalTrial]) -> None:
    with pytest.raises(
        ResourceError, match=r"an evaluation needs 3 GPUs according to the cluster file, but Ray has 2 in all; select"
    ):
        done(some, TrialResources(gpus=3))


def test_a_signal_ends_the_grid_and_what_is_done_stays(some: list[EvalTrial]) -> None:
    with pytest.raises(Preempted, match=r"stopped with 4 of 4 evaluations unfinished; repeat the command to resume"):
        done(some, TrialResources(), StopRequest(signal=15))


def test_a_cell_in_bfloat16_goes_through_deepspeed(some: list[EvalTrial]) -> None:
    half = replace(some[0], machine=EngineSettings(precision="bf16", zero_stage=2))
    found, failed = done([half], TrialResources())
    assert failed == {}
    assert 0 <= found[0].scores["dev"]["accuracy"] <= 1
    assert len(found[0].losses) == 2


@pytest.mark.parametrize("zero", [2, 3])
def test_two_workers_of_one_fine_tuning_learn_what_one_does(some: list[EvalTrial], zero: Any, tmp_path: Path) -> None:
    net, squad = (
        eval_target.target_of_run(some[0].folder),
        questions(tmp_path / "data/SQuAD", train=17).parent,
    )  # the last batch of an epoch has one row
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
    still = replace(cell, tuning=replace(cell.tuning, dropout=0.0))  # each worker draws noise of its own
    alone = eval_trials.evaluate_cell(still)
    machine = replace(
        still.machine, zero_stage=zero, param_persistence_threshold=0, micro_batch_tokens=32
    )  # several passes a worker
    together = replace(still, machine=machine)
    found, failed = done([together, together], TrialResources(workers=2))
    assert failed == {}
    assert found[0].losses == pytest.approx(alone.losses, abs=1e-4)
    assert found[0].scores == alone.scores
    assert found[0] == found[1]


def test_what_one_of_two_workers_raises_comes_as_it_is(some: list[EvalTrial]) -> None:
    assert some[0].tuning is not None
    unfrozen = replace(some[0], tuning=replace(some[0].tuning, gradual_unfreezing=True))
    _, failed = done([unfrozen], TrialResources(workers=2))
    assert "use one worker without ZeRO" in str(failed[0])


def test_a_group_that_never_fits_is_one_line(some: list[EvalTrial]) -> None:
    with pytest.raises(ResourceError, match=r"needs 4 CPUs according to the cluster file, but Ray has 2 in all"):
        done(some, TrialResources(cpus=2, workers=2))


def test_two_workers_begin_with_the_same_and_keep_it(some: list[EvalTrial], monkeypatch: pytest.MonkeyPatch) -> None:
    """Here with SST-2 itself. The second group reads what the first one has made, and so does a process alone."""
    (task,) = tasks_from_words("sst2")
    assert isinstance(task, TaskFile)
    assert some[0].tuning is not None
    begins = replace(some[0], begin=(task, some[0].tuning), tuning=replace(some[0].tuning, init_task="sst2"))
    both = replace(begins, machine=EngineSettings(zero_stage=2))
    found, failed = done([both, both], TrialResources(workers=2))
    assert failed == {}
    assert found[0] == found[1]
    monkeypatch.setattr(eval_trial, "_train_before", lambda *_: pytest.fail("made twice"))
    assert eval_trials.evaluate_cell(begins).losses
    assert len(list((begins.folder / eval_trial.BEGUN).glob("sst2-*/spec.json"))) == 1
