"""Evaluates the claims of a table by its scores, and writes the page of the table.

All numbers are computed from the scores; none is written by hand.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any

from orchestration.reports.ablations.ablation import Ablation, Claim, EqualClaim, Fact, LowerClaim, Unit
from orchestration.reports.ablations.scaling import ScalingLadder, computes
from orchestration.reports.ablations.scaling_law import CHINCHILLA, NUM_RESAMPLES, ScalingLaw, fit_law, ladder_runs
from training.evaluation.metrics import LEVEL, over_seeds

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Measured values by row and column, one for each seed."""

Facts = Mapping[str, Mapping[Fact, float]]
"""Computed facts about the run of each row."""


@dataclass(frozen=True)
class ClaimResult:
    """Whether the means over the seeds support a claim, and the number of single seeds that support it."""

    claim: str
    holds: bool
    difference: str
    seeds: int
    of: int
    p: float | None = (
        None  # one-sided, over seeds and examples; None: no test, for example because there is only one seed
    )

    @property
    def is_significant(self) -> bool:
        return self.p is not None and self.p < LEVEL

    def __str__(self) -> str:
        tested = "not tested" if self.p is None else f"p {'< 0.001' if self.p < 0.001 else f'= {self.p:.3f}'}"
        support = f"in {self.seeds} of {self.of} seeds"
        return f"{self.claim}: {'yes' if self.holds else 'no'} ({self.difference}; {support}; {tested})"


Questions = Mapping[str, int]
"""By column, the number of examples of an accuracy; 0 or no entry if it is unknown."""


def evaluate_claims(table: Ablation, scores: Scores, questions: Questions = MappingProxyType({})) -> list[ClaimResult]:
    """The result of each claim of the paper: whether it holds, and a one-sided paired t test over the seeds.

    p of a claim about several pairs of rows:
    * LowerClaim: the largest p of all pairs (an intersection-union test).
    * EqualClaim: also the largest p, over two one-sided tests for each pair.
    * DifferentClaim: the smallest p, times the number of tests (Bonferroni).

    The examples of an accuracy add binomial variance, as if each row was measured on other examples. The rows share
    their examples, so the real variance is smaller and p is conservative.

    >>> claims = (LowerClaim("SOP", ("none",), ("SOP",)),)
    >>> table = Ablation(name="t", title="", paper="", stub="", rows={}, columns={}, claims=claims, varies=())
    >>> str(evaluate_claims(table, {"none": {"SOP": [0.5, 0.6]}, "SOP": {"SOP": [0.7, 0.6]}})[0])
    'SOP: none < SOP: yes (by 0.100; in 1 of 2 seeds; p = 0.250)'
    """
    return [_evaluate(claim, scores, questions.get(claim.column, 0)) for claim in table.claims]


def _evaluate(claim: Claim, scores: Scores, questions: int) -> ClaimResult:
    """The result of one claim."""
    rows = claim.lower + claim.higher if isinstance(claim, LowerClaim) else claim.rows or tuple(scores)
    column = {row: scores[row][claim.column] for row in rows}
    by_seed = [_margin(claim, dict(zip(column, one, strict=True))) for one in zip(*column.values(), strict=True)]
    margin = _margin(claim, {row: mean(values) for row, values in column.items()})
    num_holding = sum(map(_holds, by_seed))
    text, difference = _describe(claim, margin)
    p = _p(claim, column, questions)
    return ClaimResult(f"{claim.column}: {text}", _holds(margin), difference, num_holding, len(by_seed), p)


def _p(claim: Claim, column: Mapping[str, Sequence[float]], questions: int) -> float | None:
    """The probability of such scores if the claim is false; None if it is unknown."""
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


def _largest(values: Sequence[float | None]) -> float | None:
    """The largest value; None if a value is unknown."""
    known = [each for each in values if each is not None]
    return max(known) if known and len(known) == len(values) else None


def _p_above(one: Sequence[float], other: Sequence[float], by: float, questions: int) -> float | None:
    """One-sided p of the hypothesis that the mean of `one` exceeds the mean of `other` by at most `by`.

    None if there is only one seed, or if a run diverged.
    """
    noise = sum(mean(each) * (1 - mean(each)) for each in (one, other)) / questions if questions else 0.0
    test = over_seeds([a - b - by for a, b in zip(one, other, strict=True)], noise, questions)
    if test is None:
        return None
    return test.p / 2 if test.difference > 0 else 1 - test.p / 2


def _describe(claim: Claim, margin: float) -> tuple[str, str]:
    """A claim as text, and the difference that decides whether it holds."""
    if isinstance(claim, LowerClaim):
        return f"{', '.join(claim.lower)} < {', '.join(claim.higher)}", f"by {margin:.3f}"
    rows = ", ".join(claim.rows) or "all"
    if isinstance(claim, EqualClaim):
        return f"{rows} within {claim.within:g}", f"they differ by {claim.within - margin:.3f}"
    return f"{rows} more than {claim.by:g} apart", f"they differ by {claim.by + margin:.3f}"


