"""Groups of two Ray workers on the mini-world: killed workers, signals, invalid input and evaluations."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import load_cluster
from orchestration.evaluation import evaluate
from orchestration.evaluation.eval_request import EvalRequest
from orchestration.evaluation.eval_target import target_of_run
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.launch import group as launch
from orchestration.launch import placement
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput, Preempted, ResourceError
from tests.orchestration.launch.mini_group import STEPS, losses, mlflow_run, once_at, run_of, start, trainers
from training.formats import load_weights
from training.specs import EngineSettings

# a busy machine takes minutes to start Ray's processes
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("session"), pytest.mark.timeout(1800)]


def kill_a_worker() -> None:
    """Kill one worker with SIGKILL. Only child processes are considered, so another Ray on this machine is safe."""
    max(trainers(), key=lambda each: each.pid).kill()


def test_progress_names_each_stage_in_order_and_reports_the_last_step(
    corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    events: list[Mapping[str, Any]] = []
    start(run_of(corpus, tmp_path), place, on_progress=events.append)
    stages = [event["stage"] for event in events]
    known = [
        "opening MLflow",
        "starting workers",
        "importing DeepSpeed",
        "connecting the workers",
        "building the model",
        "opening corpus and checkpoint",
        "pretrain",
        "mirroring metrics",
        "exporting weights",
        "logging to MLflow",
    ]
    if stages.index("exporting weights") < stages.index("mirroring metrics"):  # the training took less than 5 s
        known[-3:-1] = ["exporting weights", "mirroring metrics"]
    assert list(dict.fromkeys(stages)) == known
    assert stages == sorted(stages, key=known.index)  # no stage occurs twice
    last = [event for event in events if event["stage"] == "pretrain"][-1]
    assert (last["done"], last["total"], last["left_s"]) == (STEPS, STEPS, 0.0)
    assert {"tokens_per_s", "loss", "held_out"} <= last.keys()


def test_killed_worker_causes_a_restart_without_lost_metrics(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    whole_folder, undisturbed = reference_run
    assert (
        start(run_of(corpus, tmp_path), place, on_progress=once_at(20, kill_a_worker)) == undisturbed
    )  # equal to the last bit
    tracked = mlflow_run(place, tmp_path)
    assert (tracked.data.tags["restarts"], tracked.info.status) == ("1", "FINISHED")
    assert losses(tmp_path) == losses(whole_folder)
    assert [step for step, _ in losses(tmp_path)] == list(range(1, STEPS + 1))
    mirrored = track.client_of(place.uri).get_metric_history(tracked.info.run_id, "train/loss")
    assert sorted((point.step, point.value) for point in mirrored) == losses(tmp_path)
    for name in ("weights/weights.safetensors", "export/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (whole_folder / name).read_bytes()


def test_finished_run_has_figures_and_a_model_in_mlflow(reference_run: Any, place: track.TrackingStore) -> None:
    folder, _ = reference_run
    run_id, client = mlflow_run(place, folder).info.run_id, track.client_of(place.uri)
    pictures = {each.path for each in client.list_artifacts(run_id, "figures")}
    assert pictures == {f"figures/{name}.png" for name in ("loss_curve", "learning_rate", "throughput")}
    run = client.get_run(run_id)
    (model,) = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    assert (model.name, str(model.status), model.model_type) == (
        f"{run.info.run_name}-step-{STEPS}",
        "READY",
        "fill-mask",
    )
    assert {"MLmodel", "model", "components", "model_card.md"} <= {
        each.path for each in client.list_logged_model_artifacts(model.model_id)
    }
    assert run.data.tags["sesame.model_status"] == "fill-mask by BertForMaskedLM"
    assert int(run.data.tags["hardware.cores"]) > 0


def test_tensor_parallel_workers_save_complete_weights(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    folder, _ = reference_run
    shared = EngineSettings(tensor_parallel_size=2)
    start(run_of(corpus, tmp_path / "shared", engine=shared), place)
    found, wanted = (dict(losses(each)) for each in (tmp_path / "shared", folder))
    assert found == pytest.approx(wanted, rel=1e-4)
    (its_spec, its), (spec, weights) = (load_weights(each / "weights") for each in (tmp_path / "shared", folder))
    assert its_spec == spec
    assert {name: weight.shape for name, weight in its.items()} == {name: w.shape for name, w in weights.items()}


def test_pipeline_parallel_workers_save_complete_weights(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    folder, _ = reference_run
    start(run_of(corpus, tmp_path / "staged", engine=EngineSettings(pipeline_parallel_size=2, zero_stage=1)), place)
    found, wanted = (dict(losses(each)) for each in (tmp_path / "staged", folder))
    assert found == pytest.approx(wanted, rel=1e-4)
    (its_spec, its), (spec, weights) = (load_weights(each / "weights") for each in (tmp_path / "staged", folder))
    assert its_spec == spec
    assert {name: weight.shape for name, weight in its.items()} == {name: w.shape for name, w in weights.items()}


def test_repeated_death_without_progress_ends_the_run(corpus: Path, place: track.TrackingStore, tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"worker \d died \(SYSTEM_ERROR\) after step \d+, 1 times"):
        start(
            run_of(corpus, tmp_path),
            place,
            restart_policy=launch.RestartPolicy(max_restarts=0),
            on_progress=once_at(1, kill_a_worker),
        )
    assert mlflow_run(place, tmp_path).info.status == "FAILED"


def test_sigterm_saves_a_checkpoint_and_the_same_command_resumes(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    stop = once_at(5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted, match=rf"stopped after step \d+ of {STEPS}; repeat the command"):
        start(run_of(corpus, tmp_path), place, on_progress=stop)
    assert signal.getsignal(signal.SIGTERM) is before
    assert mlflow_run(place, tmp_path).info.status == "KILLED"
    assert not (tmp_path / "weights").exists()
    assert 5 <= losses(tmp_path)[-1][0] < STEPS

    whole_folder, undisturbed = reference_run
    assert start(run_of(corpus, tmp_path), place) == undisturbed
    assert losses(tmp_path) == losses(whole_folder)
    assert mlflow_run(place, tmp_path).info.status == "FINISHED"


def test_run_resumes_with_fewer_workers(
    reference_run: Any, corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    with pytest.raises(Preempted):
        start(run_of(corpus, tmp_path), place, on_progress=once_at(5, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert start(run_of(corpus, tmp_path), place, num_workers=1).finished
    found, wanted = (dict(losses(folder)) for folder in (tmp_path, reference_run[0]))
    assert found == pytest.approx(wanted, rel=1e-6)


def test_bad_input_of_a_worker_is_raised_without_a_retry(
    corpus: Path, place: track.TrackingStore, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="no checkpoint to resume from"):
        start(run_of(corpus, tmp_path, resume="must"), place)
    tracked = mlflow_run(place, tmp_path)
    assert tracked.info.status == "FAILED"
    assert "restarts" not in tracked.data.tags


def test_too_many_workers_give_a_one_line_error(
    corpus: Path, place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage must name the missing resources, because users take a silent wait of minutes for a fault."""
    monkeypatch.setattr(placement, "PLACEMENT_S", 0.5)
    events: list[Mapping[str, Any]] = []
    with pytest.raises(ResourceError, match=r"no room for 64 workers of 1 CPU: Ray has \d+ CPUs? \(\d+ free\)"):
        start(run_of(corpus, tmp_path), place, num_workers=64, on_progress=events.append)
    (waited, *_) = [event for event in events if event["stage"] == "waiting for 64 workers of 1 CPU"]
    assert waited["Ray has"].endswith(" free)")


