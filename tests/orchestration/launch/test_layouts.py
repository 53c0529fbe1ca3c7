"""The history of the layouts of a run, across commands, restarts and damaged files."""

import json
from pathlib import Path

import pytest

from orchestration.launch.layouts import LAYOUTS, Layout, LayoutHistory, LayoutPeriod, tags_of
from preprocessing.errors import BadInput
from training.specs import EngineSettings

TWO = Layout.of(EngineSettings(zero_stage=2), 2)
ONE = Layout.of(EngineSettings(zero_stage=3), 1)


def test_run_with_one_layout_has_one_period_and_no_tags(tmp_path: Path) -> None:
    history = LayoutHistory(tmp_path, {"command": "sesame train bert_base", "cluster": "name: local"})
    for step in (0, 40, 80):
        periods = history.add(step, TWO)
    assert [(one.step, one.layout, one.command, one.cluster) for one in periods] == [
        (0, TWO, "sesame train bert_base", "name: local")
    ]
    assert tags_of(periods, 2) == {}


def test_run_that_continues_under_another_layout_has_all_of_them(tmp_path: Path) -> None:
    LayoutHistory(tmp_path, {"command": "first"}).add(0, TWO)
    periods = LayoutHistory(tmp_path, {"command": "second"}).add(501, ONE)
    assert [one.command for one in periods] == ["first", "second"]
    assert LayoutHistory(tmp_path).read() == periods
    assert tags_of(periods, 1) == {
        "num_workers": 1,
        "num_workers_history": "2 from step 0, 1 from step 501",
        "layout_history": "2 workers, ZeRO 2, fp32 from step 0; 1 worker, ZeRO 3, fp32 from step 501",
    }


def test_layout_whose_steps_are_repeated_is_left_out(tmp_path: Path) -> None:
    history = LayoutHistory(tmp_path)
    history.add(0, TWO)
    history.add(40, ONE)  # it dies before its first checkpoint
    assert [(one.step, one.layout) for one in history.add(40, TWO)] == [(0, TWO)]


def test_run_does_not_continue_with_another_precision(tmp_path: Path) -> None:
    history = LayoutHistory(tmp_path)
    history.check_precision(500, "bf16")
    history.add(0, Layout.of(EngineSettings(), 2))
    history.check_precision(500, "fp32")
    history.check_precision(0, "bf16")  # no step was done with the other precision
    with pytest.raises(
        BadInput, match=r"trained with precision fp32, .* has precision bf16; resume with cluster.engine.precision=fp32"
    ):
        history.check_precision(500, "bf16")


def test_history_of_a_run_whose_beginning_is_unknown_names_its_first_step() -> None:
    periods = [LayoutPeriod(step=300, layout=TWO)]  # the steps before were trained by an earlier version
    assert tags_of(periods, 2)["num_workers_history"] == "2 from step 300"


def test_fewer_workers_than_planned_are_tagged_at_once() -> None:
    assert tags_of([LayoutPeriod(step=0, layout=TWO)], 4)["num_workers"] == 2


def test_parallel_sizes_are_part_of_a_layout() -> None:
    split = Layout.of(EngineSettings(tensor_parallel_size=2, precision="bf16"), 4)
    assert split.describe() == "4 workers, ZeRO 2, tensor parallel 2, bf16"


@pytest.mark.parametrize("content", ["{", "[{}]", '[{"step": 0, "layout": {"workers": 2}}]'])
def test_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / LAYOUTS).write_text(content)
    with pytest.raises(BadInput, match=r"layouts\.json.*delete it"):
        LayoutHistory(tmp_path).add(1, TWO)
    assert (tmp_path / LAYOUTS).read_text() == content


def test_file_is_readable_json(tmp_path: Path) -> None:
    LayoutHistory(tmp_path).add(0, TWO)
    (period,) = json.loads((tmp_path / LAYOUTS).read_text())
    assert period["layout"]["num_workers"] == 2
