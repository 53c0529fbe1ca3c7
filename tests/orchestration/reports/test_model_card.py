"""The model card: front matter for the Hub, text for readers, and no local paths."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration import launch
from orchestration.jobs import runs, stages
from orchestration.reports import SCORE_FILE, SCORE_MARK, saved_scores
from orchestration.reports.model_card import card, model_card
from preprocessing.errors import BadInput
from tests.orchestration.jobs.test_pretrain import SPANBERT, write_finished_run
from tests.training.corpora import mini_corpus
from training.evaluation.tasks import SelectedTrials, TaskScore
from training.run import load_stored_run

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


def write_score(run: Path, name: str, score: TaskScore = SCORE, **causes: Any) -> Path:
    """Write the directory of a finished score, as `sesame eval` does."""
    folder = run / "scores" / name
    folder.mkdir(parents=True)
    score = replace(score, labels=score.labels or (causes.get("labels", 0) if score.task == SCORE.task else 0))
    (folder / SCORE_FILE).write_text(json.dumps([asdict(score)]))
    (folder / stages.MARK).write_text(json.dumps({"causes": {"task": score.task, **causes}}))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with a result and scores, and its corpus."""
    folder = write_finished_run(SPANBERT, tmp_path / "bert_base_tiny-12345678")
    shutil.rmtree(folder / "corpus")
    mini_corpus(folder / "corpus")
    (folder / runs.RESULT).write_text(
        json.dumps(
            {"step": 12, "tokens": 3_456, "loss": 5.25, "evaluation": {"eval/loss": 5.5, "eval/perplexity": None}}
        )
    )
    write_score(folder, "next_sentence-1")
    return folder


def front_matter(text: str) -> dict[str, Any]:
    _, matter, _ = text.split("---\n", 2)
    return yaml.safe_load(matter)


def test_front_matter_is_valid_for_the_hub(run: Path) -> None:
    from huggingface_hub import ModelCard  # imported here because it is slow

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


def test_card_shows_recipe_data_scores_and_license(run: Path) -> None:
    text = model_card(run)
    for expected in (
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
        assert expected in text


def test_card_of_a_run_that_ended_early_says_so(run: Path) -> None:
    steps = load_stored_run(run).steps
    assert "; ended early, after step 12 |" in model_card(run)
    result = json.loads((run / runs.RESULT).read_text())
    (run / runs.RESULT).write_text(json.dumps(result | {"step": steps}))
    assert "ended early" not in model_card(run)
    (run / runs.RESULT).unlink()
    assert "ended early" not in model_card(run)


FOLLOWS = "| next_sentence | accuracy, test | 80.0 +- 7.1 | 55.0 +- 7.1 | not tested | majority 50.0 |"


def score_lines(run: Path) -> list[str]:
    """Return the table rows of next_sentence scores on the card."""
    return [line for line in model_card(run).splitlines() if line.startswith("| next_sentence")]


def test_card_shows_the_score_of_the_last_step_with_all_labels(run: Path) -> None:
    """With `--checkpoints-every`, the score of the finished run may name the last step in its file."""
    write_score(run, "next_sentence-0", POOR, step=6)
    write_score(run, "next_sentence-2", POOR, labels=200)
    write_score(run, "next_sentence-3", POOR, step=9)
    assert score_lines(run) == [FOLLOWS]
    shutil.rmtree(run / "scores" / "next_sentence-1")
    write_score(run, "next_sentence-1", replace(SCORE, step=12))
    assert score_lines(run) == [FOLLOWS]


def test_score_of_another_step_or_label_count_is_named(run: Path) -> None:
    shutil.rmtree(run / "scores")
    write_score(run, "next_sentence-0", SCORE, step=6, labels=200)
    assert score_lines(run) == [FOLLOWS.replace("next_sentence", "next_sentence at step 6 with 200 labels")]


def test_a_task_without_training_has_no_label_count(run: Path) -> None:
    """The card once said "cloze with 200 labels", because its settings have the default number."""
    write_score(run, "cloze-1", replace(SCORE, task="cloze"), labels=200)
    assert [line for line in model_card(run).splitlines() if line.startswith("| cloze |")]
    assert saved_scores.load_finished_scores(run)["cloze-1"][1] == saved_scores.WHOLE


def test_unfinished_scores_and_other_directories_are_omitted(run: Path) -> None:
    half = write_score(run, "next_sentence-9", POOR)
    (half / stages.MARK).unlink()
    table = run / "scores" / "spanbert-1"
    table.mkdir()
    (table / stages.MARK).write_text(json.dumps({"causes": {"asked": {}}}))
    assert score_lines(run) == [FOLLOWS]


def test_two_scores_of_a_task_are_numbered(run: Path) -> None:
    """The scores have different grids, lengths or data."""
    write_score(run, "next_sentence-2", POOR)
    assert [row.split(" | ")[0] for row in score_lines(run)] == ["| next_sentence (1)", "| next_sentence (2)"]
    results = front_matter(model_card(run))["model-index"][0]["results"]
    assert [one["dataset"]["name"] for one in results] == [
        f"next_sentence ({n}) (made from held-out text)" for n in (1, 2)
    ]


def test_parameters_are_counted_in_the_weights_file(run: Path) -> None:
    from training.formats import load_weights

    _, weights = load_weights(run / launch.WEIGHTS)
    assert f"with {sum(tensor.numel() for tensor in weights.values()):,} parameters" in model_card(run)


def test_card_contains_no_local_path(run: Path) -> None:
    assert str(run.parent) not in model_card(run)


def test_missing_parts_of_a_run_are_omitted(tmp_path: Path) -> None:
    """MLflow gets the card at the end of training: there are no scores yet, and the corpus may be gone."""
    folder = write_finished_run(SPANBERT, tmp_path / "run")
    text = model_card(folder)
    assert "The corpus of the run was not found." in text
    assert "No downstream task was evaluated" in text
    assert "model-index" not in front_matter(text)
    (folder / "weights" / "spec.json").unlink()
    assert "## Use it" not in model_card(folder)
    with pytest.raises(BadInput, match="give the directory of a run"):
        model_card(tmp_path)


def test_card_for_another_place_than_a_hub_has_neither_front_matter_nor_title(run: Path) -> None:
    text = model_card(run, for_hub=False)
    assert text.startswith("Encoder, ")
    assert "<details>" not in text
    assert 'from_pretrained("org/bert")' in model_card(run, address="org/bert")
    lines = model_card(run, setup=("import mlflow", "folder = f()")).splitlines()
    first = lines.index("import mlflow")
    assert lines[first + 1].startswith("from transformers import ")
    assert lines[first + 2 : first + 5] == ["", "folder = f()", ""]
    assert lines[first + 5].endswith(".from_pretrained(folder)")


def test_file_names_match_those_of_the_writers() -> None:
    assert (card.WEIGHTS, card.EXPORT) == (launch.WEIGHTS, launch.EXPORT)
    assert card.RESULT == runs.RESULT
    assert SCORE_MARK == stages.MARK
