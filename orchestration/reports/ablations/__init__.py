"""Tables of the literature as values: tables.py says what is compared, text.py makes a language, page.py the page."""

from orchestration.reports.ablations.page import by_column, markdown, means, outcome, verdicts
from orchestration.reports.ablations.tables import TABLES, Row, Table
from orchestration.reports.ablations.text import corpus

__all__ = ["TABLES", "Row", "Table", "by_column", "corpus", "markdown", "means", "outcome", "verdicts"]
