"""The hyperparameter grid of a paper for a task: learning rates x batch sizes x epochs, and other settings."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from preprocessing.spec import require, spec

if TYPE_CHECKING:
    from training.finetuning import Tuning

VARIED: Final = frozenset({"learning_rate", "batch_size", "epochs", "seed", "warmup_ratio"})
"""Keys of Tuning that a trial does not copy from a key of the same name."""


@spec
class Grid:
    """The cells of a paper's fine-tuning; what is not said is BERT's (appendix A.3).

    A key that Tuning has too means the same there, and each cell has it. `citation` says where the grid stands;
    `unverified` that nobody looked there when it was written down.
    """

    learning_rates: tuple[float, ...]  # learning rates
    batch_sizes: tuple[int, ...]  # examples
    epochs: tuple[float, ...] = ()
    max_steps: int = 0  # in place of epochs
    warmup_steps: float = 0.1  # share of the steps; from 1 up a number of steps, where `max_steps` is given
    lr_schedule: Literal["linear_after_warmup", "constant", "slanted_triangular"] = "linear_after_warmup"
    min_lr_ratio: float = 0.0  # lowest rate as a share of the peak (ULMFiT: 1/32)
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    weight_decay: float = 0.01
    beta2: float = 0.999
    eps: float = 1e-6
    max_grad_norm: float = 1.0  # global norm; 0: no clipping
    bias_correction: bool = True
    layerwise_lr_decay: float = 1.0  # rate of each layer by that of the one above it
    head_layer_gap: int = 2  # the head is as far above the top layer as so many layers
    gradual_unfreezing: bool = False  # the head learns first, and in each epoch a layer more
    frozen_features: Literal["none", "last", "last_four", "scalar_mix"] = (
        "none"  # of a frozen net; none: the net learns too
    )
    dropout: float | None = None  # of the net while it is fine-tuned; null: that of its pretraining
    lm_loss_weight: float = 0.0  # weight of the language-model loss beside that of the task (GPT-1)
    input_format: Literal["own", "gpt1"] = (
        "own"  # of a row: as the vocabulary has it, or gpt1: Start text Delim text Extract
    )
    both_orders: bool = False  # pairs are trained on in both orders, each an example of its own (ELECTRA's code)
    sum_orders: bool = False  # pairs are read in both orders, whose states are added before the head (GPT-1 3.3)
    no_answer_loss_weight: float = 0.0  # weight of whether a question has an answer
    max_seq_length: int = 0  # most tokens of a row; 0: that of the task
    num_evaluations: int = 0  # on the way, the last one at the end, of which the best weights count; 0: the last ones
    init_task: str = ""  # task whose fine-tuned weights it begins with (RoBERTa's RTE begins with those of MNLI)
    num_seeds: int = 0  # of each cell, with seeds of their own; 0: not said
    reported_statistic: Literal["best", "median"] = (
        "median"  # what the paper reports of its runs; ours are medians (task_score.py)
    )
    citation: str  # section, table or file
    unverified: bool = False
    note: str = ""  # what the keys do not say

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
        require(self.num_seeds >= 0, "num_seeds", self.num_seeds, "a whole number from 0 up")
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
