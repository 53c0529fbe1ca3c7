"""The input and the result of an evaluation on a task, for all kinds of evaluation. No torch in here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preprocessing.tokenization import Vocab

if TYPE_CHECKING:
    from torch import Tensor

    from training.model_spec import ModelSpec


@dataclass(frozen=True)
class EvaluatedModel:
    """The model to evaluate: its spec, its weights by name (None: random weights from the seed), and its vocabulary."""

    spec: "ModelSpec"
    weights: "Mapping[str, Tensor] | None"
    vocab: Vocab


@dataclass(frozen=True)
class EvalResult:
    """Scores and predictions on each split. Equal models, items and hyperparameters give equal results."""

    scores: Mapping[str, Mapping[str, float]]  # by split, then by metric
    predictions: Mapping[str, Sequence[Any]]  # by split: one JSON-serializable answer per item
    losses: Sequence[float] = ()  # per step, in nats (or squared units) per target; () without training
    notes: Sequence[str] = field(default_factory=tuple)  # what was left out, truncated or unusual
    example: str = ""  # one decoded model input: a prompt, or a text with its special tokens
    by_unit: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by split: one value per question
    constant: Mapping[str, str] = field(default_factory=dict)  # by split: the common answer; "" if answers differ
    questions: Mapping[str, Sequence[Any]] = field(
        default_factory=dict
    )  # by split: the question of each prediction as JSON values, if the task has no files
