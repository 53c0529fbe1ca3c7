"""Scores of a table -> whether the order of the paper came out, and the page that says so. Nothing here is typed in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from orchestration.reports.ablations.tables import Alike, Below, Claim, Table

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Accuracies by row and column, one for each seed."""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: whether the means over the seeds bear it out, and how many seeds do by themselves."""

    claim: str
    holds: bool
    figure: str
    seeds: int
    of: int

    def __str__(self) -> str:
        return f"{self.claim}: {'yes' if self.holds else 'no'} ({self.figure}; in {self.seeds} of {self.of} seeds)"


def verdicts(table: Table, scores: Scores) -> list[Verdict]:
    """Each claim of the paper against the scores.

    >>> claims = (Below("SOP", ("none",), ("SOP",)),)
    >>> table = Table(name="t", title="", paper="", stub="", rows={}, columns={}, claims=claims, vocab="")
    >>> str(verdicts(table, {"none": {"SOP": [0.5, 0.6]}, "SOP": {"SOP": [0.7, 0.6]}})[0])
    'SOP: none < SOP: yes (by 0.100; in 1 of 2 seeds)'
    """
    return [_verdict(claim, scores) for claim in table.claims]


def _verdict(claim: Claim, scores: Scores) -> Verdict:
    rows = claim.rows or tuple(scores) if isinstance(claim, Alike) else claim.lower + claim.higher
    column = {row: scores[row][claim.column] for row in rows}
    by_seed = [_margin(claim, dict(zip(column, one, strict=True))) for one in zip(*column.values(), strict=True)]
    margin = _margin(claim, {row: mean(values) for row, values in column.items()})
    holds = sum(map(_is_borne_out, by_seed))
    if isinstance(claim, Alike):
        said = f"{', '.join(claim.rows) or 'all'} within {claim.within:g}"
        figure = f"they differ by {claim.within - margin:.3f}"
    else:
        said, figure = f"{', '.join(claim.lower)} < {', '.join(claim.higher)}", f"by {margin:.3f}"
    return Verdict(f"{claim.column}: {said}", _is_borne_out(margin), figure, holds, len(by_seed))


def _margin(claim: Claim, score_of: Mapping[str, float]) -> float:
    """How far from being refuted a claim is; negative where it is refuted."""
    if isinstance(claim, Below):
        return min(score_of[row] for row in claim.higher) - max(score_of[row] for row in claim.lower)
    return claim.within - (max(score_of.values()) - min(score_of.values()))


def _is_borne_out(margin: float) -> bool:
    return margin > 0


def outcome(table: Table, scores: Scores) -> str:
    """In a line, whether the order of the paper's rows came out, and what is alike there and is not here."""
    found = dict(zip(table.claims, verdicts(table, scores), strict=True))
    order = [verdict for claim, verdict in found.items() if isinstance(claim, Below)]
    missed = [verdict.claim for verdict in order if not verdict.holds]
    unlike = [verdict.claim for verdict in found.values() if verdict not in order and not verdict.holds]
    held = f"{len(order) - len(missed)} of {len(order)} claims hold"
    said = f"did not come out: {held}, not {'; '.join(missed)}." if missed else f"came out: {held}."
    return f"The order of the paper's rows {said}" + f" What is alike there is not here: {'; '.join(unlike)}." * bool(
        unlike
    )


def markdown(table: Table, summary: Mapping[str, Any]) -> str:
    """The page: our scores as mean +- standard deviation over the seeds, the paper's beside them, and what came out."""
    return "\n".join(_lines(table, summary)) + "\n"


def _lines(table: Table, summary: Mapping[str, Any]) -> Iterator[str]:
    scores: Scores = summary["scores"]
    theirs = list(dict.fromkeys(name for row in table.rows.values() for name in row.paper))
    num_seeds = len(next(iter(next(iter(scores.values())).values())))
    yield f"# {table.title}"
    yield ""
    seeds = f"mean +- standard deviation over {num_seeds} seeds" if num_seeds > 1 else "of one seed"
    yield f"After {table.paper}. Accuracies, {seeds}; the paper's are in percent."
    yield ""
    yield f"| {' | '.join([table.stub, *table.columns, *(f'paper: {name}' for name in theirs)])} |"
    yield "|---" * (1 + len(table.columns) + len(theirs)) + "|"
    for label, row in table.rows.items():
        ours = [spread(scores[label][name]) for name in table.columns]
        yield f"| {' | '.join([label, *ours, *(str(row.paper.get(name, '')) for name in theirs)])} |"
    yield ""
    yield f"**{outcome(table, scores)}**"
    yield ""
    yield from (f"* {verdict}" for verdict in verdicts(table, scores))
    yield ""
    yield from (f"* *{name}*: {measure.means} ({summary['rests_on'][name]})" for name, measure in table.columns.items())
    yield ""
    rows, tokens = summary["rows_of_a_step"], summary["tokens_of_a_row"]
    size = f"{summary['steps']:,} steps of {rows:,} rows of at most {tokens:,} tokens"
    recipes = ", ".join(f"`{name}`" for name in summary["recipes"])
    yield f"Each row: {size}, on {' and '.join(summary['text'])}, by {recipes}."


def spread(values: Sequence[float]) -> str:
    """
    >>> spread([0.5, 0.6]), spread([0.5])
    ('0.550 +- 0.071', '0.500')
    """
    return f"{mean(values):.3f}" + (f" +- {stdev(values):.3f}" if len(values) > 1 else "")


def by_column(table: Table, scores: Scores) -> dict[str, dict[str, Sequence[float]]]:
    """The scores by column, then row, as the figure has them."""
    return {name: {row: of_row[name] for row, of_row in scores.items()} for name in table.columns}


def means(scores: Scores) -> dict[str, float]:
    """What the table's own run keeps as metrics: mean and, of several seeds, deviation of each score."""
    found = dict[str, float]()
    for row, of_row in scores.items():
        for name, values in of_row.items():
            found[f"{row}/{name}"] = mean(values)
            if len(values) > 1:
                found[f"{row}/{name} deviation"] = stdev(values)
    return found
