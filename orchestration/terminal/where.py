"""The sequences of a run that contain a document, as a table for each document."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestration.jobs import DocumentUses, DocumentUsesResult, SequenceUse

_STYLES = {"seen": "green", "skipped": "yellow", "later": "", "never": "dim"}
_QUIET = "dim"


def render_uses(found: DocumentUsesResult, rows: int) -> Group:
    """For each document a line about it, a table of its first `rows` sequences, and a summary."""
    parts: list[RenderableType] = [Text(found.note, _QUIET)] if found.note else []
    for each in found.documents:
        parts += _render_document(each, rows)
    if hidden := found.num_found - len(found.documents):
        noun = "document contains" if hidden == 1 else "documents contain"
        parts.append(Text(f"{hidden:,} more {noun} this text; --max-documents shows more", _QUIET))
    return Group(*parts)


def _render_document(found: DocumentUses, rows: int) -> list[RenderableType]:
    document = found.document
    size = f", {document.num_tokens:,} tokens" if document.num_tokens else ""
    split = f", {document.split}" if document.split else ""
    parts: list[RenderableType] = [Text(f"{document.source}, key {document.key}{split}{size}", "bold")]
    if found.uses:
        parts.append(_render_table(found.uses[:rows]))
    if hidden := len(found.uses) - rows:
        parts += [Text(f"and {hidden:,} more rows; --rows or --json shows them", _QUIET)] if hidden > 0 else []
    return [*parts, Text(f"{found.describe()}\n")]


def _render_table(uses: Sequence[SequenceUse]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=_QUIET)
    for column in ("step", "row", "epoch", "tokens", ""):
        table.add_column(column, justify="left" if column in ("tokens", "") else "right")
    for use in uses:
        ranges = ", ".join(f"{start:,}-{stop - 1:,}" for start, stop in use.ranges)
        values = (f"{use.step:,}", f"{use.row:,}", f"{use.epoch:,}", ranges)
        table.add_row(*map(Text, values), Text(use.state, _STYLES[use.state]))
    return table
