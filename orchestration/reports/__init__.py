"""Reports: recipes in sentences, the table of models, data cards, model cards, ablations, reference pages.

Read describe.py first, then diff.py, family.py, task_list.py, saved_scores.py and score_table.py. model_card/ makes the
page of a run, finetuned_card.py that of a fine-tuned model, data_card/ the page of a corpus, ablations/ the tables of
papers. saved_answers.py reads the questions and answers of a score, comparison_table.py makes the table of a comparison
and questions_page/ the page of questions. page_text.py makes text visible. reference_pages.py, doc_pages.py and
renames_page.py generate pages of the documentation.
"""

from orchestration.reports.comparison_table import (
    COMPARISON_LEGEND,
    ComparedTask,
    comparison_page,
    comparison_rows,
    format_comparison,
    summarize_coverage,
)
from orchestration.reports.describe import format_number, losses
from orchestration.reports.diff import describe_difference
from orchestration.reports.family import Node, build_tree, row, training_flops
from orchestration.reports.finetuned_card import render_finetuned_card
from orchestration.reports.page_text import show_controls
from orchestration.reports.questions_page import AnswerPage, questions_page
from orchestration.reports.saved_answers import (
    PREDICTIONS,
    QUESTIONS,
    SavedAnswers,
    ScoredAnswers,
    identify,
    load_answers,
    restore_answers,
    restore_items,
    with_metric,
)
from orchestration.reports.saved_scores import FILE as SCORE_FILE
from orchestration.reports.saved_scores import MARK as SCORE_MARK
from orchestration.reports.saved_scores import (
    WHOLE,
    SavedScores,
    has_other_settings,
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
    format_decimal,
    format_value,
    guesses,
    name_score,
    scale_value,
    score_csv,
    score_name,
    score_page,
    score_rows,
    score_values,
    select_applied,
    unit_of,
)
from orchestration.reports.task_list import find_available_tasks, find_faults, tasks_as_values

__all__ = [
    "COMPARISON_LEGEND",
    "GUESSES",
    "PREDICTIONS",
    "QUESTIONS",
    "ROWS",
    "SCORE_FILE",
    "SCORE_MARK",
    "SHARES",
    "TRAIN_ROWS",
    "WHOLE",
    "AnswerPage",
    "ComparedTask",
    "Node",
    "SavedAnswers",
    "SavedScores",
    "ScoredAnswers",
    "build_tree",
    "comparison_page",
    "comparison_rows",
    "describe_difference",
    "figure_of",
    "find_available_tasks",
    "find_faults",
    "format_comparison",
    "format_decimal",
    "format_number",
    "format_value",
    "guesses",
    "has_other_settings",
    "identify",
    "load_answers",
    "load_finished_scores",
    "load_score",
    "losses",
    "name_score",
    "questions_page",
    "render_finetuned_card",
    "restore_answers",
    "restore_items",
    "row",
    "scale_value",
    "score_csv",
    "score_name",
    "score_page",
    "score_rows",
    "score_values",
    "select_applied",
    "select_final_scores",
    "series",
    "show_controls",
    "sort_scores",
    "summarize_coverage",
    "tasks_as_values",
    "training_flops",
    "unit_of",
    "with_metric",
]
