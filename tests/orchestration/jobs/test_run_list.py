"""`sesame runs` lists the runs of an output directory from their files, without MLflow."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch, tracking
from orchestration.cli import main
from orchestration.jobs import list_runs, stages, summarize_run
from orchestration.jobs.runs import RESULT
from preprocessing.lock import hold_lock
from training.evaluation.tasks import SelectedTrials, TaskScore

ID = "0123456789abcdef0123456789abcdef"


def write_run(out: Path, name: str, *lines: dict[str, float], changed: float = 1e9) -> Path:
    """A run of 30 steps in two phases that has logged these metrics at steps 10, 20, ..."""
    folder = out / "runs" / name
    folder.mkdir(parents=True)
    (folder / launch.RUN).write_text(json.dumps({"phases": [{"steps": 10}, {"steps": 20}]}))
    points = [{"step": 10 * n, "time": 1.0, "metrics": metrics} for n, metrics in enumerate(lines, start=1)]
    (folder / tracking.METRICS_FILE).write_text("".join(json.dumps(point) + "\n" for point in points))
    for file in folder.iterdir():
        os.utime(file, (changed, changed))
    return folder


def finish(folder: Path, changed: float) -> None:
    (folder / RESULT).write_text(json.dumps({"step": 30, "tokens": 99, "evaluation": {"eval/loss": 5.0}}))
    (folder / stages.MARK).write_text(json.dumps({"hash": "x"}))
    os.utime(folder / stages.MARK, (changed, changed))


def test_each_state_is_reported_the_last_change_first(tmp_path: Path) -> None:
    write_run(tmp_path, "a-00000001", {"train/loss": 7.0}, {"train/loss": 6.0}, changed=1e9)
    finished = write_run(tmp_path, "b-00000001", {"train/loss": 6.0}, {"eval/loss": 5.5, "train/loss": 5.25})
    finish(finished, 1e9 + 60)
    damaged = write_run(tmp_path, "c-00000001", changed=1e9 - 60)
    (damaged / launch.RUN).write_text("{")
    os.utime(damaged / launch.RUN, (1e9 - 60, 1e9 - 60))
    (finished / tracking.RUN_FILE).write_text(json.dumps({"run_id": ID, "uri": "sqlite:///x"}))
    found = list_runs(tmp_path)
    assert [(one.name, one.state, one.step, one.num_steps) for one in found] == [
        ("b-00000001", "finished", 30, 30),
        ("a-00000001", "stopped", 20, 30),
        ("c-00000001", "damaged", 0, 0),
    ]
    assert [(one.loss, one.held_out_loss, one.mlflow_run) for one in found] == [
        (5.25, 5.5, ID),
        (6.0, None, ""),
        (None, None, ""),
    ]
    assert str(damaged / launch.RUN) in found[2].problem
    assert str(found[0]) == "b-00000001: finished, step 30/30, loss 5.250"


def test_a_run_whose_disk_has_no_locks_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.jobs.run_list.is_held", lambda folder: None)
    assert summarize_run(write_run(tmp_path, "a-00000001")).state == "unknown"


def test_a_run_whose_directory_is_locked_is_running(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "a-00000001", {"train/loss": 7.0})
    with hold_lock(folder):
        assert summarize_run(folder).state == "running"
    assert summarize_run(folder).state == "stopped"


def test_a_loss_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "a-00000001", {"train/loss": None})  # type: ignore[dict-item]
    assert (summarize_run(folder).step, summarize_run(folder).loss) == (10, None)


def test_a_run_that_stopped_between_two_points_has_the_step_of_its_checkpoint(tmp_path: Path) -> None:
    """`train` said "stopped after step 13", and `runs` said 10."""
    folder = write_run(tmp_path, "a-00000001", {"train/loss": 7.0})
    (folder / "checkpoints" / "step-000000013").mkdir(parents=True)
    assert summarize_run(folder).step == 13


def test_an_evaluation_changes_a_run(tmp_path: Path) -> None:
    for name in ("a-00000001", "b-00000001"):
        write_run(tmp_path, name, changed=1e9)
    mark = tmp_path / "runs" / "b-00000001" / "scores" / "sst2-1" / stages.MARK
    mark.parent.mkdir(parents=True)
    mark.write_text(json.dumps({"causes": {}}))
    os.utime(mark, (1e9 + 60, 1e9 + 60))
    assert [(one.name, one.changed) for one in list_runs(tmp_path)] == [("b-00000001", 1e9 + 60), ("a-00000001", 1e9)]


def test_scores_are_medians_over_the_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(task: str, metric: str, start: str, *values: float) -> TaskScore:
        trials = SelectedTrials({}, {"dev": {metric: values}})
        return TaskScore(task, metric, "dev", "", {start: trials})

    scores = {
        "sst2-1": (score("sst2", "accuracy", "pretrained", 0.5, 0.9, 0.8), (None, 0)),
        "cola-1": (score("cola", "accuracy", "pretrained", 0.25), (None, 0)),
        "mrpc-1": (score("mrpc", "accuracy", "random", 0.5), (None, 0)),
    }
    monkeypatch.setattr("orchestration.jobs.run_list.load_finished_scores", lambda folder: scores)
    found = summarize_run(write_run(tmp_path, "a-00000001"))
    assert [(one.name, one.metric, one.value) for one in found.scores] == [
        ("cola", "accuracy", 0.25),
        ("sst2", "accuracy", 0.8),
    ]
    assert str(found).endswith("step 0/30, cola 25.0, sst2 80.0")
    scores["sst2-2"] = (score("sst2", "accuracy", "pretrained", 0.5), (None, 0))  # with another grid
    found = summarize_run(write_run(tmp_path, "b-00000001"))
    assert str(found).endswith("cola 25.0, sst2 (1) 80.0, sst2 (2) 50.0")


def test_the_command_prints_a_table_json_and_the_next_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = write_run(tmp_path, "a-00000001", {"train/loss": 7.0})
    finished = write_run(tmp_path, "b-00000001", {"train/loss": 5.25})
    finish(finished, 1e9)
    words = ["runs", "--output-dir", str(tmp_path)]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert all(one in table for one in ("a-00000001", "stopped", "10/30", "7.000", "b-00000001", "finished", "30/30"))
    assert f"sesame train {stopped.name} --output-dir {tmp_path}" in table
    assert f"sesame eval {finished.name} --output-dir {tmp_path}" in table
    assert main([*words, "--json"]) == 0
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"]) for one in values["runs"]] == [
        ("a-00000001", "stopped"),
        ("b-00000001", "finished"),
    ]


def test_a_directory_without_runs_says_so_and_a_missing_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--output-dir", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out
    assert main(["runs", "--output-dir", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.endswith(
        f"sesame: {tmp_path}/none: no such directory; name the directory of the results with --output-dir\n"
    )
