"""The hyper-parameters that a paper prescribes for a task: rates x batches x epochs, and what goes with them."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from preprocessing.spec import require, spec

if TYPE_CHECKING:
    from training.finetuning import Tuning

VARIED: Final = frozenset({"peak", "batch", "epochs", "seed", "warmup"})
"""Keys of Tuning that a cell does not take from a key of the same name."""


@spec
class Grid:
    """The cells of a paper's fine-tuning; what is not said is BERT's (appendix A.3).

    A key that Tuning has too means the same there, and each cell has it. `source` says where the grid stands;
    `from_memory` that nobody looked there when it was written down.
    """

    rates: tuple[float, ...]  # learning rates
    batches: tuple[int, ...]  # examples
    epochs: tuple[float, ...] = ()
    steps: int = 0  # in place of epochs
    warmup: float = 0.1  # share of the steps; from 1 up a number of steps, where `steps` is given
    schedule: Literal["linear_after_warmup", "constant", "slanted_triangular"] = "linear_after_warmup"
    floor: float = 0.0  # lowest rate as a share of the peak (ULMFiT: 1/32)
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    decay: float = 0.01
    beta2: float = 0.999
    eps: float = 1e-6
    clip: float = 1.0  # global norm; 0: no clipping
    bias_correction: bool = True
    layer_decay: float = 1.0  # rate of each layer by that of the one above it
    layer_gap: int = 2  # the head is as far above the top layer as so many layers
    unfreeze: bool = False  # the head learns first, and in each epoch a layer more
    features: Literal["none", "last", "last_four", "mix"] = "none"  # of a frozen net; none: the net learns too
    dropout: float | None = None  # of the net while it is fine-tuned; null: that of its pretraining
    auxiliary: float = 0.0  # weight of the language-model loss beside that of the task (GPT-1)
    form: Literal["own", "gpt1"] = "own"  # of a row: as the vocabulary has it, or gpt1: Start text Delim text Extract
    both_orders: bool = False  # pairs are trained on in both orders, each an example of its own (ELECTRA's code)
    sum_orders: bool = False  # pairs are read in both orders, whose states are added before the head (GPT-1 3.3)
    no_answer: float = 0.0  # weight of whether a question has an answer
    length: int = 0  # most tokens of a row; 0: that of the task
    dev_evaluations: int = 0  # on the way, the last one at the end, of which the best weights count; 0: the last ones
    start: str = ""  # task whose fine-tuned weights it begins with (RoBERTa's RTE begins with those of MNLI)
    runs: int = 0  # of each cell, with seeds of their own; 0: not said
    select: Literal["best", "median"] = "median"  # what the paper reports of its runs; ours are medians (task_score.py)
    source: str  # section, table or file
    from_memory: bool = False
    note: str = ""  # what the keys do not say

    def __post_init__(self) -> None:
        require(len(self.rates) > 0, "rates", [], "one learning rate or more")
        require(len(self.batches) > 0, "batches", [], "one batch or more")
        given = f"{len(self.epochs)} epochs and {self.steps} steps"
        require(bool(self.epochs) != bool(self.steps), "epochs", given, "epochs or steps, one of the two")
        most = self.steps or 1
        require(0 <= self.warmup < most, "warmup", self.warmup, "a share of the steps, or fewer steps than `steps`")
        require(self.runs >= 0, "runs", self.runs, "a whole number from 0 up")
        require(self.source.strip() != "", "source", self.source, "where the grid stands")

    @property
    def warmup_share(self) -> float:
        return self.warmup / self.steps if self.warmup >= 1 else self.warmup

    def describe(self) -> str:
        """The grid in one line.

        >>> Grid(rates=(1e-5, 2e-5), batches=(16,), epochs=(3,), runs=5, source="table 10").describe()
        '1e-5 2e-5 x batches of 16 x 3 epochs, 5 runs each (table 10)'
        """
        long = f"{self.steps:,} steps" if self.steps else f"{' '.join(f'{one:g}' for one in self.epochs)} epochs"
        rates = " ".join(f"{one:g}".replace("e-0", "e-") for one in self.rates)
        batches = " ".join(map(str, self.batches))
        runs = f", {self.runs} runs each" if self.runs > 1 else ""
        frozen = f", {self.features} of a frozen net" if self.features != "none" else ""
        remembered = ", from memory" if self.from_memory else ""
        return f"{rates} x batches of {batches} x {long}{runs}{frozen} ({self.source}{remembered})"

    def cells(self) -> "list[Tuning]":
        """Each rate with each batch, each number of epochs and each seed, the seeds of a cell one after the other."""
        from training.finetuning import Tuning

        shared = {field.name for field in fields(Tuning)} & {field.name for field in fields(self)} - VARIED
        keys: dict[str, Any] = {name: getattr(self, name) for name in shared} | {"warmup": self.warmup_share}
        return [
            Tuning(**keys, peak=rate, batch=batch, epochs=epochs, seed=seed)
            for rate in self.rates
            for batch in self.batches
            for epochs in self.epochs or (1.0,)
            for seed in range(self.runs or 1)
        ]
