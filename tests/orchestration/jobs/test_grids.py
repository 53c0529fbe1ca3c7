"""Grids of hyper-parameters: which one a net gets, what a command changes of it, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.jobs.eval_request import EvalRequest, EvalTarget, tasks_from_words
from orchestration.jobs.grids import SMALL, grid_of
from orchestration.jobs.score_plan import plan_tasks
from preprocessing.errors import BadInput
from tests.orchestration.jobs.runs import own, wanted
from training.specs import EngineSettings


def test_a_grid_that_takes_the_best_weights_on_dev_wants_them(net: EvalTarget, data: Path) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    grid = replace(task.grids["bert"], learning_rates=(1e-3,), num_evaluations=2)
    mine = replace(task, grids={"mine": grid})
    asked = EvalRequest(tasks=[mine], task_data_dir=data, grid="mine", num_seeds=1)
    assert plan_tasks(net, asked)[0].cells
    with pytest.raises(BadInput, match=r"set cluster\.engine\.zero_stage=2"):
        plan_tasks(net, replace(asked, machine=EngineSettings(precision="bf16", zero_stage=3)))
    (data / "SST-2/test-labeled.tsv").write_text((data / "SST-2/dev.tsv").read_text())
    (data / "SST-2/dev.tsv").unlink()
    with pytest.raises(BadInput, match="selects the weights that are best on dev, but there is no labeled dev split"):
        plan_tasks(net, asked)


def test_the_grid_is_that_of_the_paper_of_the_net_and_small_nets_have_larger_rates(net: EvalTarget) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    large = {"parameters": 110_000_000}
    for name, grid in (("bert_base", "bert"), ("roberta_large", "roberta"), ("electra_base", "electra_base")):
        assert grid_of(replace(net, name=name, **large), task, "")[0] == grid
    assert grid_of(net, task, "")[1] is SMALL
    assert grid_of(net, task, "miniatures")[0] == "miniatures"
    with pytest.raises(BadInput, match="task sst2: invalid --grid: got burt, expected one of its grids \\(bert, "):
        grid_of(net, task, "burt")


@pytest.mark.parametrize(
    ("name", "grid", "said"),
    [
        ("xlnet_base", "", "xlnet_base has no grid for this task; BERT's grid is used"),
        ("xlnet_base", "roberta", ""),
        ("bert_base", "", ""),
        ("albert_base", "", ""),
    ],
)
def test_a_net_without_a_grid_of_its_own_is_told(net: EvalTarget, data: Path, name: str, grid: str, said: str) -> None:
    (plan,) = plan_tasks(
        replace(net, name=name, parameters=110_000_000), EvalRequest(tasks_from_words("sst2"), data, grid=grid)
    )
    assert plan.remarks == ((said,) if said else ())
    assert said in plan.grid_description


def test_each_cell_of_the_papers_grid_is_planned(net: EvalTarget, data: Path) -> None:
    asked = EvalRequest(tasks=tasks_from_words("sst2"), task_data_dir=data, grid="bert", num_seeds=3)
    (plan,) = plan_tasks(net, asked)
    assert [cell.tuning.learning_rate for cell in plan.cells if cell.tuning][::3] == [5e-5, 4e-5, 3e-5, 2e-5]
    assert {cell.tuning.epochs for cell in plan.cells if cell.tuning} == {3}
    grid = "sst2: grid bert: 5e-5 4e-5 3e-5 2e-5 x batches of 32 x 3 epochs, 3 runs each"
    assert plan.grid_description.startswith(grid)


@pytest.mark.parametrize(
    ("grid", "given", "runs", "said"),
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
def test_runs_and_warm_up_are_those_of_the_grid_and_what_is_asked_for_counts(
    net: EvalTarget, data: Path, grid: str, given: dict[str, Any], runs: int, said: str
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    best = replace(SMALL, num_seeds=2, reported_statistic="best", citation="me")
    mine = replace(task, grids={**task.grids, "best": best, "one": replace(best, num_seeds=1)})
    (plan,) = plan_tasks(net, EvalRequest(tasks=[mine], task_data_dir=data, grid=grid, **given))
    assert {cell.tuning.seed for cell in plan.cells if cell.tuning} == set(range(runs))
    assert said in plan.grid_description
    share = 1256 / 20_935 if grid == "albert" else 0.06 if grid == "roberta" else 0.1
    assert {cell.tuning.warmup_ratio for cell in plan.cells if cell.tuning} == {share}


def test_features_of_a_frozen_net_are_asked_for_and_what_does_not_go_with_them_is_one_line(
    net: EvalTarget, data: Path
) -> None:
    (plan,) = plan_tasks(net, wanted(data, frozen_features="last_four"))
    assert {cell.tuning.frozen_features for cell in plan.cells if cell.tuning} == {"last_four"}
    assert "x 2 steps, 2 runs each, last_four of a frozen model (" in plan.grid_description
    with pytest.raises(
        BadInput, match=r"task sst2, grid electra_base: layerwise_lr_decay is .*; give another grid with"
    ):
        plan_tasks(net, wanted(data, grid="electra_base", frozen_features="last"))


def test_hyperparameters_are_never_chosen_on_test(net: EvalTarget, data: Path) -> None:
    (data / "SST-2/dev.tsv").rename(data / "SST-2/test-labeled.tsv")
    with pytest.raises(BadInput, match=r"selecting one of 2 hyperparameter settings needs a labeled dev split"):
        plan_tasks(net, wanted(data, learning_rates=(1e-3, 2e-3)))
    (plan,) = plan_tasks(net, wanted(data))
    assert (plan.split, plan.chosen_on) == ("test_labelled", "")


def test_a_value_that_is_given_twice_counts_once(net: EvalTarget, data: Path) -> None:
    """Its seeds counted twice."""
    (plan,) = plan_tasks(net, wanted(data, learning_rates=(1e-3, 1e-3, 2e-3), batch_sizes=(8, 8), num_seeds=2))
    assert len(plan.cells) == 4
    assert "0.001 0.002 x batches of 8 x 2 steps, 2 runs each" in plan.grid_description
    (plan,) = plan_tasks(net, wanted(data, epochs=(1.0, 1.0), max_steps=0, num_seeds=2))
    assert len(plan.cells) == 2
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    mine = replace(
        task, grids={"mine": replace(SMALL, learning_rates=(1e-3, 1e-3), batch_sizes=(8, 8), epochs=(1.0, 1.0))}
    )
    (plan,) = plan_tasks(net, EvalRequest([mine], data, grid="mine"))
    assert len(plan.cells) == 3


def test_the_grids_of_a_task_of_ones_own_are_meant(net: EvalTarget, data: Path, tmp_path: Path) -> None:
    """Its only grid was not used for a net of less than 20 million parameters."""
    large = replace(net, name="bert_base", parameters=110_000_000)
    file = own(tmp_path / "mine")
    file.write_text(
        file.read_text()
        + "grids:\n  quick: {learning_rates: [2e-4], batch_sizes: [8], epochs: [1], citation: tried here}\n"
    )
    for one in (net, large):
        (plan,) = plan_tasks(one, EvalRequest(tasks_from_words(str(file))))
        quick = "mine: grid quick (the only grid of its file): 0.0002 x batches of 8 x 1 epochs"
        assert plan.grid_description.startswith(quick)
        assert plan.remarks == ()
    file.write_text(
        file.read_text() + "  slow: {learning_rates: [1e-5], batch_sizes: [8], epochs: [9], citation: tried here}\n"
    )
    others = r"its file has quick, slow; select one with --grid"
    (plan,) = plan_tasks(net, EvalRequest(tasks_from_words(str(file))))
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
    (plan,) = plan_tasks(net, EvalRequest(tasks_from_words("sst2"), data))
    assert plan.grid_description.startswith("sst2: grid of small models: 0.001 0.0003 x")
