"""Ablation tables of papers, as values.

Read ablation.py first (rows, columns and claims of a table), then one file of tables, for example albert.py. tables.py
lists all tables. synthetic_language.py generates the text, page.py writes the page and its figure. scaling.py is a
table of another kind, from which scaling_law.py estimates exponents.
"""

from orchestration.reports.ablations.ablation import Ablation, AblationRow, Measure
from orchestration.reports.ablations.page import (
    by_column,
    evaluate_claims,
    find_law,
    format_cell,
    lines,
    markdown,
    means,
    summarize_claims,
    units,
)
from orchestration.reports.ablations.scaling import ScalingLadder
from orchestration.reports.ablations.scaling_law import ScalingLaw
from orchestration.reports.ablations.synthetic_language import corpus
from orchestration.reports.ablations.tables import TABLES

__all__ = [
    "TABLES",
    "Ablation",
    "AblationRow",
    "Measure",
    "ScalingLadder",
    "ScalingLaw",
    "by_column",
    "corpus",
    "evaluate_claims",
    "find_law",
    "format_cell",
    "lines",
    "markdown",
    "means",
    "summarize_claims",
    "units",
]
