"""The span boundary objective (SpanBERT 3.2)."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, require, spec
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight
from training.specs import (
    Architecture,
    BatchWork,
    LinearSpec,
    ModelTensors,
    NetName,
    TableSpec,
    VectorsSpec,
    Visibility,
)

if TYPE_CHECKING:
    from torch import nn


@spec
class SpanBoundary:
    """Prediction of span tokens from the tokens around the span (SpanBERT 3.2).

    The inputs of a token are the boundary tokens and its position in the span.
    """

    kind: Literal["span_boundary"] = "span_boundary"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")
    max_pair_targets: int = key(default=15, doc="Maximum number of predicted tokens per span, from its first token.")
    position_embedding_size: int = key(default=200, doc="Embedding size of the position in a span.")
    head_name: ClassVar[str] = "span_boundary"
    logits_for: ClassVar[LogitsFor] = ""
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels", "hits"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"bidirectional"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"net"})
    accuracy: ClassVar[str] = "span_accuracy"
    perplexity: ClassVar[bool] = False
    names_tokens: ClassVar[bool] = True
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    kept_logits: ClassVar[int] = 0
    z_loss: ClassVar[float] = 0.0
    not_exported: ClassVar[str] = "transformers has no such head, and SpanBERT was published without it"
    scale_overrides: ClassVar[ScaleOverrides] = {}
    phases: ClassVar[ScaledPhases] = {}

    def __post_init__(self) -> None:
        for name in ("max_pair_targets", "position_embedding_size"):
            require(getattr(self, name) >= 1, f"losses.{name}", getattr(self, name), "an integer of at least 1")

    def describe(self, context: LossContext) -> str:
        return add_weight(self.weight, "span boundaries")

    def count(self, batch: Arrays) -> int:
        """Number of targets: the first `max_pair_targets` tokens of each span that has ordinary tokens on both sides.

        >>> import numpy as np
        >>> row = {"first_at": np.array([0]), "lengths": np.array([9])}
        >>> spans = ([2, 3, 5], [1, 2, 5], [4, 5, 6], [])
        >>> [SpanBoundary().count(row | {"targets_at": np.array(at)}) for at in spans]
        [3, 1, 3, 0]
        """
        from training.losses.heads import boundary_targets

        return int(boundary_targets(batch, self.max_pair_targets).counts.sum())

    def targets(self, work: BatchWork) -> float:
        return work.targets

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        width, table_width, offset = trunk.hidden_size, trunk.table_width, self.position_embedding_size
        tensors = (
            TableSpec("offsets", self.max_pair_targets, offset),
            LinearSpec("first", 2 * width + offset, (width,)),
            trunk.norm("first_norm"),
            LinearSpec("second", width, (table_width,)),
            trunk.norm("second_norm", table_width),
            VectorsSpec("bias", (vocab_size,)),
        )
        return ModelTensors(tensors, ())

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        from training.losses.heads import SpanBoundaryHead

        return SpanBoundaryHead(self.max_pair_targets)

    def fits(self, trunk: Architecture) -> str:
        return ""
