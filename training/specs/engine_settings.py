"""Phases of a run, and how one worker runs: from the recipe and from the cluster file. No torch in here."""

import math
from dataclasses import field
from typing import Any, ClassVar, Literal

from preprocessing.folders import is_address
from preprocessing.spec import Shrinks, require, spec
from training.specs.deepspeed_keys import check_effect, check_further

Precision = Literal["fp32", "bf16", "fp16"]
Offload = Literal["none", "cpu", "nvme"]
ActivationCheckpointing = Literal["none", "full", "selective"]


@spec
class Phase:
    """A stretch of training: `steps` batches of `global_batch_size` rows of at most `seq_length` tokens (BERT A.2: 128,
    then 512).

    `batch_unit` tokens: as many rows as it takes to have the text of so many full ones (RoBERTa 4.2, DOC-SENTENCES).
    With a `learning_rate` the learning rate begins anew with the phase: it rises for `warmup_steps` steps, then follows
    the optimiser's schedule, which ends before the next phase with a peak, or with the run (arXiv:1904.00962, 4.1:
    re-warm-up).
    """

    seq_length: int  # tokens, special tokens included
    global_batch_size: int  # rows in a global batch, over all workers and micro-batches
    steps: int
    batch_unit: Literal["sequence", "token"] = "sequence"
    learning_rate: float = 0.0  # learning rate of a schedule that begins with the phase; 0: that of the run goes on
    warmup_steps: int = 0  # steps of the warm-up to it

    shrinks: ClassVar[Shrinks] = {}

    def __post_init__(self) -> None:
        require(self.seq_length >= 8, "phases.seq_length", self.seq_length, "a number of tokens from 8 up")
        require(
            self.global_batch_size >= 1,
            "phases.global_batch_size",
            self.global_batch_size,
            "a number of rows from 1 up",
        )
        require(self.steps >= 1, "phases.steps", self.steps, "a number of steps from 1 up")
        require(
            0 <= self.learning_rate < 100,
            "phases.learning_rate",
            self.learning_rate,
            "0 (the schedule goes on) or a learning rate below 100",
        )
        require(self.warmup_steps >= 0, "phases.warmup_steps", self.warmup_steps, "a number of steps from 0 up")
        alone = self.warmup_steps > 0 and not self.learning_rate
        require(
            not alone,
            "phases.warmup_steps",
            self.warmup_steps,
            "0 where the phase has no peak: give phases.learning_rate too",
        )


