"""The table of downstream scores."""

import csv
import io

from orchestration.reports import score_csv, score_page, score_rows, score_values
from orchestration.reports.score_table import scaled
from training.tasks import Chosen, TaskScore


def score(task: str, **more: object) -> TaskScore:
    splits = {"dev": {"f1": (0.81, 0.82, 0.80), "em": (0.7, 0.7, 0.7)}}
    starts = {"pretrained": Chosen({"peak": 3e-4, "batch": 32, "epochs": 4.0, "steps": 0}, splits)}
    values = {"metric": "f1", "split": "dev", "chosen_on": "dev", "starts": starts, **more}
    return TaskScore(task, **values)  # type: ignore[arg-type]


def test_shares_are_percent_and_columns_without_anything_are_left_out() -> None:
    (row,) = score_rows([score("squad", paper={"squad.f1": 88.5})])
    assert row == {"task": "squad", "metric": "f1", "split": "dev", "pretrained": "81.0 +- 1.0", "paper": "f1 88.5"}


def test_the_gain_over_random_weights_is_beside() -> None:
    one = score("squad")
    random = Chosen({}, {"dev": {"f1": (0.5, 0.5, 0.5), "em": (0.3, 0.3, 0.3)}})
    both = score("squad", starts={**one.starts, "random": random}, chance=0.25, labels=200)
    (row,) = score_rows([both])
    assert (row["random"], row["gain"], row["beyond the seeds"], row["chance"]) == (
        "50.0 +- 0.0",
        "+31.0",
        "yes",
        "25.0",
    )


def test_the_page_says_what_was_chosen_all_metrics_and_what_failed() -> None:
    page = score_page("bert_base", [score("squad", failed=("squad, seed 2: loss nan",))])
    assert "# Scores of bert_base" in page
    assert "| squad | f1 | dev | 81.0 +- 1.0 |" in page
    assert "* squad, pretrained: peak 0.0003, batch 32, epochs 4 (best on dev): dev f1 81.0 +- 1.0; dev em 70.0" in page
    assert "* squad: no score of squad, seed 2: loss nan" in page


def test_perplexities_and_numbers_of_words_are_no_shares() -> None:
    assert [scaled(0.5, name) for name in ("rouge1", "bleu", "accuracy_byte", "coqa_f1")] == [50.0] * 4
    assert [scaled(20.0, name) for name in ("word_perplexity", "bits_per_character", "loss", "words")] == [20.0] * 4


def test_each_value_is_a_line_of_csv() -> None:
    lines = list(csv.reader(io.StringIO(score_csv([score("squad")]))))
    assert lines[0] == ["task", "step", "labels", "start", "split", "metric", "number", "value"]
    assert lines[2] == ["squad", "", "", "pretrained", "dev", "f1", "1", "0.82"]
    assert len(lines) == 7


def test_for_a_program_the_values_of_a_start_are_at_the_top() -> None:
    (values,) = score_values([score("squad")])
    assert values["pretrained"] == (0.81, 0.82, 0.80)
    assert values["margin"] is None
