"""The model card: what a hub reads at its top, what people read below, and nothing of the machine."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration import launch
from orchestration.jobs import evaluate, pretrain
from orchestration.reports.model_card import card, model_card
from preprocessing.errors import BadInput
from tests.orchestration.jobs.test_pretrain import SPANBERT, finished
from tests.training.corpora import mini_corpus

SCORE = {
    "task": "follows",
    "metric": "accuracy",
    "split": "test",
    "chance": 0.5,
    "step": None,
    "labels": 0,
    "starts": {
        start: {"how": {}, "scores": {"test": {"accuracy": values}}}
        for start, values in {"pretrained": [0.75, 0.85], "random": [0.5, 0.6]}.items()
    },
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with a result and scores, on a corpus that is there."""
    folder = finished(SPANBERT, tmp_path / "bert_base_tiny-12345678")
    shutil.rmtree(folder / "corpus")
    mini_corpus(folder / "corpus")
    (folder / pretrain.RESULT).write_text(
        json.dumps(
            {"step": 12, "tokens": 3_456, "loss": 5.25, "evaluation": {"eval/loss": 5.5, "eval/perplexity": None}}
        )
    )
    scores = folder / "scores" / "follows-1" / evaluate.FILE
    scores.parent.mkdir(parents=True)
    scores.write_text(json.dumps([SCORE]))
    return folder


def front_matter(text: str) -> dict[str, Any]:
    _, matter, _ = text.split("---\n", 2)
    return yaml.safe_load(matter)


def test_the_front_matter_is_as_the_hub_wants_it(run: Path) -> None:
    from huggingface_hub import ModelCard  # slow to import

    text = model_card(run, license="cc-by-4.0")
    found = front_matter(text)
    assert found["license"] == "cc-by-4.0"
    assert (found["library_name"], found["pipeline_tag"]) == ("transformers", "fill-mask")
    assert found["tags"] == ["sesame", "pretraining", "bert"]
    (result,) = ModelCard(text).data.eval_results
    assert (result.task_type, result.dataset_type, result.metric_value) == (
        "text-classification",
        "sesame-follows",
        80.0,
    )


def test_recipe_data_scores_and_licence_are_told(run: Path) -> None:
    text = model_card(run)
    for said in (
        "| named after | BERT, Devlin et al. 2018, arXiv:1810.04805 |",
        "| scale | tiny |",
        "| masking | 15% of the tokens |",
        "| `optim.peak` | 0.001 |",
        "| tokens | 3,456 |",
        "| perplexity | not finite |",
        "| follows | accuracy, test | 80.0 +- 7.1 | 55.0 +- 7.1 | 50.0 |",
        "documents,",
        "| kept |",
        "`BertForMaskedLM`, without its span_boundary head",
        "has not said its licence",
        "keeps the licences of its sources",
    ):
        assert said in text


def test_the_score_of_the_last_step_with_all_labels_is_told(run: Path) -> None:
    for name, changed in {"follows-0": {"step": 6}, "follows-2": {"labels": 200}, "follows-3": {"step": 9}}.items():
        other = run / "scores" / name / evaluate.FILE
        other.parent.mkdir()
        starts = {"pretrained": {"how": {}, "scores": {"test": {"accuracy": [0.1, 0.1]}}}}
        other.write_text(json.dumps([SCORE | {"starts": starts} | changed]))
    assert "| follows | accuracy, test | 80.0 +- 7.1 | 55.0 +- 7.1 | 50.0 |" in model_card(run)


def test_the_parameters_are_counted_in_the_file(run: Path) -> None:
    from training.formats import load_weights

    _, weights = load_weights(run / launch.WEIGHTS)
    assert f"with {sum(tensor.numel() for tensor in weights.values()):,} parameters" in model_card(run)


def test_no_path_of_the_machine_is_in_it(run: Path) -> None:
    assert str(run.parent) not in model_card(run)


def test_what_a_run_does_not_have_yet_is_left_out(tmp_path: Path) -> None:
    """MLflow gets the card when training ends: there are no scores then, and the corpus may be gone."""
    folder = finished(SPANBERT, tmp_path / "run")
    text = model_card(folder)
    assert "The corpus is no longer beside the run." in text
    assert "No downstream task was evaluated" in text
    assert "model-index" not in front_matter(text)
    (folder / "weights" / "spec.json").unlink()
    assert "## Use it" not in model_card(folder)
    with pytest.raises(BadInput, match="holds no run of this version"):
        model_card(tmp_path)


def test_its_names_of_files_are_those_that_others_write() -> None:
    assert (card.RUN, card.WEIGHTS, card.EXPORT) == (launch.RUN, launch.WEIGHTS, launch.EXPORT)
    assert card.RESULT == pretrain.RESULT
    assert Path(card.SCORES).name == evaluate.FILE
