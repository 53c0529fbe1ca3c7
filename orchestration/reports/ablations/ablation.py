"""The parts of an ablation table: rows (recipes), columns (measures), and the claims of the paper.

A table repeats a comparison of a paper at a smaller scale. All its rows have the same text, budget and seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Final, Literal

from orchestration.reports.ablations.synthetic_language import Units

Kind = Literal["masked", "loss", "pairs", "task", "rise", "validation"]
Unit = Literal["accuracy", "nats"]
Fact = Literal["parameters", "tokens", "FLOPs"]
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
    "validation": "nats",
}


@dataclass(frozen=True, kw_only=True)
class AblationRow:
    """A recipe with overrides, and the results of the paper for this row.

    The results of the paper are shown for comparison only: they come from larger models and other data.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # further overrides, by scale
    units: Units = ""  # the units of the text that are marked as phrases
    compute: float = 0.0  # training FLOPs divided by those of the row `equal_to`; 0: use the steps of the table
    line: str = ""  # curve of the figure that this row is a point of
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A column: the value that is measured for the model of each row.

    masked      masked-token accuracy on held-out sequences, built and masked by the recipe of row `of`
    loss        mean loss of the masked tokens in these sequences
    pairs       accuracy of a linear classifier on frozen hidden states, for held-out pairs of the recipe of row `of`
    task        accuracy after fine-tuning on the downstream task `of`, mean of three fine-tunings
    rise        largest difference between the training loss and its lowest earlier value
    validation  loss on the validation text after the last step of training
    """

    kind: Kind
    of: str = ""  # a row or a task; "" for `rise` and `validation`
    overrides: tuple[str, ...] = ()  # for row `of`: its recipe then gives pairs that no row is trained on
    means: str  # description in one line

    @property
    def unit(self) -> Unit:
        return UNITS[self.kind]


@dataclass(frozen=True)
class LowerClaim:
    """The claim that in a column each row of `lower` has a lower value than each row of `higher`."""

    column: str
    lower: tuple[str, ...]
    higher: tuple[str, ...]


@dataclass(frozen=True)
class EqualClaim:
    """The claim that the values of some rows (by default all) in a column differ by less than `within`."""

    column: str
    within: float
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class DifferentClaim:
    """The claim that the values of some rows (by default all) in a column differ by more than `by`."""

    column: str
    by: float
    rows: tuple[str, ...] = ()


Claim = LowerClaim | EqualClaim | DifferentClaim


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The points of a curve that the paper prints, over the axis of the figure."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """An ablation table: its rows, its columns, and the claims of the paper."""

    num_seeds: ClassVar[int] = 3  # of each row, unless the command sets another number
    name: str
    title: str
    paper: str  # with the number of the table or section
    stub: str  # heading of the column of row labels
    rows: Mapping[str, AblationRow]
    columns: Mapping[str, Measure]
    claims: tuple[Claim, ...]
    varies: tuple[str, ...]  # keys or parts of a recipe that differ between rows; all others are equal
    text: Text = "made up"  # used if the command has no --data
    vocab: str = ""  # override of the tokenizer for the made-up text, which has few words
    budget: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # overrides by scale, after those of all tables
    equal_to: str = ""  # the row with `compute` 1
    facts: tuple[Fact, ...] = ()  # computed, not measured; shown for each row
    axis: Fact | Literal[""] = ""  # x axis of the curves in the figure; "": the figure has bars
    theirs: str = ""  # metric of the paper's curves
    curves: tuple[Curve, ...] = ()
    note: str = ""  # differences of the rows or claims from the paper

    def budget_of(self, scale: str) -> tuple[str, ...]:
        """The overrides of a scale. Each row has one phase, so that steps are comparable between rows."""
        return (*ONE_PHASE.get(scale, ()), *self.budget.get(scale, ()))


def ladder(column: str, rows: Sequence[str]) -> tuple[LowerClaim, ...]:
    """The claims that the values of these rows increase from each row to the next.

    >>> ladder("F1", ["tiny", "mini", "small"])[1]
    LowerClaim(column='F1', lower=('mini',), higher=('small',))
    """
    return tuple(LowerClaim(column, (lower,), (higher,)) for lower, higher in pairwise(rows))