@spec
class EngineSettings:
    """Circumstance: how one worker runs. Comes from the cluster file; never changes what is learned."""

    device: Literal["cpu", "cuda"] = "cpu"  # of each worker
    precision: Precision = "fp32"  # of weights and states; fp16: with a loss scale that adapts
    zero_stage: Literal[0, 1, 2, 3] = 2
    micro_batch_tokens: int = 16_384  # tokens of a micro-batch per worker; rows = micro_tokens // length
    padding: Literal["padded", "unpadded"] = "unpadded"  # of a micro-batch: with or without padding
    cpu_threads: int = 1  # torch threads per worker
    dataloader_num_workers: int = 0  # processes that prepare batches ahead, per worker; 0 = in the training process
    torch_compile: bool = False
    # what is computed a second time instead of being kept for the backward pass: nothing, each block, or the scores and
    # the softmax of attention alone, which take much room and little time
    activation_checkpointing: ActivationCheckpointing = "none"
    offload_optimizer: Offload = "none"  # where master weights and moments lie, and are updated; zero 1 to 3, nvme: 3
    offload_param: Offload = "none"  # where the weights lie until a layer needs them; zero 3
    nvme_path: str = ""  # folder on a local disk, for what is offloaded to nvme
    reduce_dtype: Literal["fp32", "bf16"] = "fp32"  # in which gradients are summed over the workers
    overlap_comm: bool = False  # gradients are summed while the backward pass goes on; zero 2
    tensor_parallel_size: int = (
        1  # workers that share one net, each with some heads, inner columns and tokens of the table
    )
    pipeline_parallel_size: int = 1  # stages of a net: each is some of its layers on workers of its own; zero 0 or 1
    sequence_parallel_size: int = 1  # workers that share the tokens of a micro-batch, each with some of them
    deepspeed: dict[str, Any] = field(default_factory=dict)  # further keys of DeepSpeed's configuration
    init_timeout_seconds: int = (
        600  # seconds that workers may take to meet; with hang_minutes 0 also that one waits for others
    )
    param_persistence_threshold: int = 100_000  # ZeRO-3: tensors below this many elements stay whole; 0 in parity tests

    def __post_init__(self) -> None:
        require(
            self.micro_batch_tokens >= 1, "micro_batch_tokens", self.micro_batch_tokens, "a number of tokens from 1 up"
        )
        require(
            self.init_timeout_seconds >= 1,
            "init_timeout_seconds",
            self.init_timeout_seconds,
            "a number of seconds from 1 up",
        )
        require(self.cpu_threads >= 1, "cpu_threads", self.cpu_threads, "a number from 1 up")
        require(
            self.tensor_parallel_size >= 1,
            "tensor_parallel_size",
            self.tensor_parallel_size,
            "a number of workers from 1 up",
        )
        pipeline, sequence = self.pipeline_parallel_size, self.sequence_parallel_size
        require(pipeline >= 1, "pipeline_parallel_size", pipeline, "a number of stages from 1 up")
        require(sequence >= 1, "sequence_parallel_size", sequence, "a number of workers from 1 up")
        require(
            self.dataloader_num_workers >= 0,
            "dataloader_num_workers",
            self.dataloader_num_workers,
            "a number from 0 up",
        )
        allowed = "false with tensor, pipeline or sequence_parallel, which torch.compile was not tried with"
        require(not (self.torch_compile and self.workers_per_row > 1), "torch_compile", self.torch_compile, allowed)
        require(
            not (self.zero_stage == 0 and self.precision == "bf16"),
            "zero_stage",
            self.zero_stage,
            "1, 2 or 3 with bf16 (DeepSpeed's stage 0 takes a dummy Adam step in 16 bit)",
        )
        least = "a number of elements from 0 up"
        require(
            self.param_persistence_threshold >= 0,
            "param_persistence_threshold",
            self.param_persistence_threshold,
            least,
        )
        check_further(self.deepspeed)
        self._check_layout()

    def _check_layout(self) -> None:
        """Raise ValueError where keys do not go together."""
        fits = self.precision != "fp16" or (self.device == "cuda" and self.zero_stage > 0)
        require(fits, "precision", self.precision, "fp32 or bf16; fp16 only with device cuda and zero_stage 1, 2 or 3")
        optimizer, parameters = self.offload_optimizer, self.offload_param
        allowed = {0: ["none"], 3: ["none", "cpu", "nvme"]}.get(self.zero_stage, ["none", "cpu"])
        require(
            optimizer in allowed,
            "offload_optimizer",
            optimizer,
            f"{' or '.join(allowed)} with zero_stage {self.zero_stage}",
        )
        whole = parameters == "none" or self.zero_stage == 3
        require(
            whole, "offload_param", parameters, f"none with zero_stage {self.zero_stage}; other stages than 3 need them"
        )
        to_disk = "nvme" in (optimizer, parameters)
        wanted = "a folder on a local disk with nvme, empty without"
        fits = bool(self.nvme_path) == to_disk and not is_address(self.nvme_path)
        require(fits, "nvme_path", self.nvme_path, wanted)
        check_effect(self.deepspeed, self.zero_stage, self.precision, to_disk)
        overlaps = not self.overlap_comm or self.zero_stage == 2
        require(
            overlaps,
            "overlap_comm",
            self.overlap_comm,
            f"false with zero_stage {self.zero_stage}: DeepSpeed can with 2 alone",
        )
        near = self.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)
        alike = near == 1 or self.tensor_parallel_size == 1
        allowed_near = "1 with tensor_parallel_size: workers in a row have different shares of the net"
        require(alike, "engine.deepspeed.zero_optimization.zero_hpz_partition_size", near, allowed_near)
        if self.pipeline_parallel_size > 1:
            low = "0 or 1 with pipeline_parallel_size: 2 and 3 would exchange gradients at each micro-batch"
            require(self.zero_stage <= 1, "zero_stage", self.zero_stage, low)
            require(self.precision != "fp16", "precision", self.precision, "fp32 or bf16 with pipeline_parallel_size")

    @property
    def workers_per_row(self) -> int:
        """Workers that read the same rows."""
        return self.tensor_parallel_size * self.sequence_parallel_size * self.pipeline_parallel_size

    @property
    def workers_unit(self) -> int:
        """The number of workers is a multiple of it."""
        near = self.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)
        return math.lcm(self.workers_per_row, int(near))
