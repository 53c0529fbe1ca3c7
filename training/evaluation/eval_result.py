"""What the evaluation of a net on a task gives, in whichever way the net was asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from preprocessing.tokenization import Vocab
from training.model import ModelSpec


@dataclass(frozen=True)
class EvaluatedModel:
    """What is evaluated: a spec, its weights by name (None: random ones of the seed), its vocabulary."""

    spec: ModelSpec
    weights: Mapping[str, Tensor] | None
    vocab: Vocab


@dataclass(frozen=True)
class EvalResult:
    """Scores and answers on each split. The same net, items and hyper-parameters give the same."""

    scores: Mapping[str, Mapping[str, float]]  # by split, by the name of the metric
    predictions: Mapping[str, Sequence[Any]]  # by split, an answer for each item, as JSON can hold it
    losses: Sequence[float] = ()  # of each update, in nats or squared units a target; () where nothing was trained
    notes: Sequence[str] = field(default_factory=tuple)  # what of the items could not be used
    example: str = ""  # one row as the net got it, decoded: a prompt, or a text with its special tokens
    by_unit: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by split, values of questions: by_unit.py
    constant: Mapping[str, str] = field(default_factory=dict)  # by split, the one answer that all are, in words
