"""Fine-tuning targets: a label or a number per sequence, tags of tokens, an answer span, or one of several choices.

Engines use a target like a pretraining loss: it has a kind, a weight, a count of targets and a head. This module
does not import torch. Columns of a batch in addition to those of preprocessing/schema.py, for B sequences:

  label    int64   [B]  class of a sequence, IGNORE without one; for a question, 1 means that it has no answer
  value    float32 [B]  number of a sequence, NaN without one
  start    int64   [B]  position of the first token of the answer; 0, the position of [CLS], without an answer
  stop     int64   [B]  position of the last token of the answer; 0 as above
  option   int64   [B]  index of a sequence among the choices of its question; choices of a question are consecutive
  right    int64   [B]  index of the correct choice, the same for all sequences of a question
"""

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from preprocessing.schema import IGNORE
from preprocessing.spec import key, require, spec
from training.losses import Arrays
from training.specs import Architecture

if TYPE_CHECKING:
    from torch import nn


class Target(Protocol):
    """A fine-tuning target: it builds a head and counts the targets of a batch."""

    @property
    def kind(self) -> str:
        """The name of the target and of its head."""

    @property
    def weight(self) -> float:
        """The weight of the mean loss of this target in the sum of losses."""

    def count(self, batch: Arrays) -> int:
        """The number of targets in a batch; the head scores the same number."""

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        """Build the head on top of `trunk`, with `forward(hidden, batch, table)` -> Score and `outputs(hidden,
        batch)`.

        `width` is the width of its input states; `rows` is the number of rows of the embedding table.
        """


@spec
class RowLabel:
    """Class label of a sequence, from its summary state (BERT 4.1, GPT-1 3.2)."""

    kind: Literal["row_label"] = "row_label"
    classes: int = key(doc="Number of classes.")
    dropout: float = key(default=0.1, doc="Dropout probability before the head.")
    # They follow each other in the batch.
    added: int = key(default=1, doc="Sequences per example, whose states are added (GPT-1 3.3).")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def __post_init__(self) -> None:
        require(self.classes >= 2, "classes", self.classes, "an integer of at least 2")

    def count(self, batch: Arrays) -> int:
        return int((batch["label"] != IGNORE).sum())

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import RowLabelHead

        return RowLabelHead(trunk, width, self.classes, self.dropout, self.added)


@spec
class RowValue:
    """Number for a sequence, with a squared error loss (STS-B)."""

    kind: Literal["row_value"] = "row_value"
    dropout: float = key(default=0.1, doc="Dropout probability before the head.")
    added: int = key(default=1, doc="Sequences per example, whose states are added (GPT-1 3.3).")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def count(self, batch: Arrays) -> int:
        return int(np.count_nonzero(~np.isnan(np.asarray(batch["value"]))))

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import RowValueHead

        return RowValueHead(trunk, width, self.dropout, self.added)


@spec
class TokenTag:
    """Tag of each token with a target (BERT 5.3): the first token of a word."""

    kind: Literal["token_tag"] = "token_tag"
    classes: int = key(doc="Number of tags.")
    dropout: float = key(default=0.1, doc="Dropout probability before the head.")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def __post_init__(self) -> None:
        require(self.classes >= 2, "classes", self.classes, "an integer of at least 2")

    def count(self, batch: Arrays) -> int:
        return len(batch["targets"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import TokenTagHead

        return TokenTagHead(width, self.classes, self.dropout)


@spec
class AnswerSpan:
    """First and last token of an answer, each a softmax over the tokens of a sequence (BERT 4.2)."""

    kind: Literal["answer_span"] = "answer_span"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def count(self, batch: Arrays) -> int:
        return len(batch["lengths"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import AnswerSpanHead

        return AnswerSpanHead(width)


@spec
class OptionChoice:
    """Correct choice: a score per sequence, a softmax over a question's choices (BERT 4.4, GPT-1 3.3)."""

    kind: Literal["option_choice"] = "option_choice"
    dropout: float = key(default=0.1, doc="Dropout probability before the head.")
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")

    def count(self, batch: Arrays) -> int:
        return int((batch["option"] == 0).sum())

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import OptionChoiceHead

        return OptionChoiceHead(trunk, width, self.dropout)


@spec
class NoAnswer:
    """Whether a question has no answer, from the first token of a sequence (ELECTRA, SQuAD 2.0)."""

    kind: Literal["no_answer"] = "no_answer"
    weight: float = key(default=0.5, doc="Weight in the sum of the losses.")

    def count(self, batch: Arrays) -> int:
        return len(batch["label"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import NoAnswerHead

        return NoAnswerHead(width)


@spec
class LanguageModelTarget:
    """Next token of each sequence, as an auxiliary loss of a task (GPT-1 3.2)."""

    kind: Literal["own_text"] = "own_text"
    weight: float = key(default=0.5, doc="Weight in the sum of the losses.")

    def count(self, batch: Arrays) -> int:
        return len(batch["lengths"])

    def head(self, trunk: Architecture, width: int, rows: int) -> "nn.Module":
        from training.finetuning.heads import LanguageModelHead

        return LanguageModelHead()
