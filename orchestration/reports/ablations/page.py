"""Scores of a table -> whether the order of the paper came out, and the page that says so. Nothing here is typed in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any

from orchestration.reports.ablations.ablation import Ablation, Claim, EqualClaim, Fact, LowerClaim, Unit
from training.metrics import LEVEL, over_seeds

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""What was measured by row and column, one value for each seed."""

Facts = Mapping[str, Mapping[Fact, float]]
"""What is known of the runs of each row without a measurement."""


@dataclass(frozen=True)
class ClaimResult:
    """What became of a claim: whether the means over the seeds bear it out, and how many seeds do by themselves."""

    claim: str
    holds: bool
    figure: str
    seeds: int
    of: int
    p: float | None = None  # one-sided, of the seeds and as many questions; None: of one seed nothing is tested

    @property
    def is_significant(self) -> bool:
        return self.p is not None and self.p < LEVEL

    def __str__(self) -> str:
        tested = "not tested" if self.p is None else f"p {'< 0.001' if self.p < 0.001 else f'= {self.p:.3f}'}"
        held = f"in {self.seeds} of {self.of} seeds"
        return f"{self.claim}: {'yes' if self.holds else 'no'} ({self.figure}; {held}; {tested})"


Questions = Mapping[str, int]
"""By column, how many questions an accuracy is of; 0 or none where that is not known."""


def evaluate_claims(table: Ablation, scores: Scores, questions: Questions = MappingProxyType({})) -> list[ClaimResult]:
    """Each claim of the paper against the scores, with a one-sided paired t test of what it claims over the seeds.

    The claim that several rows are below several is as sure as its least sure pair (an intersection-union test), that
    rows are alike too (two one-sided tests); that some are apart as its surest pair, times the number of pairs. The
    questions of an accuracy add their binomial variance as if each row had others, which is more than there is.

    >>> claims = (LowerClaim("SOP", ("none",), ("SOP",)),)
    >>> table = Ablation(name="t", title="", paper="", stub="", rows={}, columns={}, claims=claims, varies=())
    >>> str(evaluate_claims(table, {"none": {"SOP": [0.5, 0.6]}, "SOP": {"SOP": [0.7, 0.6]}})[0])
    'SOP: none < SOP: yes (by 0.100; in 1 of 2 seeds; p = 0.250)'
    """
    return [_verdict(claim, scores, questions.get(claim.column, 0)) for claim in table.claims]


def _verdict(claim: Claim, scores: Scores, questions: int) -> ClaimResult:
    rows = claim.lower + claim.higher if isinstance(claim, LowerClaim) else claim.rows or tuple(scores)
    column = {row: scores[row][claim.column] for row in rows}
    by_seed = [_margin(claim, dict(zip(column, one, strict=True))) for one in zip(*column.values(), strict=True)]
    margin = _margin(claim, {row: mean(values) for row, values in column.items()})
    holds = sum(map(_is_borne_out, by_seed))
    said, figure = _said(claim, margin)
    p = _p(claim, column, questions)
    return ClaimResult(f"{claim.column}: {said}", _is_borne_out(margin), figure, holds, len(by_seed), p)


def _p(claim: Claim, column: Mapping[str, Sequence[float]], questions: int) -> float | None:
    """How likely scores like these are where the claim is wrong; None where that is not known."""
    if isinstance(claim, LowerClaim):
        return _largest([_p_above(column[high], column[low], 0.0, questions) for low, high in _pairs(claim)])
    both = list(combinations(column.values(), 2))
    if isinstance(claim, EqualClaim):
        either = [(other, one) for one, other in both]
        return _largest([_p_above(one, other, -claim.within, questions) for one, other in (*both, *either)])
    apart = [_p_above(*pair, claim.by, questions) for one, other in both for pair in ((one, other), (other, one))]
    known = [each for each in apart if each is not None]
    return min(1.0, len(apart) * min(known)) if known and len(known) == len(apart) else None


def _pairs(claim: LowerClaim) -> list[tuple[str, str]]:
    return [(low, high) for low in claim.lower for high in claim.higher]


