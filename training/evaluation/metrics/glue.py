"""The three averages of GLUE that papers report, and the content of leaderboard files."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final, Literal

Average = Literal["leaderboard", "bert", "dev"]
"""leaderboard: nine tasks with WNLI; the metrics of a task are averaged first (arXiv:1804.07461). bert: nine columns
without WNLI, with both MNLI sets, F1 of MRPC and QQP, and Spearman of STS-B (BERT, table 1, as recomputed there for
GPT-1). dev: eight tasks, with accuracy of MRPC and QQP, and MNLI-m only (dev tables of RoBERTa, XLNet, ALBERT,
ELECTRA)."""

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
    """The average of GLUE, in the unit of the scores; None if a task or metric is missing.

    `scores` maps a task, or its text-to-text form (cola_text), to its metrics. The score of mismatched MNLI is
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
        task_scores = scores.get(name) or scores.get(f"{name}_text", {})
        if any(metric not in task_scores for metric in metrics):
            return None
        means.append(mean(task_scores[metric] for metric in metrics))
    return mean(means)


def submission(predictions: Sequence[object]) -> str:
    """The content of a leaderboard file: an index from 0 and a prediction per line; numbers have three decimals.

    >>> submission(["entailment", 3.14159])
    'index\\tprediction\\n0\\tentailment\\n1\\t3.142\\n'
    """
    shown = [f"{one:.3f}" if isinstance(one, float) else str(one) for one in predictions]
    return "index\tprediction\n" + "".join(f"{number}\t{one}\n" for number, one in enumerate(shown))