def test_evaluation_is_logged_as_child_runs(reference_run: Any, place: track.TrackingStore) -> None:
    folder, _ = reference_run
    events: list[Mapping[str, Any]] = []
    (folder / "stage.json").write_text('{"hash": "of the run"}')
    asked = EvalRequest(
        tasks=["source_classification", "next_sentence"], num_seeds=2, max_train_samples=(16,), max_steps=4
    )
    found = evaluate.evaluate(folder, plan_tasks(target_of_run(folder), asked), load_cluster("local"), events.append)
    assert [(one.task, len(one.values("pretrained")), len(one.values("random"))) for one in found] == [
        ("source_classification", 2, 2),
        ("next_sentence", 2, 2),
    ]
    stages = list(dict.fromkeys(event["stage"] for event in events))
    assert stages == ["loading workers", "finetune", "logging to MLflow"]
    last = [event for event in events if event["stage"] == "finetune"][-1]
    assert (last["done"], last["total"], last["ended"]) == (32, 32, "8/8 trials")
    assert ": test accuracy 0." in last["last"]
    tracked, client = mlflow_run(place, folder), track.client_of(place.uri)
    children = client.search_runs([tracked.info.experiment_id], f"tags.mlflow.parentRunId = '{tracked.info.run_id}'")
    assert {(each.info.run_name, each.info.status) for each in children} == {
        ("eval/source_classification with 16 labels of mini", "FINISHED"),
        ("eval/next_sentence with 16 labels of mini", "FINISHED"),
    }
    mean = sum(found[0].values("pretrained")) / 2
    assert tracked.data.metrics["eval/source_classification/pretrained_accuracy"] == pytest.approx(mean)


def test_no_run_is_left_running(place: track.TrackingStore) -> None:
    client = track.client_of(place.uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    assert not client.search_runs(experiments, "attributes.status = 'RUNNING'")
