"""The settings and the result of a fine-tuning on held-out documents. No torch in here."""

from dataclasses import dataclass

from preprocessing.spec import key, require, spec
from training.evaluation.tasks import LABELS, Start
from training.finetuning import Tuning


@spec
class Budget:
    """Budget of one fine-tuning on held-out documents."""

    labels: int = key(default=LABELS, doc="Number of labeled sequences.")
    steps: int = key(default=200, doc="Number of steps.")
    batch: int = key(default=16, doc="Batch size in sequences.")
    # Linear warmup over a tenth of the steps, then linear decay to 0.
    peak: float = key(default=1e-3, doc="Peak learning rate.")

    def __post_init__(self) -> None:
        for name in ("labels", "steps", "batch"):
            require(getattr(self, name) >= 1, f"budget.{name}", getattr(self, name), "an integer of at least 1")

    def make_tuning(self, seed: int) -> Tuning:
        """The fine-tuning settings, with a seed for the choice of examples, their order, the head and dropout."""
        return Tuning(learning_rate=self.peak, batch_size=self.batch, max_steps=self.steps, seed=seed)


@dataclass(frozen=True)
class FinetuneResult:
    """Test score of one fine-tuning."""

    task: str
    chance: float  # accuracy of a random guess
    start: Start
    seed: int
    accuracy: float
    loss: float  # nats per example
    notes: tuple[str, ...] = ()
    right: tuple[float, ...] = ()  # per test example: 1 if the predicted class is correct, else 0
    constant: str = ""  # the class predicted for all examples, as text; "" if they differ
    predicted: tuple[str, ...] = ()  # per test example: the predicted class