def _margin(claim: Claim, score_of: Mapping[str, float]) -> float:
    """The margin by which a claim holds; negative if it does not hold."""
    if isinstance(claim, LowerClaim):
        return min(score_of[row] for row in claim.higher) - max(score_of[row] for row in claim.lower)
    spread = max(score_of.values()) - min(score_of.values())
    return claim.within - spread if isinstance(claim, EqualClaim) else spread - claim.by


def _holds(margin: float) -> bool:
    return margin > 0


def summarize_claims(table: Ablation, scores: Scores, questions: Questions = MappingProxyType({})) -> str:
    """One line: whether the order of the paper's rows was reproduced, and which equal rows of the paper differ here."""
    results = dict(zip(table.claims, evaluate_claims(table, scores, questions), strict=True))
    order = [result for claim, result in results.items() if not isinstance(claim, EqualClaim)]
    missed = [result.claim for result in order if not result.holds]
    unlike = [result.claim for result in results.values() if result not in order and not result.holds]
    significant = sum(result.holds and result.is_significant for result in order)
    tested = any(result.p is not None for result in order)
    tests = f"{significant} significantly (p < {LEVEL:g})" if tested else "none tested"
    held = f"{len(order) - len(missed)} of {len(order)} claims hold, {tests}"
    order_text = (
        f"was not reproduced: {held}. These claims fail: {'; '.join(missed)}." if missed else f"was reproduced: {held}."
    )
    equal_text = f" Rows are equal in the paper but differ here: {'; '.join(unlike)}." if unlike else ""
    return f"The order of the paper's rows {order_text}{equal_text}"


def find_law(table: Ablation, scores: Scores, facts: Facts) -> ScalingLaw | None:
    """The scaling law of a ladder; None for the tables of papers."""
    if not isinstance(table, ScalingLadder):
        return None
    (column,) = table.columns
    return fit_law(ladder_runs(computes(table), {row: of_row[column] for row, of_row in scores.items()}, facts))


def markdown(table: Ablation, summary: Mapping[str, Any]) -> str:
    """The page as Markdown: our scores (mean +- standard deviation over seeds), the paper's scores, the claims."""
    return "\n".join(_lines(table, summary)) + "\n"


def _lines(table: Ablation, summary: Mapping[str, Any]) -> Iterator[str]:
    scores: Scores = summary["scores"]
    num_seeds = len(next(iter(next(iter(scores.values())).values())))
    yield f"# {table.title}"
    yield ""
    seeds = f"mean +- standard deviation over {num_seeds} seeds" if num_seeds > 1 else "from one seed"
    law = find_law(table, scores, summary.get("facts", {}))
    theirs = (
        f"the exponent of the paper is {CHINCHILLA:.2f}"
        if law
        else "the scores of the paper are in percent"
        if any(row.paper for row in table.rows.values())
        else "the paper has no table"
    )
    yield f"After {table.paper}. {_describe_units(table)}, {seeds}; {theirs}."
    yield ""
    yield from _grid(table, scores, summary.get("facts", {}))
    yield ""
    yield from _describe_law(law, summary) if law else _describe_claims(table, summary)
    yield ""
    yield from (f"* *{name}*: {measure.means} ({summary['rests_on'][name]})" for name, measure in table.columns.items())
    yield ""
    recipes = ", ".join(f"`{name}`" for name in summary["recipes"])
    yield f"Training of each row: {_size(summary)}, on {' and '.join(summary['text'])}. Recipes: {recipes}."
    if table.note:
        yield ""
        yield table.note


def _describe_claims(table: Ablation, summary: Mapping[str, Any]) -> Iterator[str]:
    """The outcome, the claims of the paper, and their test."""
    scores: Scores = summary["scores"]
    num_seeds = len(next(iter(next(iter(scores.values())).values())))
    questions = summary.get("questions", {})
    yield f"**{summarize_claims(table, scores, questions)}**"
    yield ""
    yield from (f"* {result}" for result in evaluate_claims(table, scores, questions))
    yield ""
    if num_seeds > 1:
        yield (
            "p: one-sided paired t test over the seeds, with the binomial error of the examples of an accuracy; not "
            "adjusted for the number of claims."
        )
    else:
        yield "A test needs several seeds: `--num-seeds 3`."


