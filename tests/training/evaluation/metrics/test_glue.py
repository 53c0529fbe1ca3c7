"""GLUE averages, as papers print them."""

import pytest

from training.evaluation.metrics import glue_average, submission

BERT_LARGE = {  # columns of a table in the paper, whose average is 79.6
    "mnli": {"accuracy": 84.6, "accuracy_mismatched": 83.4},
    "qqp": {"f1": 71.2},
    "qnli": {"accuracy": 90.5},
    "sst2": {"accuracy": 93.5},
    "cola": {"matthews": 52.1},
    "stsb": {"spearman": 85.8},
    "mrpc": {"f1": 88.9},
    "rte": {"accuracy": 66.4},
}


def test_the_bert_average_includes_both_parts_of_mnli() -> None:
    assert glue_average(BERT_LARGE, "bert") == pytest.approx(79.6, abs=0.05)


def test_an_average_with_missing_tasks_is_none() -> None:
    assert glue_average(BERT_LARGE, "leaderboard") is None
    assert glue_average({name: one for name, one in BERT_LARGE.items() if name != "rte"}, "bert") is None


def test_the_dev_average_has_eight_tasks_and_accuracies() -> None:
    dev = {task: {"accuracy": 80.0, "matthews": 60.0, "spearman": 90.0, "f1": 0.0} for task in BERT_LARGE}
    assert glue_average(dev, "dev") == pytest.approx((6 * 80 + 60 + 90) / 8)


def test_a_submission_index_starts_at_zero() -> None:
    assert submission([0.5, 4.0]) == "index\tprediction\n0\t0.500\n1\t4.000\n"


def test_the_average_uses_text_to_text_tasks_if_there_are_no_others() -> None:
    written = {f"{name}_text": one for name, one in BERT_LARGE.items()}
    assert glue_average(written, "bert") == glue_average(BERT_LARGE, "bert")
    assert glue_average({**written, "cola": {"matthews": 0.0}}, "bert") < glue_average(BERT_LARGE, "bert")  # type: ignore[operator]
