"""Ablation tables of papers, as values.

Read ablation.py first (the classes of a table), then the tables of a paper, e.g. albert.py. tables.py lists all of
them. synthetic_language.py makes the text, page.py the page and the data of the figure.
"""

from orchestration.reports.ablations.ablation import Ablation, AblationRow, Measure
from orchestration.reports.ablations.page import (
    by_column,
    evaluate_claims,
    lines,
    markdown,
    means,
    summarize_claims,
    units,
)
from orchestration.reports.ablations.synthetic_language import corpus
from orchestration.reports.ablations.tables import TABLES

__all__ = [
    "TABLES",
    "Ablation",
    "AblationRow",
    "Measure",
    "by_column",
    "corpus",
    "evaluate_claims",
    "lines",
    "markdown",
    "means",
    "summarize_claims",
    "units",
]
