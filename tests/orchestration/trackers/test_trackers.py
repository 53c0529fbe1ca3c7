"""Trackers beside MLflow: what they get of a run, what happens after a restart and after errors, and the real ones."""

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orchestration import trackers
from orchestration.config import Cluster, check, load
from orchestration.figures import plot_curves
from orchestration.trackers import mirror
from preprocessing.errors import BadInput
from preprocessing.spec import InvalidValue

FIGURE = {"loss_curve": [(1, 2.0), (2, 1.0)]}


class Recorded:
    """A tracker that records its calls, and fails at some steps."""

    kind: ClassVar[str] = "recorded"
    package: ClassVar[str] = "pytest"
    directory: ClassVar[str] = "recorded"
    calls: ClassVar[list[tuple[Any, ...]]] = []
    fails_at: ClassVar[Sequence[int]] = ()

    def __init__(self, folder: Path, setup: trackers.TrackerSetup, is_new: bool) -> None:
        self.calls.append(("open", setup.run_id, is_new, dict(setup.params)))

    def log_metrics(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        if step in self.fails_at:
            raise ConnectionError("no answer\nmore")
        self.calls.append(("metrics", step, time_s, dict(values)))

    def log_figures(self, step: int, figures: Mapping[str, Any]) -> None:
        self.calls.append(("figures", step, list(figures)))

    def flush(self) -> None:
        self.calls.append(("flush",))

    def close(self) -> None:
        self.calls.append(("close",))


class Other(Recorded):
    kind: ClassVar[str] = "other"
    calls: ClassVar[list[tuple[Any, ...]]] = []
    fails_at: ClassVar[Sequence[int]] = ()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "EVERY_S", 0.01)
    for each in (Recorded, Other):
        each.calls.clear()
        monkeypatch.setattr(each, "fails_at", ())


def select(kinds: Sequence[str]) -> list[type[trackers.Tracker]]:
    return [one for one in (Recorded, Other) if one.kind in kinds]


def append(record: Path, *steps: int) -> None:
    with record.open("a") as file:
        for step in steps:
            loss = None if step == 2 else 1.0 / step
            file.write(json.dumps({"step": step, "time": 100.0 + step, "metrics": {"train/loss": loss}}) + "\n")


def send(folder: Path, names: Sequence[str] = ("recorded",), figures: Callable[[], Any] = dict) -> None:
    """One command: set the trackers, send the record, close."""
    trackers.write_setup(folder, names, "bert-10a7", {"seed": "1"}, "a run")
    trackers.TrackerMirror(folder, folder / "metrics.jsonl", select, figures).close()


def find_steps(calls: Sequence[tuple[Any, ...]]) -> list[int]:
    return [call[1] for call in calls if call[0] == "metrics"]


