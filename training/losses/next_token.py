"""Causal language modeling, also for the decoder of an encoder-decoder."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, require, spec
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight, count_targets, mention_z_loss
from training.specs import Architecture, BatchWork, LinearSpec, ModelTensors, NetName, VectorsSpec, Visibility

if TYPE_CHECKING:
    from torch import nn


@spec
class NextToken:
    """Prediction of each next token with the tied token table (GPT-2 2).

    The tokens are those of a text, or the targets of an encoder-decoder.
    """

    kind: Literal["next_token"] = "next_token"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")
    bias: bool = key(default=False, doc="Whether the output layer has a bias per token, as in XLM.")
    z_loss: float = key(default=0.0, doc="Weight of the z-loss: log^2 of the sum of exp(logits), per target; 0: none.")
    head_name: ClassVar[str] = "next_token"
    logits_for: ClassVar[LogitsFor] = "causal"
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"causal"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"net"})
    accuracy: ClassVar[str] = "next_accuracy"
    perplexity: ClassVar[bool] = True
    names_tokens: ClassVar[bool] = True
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    kept_logits: ClassVar[int] = 0
    not_exported: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    # each token is a target, and most of the time is spent on the logits
    phases: ClassVar[ScaledPhases] = {"small": ({"seq_length": 128, "global_batch_size": 16, "steps": 3_600},)}

    def __post_init__(self) -> None:
        require(self.z_loss >= 0, "losses.z_loss", self.z_loss, "a number of at least 0")

    def describe(self, context: LossContext) -> str:
        return add_weight(self.weight, mention_z_loss(self.z_loss, context.target or "next token"))

    def count(self, batch: Arrays) -> int:
        """Number of targets."""
        return count_targets(batch)

    def targets(self, work: BatchWork) -> float:
        return work.targets

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        """A bias per token; in an adaptive softmax, the scores of the clusters, too."""
        bias = (VectorsSpec("bias", (vocab_size,)),) if self.bias else ()
        if not trunk.cutoffs:
            return ModelTensors(bias, ())
        width, clusters = trunk.hidden_size, len(trunk.cutoffs)
        project = (LinearSpec("project", width, (width,), bias=False),) if trunk.token_embedding.div_val > 1 else ()
        scores = VectorsSpec("clusters", (clusters, width)), VectorsSpec("cluster_bias", (clusters,))
        return ModelTensors((*project, *scores, *bias), ())

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        """The head: an adaptive softmax, which has a bias per token, if the token tables are clusters."""
        from training.losses.heads import AdaptiveHead, TokenHead

        return AdaptiveHead(trunk, vocab_size) if trunk.cutoffs else TokenHead(z_loss=self.z_loss)

    def fits(self, trunk: Architecture) -> str:
        if trunk.cutoffs and not self.bias:
            return (
                "invalid losses.bias: got False, expected true with adaptive token embeddings: their softmax has biases"
            )
        if trunk.cutoffs and self.z_loss:
            return f"invalid losses.z_loss: got {self.z_loss:g}, expected 0 with adaptive token embeddings; remove it"
        return ""
