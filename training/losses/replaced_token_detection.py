"""Replaced token detection (ELECTRA 3.1)."""

from typing import TYPE_CHECKING, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, require, spec
from training.losses.masked_tokens import MaskedTokens
from training.losses.part import Arrays, LogitsFor, LossContext, ScaledPhases, add_weight, count_targets
from training.specs import Architecture, BatchWork, LinearSpec, ModelTensors, NetName, Visibility

if TYPE_CHECKING:
    from torch import nn


@spec
class ReplacedTokenDetection:
    """Detection of tokens that the generator replaced (ELECTRA 3.1).

    With `predict: original` it predicts the original token instead (3.5).
    """

    kind: Literal["replaced_token_detection"] = "replaced_token_detection"
    weight: float = key(default=50.0, doc="Weight in the sum of the losses.")
    predict: Literal["replaced", "original"] = key(
        default="replaced", doc="Target per token: whether it was replaced, or the original token."
    )
    # ELECTRA's variants ELECTRA 15 % and Replace MLM use `masked`.
    predict_at: Literal["all", "masked"] = key(
        default="all", doc="Tokens with a target: all, or those that the generator predicts."
    )
    # DeBERTaV3, as in the authors' code (replaced_token_detection_model.py)
    add_first_state: bool = key(
        default=False, doc="Whether the head reads the normalized sum of a token's state and that of the first token."
    )
    head_name: ClassVar[str] = "replaced"
    logits_for: ClassVar[LogitsFor] = ""
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    sees: ClassVar[frozenset[Visibility]] = frozenset({"bidirectional"})
    reads: ClassVar[frozenset[NetName]] = frozenset({"discriminator"})
    accuracy: ClassVar[str] = "replaced_accuracy"
    perplexity: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    z_loss: ClassVar[float] = 0.0
    not_exported: ClassVar[str] = ""
    # with weight 50, a short run learns only the fraction of replaced tokens
    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"weight": 5.0}, "small": {"weight": 5.0}}
    # fewer steps than for masked tokens, because an update takes three times as long
    phases: ClassVar[ScaledPhases] = {
        "small": (
            {"seq_length": 32, "global_batch_size": 64, "steps": 3_000},
            {"seq_length": 128, "global_batch_size": 16, "steps": 4_500},
        )
    }

    def __post_init__(self) -> None:
        fits = not self.add_first_state or self.predict == "replaced"
        require(fits, "losses.add_first_state", self.add_first_state, "false with predict original")

    @property
    def names_tokens(self) -> bool:
        return self.predict == "original"

    @property
    def kept_logits(self) -> int:
        return 5 if self.predict == "original" and self.predict_at == "all" else 0

    @property
    def rewards(self) -> bool:
        return self.predict == "replaced"

    def describe(self, context: LossContext) -> str:
        where = "" if self.predict_at == "all" else ", only selected ones"
        return add_weight(self.weight, f"{self.predict} tokens{where}")

    def count(self, batch: Arrays) -> int:
        """Number of tokens without padding, or of selected tokens."""
        if self.predict_at == "masked":
            return count_targets(batch)
        return int(batch["real_tokens" if "real_tokens" in batch else "lengths"].sum())

    def targets(self, work: BatchWork) -> float:
        return work.tokens if self.predict_at == "all" else work.targets

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        if self.predict == "replaced":
            width = trunk.hidden_size
            norm = (trunk.norm("norm"),) if self.add_first_state else ()
            layers = LinearSpec("transform", width, (width,)), LinearSpec("classify", width, (1,))
            return ModelTensors((*norm, *layers), ())
        tokens = MaskedTokens().tensors(trunk.net("discriminator"), vocab_size)
        if self.predict_at == "masked":
            return tokens
        return tokens.inside("tokens") + ModelTensors((LinearSpec("copy", trunk.hidden_size, (1,)),), ())

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        from training.losses.heads import ChosenOriginalHead, OriginalHead, ReplacedTokenDetectionHead

        if self.predict == "replaced":
            return ReplacedTokenDetectionHead(trunk.activation, self.predict_at)
        return (OriginalHead if self.predict_at == "all" else ChosenOriginalHead)(trunk.activation)

    def fits(self, trunk: Architecture) -> str:
        return ""
