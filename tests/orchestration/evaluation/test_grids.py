"""Hyperparameter grids: which grid a model gets, what the command line overrides, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import tasks_from_words
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.grids import SMALL, grid_of
from orchestration.evaluation.score_plan import plan_tasks
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import make_request, write_task_file
from training.specs import EngineSettings


def test_grid_that_selects_weights_on_dev_requires_a_dev_split_and_full_weights(target: EvalTarget, data: Path) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    grid = replace(task.grids["bert"], learning_rates=(1e-3,), num_evaluations=2)
    mine = replace(task, grids={"mine": grid})
    asked = EvalRequest(tasks=[mine], task_data_dir=data, grid="mine", num_seeds=1)
    assert plan_tasks(target, asked)[0].cells
    with pytest.raises(BadInput, match=r"set cluster\.engine\.zero_stage=2"):
        plan_tasks(target, replace(asked, machine=EngineSettings(precision="bf16", zero_stage=3)))
    (data / "SST-2/test-labeled.tsv").write_text((data / "SST-2/dev.tsv").read_text())
    (data / "SST-2/dev.tsv").unlink()
    with pytest.raises(BadInput, match="selects the weights that are best on dev, but there is no labeled dev split"):
        plan_tasks(target, asked)


def test_model_gets_the_grid_of_its_paper_and_small_models_get_the_small_grid(target: EvalTarget) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    large = {"parameters": 110_000_000}
    for name, grid in (("bert_base", "bert"), ("roberta_large", "roberta"), ("electra_base", "electra_base")):
        assert grid_of(replace(target, name=name, **large), task, "")[0] == grid
    assert grid_of(target, task, "")[1] is SMALL
    assert grid_of(target, task, "miniatures")[0] == "miniatures"
    with pytest.raises(BadInput, match="task sst2: invalid --grid: got burt, expected one of its grids \\(bert, "):
        grid_of(target, task, "burt")


@pytest.mark.parametrize(
    ("name", "grid", "message"),
    [
        ("xlnet_base", "", "xlnet_base has no grid for this task; BERT's grid is used"),
        ("xlnet_base", "roberta", ""),
        ("bert_base", "", ""),
        ("albert_base", "", ""),
    ],
)
def test_model_without_its_own_grid_is_noted(
    target: EvalTarget, data: Path, name: str, grid: str, message: str
) -> None:
    (plan,) = plan_tasks(
        replace(target, name=name, parameters=110_000_000), EvalRequest(tasks_from_words("sst2"), data, grid=grid)
    )
    assert plan.remarks == ((message,) if message else ())
    assert message in plan.grid_description


def test_every_trial_of_the_published_grid_is_planned(target: EvalTarget, data: Path) -> None:
    asked = EvalRequest(tasks=tasks_from_words("sst2"), task_data_dir=data, grid="bert", num_seeds=3)
    (plan,) = plan_tasks(target, asked)
    assert [cell.tuning.learning_rate for cell in plan.cells if cell.tuning][::3] == [5e-5, 4e-5, 3e-5, 2e-5]
    assert {cell.tuning.epochs for cell in plan.cells if cell.tuning} == {3}
    grid = "sst2: grid bert: 5e-5 4e-5 3e-5 2e-5 x batches of 32 x 3 epochs, 3 runs each"
    assert plan.grid_description.startswith(grid)


@pytest.mark.parametrize(
    ("grid", "given", "runs", "message"),
    [
        ("roberta", {}, 5, "5 runs each (section 5.1, table 10, from memory)"),
        ("roberta", {"num_seeds": 3}, 3, "3 runs each (section 5.1, table 10, from memory); its paper has 5 runs"),
        ("bert", {}, 3, "3 runs each (section 4.1; best rate on dev, from memory)"),
        ("best", {}, 2, "2 runs each (me); its paper reports the best run, the score here is the median"),
        ("one", {}, 1, "4 epochs (me)"),
        ("albert", {}, 3, "20,935 steps, 3 runs each (table 14, from memory)"),
        (
            "albert",
            {"max_steps": 100},
            3,
            "100 steps, 3 runs each (table 14, from memory); warmup over 6 % of the steps,",
        ),
        ("albert", {"epochs": (3.0,)}, 3, "(table 14, from memory); warmup over 6 % of the steps, as in the grid"),
        ("bert", {"max_steps": 100}, 3, "100 steps, 3 runs each (section 4.1; best rate on dev, from memory)"),
    ],
)
def test_seeds_and_warmup_come_from_the_grid_unless_overridden(
    target: EvalTarget, data: Path, grid: str, given: dict[str, Any], runs: int, message: str
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    best = replace(SMALL, num_seeds=2, reported_statistic="best", citation="me")
    mine = replace(task, grids={**task.grids, "best": best, "one": replace(best, num_seeds=1)})
    (plan,) = plan_tasks(target, EvalRequest(tasks=[mine], task_data_dir=data, grid=grid, **given))
    assert {cell.tuning.seed for cell in plan.cells if cell.tuning} == set(range(runs))
    assert message in plan.grid_description
    warmup_ratio = 1256 / 20_935 if grid == "albert" else 0.06 if grid == "roberta" else 0.1
    assert {cell.tuning.warmup_ratio for cell in plan.cells if cell.tuning} == {warmup_ratio}


def test_frozen_features_are_planned_and_incompatible_grids_are_refused(target: EvalTarget, data: Path) -> None:
    (plan,) = plan_tasks(target, make_request(data, frozen_features="last_four"))
    assert {cell.tuning.frozen_features for cell in plan.cells if cell.tuning} == {"last_four"}
    assert "x 2 steps, 2 runs each, last_four of a frozen model (" in plan.grid_description
    with pytest.raises(
        BadInput, match=r"task sst2, grid electra_base: invalid layerwise_lr_decay: got .*; give another grid with"
    ):
        plan_tasks(target, make_request(data, grid="electra_base", frozen_features="last"))


def test_hyperparameters_are_never_selected_on_test(target: EvalTarget, data: Path) -> None:
    (data / "SST-2/dev.tsv").rename(data / "SST-2/test-labeled.tsv")
    with pytest.raises(BadInput, match=r"selecting one of 2 hyperparameter settings needs a labeled dev split"):
        plan_tasks(target, make_request(data, learning_rates=(1e-3, 2e-3)))
    (plan,) = plan_tasks(target, make_request(data))
    assert (plan.split, plan.chosen_on) == ("test_labelled", "")


def test_repeated_value_counts_once(target: EvalTarget, data: Path) -> None:
    """A repeated value once doubled the number of trials and seeds."""
    (plan,) = plan_tasks(target, make_request(data, learning_rates=(1e-3, 1e-3, 2e-3), batch_sizes=(8, 8), num_seeds=2))
    assert len(plan.cells) == 4
    assert "0.001 0.002 x batches of 8 x 2 steps, 2 runs each" in plan.grid_description
    (plan,) = plan_tasks(target, make_request(data, epochs=(1.0, 1.0), max_steps=0, num_seeds=2))
    assert len(plan.cells) == 2
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    mine = replace(
        task, grids={"mine": replace(SMALL, learning_rates=(1e-3, 1e-3), batch_sizes=(8, 8), epochs=(1.0, 1.0))}
    )
    (plan,) = plan_tasks(target, EvalRequest([mine], data, grid="mine"))
    assert len(plan.cells) == 3


def test_own_task_uses_the_grids_of_its_file(target: EvalTarget, data: Path, tmp_path: Path) -> None:
    """The only grid of a task file was once ignored for models with less than 20 million parameters."""
    large = replace(target, name="bert_base", parameters=110_000_000)
    file = write_task_file(tmp_path / "mine")
    file.write_text(
        file.read_text()
        + "grids:\n  quick: {learning_rates: [2e-4], batch_sizes: [8], epochs: [1], citation: tried here}\n"
    )
    for one in (target, large):
        (plan,) = plan_tasks(one, EvalRequest(tasks_from_words(str(file))))
        quick = "mine: grid quick (the only grid of its file): 0.0002 x batches of 8 x 1 epochs"
        assert plan.grid_description.startswith(quick)
        assert plan.remarks == ()
    file.write_text(
        file.read_text() + "  slow: {learning_rates: [1e-5], batch_sizes: [8], epochs: [9], citation: tried here}\n"
    )
    others = r"its file has quick, slow; select one with --grid"
    (plan,) = plan_tasks(target, EvalRequest(tasks_from_words(str(file))))
    assert plan.grid_description.startswith(f"mine: grid of small models ({others}): 0.001 0.0003 x")
    (plan,) = plan_tasks(large, EvalRequest(tasks_from_words(str(file))))
    assert plan.grid_description.startswith(f"mine: grid of BERT ({others}): 5e-5 3e-5 2e-5 x")
    (plan,) = plan_tasks(large, EvalRequest(tasks_from_words(str(file)), grid="slow"))
    assert plan.grid_description.startswith("mine: grid slow: 1e-5 x")
    file.write_text(
        file.read_text() + "  bert: {learning_rates: [1e-6], batch_sizes: [8], epochs: [9], citation: tried here}\n"
    )
    (plan,) = plan_tasks(large, EvalRequest(tasks_from_words(str(file))))
    assert plan.grid_description.startswith("mine: grid bert: 1e-6 x")
    (plan,) = plan_tasks(replace(large, name="xlnet_base"), EvalRequest(tasks_from_words(str(file))))
    why = "xlnet_base has no grid for this task; BERT's grid is used; its file has quick, slow, bert; "
    why += "select one with --grid"
    assert plan.grid_description.startswith(f"mine: grid bert ({why}): 1e-6 x")
    (plan,) = plan_tasks(target, EvalRequest(tasks_from_words("sst2"), data))
    assert plan.grid_description.startswith("sst2: grid of small models: 0.001 0.0003 x")
