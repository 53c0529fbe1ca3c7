"""What a table of the literature is: rows that are recipes, columns that are measures, and what the paper claims.

A table is what a paper compares, at the scale of the day: its rows have one text, one budget and the same seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from orchestration.reports.ablations.synthetic_language import Units

Kind = Literal["masked", "loss", "pairs", "task", "rise"]
Unit = Literal["accuracy", "nats"]
Fact = Literal["parameters", "FLOPs"]
Text = Literal["made up", "demo"]

ONE_PHASE: Final[Mapping[str, tuple[str, ...]]] = {
    "small": ("phases=[{seq_length: 128, global_batch_size: 64, steps: 2_000}]",)
}

UNITS: Final[Mapping[Kind, Unit]] = {
    "masked": "accuracy",
    "loss": "nats",
    "pairs": "accuracy",
    "task": "accuracy",
    "rise": "nats",
}


@dataclass(frozen=True, kw_only=True)
class AblationRow:
    """A recipe with overrides, and what the paper has for it (its own figures, which are not ours to reach)."""

    recipe: str
    overrides: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # further overrides, by scale
    units: Units = ""  # what the text has as phrases
    compute: float = 0.0  # its training FLOPs, as a multiple of those of the table's `equal_to`; 0: the table's steps
    line: str = ""  # the curve of the figure that it is a point of
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a column has of each row's net.

    masked   masked-token accuracy, on the held-out rows of the recipe in row `of`
    loss     the loss of a masked token there
    pairs    accuracy of a linear classifier on its frozen states of the held-out pairs of the recipe in row `of`
    task     accuracy of its fine-tuning on the downstream task `of`, mean of three
    rise     how far its training loss went up again: the most that it was above its lowest value so far
    """

    kind: Kind
    of: str = ""  # a row, or a task; of `rise`, nothing
    overrides: tuple[str, ...] = ()  # over the recipe of row `of`: rows that no row of the table is trained on
    means: str  # in a line

    @property
    def unit(self) -> Unit:
        return UNITS[self.kind]


@dataclass(frozen=True)
class LowerClaim:
    """The claim that each row of `lower` has a lower value than each row of `higher` in a column."""

    column: str
    lower: tuple[str, ...]
    higher: tuple[str, ...]


@dataclass(frozen=True)
class EqualClaim:
    """The claim that rows (none named: all) of a column are as good as each other, give or take `within`."""

    column: str
    within: float
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class DifferentClaim:
    """The claim that rows of a column (none named: all) differ by more than `by`."""

    column: str
    by: float
    rows: tuple[str, ...] = ()


Claim = LowerClaim | EqualClaim | DifferentClaim


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a paper prints of a line over the axis of the figure."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What is compared, how, and what is said to come out."""

    name: str
    title: str
    paper: str  # and where in it
    stub: str  # what the labels of the rows are
    rows: Mapping[str, AblationRow]
    columns: Mapping[str, Measure]
    claims: tuple[Claim, ...]
    varies: tuple[str, ...]  # keys of a recipe, or of its parts, in which rows differ; in all others they are the same
    text: Text = "made up"  # where a command names none
    vocab: str = ""  # of the made-up text, which has few words: an override
    budget: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # overrides by scale, behind those of all tables
    equal_to: str = ""  # the row whose budget is compute 1
    facts: tuple[Fact, ...] = ()  # shown of each row, not measured
    axis: Fact | Literal[""] = ""  # what the figure's curves are over; "": the figure has bars
    theirs: str = ""  # what the paper's curves are of
    curves: tuple[Curve, ...] = ()
    note: str = ""  # where the rows, or what is claimed of them, are not quite the paper's

    def budget_of(self, scale: str) -> tuple[str, ...]:
        """The overrides of a scale. Rows have one phase, so that their steps are comparable."""
        return (*ONE_PHASE.get(scale, ()), *self.budget.get(scale, ()))


def ladder(column: str, rows: Sequence[str]) -> tuple[LowerClaim, ...]:
    """Rows whose values rise one by one.

    >>> ladder("F1", ["tiny", "mini", "small"])[1]
    LowerClaim(column='F1', lower=('mini',), higher=('small',))
    """
    return tuple(LowerClaim(column, (lower,), (higher,)) for lower, higher in pairwise(rows))
