"""The model card: what a hub reads at its top, what people read below, and nothing of the machine."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration import launch
from orchestration.jobs import runs, stages
from orchestration.reports import SCORE_FILE, SCORE_MARK
from orchestration.reports.model_card import card, model_card
from preprocessing.errors import BadInput
from tests.orchestration.jobs.test_pretrain import SPANBERT, finished
from tests.training.corpora import mini_corpus
from training.tasks import SelectedTrials, TaskScore

SCORE = TaskScore(
    "next_sentence",
    "accuracy",
    "test",
    "",
    {
        start: SelectedTrials({}, {"test": {"accuracy": values}})
        for start, values in {"pretrained": (0.75, 0.85), "random": (0.5, 0.6)}.items()
    },
    chance=0.5,
)
POOR = replace(SCORE, starts={"pretrained": SelectedTrials({}, {"test": {"accuracy": (0.1, 0.1)}})})


def keep(run: Path, name: str, score: TaskScore = SCORE, **causes: Any) -> Path:
    """The folder of a finished score, as `sesame eval` leaves it."""
    folder = run / "scores" / name
    folder.mkdir(parents=True)
    (folder / SCORE_FILE).write_text(json.dumps([asdict(score)]))
    (folder / stages.MARK).write_text(json.dumps({"causes": {"task": score.task, **causes}}))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with a result and scores, on a corpus that is there."""
    folder = finished(SPANBERT, tmp_path / "bert_base_tiny-12345678")
    shutil.rmtree(folder / "corpus")
    mini_corpus(folder / "corpus")
    (folder / runs.RESULT).write_text(
        json.dumps(
            {"step": 12, "tokens": 3_456, "loss": 5.25, "evaluation": {"eval/loss": 5.5, "eval/perplexity": None}}
        )
    )
    keep(folder, "next_sentence-1")
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
        "sesame-next_sentence",
        80.0,
    )


def test_recipe_data_scores_and_licence_are_told(run: Path) -> None:
    text = model_card(run)
    for said in (
        "| named after | BERT, Devlin et al. 2018, arXiv:1810.04805 |",
        "| scale | tiny |",
        "| masking | 15% of the tokens |",
        "| `optimizer.learning_rate` | 0.001 |",
        "| tokens | 3,456 |",
        "| perplexity | not finite |",
        "| next_sentence | accuracy, test | 80.0 +- 7.1 | 55.0 +- 7.1 | not tested | majority 50.0 |",
        "documents,",
        "| kept |",
        "`BertForMaskedLM`, without its span_boundary head",
        "The license of the weights was not stated",
        "keeps the licenses of its sources",
    ):
        assert said in text


FOLLOWS = "| next_sentence | accuracy, test | 80.0 +- 7.1 | 55.0 +- 7.1 | not tested | majority 50.0 |"


def rows(run: Path) -> list[str]:
    """What the card says of scores."""
    return [line for line in model_card(run).splitlines() if line.startswith("| next_sentence")]


def test_the_score_of_the_last_step_with_all_labels_is_told(run: Path) -> None:
    """The one of the finished run may have the number of its last step in its file: `--checkpoints-every` does so."""
    keep(run, "next_sentence-0", POOR, step=6)
    keep(run, "next_sentence-2", POOR, labels=200)
    keep(run, "next_sentence-3", POOR, step=9)
    assert rows(run) == [FOLLOWS]
    shutil.rmtree(run / "scores" / "next_sentence-1")
    keep(run, "next_sentence-1", replace(SCORE, step=12))
    assert rows(run) == [FOLLOWS]


def test_a_score_of_another_step_or_of_some_labels_is_told_as_such(run: Path) -> None:
    shutil.rmtree(run / "scores")
    keep(run, "next_sentence-0", SCORE, step=6, labels=200)
    assert rows(run) == [FOLLOWS.replace("next_sentence", "next_sentence at step 6 with 200 labels")]


def test_a_score_that_lacks_cells_and_what_is_none_is_not_told(run: Path) -> None:
    half = keep(run, "next_sentence-9", POOR)
    (half / stages.MARK).unlink()
    table = run / "scores" / "spanbert-1"
    table.mkdir()
    (table / stages.MARK).write_text(json.dumps({"causes": {"asked": {}}}))
    assert rows(run) == [FOLLOWS]


def test_two_scores_of_a_task_are_named_apart(run: Path) -> None:
    """Of other grids, lengths or data."""
    keep(run, "next_sentence-2", POOR)
    assert [row.split(" | ")[0] for row in rows(run)] == ["| next_sentence (1)", "| next_sentence (2)"]
    results = front_matter(model_card(run))["model-index"][0]["results"]
    assert [one["dataset"]["name"] for one in results] == [
        f"next_sentence ({n}) (made from held-out text)" for n in (1, 2)
    ]


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
    assert "The corpus of the run was not found." in text
    assert "No downstream task was evaluated" in text
    assert "model-index" not in front_matter(text)
    (folder / "weights" / "spec.json").unlink()
    assert "## Use it" not in model_card(folder)
    with pytest.raises(BadInput, match="give the directory of a run"):
        model_card(tmp_path)


def test_its_names_of_files_are_those_that_others_write() -> None:
    assert (card.WEIGHTS, card.EXPORT) == (launch.WEIGHTS, launch.EXPORT)
    assert card.RESULT == runs.RESULT
    assert SCORE_MARK == stages.MARK