def test_tracker_gets_parameters_metrics_and_figures(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", 1, 2)
    send(tmp_path, figures=lambda: {"loss_curve": "drawn"})
    opened, first, second, *rest = Recorded.calls
    assert opened[0] == "open"
    assert opened[2:] == (True, {"seed": "1"})
    assert first == ("metrics", 1, 101.0, {"train/loss": 1.0})
    assert second[1] == 2
    assert math.isnan(second[3]["train/loss"])
    assert [call for call in rest if call[0] != "flush"] == [("figures", 2, ["loss_curve"]), ("close",)]


def test_resumed_run_continues_with_the_same_id_and_sends_no_point_twice(tmp_path: Path) -> None:
    record = tmp_path / "metrics.jsonl"
    append(record, 1, 2)
    with record.open("a") as file:
        file.write('{"step": 3, "ti')  # a kill cut this line short
    send(tmp_path)
    assert find_steps(Recorded.calls) == [1, 2]
    record.write_bytes(record.read_bytes()[: record.read_bytes().rfind(b"\n") + 1])  # as a restarted worker does
    append(record, 3)
    send(tmp_path)
    opened = [call for call in Recorded.calls if call[0] == "open"]
    assert find_steps(Recorded.calls) == [1, 2, 3]
    assert opened[0][1] == opened[1][1]
    assert [call[2] for call in opened] == [True, False]


def test_tracker_that_is_added_later_gets_all_points(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", 1, 2)
    send(tmp_path)
    append(tmp_path / "metrics.jsonl", 3)
    send(tmp_path, names=("recorded", "other"))
    assert find_steps(Other.calls) == [1, 2, 3]


def test_failed_tracker_warns_once_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Recorded, "fails_at", (2,))
    append(tmp_path / "metrics.jsonl", 1, 2, 3)
    with caplog.at_level(logging.WARNING):
        send(tmp_path, names=("recorded", "other"))
    (warning,) = caplog.messages
    assert warning == f"tracker recorded of {tmp_path}: ConnectionError: no answer; {mirror.REMEDY}"
    assert find_steps(Other.calls) == [1, 2, 3]
    monkeypatch.setattr(Recorded, "fails_at", ())
    Recorded.calls.clear()
    send(tmp_path, names=("recorded", "other"))  # the next command sends what it lacks
    assert find_steps(Recorded.calls) == [1, 2, 3]
    assert find_steps(Other.calls) == [1, 2, 3]


def test_tracker_that_hangs_delays_the_end_of_a_run_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = threading.Event()
    monkeypatch.setattr(mirror, "CLOSE_S", 0.05)
    monkeypatch.setattr(Recorded, "close", lambda self: free.wait())
    append(tmp_path / "metrics.jsonl", 1)
    with caplog.at_level(logging.WARNING):
        send(tmp_path)
    free.set()
    assert caplog.messages == [f"trackers of {tmp_path}: not finished after 0 s; {mirror.REMEDY}"]


def test_run_without_trackers_writes_nothing(tmp_path: Path) -> None:
    send(tmp_path, names=())
    trackers.log_scores(tmp_path, select, [trackers.Scores(1, {"eval/rte/pretrained_accuracy": 0.5}, {})])
    assert list(tmp_path.iterdir()) == []


def test_scores_of_an_evaluation_are_sent_to_the_trackers_of_the_run(tmp_path: Path) -> None:
    append(tmp_path / "metrics.jsonl", 1)
    send(tmp_path)
    Recorded.calls.clear()
    figures: Mapping[str, Any] = {"rte/scores": "drawn"}
    scores = [trackers.Scores(9, {f"eval/{task}/pretrained_accuracy": 0.5}, figures) for task in ("rte", "mrpc")]
    trackers.log_scores(tmp_path, select, scores)
    assert [call[0] for call in Recorded.calls] == ["open", "metrics", "figures", "metrics", "figures", "close"]
    assert Recorded.calls[1][1] == 9
    assert Recorded.calls[1][3] == {"eval/rte/pretrained_accuracy": 0.5}


def test_scores_that_a_tracker_does_not_take_are_named_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning once promised that a later command sends them."""
    append(tmp_path / "metrics.jsonl", 1)
    send(tmp_path)
    monkeypatch.setattr(Recorded, "fails_at", (9,))
    trackers.log_scores(tmp_path, select, [trackers.Scores(9, {"eval/rte/pretrained_accuracy": 0.5}, {})])
    assert caplog.messages == [f"tracker recorded of {tmp_path}: ConnectionError: no answer; {mirror.NO_SCORES}"]


def test_scores_during_a_training_keep_the_bytes_that_it_has_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "metrics.jsonl", 1)
    send(tmp_path)
    trackers.write_setup(tmp_path, ["recorded", "other"], "bert-10a7", {}, "")

    def train(self: Other) -> None:
        append(tmp_path / "metrics.jsonl", 2)
        send(tmp_path)

    monkeypatch.setattr(Other, "close", train)
    trackers.log_scores(tmp_path, select, [trackers.Scores(9, {"eval/rte/pretrained_accuracy": 0.5}, {})])
    setup = trackers.TrackerSetup.read(tmp_path)
    assert setup is not None
    assert setup.sent == {"recorded": (tmp_path / "metrics.jsonl").stat().st_size, "other": 0}


def test_damaged_file_of_trackers_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / trackers.SETUP).write_text("{")
    with pytest.raises(BadInput, match=r"trackers\.json.*delete it"):
        send(tmp_path)
    trackers.log_scores(tmp_path, select, [trackers.Scores(1, {"eval/rte/pretrained_accuracy": 0.5}, {})])
    assert "its trackers other than MLflow get no scores" in caplog.text


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_file_of_trackers_that_is_damaged_during_a_run_does_not_end_the_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread once ended with a traceback."""
    flushed = threading.Event()

    def damage(self: Recorded) -> None:
        (tmp_path / trackers.SETUP).write_text("{")
        flushed.set()

    monkeypatch.setattr(Recorded, "flush", damage)
    append(tmp_path / "metrics.jsonl", 1)
    trackers.write_setup(tmp_path, ["recorded"], "bert-10a7", {}, "")
    thread = trackers.TrackerMirror(tmp_path, tmp_path / "metrics.jsonl", select)
    flushed.wait()
    append(tmp_path / "metrics.jsonl", 2)
    thread.close()
    assert find_steps(Recorded.calls) == [1, 2]


def test_cluster_accepts_the_names_of_trackers_only() -> None:
    assert Cluster(name="mine", trackers=("mlflow", "tensorboard", "wandb")).trackers[1:] == ("tensorboard", "wandb")
    with pytest.raises(InvalidValue, match="mlflow or tensorboard or wandb"):
        Cluster(name="mine", trackers=("neptune",))


def test_tracker_without_its_package_is_a_problem_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, cluster = load("bert_base", scale="tiny"), Cluster(name="mine", trackers=("tensorboard",))
    for tracker in trackers.TRACKERS:
        monkeypatch.setattr(tracker, "package", "pytest")
    assert check(recipe, cluster) == []
    monkeypatch.setattr(trackers.TRACKERS[0], "package", "no-such-package")
    assert check(recipe, cluster) == [
        "invalid cluster.trackers: got tensorboard, expected the package no-such-package to be installed; run `pip "
        "install no-such-package`, or leave it out"
    ]


def test_each_tracker_has_its_own_name_and_directory() -> None:
    assert len({tracker.kind for tracker in trackers.TRACKERS}) == len(trackers.TRACKERS)
    assert len(set(trackers.FILES)) == 1 + len(trackers.TRACKERS)


# The real trackers, if their packages are installed


def write_real(kind: str, folder: Path) -> None:
    """Two commands with a tracker: three steps, then one more, with a figure at each end."""
    for steps in ((1, 2, 3), (4,)):
        append(folder / "metrics.jsonl", *steps)
        trackers.write_setup(folder, [kind], "bert-10a7", {"optimizer.learning_rate": "0.001", "name": "a|b"}, "* note")
        plots = {name: plot_curves({"loss": points}, "loss") for name, points in FIGURE.items()}
        record = folder / "metrics.jsonl"
        trackers.TrackerMirror(folder, record, trackers.select_trackers, lambda plots=plots: plots).close()
    scores = trackers.Scores(4, {"eval/rte/pretrained_accuracy": 0.5}, {})
    trackers.log_scores(folder, trackers.select_trackers, [scores])


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_the_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_real("tensorboard", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(point.step, point.wall_time) for point in events.Scalars("train/loss")] == [
        (step, 100.0 + step) for step in (1, 2, 3, 4)
    ]
    assert [point.step for point in events.Images("figures/loss_curve")] == [3, 4]
    assert [point.value for point in events.Scalars("eval/rte/pretrained_accuracy")] == [0.5]
    (text,) = events.Tensors("parameters/text_summary")
    assert b"| optimizer.learning_rate | 0.001 |" in text.tensor_proto.string_val[0]


@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_offline_files_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    write_real("wandb", tmp_path)
    run_id = trackers.TrackerSetup.read(tmp_path).run_id  # type: ignore[union-attr]
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*-{run_id}*/run-{run_id}.wandb"))
    assert len(files) == 3
    assert [b"train/loss" in file.read_bytes() for file in files] == [True, True, False]
    assert b"optimizer.learning_rate" in files[0].read_bytes()
    assert list(files[0].parent.glob("files/media/images/figures/loss_curve*.png"))
