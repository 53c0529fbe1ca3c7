"""A layout: how a net and its batch are spread over devices. What is learned never depends on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from training.specs import BUCKET, LIVE, PREFETCH, Machine

Checkpointing = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism and what each device keeps (ZeRO: arXiv:1910.02054; tensor: arXiv:1909.08053; pipeline:
    arXiv:2104.04473). `data` x `tensor` x `pipeline` devices; `rows` of the batch go through a replica at once."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1  # workers that share the tokens of a micro-batch (Ulysses, arXiv:2309.14509)
    zero: int = 2
    rows: int = 1  # of a micro-batch
    checkpointing: Checkpointing = "none"  # of activations
    offload: bool = False  # optimiser states and master weights in the host's memory
    offload_parameters: bool = False  # ZeRO-3: the weights too, until a layer needs them
    precision: str = "bf16"
    reduce_bytes: int = 4  # of an element of a gradient, while workers sum it
    overlap: bool = False  # gradients are summed while the backward pass goes on
    persistent: int = 100_000  # ZeRO-3: tensors up to so many elements stay whole
    bucket: int = BUCKET  # elements of a buffer of gradients
    prefetch: int = PREFETCH  # ZeRO-3: elements that are gathered ahead
    live: int = LIVE  # ZeRO-3: elements that are whole at the same time

    @property
    def devices(self) -> int:
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Devices that have the same weights, which ZeRO divides over them."""
        return self.data * self.sequence

    @property
    def bytes_per_weight(self) -> int:
        return 4 if self.precision == "fp32" else 2

    @property
    def mixed(self) -> bool:
        """Whether there are float32 master weights beside those that the net computes with."""
        return self.precision != "fp32"

    @property
    def sums_in_place(self) -> bool:
        """Whether DeepSpeed keeps whole float32 gradients and has no buckets: its optimiser for bf16 on stage 1."""
        return self.zero == 1 and self.precision == "bf16" and not self.offload

    def describe(self) -> str:
        """
        >>> Layout(data=8, tensor=8, zero=1, checkpointing="full").describe()
        '64 devices: data 8 x tensor 8, ZeRO 1, micro-batch 1, full checkpointing'
        """
        degrees = [f"data {self.data}"]
        degrees += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        degrees += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        degrees += [f"sequence {self.sequence}"] if self.sequence > 1 else []
        more = [f"ZeRO {self.zero}", f"micro-batch {self.rows}"]
        more += [f"{self.checkpointing} checkpointing"] if self.checkpointing != "none" else []
        more += ["optimiser offloaded"] if self.offload else []
        more += ["weights offloaded"] if self.offload_parameters else []
        devices = f"{self.devices:,} device{'s' if self.devices > 1 else ''}"
        return f"{devices}: {' x '.join(degrees)}, {', '.join(more)}"

    def keys(self, length: int) -> Iterator[str]:
        """The keys of the cluster file that say it, for rows of so many tokens."""
        yield f"workers={self.devices}"
        yield f"machine.zero={self.zero}"
        yield f"machine.micro_tokens={self.rows * length}"
        yield f"machine.precision={self.precision}"
        for key, value, default in (
            ("tensor_parallel", self.tensor, 1),
            ("pipeline_parallel", self.pipeline, 1),
            ("sequence_parallel", self.sequence, 1),
            ("activation_checkpointing", self.checkpointing, "none"),
            ("offload_optimizer", "cpu" if self.offload else "none", "none"),
            ("offload_parameters", "cpu" if self.offload_parameters else "none", "none"),
        ):
            if value != default:
                yield f"machine.{key}={value}"


def layout_of(machine: Machine, workers: int, length: int, batch: int) -> Layout:
    """The layout that a cluster file says, for rows of `length` tokens of which a batch has so many."""
    tensor, sequence = machine.tensor_parallel, machine.sequence_parallel
    data = max(1, workers // machine.workers_per_row)
    further = machine.deepspeed.get("zero_optimization", {})
    return Layout(
        data=data,
        tensor=tensor,
        pipeline=machine.pipeline_parallel,
        sequence=sequence,
        zero=machine.zero,
        rows=max(1, min(machine.micro_tokens // length, -(-batch // data))),
        checkpointing=machine.activation_checkpointing,
        offload=machine.offload_optimizer != "none",
        offload_parameters=machine.offload_parameters != "none",
        precision=machine.precision,
        reduce_bytes=4 if machine.reduce_dtype == "fp32" else 2,
        overlap=machine.overlap_comm,
        persistent=machine.persistence_threshold,
        bucket=int(further.get("reduce_bucket_size", BUCKET)),
        prefetch=int(further.get("stage3_prefetch_bucket_size", PREFETCH)),
        live=int(further.get("stage3_max_live_parameters", LIVE)),
    )
