"""Averages of GLUE, of which papers print three, and the lines of a submission."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final, Literal

Average = Literal["leaderboard", "bert", "dev"]
"""leaderboard: nine tasks with WNLI, metrics of a task averaged first (arXiv:1804.07461); bert: nine columns without
WNLI, both of MNLI, F1 of MRPC and QQP, Spearman of STS-B (BERT, table 1, as recomputed there for GPT-1); dev: eight
tasks, accuracy of MRPC and QQP, MNLI-m alone (tables of RoBERTa, XLNet, ALBERT, ELECTRA on dev)."""

TASKS: Final = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
COLUMNS: Final[Mapping[Average, Mapping[str, Sequence[str]]]] = {
    "leaderboard": {
        "cola": ("matthews",),
        "sst2": ("accuracy",),
        "mrpc": ("f1", "accuracy"),
        "stsb": ("pearson", "spearman"),
        "qqp": ("f1", "accuracy"),
        "mnli": ("accuracy", "accuracy_mismatched"),
        "qnli": ("accuracy",),
        "rte": ("accuracy",),
        "wnli": ("accuracy",),
    },
    "bert": {
        "mnli": ("accuracy",),
        "mnli_mm": ("accuracy_mismatched",),
        "qqp": ("f1",),
        "qnli": ("accuracy",),
        "sst2": ("accuracy",),
        "cola": ("matthews",),
        "stsb": ("spearman",),
        "mrpc": ("f1",),
        "rte": ("accuracy",),
    },
    "dev": {
        "cola": ("matthews",),
        "sst2": ("accuracy",),
        "mrpc": ("accuracy",),
        "stsb": ("spearman",),
        "qqp": ("accuracy",),
        "mnli": ("accuracy",),
        "qnli": ("accuracy",),
        "rte": ("accuracy",),
    },
}


def glue_average(scores: Mapping[str, Mapping[str, float]], which: Average) -> float | None:
    """The average of GLUE, in the unit of the scores; None where a task or a metric is missing.

    `scores`: by task, or by its text-to-text form (cola_text), and metric; those of MNLI's mismatched rows are
    `accuracy_mismatched` of mnli.

    >>> mini = {"cola": {"matthews": 0.0}, "sst2": {"accuracy": 85.9}, "mrpc": {"f1": 81.1, "accuracy": 71.8}}
    >>> mini |= {"stsb": {"pearson": 75.4, "spearman": 73.3}, "qqp": {"f1": 66.4, "accuracy": 86.2}}
    >>> mini |= {"mnli": {"accuracy": 74.8, "accuracy_mismatched": 74.3}, "qnli": {"accuracy": 84.1}}
    >>> mini |= {"rte": {"accuracy": 57.9}, "wnli": {"accuracy": 62.3}}
    >>> round(glue_average(mini, "leaderboard"), 1)
    65.8
    """
    means = []
    for task, metrics in COLUMNS[which].items():
        name = task.removesuffix("_mm")
        mine = scores.get(name) or scores.get(f"{name}_text", {})
        if any(metric not in mine for metric in metrics):
            return None
        means.append(mean(mine[metric] for metric in metrics))
    return mean(means)


def submission(predictions: Sequence[object]) -> str:
    """The lines of a file for the leaderboard: an index from 0 and the prediction, a number with three decimals.

    >>> submission(["entailment", 3.14159])
    'index\\tprediction\\n0\\tentailment\\n1\\t3.142\\n'
    """
    shown = [f"{one:.3f}" if isinstance(one, float) else str(one) for one in predictions]
    return "index\tprediction\n" + "".join(f"{number}\t{one}\n" for number, one in enumerate(shown))
