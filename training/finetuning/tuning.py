"""How a net is fine-tuned: rates, batches and epochs, as papers state them. No torch in here."""

from math import ceil
from typing import Literal

from preprocessing.spec import require, spec
from training.optim import AdamW


@spec
class Tuning:
    """One cell of a grid (BERT A.3): AdamW with a linear warm-up, then linear to 0, or what the keys say."""

    peak: float = 2e-5  # learning rate
    batch: int = 32  # examples: rows, or questions with all of their options
    epochs: float = 3.0
    steps: int = 0  # in place of epochs, where it is not 0
    warmup: float = 0.1  # share of the steps
    schedule: Literal["linear_from_peak", "constant"] = "linear_from_peak"
    decay: float = 0.01
    beta2: float = 0.999
    eps: float = 1e-6
    clip: float = 1.0  # global norm; 0: no clipping
    bias_correction: bool = True
    layer_decay: float = 1.0  # rate of each layer by that of the one above it (ELECTRA: .8)
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.peak > 0, "peak", self.peak, "a rate above 0")
        require(self.batch >= 1, "batch", self.batch, "a whole number from 1 up")
        require(self.epochs > 0, "epochs", self.epochs, "a number above 0")
        require(self.steps >= 0, "steps", self.steps, "a whole number from 0 up")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "a share of the steps, below 1")
        require(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "above 0, at most 1")

    def num_steps(self, examples: int) -> int:
        """Updates on so many examples; the last batch of an epoch may be smaller.

        >>> Tuning(batch=32, epochs=3).num_steps(100)
        12
        """
        return self.steps or ceil(self.epochs * ceil(examples / self.batch))

    def optim(self, steps: int) -> AdamW:
        """The optimiser of a fine-tuning of so many updates."""
        return AdamW(
            peak=self.peak,
            warmup=int(self.warmup * steps),
            schedule=self.schedule,
            decay=self.decay,
            beta2=self.beta2,
            eps=self.eps,
            clip=self.clip,
            bias_correction=self.bias_correction,
        )
