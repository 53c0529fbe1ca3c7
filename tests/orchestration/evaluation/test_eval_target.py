"""Evaluated models: a run or a transformers directory, its size, and the choice of its grid and reported scores."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch
from orchestration.config import load, tasks_from_words
from orchestration.evaluation import eval_target
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.evaluation.grids import SMALL, grid_of
from orchestration.jobs import JobFlags
from preprocessing.errors import BadInput
from tests.orchestration.evaluation.runs import finished_run, write_transformers_directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_transformers_directory(tmp_path / "mine")


def grid_name(target: EvalTarget, task: str = "sst2") -> str:
    (found,) = tasks_from_words(task)
    assert not isinstance(found, str)
    return grid_of(target, found, "")[0]


def test_transformers_directory_is_identified_by_its_content(folder: Path, tmp_path: Path) -> None:
    target = eval_target.target_of_directory(folder, tmp_path / "out")
    assert (target.name, target.weights, target.corpus, target.expected) == ("mine", str(folder), None, {})
    assert target.folder == tmp_path / "out" / "evals" / f"mine-{target.hash[:8]}"
    assert 1_000 < target.parameters < 100_000
    moved = folder.rename(tmp_path / "bert-base-uncased")
    named = eval_target.target_of_directory(moved, tmp_path / "out")
    assert named.hash == target.hash
    assert named.expected["squad"] == {"em": 80.8, "f1": 88.5}
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    assert eval_target.target_of_directory(moved, tmp_path / "out").hash != target.hash


@pytest.mark.parametrize(
    ("of_type", "parameters", "found"),
    [
        ("bert", 110, "bert"),
        ("bert", 29, "miniatures"),
        ("bert", 4.4, "miniatures"),
        ("bert", 0.5, "of small models"),
        ("roberta", 125, "roberta"),
        ("roberta", 5, "of small models"),
        ("albert", 11.7, "albert"),
        ("electra", 13.5, "electra_small"),
        ("electra", 110, "electra_base"),
        ("electra", 335, "electra_large"),
        ("xlnet", 117, "xlnet"),
        ("gpt2", 124, "gpt1"),
        ("openai-gpt", 116, "gpt1"),
        ("t5", 60, "t5"),
        ("bart", 140, "bart"),
        ("pegasus", 570, "bert"),
        ("deberta", 140, "bert"),
    ],
)
def test_grid_of_a_directory_follows_its_model_type_and_size(
    of_type: str, parameters: float, found: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder.rename(tmp_path / "roberta_mine")
    (folder / "config.json").write_text(json.dumps({"model_type": of_type}))
    monkeypatch.setattr(eval_target, "num_parameters", lambda file, stem: int(parameters * 1e6))
    target = eval_target.target_of_directory(folder, tmp_path)
    assert grid_name(target, "mnli") == found
    assert target.why == f"model_type {of_type}, {parameters:.1f} million parameters"


def test_directory_without_weights_or_model_type_gives_a_one_line_error(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(
        BadInput, match=r"config\.json: model_type is missing; write the directory with save_pretrained"
    ):
        eval_target.target_of_directory(folder, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"mine: model\.safetensors is missing; write it with save_pretrained"):
        eval_target.target_of_directory(folder, tmp_path)


def test_transformers_directory_requires_the_tasks_option(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"mine: a directory of transformers has no list of tasks; set --tasks "):
        eval_target.target_eval_tasks(JobFlags(recipe=str(folder)))


@pytest.mark.parametrize(
    ("name", "of_recipe", "changes", "found"),
    [
        ("albert_base", "albert_base", {}, "albert"),
        ("albert_base_tiny", "albert_base", {"num_hidden_layers": 2}, "of small models"),
        # the recipe's name, but overridden keys
        ("albert_base", "albert_base", {"num_hidden_layers": 2}, "of small models"),
        ("bert_tiny", "bert_tiny", {}, "miniatures"),
        ("bert_small", "bert_small", {}, "miniatures"),
        ("electra_small", "electra_small", {}, "electra_small"),
        ("gpt2", "gpt2", {}, "gpt1"),
        ("mine", "bert_tiny", {}, "of small models"),
    ],
)
def test_run_with_the_size_of_its_recipe_gets_the_grid_of_its_paper(
    name: str, of_recipe: str, changes: dict[str, Any], found: str, tmp_path: Path
) -> None:
    folder = finished_run(tmp_path / f"{name}-12345678")
    run = json.loads((folder / launch.RUN).read_text())
    (folder / launch.RUN).write_text(json.dumps(run | {"model": asdict(load(of_recipe).model) | changes}))
    target = eval_target.target_of_run(folder)
    assert target.parameters < 20_000_000
    assert grid_name(target) == found
    assert (grid_of(target, tasks_from_words("sst2")[0], "")[1] == SMALL) == (found == "of small models")  # type: ignore[arg-type]
