"""Reports: recipes in sentences, the table of models, data cards, model cards, ablations, reference pages.

Read describe.py first, then diff.py, family.py, task_list.py, saved_scores.py and score_table.py. model_card/ makes the
page of a run, data_card/ the page of a corpus, ablations/ the tables of papers. reference_pages.py, doc_pages.py and
renames_page.py generate pages of the documentation.
"""

from orchestration.reports.describe import format_number, losses
from orchestration.reports.diff import describe_difference
from orchestration.reports.family import Node, build_tree, row, training_flops
from orchestration.reports.saved_scores import FILE as SCORE_FILE
from orchestration.reports.saved_scores import MARK as SCORE_MARK
from orchestration.reports.saved_scores import (
    WHOLE,
    load_finished_scores,
    load_score,
    select_final_scores,
    series,
    sort_scores,
)
from orchestration.reports.score_table import (
    GUESSES,
    ROWS,
    SHARES,
    TRAIN_ROWS,
    figure_of,
    guesses,
    name_score,
    scale_value,
    score_csv,
    score_name,
    score_page,
    score_rows,
    score_values,
    unit_of,
)
from orchestration.reports.task_list import find_available_tasks, find_faults, tasks_as_values

__all__ = [
    "GUESSES",
    "ROWS",
    "SCORE_FILE",
    "SCORE_MARK",
    "SHARES",
    "TRAIN_ROWS",
    "WHOLE",
    "Node",
    "build_tree",
    "describe_difference",
    "figure_of",
    "find_available_tasks",
    "find_faults",
    "format_number",
    "guesses",
    "load_finished_scores",
    "load_score",
    "losses",
    "name_score",
    "row",
    "scale_value",
    "score_csv",
    "score_name",
    "score_page",
    "score_rows",
    "score_values",
    "select_final_scores",
    "series",
    "sort_scores",
    "tasks_as_values",
    "training_flops",
    "unit_of",
]
