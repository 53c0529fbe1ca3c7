"""Classification of segment pairs: next sentence prediction, sentence order prediction."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.schema import IGNORE
from preprocessing.spec import ScaleOverrides, key, spec
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight
from training.specs import Architecture, BatchWork, LinearSpec, ModelTensors, NetName, Visibility

if TYPE_CHECKING:
    from torch import nn


@spec
class SentencePair:
    """Classification of a segment pair from the pooled first token (BERT 3.1, task 2; ALBERT 3.1).

    The two labels are 0, the next segment, and 1, not the next segment.
    """

    kind: Literal["sentence_pair"] = "sentence_pair"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")
    head_name: ClassVar[str] = "pair_label"
    logits_for: ClassVar[LogitsFor] = ""
    required_columns: ClassVar[frozenset[str]] = frozenset({"next_sentence_label"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"bidirectional", "per_sequence"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"net"})
    accuracy: ClassVar[str] = "pair_accuracy"
    perplexity: ClassVar[bool] = False
    names_tokens: ClassVar[bool] = False
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    kept_logits: ClassVar[int] = 0
    z_loss: ClassVar[float] = 0.0
    not_exported: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    phases: ClassVar[ScaledPhases] = {}

    def describe(self, context: LossContext) -> str:
        return add_weight(self.weight, context.label_says or "labels of pairs")

    def count(self, batch: Arrays) -> int:
        """Number of sequences with a label. In UniLM, sequences with one direction have none."""
        return int((batch["next_sentence_label"] != IGNORE).sum())

    def targets(self, work: BatchWork) -> float:
        return work.rows

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        width = trunk.hidden_size
        return ModelTensors((LinearSpec("pooler", width, (width,)), LinearSpec("classify", width, (2,))), ())

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        from training.losses.heads import SentencePairHead

        return SentencePairHead()

    def fits(self, trunk: Architecture) -> str:
        return ""
