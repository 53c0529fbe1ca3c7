"""Phases of a run, and how one worker runs: from the recipe and from the cluster file. No torch in here."""

from typing import ClassVar, Literal

from preprocessing.spec import Shrinks, require, spec

Precision = Literal["fp32", "bf16"]


@spec
class Phase:
    """A stretch of training: `steps` batches of `batch` rows of at most `length` tokens (BERT A.2: 128, then 512).

    `fill` tokens: as many rows as it takes to have the text of so many full ones (RoBERTa 4.2, DOC-SENTENCES).
    """

    length: int  # tokens, special tokens included
    batch: int  # rows in a global batch, over all workers and micro-batches
    steps: int
    fill: Literal["rows", "tokens"] = "rows"

    shrinks: ClassVar[Shrinks] = {}

    def __post_init__(self) -> None:
        require(self.length >= 8, "phases.length", self.length, "a number of tokens from 8 up")
        require(self.batch >= 1, "phases.batch", self.batch, "a number of rows from 1 up")
        require(self.steps >= 1, "phases.steps", self.steps, "a number of steps from 1 up")


@spec
class Machine:
    """Circumstance: how one worker runs. Comes from the cluster file; never changes what is learned."""

    device: Literal["cpu", "cuda"] = "cpu"  # of each worker
    precision: Precision = "fp32"
    zero: Literal[0, 1, 2, 3] = 2
    micro_tokens: int = 16_384  # tokens of a micro-batch per worker; rows = micro_tokens // length
    layout: Literal["padded", "unpadded"] = "unpadded"  # of a micro-batch: with or without padding
    threads: int = 1  # torch threads per worker
    loader_workers: int = 0  # processes that prepare batches ahead, per worker; 0 = in the training process
    compile: bool = False
    tensor_parallel: int = 1  # workers that share one net, each with some heads, inner columns and tokens of the table
    sequence_parallel: int = 1  # workers that share the tokens of a micro-batch, each with some of them
    persistence_threshold: int = 100_000  # ZeRO-3: tensors below this many elements stay whole; 0 in parity tests

    def __post_init__(self) -> None:
        require(self.micro_tokens >= 1, "micro_tokens", self.micro_tokens, "a number of tokens from 1 up")
        require(self.threads >= 1, "threads", self.threads, "a number from 1 up")
        require(self.tensor_parallel >= 1, "tensor_parallel", self.tensor_parallel, "a number of workers from 1 up")
        sequence = self.sequence_parallel
        require(sequence >= 1, "sequence_parallel", sequence, "a number of workers from 1 up")
        require(self.loader_workers >= 0, "loader_workers", self.loader_workers, "a number from 0 up")
        allowed = "false with tensor_parallel or sequence_parallel, which torch.compile was not tried with"
        require(not (self.compile and self.workers_per_row > 1), "compile", self.compile, allowed)
        require(
            not (self.zero == 0 and self.precision == "bf16"),
            "zero",
            self.zero,
            "1, 2 or 3 with bf16 (DeepSpeed's stage 0 takes a dummy Adam step in 16 bit)",
        )

    @property
    def workers_per_row(self) -> int:
        """Workers that read the same rows."""
        return self.tensor_parallel * self.sequence_parallel
