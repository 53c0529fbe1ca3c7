"""Phases of a recipe, and engine settings of a cluster file. This module does not import torch."""

import math
import os
from typing import Any, ClassVar, Final, Literal

from preprocessing.blends import require_weights
from preprocessing.folders import is_address
from preprocessing.shard_cache import DEFAULT_GB, GIGABYTE, CacheSettings
from preprocessing.spec import ScaleOverrides, key, require, spec
from training.specs.deepspeed_keys import check_effect, check_further

Precision = Literal["fp32", "bf16", "fp16"]
Offload = Literal["none", "cpu", "nvme"]
Fp8Recipe = Literal["none", "tensorwise", "rowwise"]
Auto = Literal["auto"]
AUTO_TOKENS: Final = {"cpu": 16_384, "cuda": 65_536}
"""`micro_batch_tokens: auto` of evaluations and of fine-tuning. A job chooses the number of a training by its plan."""
ActivationCheckpointing = Literal["none", "full", "selective"]


@spec
class Phase:
    """Phase of training with one sequence length and one batch size (BERT A.2: 128, then 512).

    With `batch_unit: token`, a batch has as many tokens as `global_batch_size` full sequences, in more sequences if
    some are shorter (RoBERTa 4.2, DOC-SENTENCES).

    With a `learning_rate`, the schedule restarts in this phase. The learning rate rises for `warmup_steps` steps, then
    follows the schedule of the optimizer. This schedule ends before the next phase with a learning rate, or with the
    run (arXiv:1904.00962, 4.1: re-warmup).

    A `mixture` replaces the weights of the corpus's groups, e.g. to train on text of high quality at the end (MiniCPM,
    arXiv:2404.06395; OLMo 2, arXiv:2501.00656). Each group continues where the phase before stopped.
    """

    seq_length: int = key(doc="Sequence length in tokens, special tokens included; at least 8.")
    global_batch_size: int = key(doc="Sequences per batch, over all workers and micro-batches.")
    steps: int = key(default=0, doc="Number of steps (batches), unless `epochs` is set.")
    batch_unit: Literal["sequence", "token"] = key(
        default="sequence", doc="Unit of the batch size: sequences, or the tokens of that many full sequences."
    )
    learning_rate: float = key(
        default=0.0, doc="Peak learning rate of a schedule that restarts with the phase; 0: no restart."
    )
    warmup_steps: int = key(default=0, doc="Warmup steps of the restarted schedule.")
    # A job replaces epochs by steps as soon as its corpus exists, so that a run has steps only.
    epochs: float = key(default=0.0, doc="Number of epochs over the training text, instead of `steps`.")
    mixture: dict[str, float] = key(
        default_factory=dict, doc="Weights of the corpus's groups in this phase, by group; {}: those of data.mixture."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(self.seq_length >= 8, "phases.seq_length", self.seq_length, "at least 8 tokens")
        require(
            self.global_batch_size >= 1,
            "phases.global_batch_size",
            self.global_batch_size,
            "at least 1 sequence",
        )
        require(0 <= self.epochs < 1e6, "phases.epochs", self.epochs, "0 (steps instead) or a positive number")
        if self.epochs:
            require(self.steps == 0, "phases.steps", self.steps, "0 with phases.epochs; set one of both")
        else:
            require(self.steps >= 1, "phases.steps", self.steps, "at least 1 step, or phases.epochs instead")
        require(
            0 <= self.learning_rate < 100,
            "phases.learning_rate",
            self.learning_rate,
            "0 (the schedule continues) or a learning rate below 100",
        )
        require_weights("phases.mixture", self.mixture)
        require(self.warmup_steps >= 0, "phases.warmup_steps", self.warmup_steps, "at least 0 steps")
        alone = self.warmup_steps > 0 and not self.learning_rate
        require(
            not alone,
            "phases.warmup_steps",
            self.warmup_steps,
            "0 without phases.learning_rate; set both",
        )


@spec
class EngineSettings:
    """Engine of one worker: device, precision, parallelism and memory.

    It is part of the cluster file; the hash of a recipe does not depend on it.
    """

    device: Literal["cpu", "cuda"] = key(default="cpu", doc="Device of each worker.")
    precision: Precision = key(
        default="fp32", doc="Precision of weights and activations; fp16 uses a dynamic loss scale."
    )
    zero_stage: Literal[0, 1, 2, 3] = key(default=2, doc="ZeRO stage of DeepSpeed.")
    micro_batch_tokens: int | Auto = key(
        default=16_384,
        doc="Tokens per micro-batch and worker, in whole sequences; auto: as many as fit by `sesame plan`.",
    )
    # `fixed`: unpadded sequences, then filler that no loss counts
    padding: Literal["auto", "padded", "unpadded", "fixed"] = key(
        default="auto", doc="Layout of a micro-batch; fixed: the same shape for all, which is `auto` on a single GPU."
    )
    cpu_threads: int = key(default=1, doc="Number of torch threads per worker.")
    dataloader_num_workers: int = key(
        default=0, doc="Processes per worker that prepare batches; 0: the training process."
    )
    # For a corpus in an object store. All workers of a machine share the directory.
    shard_cache_dir: str = key(
        default="", doc="Local directory for shards of a corpus in a store; empty: the user's cache directory."
    )
    shard_cache_gb: float = key(default=DEFAULT_GB, doc="Most gigabytes of shards that this directory may hold.")
    torch_compile: Literal["auto", True, False] = key(
        default="auto", doc="Whether torch.compile compiles the blocks; auto: on a single GPU, with fixed shapes."
    )
    # The recipes of torchao. It pays from about a billion parameters; pip install 'sesame-pretraining[fp8]'.
    fp8_recipe: Fp8Recipe = key(
        default="none", doc="Scales of FP8 products in the blocks' linear layers; bf16 and compute capability 8.9."
    )
    # Off until it has been measured: what compiled blocks leave to launch is little.
    cuda_graphs: bool = key(
        default=False, doc="Whether a micro-batch is two CUDA graphs; only for one worker with fixed shapes."
    )
    # `selective`: the scores and the softmax of attention, which need much memory and little time.
    activation_checkpointing: ActivationCheckpointing = key(
        default="none", doc="Recomputation in the backward pass: none, whole blocks, or attention scores only."
    )
    offload_optimizer: Offload = key(
        default="none", doc="Storage of master weights and optimizer state; cpu: zero_stage 1 to 3, nvme: 3."
    )
    offload_param: Offload = key(
        default="none", doc="Where weights are kept while no layer uses them; cpu and nvme require zero_stage 3."
    )
    nvme_path: str = key(default="", doc="Directory on a local disk for nvme offload.")
    reduce_dtype: Literal["fp32", "bf16"] = key(default="fp32", doc="Precision of gradient reduction across workers.")
    overlap_comm: bool = key(
        default=False, doc="Whether gradient reduction overlaps with the backward pass; zero_stage 2 only."
    )
    # Each has some of the heads, of the feed-forward columns and of the token table.
    tensor_parallel_size: int = key(default=1, doc="Number of workers that share each layer.")
    pipeline_parallel_size: int = key(
        default=1, doc="Number of pipeline stages, each with some of the layers; zero_stage 0 or 1."
    )
    sequence_parallel_size: int = key(
        default=1, doc="Number of workers that share the tokens of a micro-batch (Ulysses)."
    )
    deepspeed: dict[str, Any] = key(default_factory=dict, doc="Further keys of DeepSpeed's configuration.")
    # With cluster.hang_timeout_minutes 0, this is also the time limit when a worker waits for another one.
    init_timeout_seconds: int = key(default=600, doc="Seconds that workers may take to connect to each other.")
    # Parity tests use 0.
    param_persistence_threshold: int = key(
        default=100_000, doc="ZeRO-3: tensors with fewer elements are not partitioned."
    )

    def __post_init__(self) -> None:
        tokens = self.micro_batch_tokens
        is_positive = isinstance(tokens, int) and tokens >= 1
        require(tokens == "auto" or is_positive, "micro_batch_tokens", tokens, "auto, or at least 1 token")
        require(
            self.init_timeout_seconds >= 1,
            "init_timeout_seconds",
            self.init_timeout_seconds,
            "at least 1 second",
        )
        is_bound = 0 < self.shard_cache_gb < math.inf
        require(is_bound, "shard_cache_gb", self.shard_cache_gb, "a number of gigabytes above 0")
        is_local = not self.shard_cache_dir or os.path.isabs(self.shard_cache_dir)
        require(is_local, "shard_cache_dir", self.shard_cache_dir, "an absolute path on a local disk, or empty")
        require(self.cpu_threads >= 1, "cpu_threads", self.cpu_threads, "a number of at least 1")
        require(
            self.tensor_parallel_size >= 1,
            "tensor_parallel_size",
            self.tensor_parallel_size,
            "at least 1 worker",
        )
        pipeline, sequence = self.pipeline_parallel_size, self.sequence_parallel_size
        require(pipeline >= 1, "pipeline_parallel_size", pipeline, "at least 1 stage")
        require(sequence >= 1, "sequence_parallel_size", sequence, "at least 1 worker")
        require(
            self.dataloader_num_workers >= 0,
            "dataloader_num_workers",
            self.dataloader_num_workers,
            "a number of at least 0",
        )
        allowed = "false with tensor, pipeline or sequence parallelism; this combination is not tested"
        fits = self.torch_compile is not True or self.workers_per_row == 1
        require(fits, "torch_compile", self.torch_compile, allowed)
        require(
            not (self.zero_stage == 0 and self.precision == "bf16"),
            "zero_stage",
            self.zero_stage,
            "1, 2 or 3 with bf16 (DeepSpeed's stage 0 takes a dummy Adam step in 16 bit)",
        )
        require(
            self.param_persistence_threshold >= 0,
            "param_persistence_threshold",
            self.param_persistence_threshold,
            "at least 0 elements",
        )
        check_further(self.deepspeed)
        self._check_fp8()
        self._check_layout()

    def _check_fp8(self) -> None:
        """Raise ValueError if FP8 is not possible."""
        recipe = self.fp8_recipe
        if recipe == "none":
            return
        require(self.device == "cuda", "fp8_recipe", recipe, "none on a CPU; FP8 needs device cuda")
        require(self.precision == "bf16", "fp8_recipe", recipe, f"none with precision {self.precision}; FP8 needs bf16")
        alone = "none with tensor, pipeline or sequence parallelism; this combination is not tested"
        require(self.workers_per_row == 1, "fp8_recipe", recipe, alone)
        whole = "none with zero_stage 3: the products would keep all gathered weights until the backward pass"
        require(self.zero_stage < 3, "fp8_recipe", recipe, whole)

    def _check_layout(self) -> None:
        """Raise ValueError if keys cannot be combined."""
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
        is_possible = parameters == "none" or self.zero_stage == 3
        require(
            is_possible,
            "offload_param",
            parameters,
            f"none with zero_stage {self.zero_stage}; offload requires stage 3",
        )
        to_disk = "nvme" in (optimizer, parameters)
        allowed_path = "a directory on a local disk with nvme offload, otherwise empty"
        fits = bool(self.nvme_path) == to_disk and not is_address(self.nvme_path)
        require(fits, "nvme_path", self.nvme_path, allowed_path)
        check_effect(self.deepspeed, self.zero_stage, self.precision, to_disk)
        overlaps = not self.overlap_comm or self.zero_stage == 2
        require(
            overlaps,
            "overlap_comm",
            self.overlap_comm,
            f"false with zero_stage {self.zero_stage}: DeepSpeed supports it with stage 2 only",
        )
        near = self.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)
        alike = near == 1 or self.tensor_parallel_size == 1
        allowed_near = "1 with tensor parallelism: neighboring workers have different weights"
        require(alike, "engine.deepspeed.zero_optimization.zero_hpz_partition_size", near, allowed_near)
        if self.pipeline_parallel_size > 1:
            low = "0 or 1 with pipeline parallelism: 2 and 3 would exchange gradients at each micro-batch"
            require(self.zero_stage <= 1, "zero_stage", self.zero_stage, low)
            require(self.precision != "fp16", "precision", self.precision, "fp32 or bf16 with pipeline parallelism")

    @property
    def micro_tokens(self) -> int:
        """`micro_batch_tokens` as a number; instead of `auto`, that of evaluations and of fine-tuning."""
        return AUTO_TOKENS[self.device] if self.micro_batch_tokens == "auto" else self.micro_batch_tokens

    @property
    def shard_cache(self) -> CacheSettings:
        """The cache for shards of a corpus in a store."""
        return CacheSettings(self.shard_cache_dir, int(self.shard_cache_gb * GIGABYTE))

    def is_alone(self, workers: int) -> bool:
        """Whether a run with this number of workers is one process without DeepSpeed.

        DeepSpeed divides the state of the optimizer over workers, offloads it, and has a loss scale for fp16. A worker
        that needs none of these would only pay for its copies of gradients and weights.
        """
        offloads = self.offload_optimizer != "none" or self.offload_param != "none"
        return workers == 1 and not offloads and self.precision != "fp16" and not self.deepspeed

    @property
    def workers_per_row(self) -> int:
        """Number of workers that read the same sequences."""
        return self.tensor_parallel_size * self.sequence_parallel_size * self.pipeline_parallel_size

    @property
    def workers_unit(self) -> int:
        """Divisor of the number of workers."""
        near = self.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)
        return math.lcm(self.workers_per_row, int(near))
