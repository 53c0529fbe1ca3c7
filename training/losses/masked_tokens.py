"""Masked language modeling (BERT 3.1, task 1)."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, require, spec
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight, count_targets, mention_z_loss
from training.specs import Architecture, BatchWork, ModelTensors, NetName, VectorsSpec, Visibility, list_mask_head

if TYPE_CHECKING:
    from torch import nn


@spec
class MaskedTokens:
    """Prediction of the selected tokens (BERT 3.1, task 1).

    The head is a transform, the tied token table and a bias. In a generator-discriminator model the generator predicts.
    """

    kind: Literal["masked_tokens"] = "masked_tokens"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")
    transform: bool = key(
        default=True, doc="Whether a linear layer, an activation and a norm precede the table; not in XLM and XLNet."
    )
    z_loss: float = key(default=0.0, doc="Weight of the z-loss: log^2 of the sum of exp(logits), per target; 0: none.")
    head_name: ClassVar[str] = "masked_tokens"
    logits_for: ClassVar[LogitsFor] = "masked"
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"bidirectional", "per_sequence"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"net", "generator"})
    accuracy: ClassVar[str] = "masked_accuracy"
    perplexity: ClassVar[bool] = True
    names_tokens: ClassVar[bool] = True
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    kept_logits: ClassVar[int] = 0
    not_exported: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    # short sequences first: the model then needs a quarter of the steps to learn to use neighboring tokens
    phases: ClassVar[ScaledPhases] = {
        "small": (
            {"seq_length": 32, "global_batch_size": 64, "steps": 5_000},
            {"seq_length": 128, "global_batch_size": 16, "steps": 7_000},
        )
    }

    def __post_init__(self) -> None:
        require(self.z_loss >= 0, "losses.z_loss", self.z_loss, "a number of at least 0")

    def describe(self, context: LossContext) -> str:
        words = "tokens in permuted order" if context.permuted else "masked tokens"
        return add_weight(self.weight, mention_z_loss(self.z_loss, words))

    def count(self, batch: Arrays) -> int:
        """Number of targets.

        >>> import numpy as np
        >>> MaskedTokens().count({"targets": np.array([7, 8, 9])})
        3
        """
        return count_targets(batch)

    def targets(self, work: BatchWork) -> float:
        return work.targets

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        """A bias per token; with `transform`, a linear layer with the biases of the trunk, and its norm, too."""
        if not self.transform:
            return ModelTensors((VectorsSpec("bias", (vocab_size,)),), ())
        net = trunk.net("generator")
        return list_mask_head(net, net.table_width, vocab_size)

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        from training.losses.heads import MaskedTokensHead

        return MaskedTokensHead(trunk.activation, z_loss=self.z_loss)

    def fits(self, trunk: Architecture) -> str:
        is_factorized = trunk.table_width != trunk.net("generator").hidden_size
        if is_factorized and not self.transform:
            return "invalid losses.transform: got False, expected true if embedding_size differs from hidden_size"
        return ""
