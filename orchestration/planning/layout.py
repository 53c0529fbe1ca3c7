"""Parallel layouts: how a model and its batch are distributed over devices. The layout never changes the result of
training."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from orchestration.config import Cluster
from training.specs import BUCKET, LIVE, PREFETCH, EngineSettings

Checkpointing = Literal["none", "selective", "full"]
_SAMPLES = next(field.default for field in fields(Cluster) if field.name == "sample_prompts")


@dataclass(frozen=True)
class ParallelLayout:
    """Degrees of parallelism, and what each device stores (ZeRO: arXiv:1910.02054; tensor: arXiv:1909.08053; pipeline:
    arXiv:2104.04473).

    The number of devices is `data` x `sequence` x `tensor` x `pipeline`. One replica processes `rows` sequences at
    once.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1  # workers that share the tokens of a micro-batch (Ulysses, arXiv:2309.14509)
    zero: int = 2
    rows: int = 1  # sequences per micro-batch
    micro_tokens: int = 0  # maximum tokens of a micro-batch, in every phase; 0: computed from `rows`
    checkpointing: Checkpointing = "none"  # activation checkpointing
    offload: bool = False  # optimizer states and master weights are in host memory
    offload_parameters: bool = False  # ZeRO-3: the weights are in host memory too, until a layer needs them
    optimizer_on_disk: bool = False  # the offloaded optimizer states are on a local disk
    parameters_on_disk: bool = False  # the offloaded weights are on a local disk
    precision: str = "bf16"
    reduce_bytes: int = 4  # bytes per gradient element during reduction
    overlap: bool = False  # gradients are reduced during the backward pass
    persistent: int = 100_000  # ZeRO-3: maximum elements of a tensor that is not partitioned
    bucket: int = BUCKET  # elements of a gradient buffer
    prefetch: int = PREFETCH  # ZeRO-3: elements that are gathered ahead
    live: int = LIVE  # ZeRO-3: maximum elements that are gathered at the same time
    deepspeed: bool = False  # the cluster file has further keys of DeepSpeed, which a lone worker then uses, too

    @property
    def devices(self) -> int:
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Number of devices with the same weights; ZeRO partitions the states over them."""
        return self.data * self.sequence

    @property
    def is_alone(self) -> bool:
        """Whether the run is one process without DeepSpeed (EngineSettings.is_alone)."""
        offloads = self.offload or self.offload_parameters
        return self.devices == 1 and not offloads and self.precision != "fp16" and not self.deepspeed

    @property
    def bytes_per_weight(self) -> int:
        return 4 if self.precision == "fp32" else 2

    @property
    def mixed(self) -> bool:
        """Whether float32 master weights exist beside the weights of the forward pass."""
        return self.precision != "fp32"

    @property
    def sums_in_place(self) -> bool:
        """Whether DeepSpeed keeps complete float32 gradients and has no buckets. Its bf16 optimizer does so in ZeRO
        stage 1."""
        return self.zero == 1 and self.precision == "bf16" and not self.offload

    def describe(self) -> str:
        """
        >>> ParallelLayout(data=8, tensor=8, zero=1, checkpointing="full").describe()
        '64 devices: data 8 x tensor 8, bf16, ZeRO 1, micro-batch 1, full checkpointing'
        >>> ParallelLayout(rows=8).describe()
        '1 device: data 1, bf16, micro-batch 8'
        """
        degrees = [f"data {self.data}"]
        degrees += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        degrees += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        degrees += [f"sequence {self.sequence}"] if self.sequence > 1 else []
        more = [self.precision, *([] if self.is_alone else [f"ZeRO {self.zero}"]), f"micro-batch {self.rows}"]
        more += [f"{self.checkpointing} checkpointing"] if self.checkpointing != "none" else []
        more += ["optimizer offloaded" + " to disk" * self.optimizer_on_disk] if self.offload else []
        more += ["weights offloaded" + " to disk" * self.parameters_on_disk] if self.offload_parameters else []
        devices = f"{self.devices:,} device{'s' if self.devices > 1 else ''}"
        return f"{devices}: {' x '.join(degrees)}, {', '.join(more)}"

    def overrides(self, cluster: Cluster) -> Iterator[str]:
        """Overrides that give a cluster file this layout: one for each key whose value differs."""
        machine = cluster.engine
        nvme = self.optimizer_on_disk or self.parameters_on_disk
        is_data_parallel = self.tensor * self.pipeline * self.sequence == 1
        yield f"cluster.num_workers={self.devices}"
        if cluster.min_workers > self.devices:
            yield "cluster.min_workers=1"
        for key, value in (
            ("zero_stage", self.zero),
            ("micro_batch_tokens", self.micro_tokens),
            ("precision", self.precision),
            ("tensor_parallel_size", self.tensor),
            ("pipeline_parallel_size", self.pipeline),
            ("sequence_parallel_size", self.sequence),
            ("activation_checkpointing", self.checkpointing),
            ("offload_optimizer", _offload_target(self.offload, self.optimizer_on_disk)),
            ("offload_param", _offload_target(self.offload_parameters, self.parameters_on_disk)),
            ("nvme_path", machine.nvme_path if nvme else ""),
            ("overlap_comm", self.overlap),
            ("torch_compile", machine.torch_compile if is_data_parallel else "auto"),
        ):
            if value != getattr(machine, key):
                yield f"cluster.engine.{key}={_format_value(value)}"
        if (near := near_partition(machine)) > 1 and (self.zero < 3 or not is_data_parallel or self.devices % near):
            yield "cluster.engine.deepspeed={}"
        if (self.zero == 3 or not is_data_parallel) and cluster.sample_prompts not in ((), _SAMPLES):
            yield "cluster.sample_prompts=[]"


def _offload_target(offloaded: bool, on_disk: bool) -> str:
    return "nvme" if offloaded and on_disk else "cpu" if offloaded else "none"


def _format_value(value: object) -> str:
    """The value as text of an override."""
    return str(value).lower() if isinstance(value, bool) else '""' if value == "" else str(value)


def near_partition(machine: EngineSettings) -> int:
    """Number of workers that together have all weights in the secondary partition of ZeRO-3; 1: no such partition."""
    return int(machine.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1))


def layout_of(machine: EngineSettings, workers: int, row_tokens: int, batch: int) -> ParallelLayout:
    """The layout of a cluster file, for a batch of `batch` sequences of `row_tokens` tokens (Workload.row_tokens)."""
    tensor, sequence = machine.tensor_parallel_size, machine.sequence_parallel_size
    data = max(1, workers // machine.workers_per_row)
    further = machine.deepspeed.get("zero_optimization", {})
    return ParallelLayout(
        data=data,
        tensor=tensor,
        pipeline=machine.pipeline_parallel_size,
        sequence=sequence,
        zero=machine.zero_stage,
        rows=max(1, min(machine.micro_tokens // row_tokens, -(-batch // data))),
        micro_tokens=machine.micro_tokens,
        checkpointing=machine.activation_checkpointing,
        offload=machine.offload_optimizer != "none",
        offload_parameters=machine.offload_param != "none",
        optimizer_on_disk=machine.offload_optimizer == "nvme",
        parameters_on_disk=machine.offload_param == "nvme",
        precision=machine.precision,
        reduce_bytes=4 if machine.reduce_dtype == "fp32" else 2,
        overlap=machine.overlap_comm,
        persistent=machine.param_persistence_threshold,
        bucket=int(further.get("reduce_bucket_size", BUCKET)),
        prefetch=int(further.get("stage3_prefetch_bucket_size", PREFETCH)),
        live=int(further.get("stage3_max_live_parameters", LIVE)),
        deepspeed=bool(machine.deepspeed),
    )
