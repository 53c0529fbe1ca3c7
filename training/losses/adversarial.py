"""Adversarial training of a generator (ELECTRA 3.2)."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, spec
from training.losses.masked_tokens import MaskedTokens
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight, count_targets
from training.specs import Architecture, BatchWork, LinearSpec, ModelTensors, NetName, Visibility

if TYPE_CHECKING:
    from torch import nn


@spec
class Adversarial:
    """Adversarial generator: rewarded for tokens that the discriminator accepts (ELECTRA 3.2).

    It replaces the likelihood of the original tokens.
    """

    kind: Literal["adversarial"] = "adversarial"
    weight: float = key(default=1.0, doc="Weight in the sum of the losses.")
    head_name: ClassVar[str] = "adversarial"
    logits_for: ClassVar[LogitsFor] = ""
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"bidirectional"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"generator"})
    accuracy: ClassVar[str] = "generator_accuracy"
    perplexity: ClassVar[bool] = False
    names_tokens: ClassVar[bool] = True
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = True
    kept_logits: ClassVar[int] = 3
    z_loss: ClassVar[float] = 0.0
    not_exported: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}
    phases: ClassVar[ScaledPhases] = {}

    def describe(self, context: LossContext) -> str:
        return add_weight(self.weight, "tokens that fool the discriminator")

    def count(self, batch: Arrays) -> int:
        """Number of samples."""
        return count_targets(batch)

    def targets(self, work: BatchWork) -> float:
        return work.targets

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        """The head that samples, and a baseline."""
        baseline = LinearSpec("baseline", trunk.net("generator").hidden_size, (1,), bias=False)
        return MaskedTokens().tensors(trunk, vocab_size).inside("tokens") + ModelTensors((baseline,), ())

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        from training.losses.heads import AdversarialHead

        return AdversarialHead(trunk.activation)

    def fits(self, trunk: Architecture) -> str:
        if trunk.nets & self.reads:
            return ""
        return (
            f"invalid losses: got adversarial with model kind {trunk.kind}, expected a model with a generator; set "
            "model.kind=generator_discriminator"
        )
