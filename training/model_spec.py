"""The configuration of a model: its architecture, its losses and its vocabulary. This module does not import torch."""

from preprocessing.spec import key, require, spec
from training.losses import Loss, check_losses
from training.specs import Architecture


@spec
class ModelSpec:
    """Configuration of a model, as `export.save_weights` writes it next to the weights."""

    model: Architecture = key(doc="Model.")
    losses: tuple[Loss, ...] = key(doc="Losses, one head each.")
    vocab_size: int = key(doc="Rows of the token table; may exceed the tokenizer's size.")

    def __post_init__(self) -> None:
        check_losses(self.model, self.losses)
        require(self.vocab_size >= 1, "vocab_size", self.vocab_size, "an integer of at least 1")
