"""The hyperparameter grid of a paper for a task: learning rates x batch sizes x epochs, and other settings."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from preprocessing.spec import key, require, spec

if TYPE_CHECKING:
    from training.finetuning import Tuning

VARIED: Final = frozenset({"learning_rate", "batch_size", "epochs", "seed", "warmup_ratio"})
"""Keys of Tuning that a trial does not copy from a key of the same name."""


@spec
class Grid:
    """Hyperparameter grid of a paper's fine-tuning.

    Each combination is a trial. Defaults are those of BERT (appendix A.3). A key of Tuning has the same meaning here,
    and the same value in all trials.
    """

    learning_rates: tuple[float, ...] = key(doc="Learning rates to try.")
    batch_sizes: tuple[int, ...] = key(doc="Batch sizes to try, in examples.")
    epochs: tuple[float, ...] = key(default=(), doc="Numbers of epochs to try; []: max_steps instead.")
    max_steps: int = key(default=0, doc="Number of steps, instead of epochs; 0: epochs instead.")
    warmup_steps: float = key(
        default=0.1, doc="Number of warmup steps, with max_steps; below 1 a fraction of all steps."
    )
    lr_schedule: Literal["linear_after_warmup", "constant", "slanted_triangular"] = key(
        default="linear_after_warmup", doc="Learning rate schedule."
    )
    min_lr_ratio: float = key(default=0.0, doc="Minimum learning rate as a fraction of the peak (ULMFiT: 1/32).")
    optimizer: Literal["adamw", "adafactor"] = key(default="adamw", doc="Optimizer.")
    weight_decay: float = key(default=0.01, doc="Weight decay.")
    beta2: float = key(default=0.999, doc="Decay rate of the running mean of the squared gradient.")
    eps: float = key(default=1e-6, doc="Term added to the denominator of AdamW's update.")
    max_grad_norm: float = key(default=1.0, doc="Maximum global norm of the gradient; 0: no clipping.")
    bias_correction: bool = key(default=True, doc="Whether AdamW's running means are corrected for their zero start.")
    layerwise_lr_decay: float = key(
        default=1.0, doc="Factor of a layer's learning rate relative to the layer above (ELECTRA: 0.8)."
    )
    head_layer_gap: int = key(
        default=2, doc="Distance from the top layer to the head for layerwise_lr_decay (ELECTRA: 2, ULMFiT: 1)."
    )
    gradual_unfreezing: bool = key(
        default=False, doc="Whether training starts with the head and adds one layer per epoch (ULMFiT)."
    )
    frozen_features: Literal["none", "last", "last_four", "scalar_mix"] = key(
        default="none", doc="Hidden states of the frozen model that feed the head; none: the model is trained."
    )
    dropout: float | None = key(default=None, doc="Dropout in fine-tuning; null: as in pretraining.")
    lm_loss_weight: float = key(default=0.0, doc="Weight of an additional language modeling loss (GPT-1: 0.5).")
    input_format: Literal["own", "gpt1"] = key(
        default="own", doc="Format of a sequence: the tokenizer's own, or GPT-1's Start text Delim text Extract."
    )
    both_orders: bool = key(
        default=False, doc="Whether training uses both orders of a pair, each as an example (ELECTRA's code)."
    )
    sum_orders: bool = key(
        default=False, doc="Whether the states of both orders of a pair are added before the head (GPT-1 3.3)."
    )
    no_answer_loss_weight: float = key(default=0.0, doc="Weight of the no-answer loss (ELECTRA on SQuAD 2.0: 0.5).")
    max_seq_length: int = key(default=0, doc="Maximum sequence length in tokens; 0: that of the task.")
    # The evaluations are spread over the training, and the last one is at its end.
    num_evaluations: int = key(
        default=0, doc="Number of evaluations on dev, to select the best weights; 0: final weights."
    )
    early_stopping_patience: int = key(
        default=0, doc="Evaluations without a better dev score after which training stops; 0: never."
    )
    # RoBERTa's RTE starts from MNLI.
    init_task: str = key(
        default="", doc="Task whose fine-tuned weights are the initial weights; empty: pretrained weights."
    )
    num_seeds: int = key(default=0, doc="Number of seeds per trial; 0: not stated in the paper.")
    # Sesame reports medians (task_score.py).
    reported_statistic: Literal["best", "median"] = key(
        default="median", doc="Statistic over seeds that the paper reports."
    )
    citation: str = key(doc="Section, table or file of the grid.")
    unverified: bool = key(default=False, doc="Whether the citation was not checked when the grid was written.")
    note: str = key(default="", doc="Further remarks on the grid.")

    def __post_init__(self) -> None:
        require(len(self.learning_rates) > 0, "learning_rates", [], "one learning rate or more")
        require(len(self.batch_sizes) > 0, "batch_sizes", [], "one batch or more")
        given = f"{len(self.epochs)} epochs and {self.max_steps} steps"
        require(bool(self.epochs) != bool(self.max_steps), "epochs", given, "epochs or max_steps, one of the two")
        most = self.max_steps or 1
        require(
            0 <= self.warmup_steps < most,
            "warmup_steps",
            self.warmup_steps,
            "a fraction of the steps, or fewer steps than `max_steps`",
        )
        require(self.num_seeds >= 0, "num_seeds", self.num_seeds, "an integer of at least 0")
        require(self.citation.strip() != "", "citation", self.citation, "the section, table or file of the grid")

    @property
    def warmup_ratio(self) -> float:
        return self.warmup_steps / self.max_steps if self.warmup_steps >= 1 else self.warmup_steps

    def describe(self) -> str:
        """The grid in one line.

        >>> grid = Grid(learning_rates=(1e-5, 2e-5), batch_sizes=(16,), epochs=(3,), num_seeds=5, citation="table 10")
        >>> grid.describe()
        '1e-5 2e-5 x batches of 16 x 3 epochs, 5 runs each (table 10)'
        """
        long = (
            f"{self.max_steps:,} steps" if self.max_steps else f"{' '.join(f'{one:g}' for one in self.epochs)} epochs"
        )
        rates = " ".join(f"{one:g}".replace("e-0", "e-") for one in self.learning_rates)
        batches = " ".join(map(str, self.batch_sizes))
        runs = f", {self.num_seeds} runs each" if self.num_seeds > 1 else ""
        frozen = f", {self.frozen_features} of a frozen model" if self.frozen_features != "none" else ""
        remembered = ", from memory" if self.unverified else ""
        return f"{rates} x batches of {batches} x {long}{runs}{frozen} ({self.citation}{remembered})"

    def cells(self) -> "list[Tuning]":
        """Return a trial for each learning rate, batch size, number of epochs and seed; seeds vary fastest."""
        from training.finetuning import Tuning

        shared = {field.name for field in fields(Tuning)} & {field.name for field in fields(self)} - VARIED
        keys: dict[str, Any] = {name: getattr(self, name) for name in shared} | {"warmup_ratio": self.warmup_ratio}
        return [
            Tuning(**keys, learning_rate=rate, batch_size=batch, epochs=epochs, seed=seed)
            for rate in self.learning_rates
            for batch in self.batch_sizes
            for epochs in self.epochs or (1.0,)
            for seed in range(self.num_seeds or 1)
        ]
