"""Ablation tables of papers, as values.

Read ablation.py first (rows, columns and claims of a table), then one file of tables, for example albert.py. tables.py
lists all tables. synthetic_language.py generates the text, page.py writes the page and its figure.
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
