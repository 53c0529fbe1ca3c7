"""Scores of several nets side by side: which of a run folder are shown, and which stand on one axis."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scores import bars, of_run, table, whole
from orchestration.reports import SCORE_FILE
from tests.orchestration.reports.test_model_card import SCORE, keep
from training.tasks import Chosen, TaskScore

PERPLEXITY = TaskScore(
    "wikitext2",
    "word_perplexity",
    "test",
    "",
    {
        start: Chosen({}, {"test": {"word_perplexity": (ppl,)}})
        for start, ppl in (("pretrained", 35.1), ("random", 900))
    },
)


def test_the_scores_of_the_finished_run_are_shown_and_no_others(tmp_path: Path) -> None:
    """`--every` leaves the number of the last step in the file of the finished run; a table measures runs as well."""
    keep(tmp_path, "follows-0", replace(SCORE, chance=0.1, step=6), step=6)
    keep(tmp_path, "follows-1", replace(SCORE, step=12))
    keep(tmp_path, "wikitext2-1", PERPLEXITY)
    measured = keep(tmp_path, "spanbert-1")
    (measured / "stage.json").write_text(json.dumps({"causes": {"run": "hash", "asked": {}}}))
    (measured / SCORE_FILE).write_text(json.dumps({"follows": {"random": 0.5}}))
    assert [(score.task, score.chance) for score in of_run(tmp_path)] == [("follows", 0.5), ("wikitext2", None)]


def test_two_scores_that_only_their_folders_tell_apart_are_one_line(tmp_path: Path) -> None:
    keep(tmp_path, "follows-1")
    keep(tmp_path, "follows-2")
    with pytest.raises(SystemExit, match="has other scores of follows too; leave one of them there"):
        of_run(tmp_path)


def test_bars_are_of_shares_alone() -> None:
    (axes,) = bars({"bert": [SCORE, PERPLEXITY]}).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["follows\naccuracy"]
    assert [bar.get_height() for bar in axes.patches] == [80.0]


def test_the_table_has_a_row_for_each_task_and_net_with_most_labels() -> None:
    few = replace(SCORE, labels=200, starts={"pretrained": SCORE.starts["random"]})
    assert whole([few, SCORE])["follows"] == SCORE
    assert table({"bert": [few, SCORE], "gpt2": [PERPLEXITY]}).splitlines()[2:] == [
        "| follows | accuracy | test | 50.0 | bert | 55.0 +- 7.1 | 80.0 +- 7.1 | +25.0 | yes |",
        "| wikitext2 | word perplexity | test |  | gpt2 | 900 | 35.1 | +864.9 | one seed |",
    ]
