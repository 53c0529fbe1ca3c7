"""Tables of the literature as values.

Read table.py first (what a table is), then a file of tables, as albert.py; tables.py lists them all. text.py makes a
language, page.py the page and what the figure shows.
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
