"""The page of scores of several models: which scores of a run it shows, which text it keeps, and its figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scores import bars, curves, grammar, of_ngram, of_run, page_with, row_of, table
from orchestration.reports import SCORE_FILE
from tests.orchestration.reports.test_model_card import SCORE, write_score
from training.evaluation.tasks import SelectedTrials, TaskScore

PERPLEXITY = TaskScore(
    "wikitext2",
    "word_perplexity",
    "test",
    "",
    {
        start: SelectedTrials({}, {"test": {"word_perplexity": (ppl,)}})
        for start, ppl in (("pretrained", 35.1), ("random", 900))
    },
)
BLIMP = {"macro_accuracy": (0.603,), "macro_low": (0.542,), "macro_high": (0.66,)}
GRAMMAR = TaskScore(
    "blimp", "macro_accuracy", "test", "", {"pretrained": SelectedTrials({}, {"test": BLIMP})}, chance=0.5
)


def test_only_scores_of_the_finished_run_are_shown(tmp_path: Path) -> None:
    """With `--every`, the score of the finished run has the last step; earlier steps and ablations are left out."""
    write_score(tmp_path, "follows-0", replace(SCORE, chance=0.1, step=6), step=6)
    write_score(tmp_path, "follows-1", replace(SCORE, step=12))
    write_score(tmp_path, "wikitext2-1", PERPLEXITY)
    measured = write_score(tmp_path, "spanbert-1")
    (measured / "stage.json").write_text(json.dumps({"causes": {"run": "hash", "asked": {}}}))
    (measured / SCORE_FILE).write_text(json.dumps({"next_sentence": {"random": 0.5}}))
    assert [(row.task, row.guess) for row in of_run(tmp_path, "bert")] == [("next_sentence", "50.0"), ("wikitext2", "")]


def test_two_scores_of_one_task_in_a_run_are_a_one_line_error(tmp_path: Path) -> None:
    write_score(tmp_path, "follows-1")
    write_score(tmp_path, "follows-2")
    with pytest.raises(SystemExit, match="has another score of next_sentence; delete one of them"):
        of_run(tmp_path, "bert")


def test_the_table_groups_rows_by_task_and_sorts_by_number_of_labels() -> None:
    few = replace(SCORE, labels=200, starts={"pretrained": SCORE.starts["random"]})
    rows = [row_of("bert", few), row_of("gpt2", PERPLEXITY), row_of("bert", SCORE), row_of("gpt2", GRAMMAR)]
    assert table(rows).splitlines()[2:] == [
        "| next_sentence | accuracy | test | 50.0 | bert |  | 55.0 +- 7.1 | 80.0 +- 7.1 | +25.0 | not tested |",
        "| next_sentence | accuracy | test | 50.0 | bert | 200 |  | 55.0 +- 7.1 |  |  |",
        "| wikitext2 | word perplexity | test |  | gpt2 |  | 900 | 35.1 | +864.9 | one seed |",
        "| blimp | macro accuracy | test | 50.0 | gpt2 |  |  | 60.3 (54.2 to 66.0) |  |  |",
    ]


def test_a_page_keeps_its_text_and_the_rows_of_other_models() -> None:
    page, rows = page_with("# Scores\n\nBefore.\n", [row_of("bert", SCORE), row_of("gpt2", PERPLEXITY)])
    page += "\nBehind.\n"
    better = replace(SCORE, starts={"pretrained": SelectedTrials({}, {"test": {"accuracy": (0.9, 0.9)}})})
    again, found = page_with(page, [row_of("bert", better), of_ngram({"ngrams": [1, 2], "blimp": BLIMP})])
    assert again.startswith("# Scores\n\nBefore.\n")
    assert again.endswith("|\n\nBehind.\n")
    assert [(row.net, row.pretrained) for row in found] == [
        ("bert", "90.0 +- 0.0"),
        ("gpt2", "35.1"),
        ("2-gram", "60.3 (54.2 to 66.0)"),
    ]
    assert page_with(again, []) == (again, found)
    assert rows[1] == found[1]


def test_bars_show_fractions_with_both_initializations_and_the_most_labels() -> None:
    few = replace(SCORE, labels=200)
    (axes,) = bars([row_of("bert", one) for one in (few, SCORE, PERPLEXITY, GRAMMAR)]).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["next sentence\naccuracy"]
    assert [bar.get_height() for bar in axes.patches] == [80.0]


def test_curves_require_several_numbers_of_labeled_examples() -> None:
    rows = [row_of("bert", replace(SCORE, labels=labels)) for labels in (2_000, 200)]
    (axes,) = curves(rows, ["next_sentence"]).axes
    assert [list(line.get_xdata()) for line in axes.lines if line.get_linestyle() in ("-", ":")] == [[200, 2_000]] * 2
    with pytest.raises(SystemExit, match="--curves next_sentence: no scores for several numbers of examples"):
        curves(rows[:1], ["next_sentence"])


def test_the_grammar_figure_has_models_and_ngrams() -> None:
    (axes,) = grammar([row_of("gpt2", GRAMMAR), of_ngram({"ngrams": [1, 2], "blimp": BLIMP})]).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["gpt2", "2-gram"]
    assert [round(bar.get_height(), 1) for bar in axes.patches] == [60.3, 60.3]


def test_a_page_of_the_old_format_loses_its_claims_without_a_test() -> None:
    page = table([row_of("bert", SCORE)]).replace("| p |", "| beyond the seeds |").replace("not tested |", "yes |")
    new, rows = page_with(page, [row_of("gpt2", PERPLEXITY)])
    assert [row.p for row in rows] == ["", "one seed"]
    assert new.count("| task |") == 1
