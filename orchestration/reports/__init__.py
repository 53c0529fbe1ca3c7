"""What is written for people: recipes in words, the family's table, data cards, model cards, ablations.

Read describe.py first, then diff.py, family.py, task_list.py, kept_scores.py and score_table.py; model_card/ has the
page of a run, data_card/ that of a corpus.
"""

from orchestration.reports.describe import brief, losses
from orchestration.reports.diff import abstract
from orchestration.reports.family import Node, net, row, training_flops
from orchestration.reports.saved_scores import FILE as SCORE_FILE
from orchestration.reports.saved_scores import MARK as SCORE_MARK
from orchestration.reports.saved_scores import WHOLE, finished, kept, ordered, series, whole
from orchestration.reports.score_table import (
    GUESSES,
    ROWS,
    SHARES,
    TRAIN_ROWS,
    figure_of,
    guesses,
    named,
    scaled,
    score_csv,
    score_name,
    score_page,
    score_rows,
    score_values,
    unit_of,
)
from orchestration.reports.task_list import faults, tasks_as_values, tasks_at_hand

__all__ = [
    "GUESSES",
    "ROWS",
    "SCORE_FILE",
    "SCORE_MARK",
    "SHARES",
    "TRAIN_ROWS",
    "WHOLE",
    "Node",
    "abstract",
    "brief",
    "faults",
    "figure_of",
    "finished",
    "guesses",
    "kept",
    "losses",
    "named",
    "net",
    "ordered",
    "row",
    "scaled",
    "score_csv",
    "score_name",
    "score_page",
    "score_rows",
    "score_values",
    "series",
    "tasks_as_values",
    "tasks_at_hand",
    "training_flops",
    "unit_of",
    "whole",
]
