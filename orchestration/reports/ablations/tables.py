"""Tables of the literature as values: rows that are recipes, columns that are measures, and what the paper claims.

A table is what a paper compares, at the scale of the day: its rows have one text, one budget and the same seeds. Adding
one is adding a value to TABLES.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestration.config import nearest
from orchestration.reports.ablations.text import Units
from preprocessing.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Row:
    """A recipe with overrides, and what the paper has for it (its own figures, which are not ours to reach)."""

    recipe: str
    overrides: tuple[str, ...] = ()
    units: Units = ""  # what the text has as phrases
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a column has of each row's net.

    masked   masked-token accuracy, on the held-out rows of the recipe in row `of`
    pairs    accuracy of a linear classifier on its frozen states of the held-out pairs of the recipe in row `of`
    task     accuracy of its fine-tuning on the downstream task `of`, mean of three
    """

    kind: Literal["masked", "pairs", "task"]
    of: str
    means: str  # in a line


@dataclass(frozen=True)
class Below:
    """The claim that each row of `lower` is below each row of `higher` in a column."""

    column: str
    lower: tuple[str, ...]
    higher: tuple[str, ...]


@dataclass(frozen=True)
class Alike:
    """The claim that rows (none named: all) of a column are as good as each other, give or take `within`."""

    column: str
    within: float
    rows: tuple[str, ...] = ()


Claim = Below | Alike


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is compared, how, and what is said to come out."""

    name: str
    title: str
    paper: str
    stub: str  # what the labels of the rows are
    rows: Mapping[str, Row]
    columns: Mapping[str, Measure]
    claims: tuple[Claim, ...]
    vocab: str  # of the text that is made up for tables, which has few words: an override
    budget: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # overrides by scale, where it has no good one


_ONE_BY_ONE = "masked-token accuracy, where tokens are masked one by one"

ALBERT_SP: Final = Table(
    name="albert-sp",
    title="No sentence objective, next sentence prediction, sentence order prediction",
    paper="ALBERT, Lan et al. 2019, arXiv:1909.11942, table 5",
    stub="pair loss",
    rows={
        "none": Row(
            recipe="albert_base",
            overrides=("data.segment.negative=none", "objective.losses=[{kind: masked_tokens}]"),
            paper={"MLM": 54.9, "NSP": 52.4, "SOP": 53.3},
        ),
        "NSP": Row(
            recipe="albert_base",
            overrides=("data.segment.negative=random",),
            paper={"MLM": 54.5, "NSP": 90.5, "SOP": 52.0},
        ),
        "SOP": Row(recipe="albert_base", paper={"MLM": 54.0, "NSP": 78.9, "SOP": 86.5}),
    },
    columns={
        "MLM": Measure(kind="masked", of="none", means="masked-token accuracy, in two segments that follow each other"),
        "NSP": Measure(kind="pairs", of="NSP", means="a linear probe: is the second segment of another document?"),
        "SOP": Measure(kind="pairs", of="SOP", means="a linear probe: are the two segments in the wrong order?"),
    },
    claims=(
        Below("NSP", ("none",), ("SOP",)),
        Below("NSP", ("SOP",), ("NSP",)),
        Below("SOP", ("none", "NSP"), ("SOP",)),
        Alike("SOP", 0.02, ("none", "NSP")),  # 53.3 and 52.0 in the paper: random next sentences teach nothing of order
        Alike("MLM", 0.01),  # 54.0 to 54.9
    ),
    vocab="data.vocab={kind: wordpiece, size: 800}",  # each word is a piece
    budget={"tiny": ("phases=[{length: 64, batch: 32, steps: 3_000}]",)},
)

SPANBERT_MASKING: Final = Table(
    name="spanbert-masking",
    title="Which spans to mask",
    paper="SpanBERT, Joshi et al. 2019, arXiv:1907.10529, table 5",
    stub="masked",
    rows={
        "subword tokens": Row(recipe="spanbert_subwords", paper={"SQuAD 2": 83.8, "MNLI": 86.7, "QNLI": 92.5}),
        "whole words": Row(recipe="spanbert_words", paper={"SQuAD 2": 84.3, "MNLI": 86.3, "QNLI": 92.8}),
        "named entities": Row(
            recipe="spanbert_entities", units="names", paper={"SQuAD 2": 84.8, "MNLI": 86.0, "QNLI": 93.1}
        ),
        "noun phrases": Row(
            recipe="spanbert_noun_phrases", units="phrases", paper={"SQuAD 2": 85.0, "MNLI": 86.5, "QNLI": 93.2}
        ),
        "random spans": Row(recipe="spanbert_spans", paper={"SQuAD 2": 85.4, "MNLI": 87.0, "QNLI": 93.3}),
    },
    columns={
        "spans": Measure(kind="masked", of="random spans", means="masked-token accuracy, where whole spans are masked"),
        "tokens": Measure(kind="masked", of="subword tokens", means=_ONE_BY_ONE),
        "follows": Measure(kind="task", of="follows", means="fine-tuned: does the second sentence follow the first?"),
    },
    claims=(
        Below("spans", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)),
        Below("follows", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)),
    ),
    vocab="data.vocab={kind: wordpiece, size: 400, lowercase: false}",  # a word is 1.3 pieces
    budget={"tiny": ("phases=[{length: 64, batch: 32, steps: 1_500}]",)},
)

TABLES: Final[Mapping[str, Table]] = {table.name: table for table in (ALBERT_SP, SPANBERT_MASKING)}


def named(name: str) -> Table:
    """The table of this name; BadInput where there is none."""
    if name in TABLES:
        return TABLES[name]
    close = nearest(name, list(TABLES))
    hint = f"; did you mean {close}?" if close else ""
    raise BadInput(f"{name} is not one of the tables ({', '.join(TABLES)}){hint}")