def _largest(found: Sequence[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def _p_above(one: Sequence[float], other: Sequence[float], by: float, questions: int) -> float | None:
    """p of one side, that the first is no more than `by` above the other; None of one seed, or where one diverged."""
    noise = sum(mean(each) * (1 - mean(each)) for each in (one, other)) / questions if questions else 0.0
    found = over_seeds([a - b - by for a, b in zip(one, other, strict=True)], noise, questions)
    if found is None:
        return None
    return found.p / 2 if found.difference > 0 else 1 - found.p / 2


def _said(claim: Claim, margin: float) -> tuple[str, str]:
    """A claim in words, and by how much it holds or does not."""
    if isinstance(claim, LowerClaim):
        return f"{', '.join(claim.lower)} < {', '.join(claim.higher)}", f"by {margin:.3f}"
    rows = ", ".join(claim.rows) or "all"
    if isinstance(claim, EqualClaim):
        return f"{rows} within {claim.within:g}", f"they differ by {claim.within - margin:.3f}"
    return f"{rows} more than {claim.by:g} apart", f"they differ by {claim.by + margin:.3f}"


def _margin(claim: Claim, score_of: Mapping[str, float]) -> float:
    """How far from being refuted a claim is; negative where it is refuted."""
    if isinstance(claim, LowerClaim):
        return min(score_of[row] for row in claim.higher) - max(score_of[row] for row in claim.lower)
    spread = max(score_of.values()) - min(score_of.values())
    return claim.within - spread if isinstance(claim, EqualClaim) else spread - claim.by


def _is_borne_out(margin: float) -> bool:
    return margin > 0


def summarize_claims(table: Ablation, scores: Scores, questions: Questions = MappingProxyType({})) -> str:
    """In a line, whether the order of the paper's rows came out, how much of it is significant, and what is alike there
    and is not here."""
    found = dict(zip(table.claims, evaluate_claims(table, scores, questions), strict=True))
    order = [verdict for claim, verdict in found.items() if not isinstance(claim, EqualClaim)]
    missed = [verdict.claim for verdict in order if not verdict.holds]
    unlike = [verdict.claim for verdict in found.values() if verdict not in order and not verdict.holds]
    significant = sum(verdict.holds and verdict.is_significant for verdict in order)
    tested = any(verdict.p is not None for verdict in order)
    sure = f"{significant} significantly (p < {LEVEL:g})" if tested else "none tested"
    held = f"{len(order) - len(missed)} of {len(order)} claims hold, {sure}"
    said = f"did not come out: {held}, not {'; '.join(missed)}." if missed else f"came out: {held}."
    return f"The order of the paper's rows {said}" + f" What is alike there is not here: {'; '.join(unlike)}." * bool(
        unlike
    )


def markdown(table: Ablation, summary: Mapping[str, Any]) -> str:
    """The page: our scores as mean +- standard deviation over the seeds, the paper's beside them, and what came out."""
    return "\n".join(_lines(table, summary)) + "\n"


def _lines(table: Ablation, summary: Mapping[str, Any]) -> Iterator[str]:
    scores: Scores = summary["scores"]
    num_seeds = len(next(iter(next(iter(scores.values())).values())))
    yield f"# {table.title}"
    yield ""
    seeds = f"mean +- standard deviation over {num_seeds} seeds" if num_seeds > 1 else "of one seed"
    theirs = "the paper's are in percent" if any(row.paper for row in table.rows.values()) else "the paper has no table"
    yield f"After {table.paper}. {_measured(table)}, {seeds}; {theirs}."
    yield ""
    yield from _grid(table, scores, summary.get("facts", {}))
    yield ""
    questions = summary.get("questions", {})
    yield f"**{summarize_claims(table, scores, questions)}**"
    yield ""
    yield from (f"* {verdict}" for verdict in evaluate_claims(table, scores, questions))
    yield ""
    if num_seeds > 1:
        yield (
            "p: one-sided paired t test over the seeds, with the binomial error of the questions of an accuracy; not "
            "adjusted for the number of claims."
        )
    else:
        yield "Of one seed nothing is tested: `--num-seeds 3` says how sure an order is."
    yield ""
    yield from (f"* *{name}*: {measure.means} ({summary['rests_on'][name]})" for name, measure in table.columns.items())
    yield ""
    recipes = ", ".join(f"`{name}`" for name in summary["recipes"])
    yield f"Each row: {_size(summary)}, on {' and '.join(summary['text'])}, by {recipes}."
    if table.note:
        yield ""
        yield table.note


def _measured(table: Ablation) -> str:
    """
    >>> from orchestration.reports.ablations.tables import TABLES
    >>> _measured(TABLES["albert-sp"]), _measured(TABLES["adam-eps"])
    ('Accuracies', 'Nats')
    """
    found = list(dict.fromkeys(measure.unit for measure in table.columns.values()))
    return " and ".join({"accuracy": "accuracies", "nats": "nats"}[unit] for unit in found).capitalize()


def _grid(table: Ablation, scores: Scores, facts: Facts) -> Iterator[str]:
    """The rows of the table: what is known of each, what was measured, and the paper's figures."""
    theirs = list(dict.fromkeys(name for row in table.rows.values() for name in row.paper))
    heads = [f"{name} (nats)" if measure.unit == "nats" else name for name, measure in table.columns.items()]
    yield f"| {' | '.join([table.stub, *table.facts, *heads, *(f'paper: {name}' for name in theirs)])} |"
    yield "|---" * (1 + len(table.facts) + len(heads) + len(theirs)) + "|"
    for label, row in table.rows.items():
        known = [format_cell(fact, facts[label][fact]) for fact in table.facts]
        ours = [spread(scores[label][name]) for name in table.columns]
        yield f"| {' | '.join([label, *known, *ours, *(str(row.paper.get(name, '')) for name in theirs)])} |"


def _size(summary: Mapping[str, Any]) -> str:
    """How long the rows were trained."""
    steps = summary["steps"]
    fewest, most = (min(steps), max(steps)) if isinstance(steps, list) else (steps, steps)
    said = f"{most:,} steps" if fewest == most else f"{fewest:,} to {most:,} steps"
    return f"{said} of {summary['rows_of_a_step']:,} rows of at most {summary['tokens_of_a_row']:,} tokens"


def format_cell(fact: Fact, value: float) -> str:
    """
    >>> format_cell("parameters", 159_138), format_cell("FLOPs", 2_104_098_000_000)
    ('159,138', '2.1e12')
    """
    return f"{value:,.0f}" if fact == "parameters" else f"{value:.2g}".replace("e+", "e")


def spread(values: Sequence[float]) -> str:
    """
    >>> spread([0.5, 0.6]), spread([0.5]), spread([0.5, float("inf")])
    ('0.550 +- 0.071', '0.500', 'inf')
    """
    deviation = _deviation(values)
    return f"{mean(values):.3f}" + (f" +- {deviation:.3f}" if deviation is not None else "")


def _deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several values; None of one, and where a loss was not finite."""
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def by_column(table: Ablation, scores: Scores) -> dict[str, dict[str, Sequence[float]]]:
    """The scores by column, then row, as the figure has them."""
    return {name: {row: of_row[name] for row, of_row in scores.items()} for name in table.columns}


def units(table: Ablation) -> dict[str, Unit]:
    """What each column is in."""
    return {name: measure.unit for name, measure in table.columns.items()}


def lines(table: Ablation, scores: Scores, facts: Facts) -> dict[str, dict[str, list[tuple[float, Sequence[float]]]]]:
    """The panels of a figure of curves: by column, then line, the place of each row on the axis and its scores.

    The last panel is what the paper prints, where it does.
    """
    assert table.axis, table.name
    panels: dict[str, dict[str, list[tuple[float, Sequence[float]]]]] = {}
    for name, measure in table.columns.items():
        panel = panels.setdefault(f"{name} ({measure.unit})", {})
        for label, row in table.rows.items():
            panel.setdefault(row.line, []).append((facts[label][table.axis], scores[label][name]))
    if table.curves:
        panels[f"paper: {table.theirs}"] = {
            curve.name: [(place, (value,)) for place, value in curve.points] for curve in table.curves
        }
    return panels


def means(scores: Scores) -> dict[str, float]:
    """What the table's own run keeps as metrics: mean and, of several seeds, deviation of each score."""
    found = dict[str, float]()
    for row, of_row in scores.items():
        for name, values in of_row.items():
            found[f"{row}/{name}"] = mean(values)
            if (deviation := _deviation(values)) is not None:
                found[f"{row}/{name} deviation"] = deviation
    return found