def _describe_law(law: ScalingLaw, summary: Mapping[str, Any]) -> Iterator[str]:
    """The exponents, the optimum of each budget, and the limits of the law."""
    yield f"**{law.describe()}**"
    yield ""
    yield "| FLOPs | optimal parameters | optimal tokens | tokens per parameter | loss at the optimum |"
    yield "|---|---|---|---|---|"
    for one in law.profiles:
        cells = [one.why_not, "", "", ""]
        if one.has_minimum:
            ratio = one.tokens / one.parameters
            cells = [f"{one.parameters:,.0f}", f"{one.tokens:,.0f}", f"{ratio:.1f}", f"{one.loss:.3f}"]
        yield f"| {' | '.join([format_cell('FLOPs', one.flops), *cells])} |"
    yield ""
    if law.parameters and law.tokens and law.loss and law.predicted:
        yield f"* Optimal parameters: C^{law.parameters.describe('.3f')}"
        yield f"* Optimal tokens: C^{law.tokens.describe('.3f')}"
        yield f"* Loss at the optimum, without an irreducible loss: C^{law.loss.describe('.3f')}"
        size = law.predicted.describe(",.0f")
        yield f"* Prediction for {format_cell('FLOPs', law.next_flops)} FLOPs: {size} parameters"
        yield ""
    yield (
        "Each optimum is the minimum of a parabola of the loss over the logarithm of the parameters, and the exponents "
        "are slopes over the budgets (IsoFLOP profiles). Intervals are from "
        f"{NUM_RESAMPLES:,} resamples of the residuals of the parabolas. They contain the noise of the runs, not the "
        "choice of learning rates, sizes and text."
    )
    if law.profiles:
        lowest, highest = (format_cell("FLOPs", law.profiles[place].flops) for place in (0, -1))
        yield ""
        yield (
            f"The runs have {lowest} to {highest} FLOPs and at most {summary['epochs']:.2g} epochs of the text. A law "
            "of such small models does not predict large ones: for these, `sesame plan --compute-optimal FLOPS` has "
            "the laws of large runs."
        )


def _describe_units(table: Ablation) -> str:
    """The units of the columns as text.

    >>> from orchestration.reports.ablations.tables import TABLES
    >>> _describe_units(TABLES["albert-sp"]), _describe_units(TABLES["adam-eps"])
    ('Accuracies', 'Nats')
    """
    found = list(dict.fromkeys(measure.unit for measure in table.columns.values()))
    return " and ".join({"accuracy": "accuracies", "nats": "nats"}[unit] for unit in found).capitalize()


def _grid(table: Ablation, scores: Scores, facts: Facts) -> Iterator[str]:
    """The rows of the table: facts, measured values, and the results of the paper."""
    theirs = list(dict.fromkeys(name for row in table.rows.values() for name in row.paper))
    heads = [f"{name} (nats)" if measure.unit == "nats" else name for name, measure in table.columns.items()]
    yield f"| {' | '.join([table.stub, *table.facts, *heads, *(f'paper: {name}' for name in theirs)])} |"
    yield "|---" * (1 + len(table.facts) + len(heads) + len(theirs)) + "|"
    for label, row in table.rows.items():
        known = [format_cell(fact, facts[label][fact]) for fact in table.facts]
        ours = [format_spread(scores[label][name]) for name in table.columns]
        yield f"| {' | '.join([label, *known, *ours, *(str(row.paper.get(name, '')) for name in theirs)])} |"


def _size(summary: Mapping[str, Any]) -> str:
    """The steps and the batch size of the rows, as text."""
    steps = summary["steps"]
    fewest, most = (min(steps), max(steps)) if isinstance(steps, list) else (steps, steps)
    text = f"{most:,} steps" if fewest == most else f"{fewest:,} to {most:,} steps"
    return f"{text} of {summary['rows_of_a_step']:,} sequences of at most {summary['tokens_of_a_row']:,} tokens"


def format_cell(fact: Fact, value: float) -> str:
    """The value of a fact as text.

    >>> format_cell("parameters", 159_138), format_cell("FLOPs", 2_104_098_000_000)
    ('159,138', '2.1e12')
    """
    return f"{value:,.0f}" if fact != "FLOPs" else f"{value:.2g}".replace("e+", "e")


def format_spread(values: Sequence[float]) -> str:
    """Mean and standard deviation as text.

    >>> format_spread([0.5, 0.6]), format_spread([0.5]), format_spread([0.5, float("inf")])
    ('0.550 +- 0.071', '0.500', 'inf')
    """
    deviation = _deviation(values)
    return f"{mean(values):.3f}" + (f" +- {deviation:.3f}" if deviation is not None else "")


def _deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of the values; None with one value, or if a value is not finite."""
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def by_column(table: Ablation, scores: Scores) -> dict[str, dict[str, Sequence[float]]]:
    """The scores by column, then by row, for the figure."""
    return {name: {row: of_row[name] for row, of_row in scores.items()} for name in table.columns}


def units(table: Ablation) -> dict[str, Unit]:
    """The unit of each column."""
    return {name: measure.unit for name, measure in table.columns.items()}


def lines(table: Ablation, scores: Scores, facts: Facts) -> dict[str, dict[str, list[tuple[float, Sequence[float]]]]]:
    """The panels of a figure with curves: for each column and curve, the x value and the scores of each row.

    If the paper prints a figure, its curves are the last panel.
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
    """The metrics of the run of the table: the mean of each score and, with several seeds, its standard deviation."""
    metrics = dict[str, float]()
    for row, of_row in scores.items():
        for name, values in of_row.items():
            metrics[f"{row}/{name}"] = mean(values)
            if (deviation := _deviation(values)) is not None:
                metrics[f"{row}/{name} deviation"] = deviation
    return metrics
