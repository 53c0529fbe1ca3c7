"""A layout: how a net and its batch are spread over devices. What is learned never depends on it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from orchestration.config import Cluster
from training.specs import BUCKET, LIVE, PREFETCH, EngineSettings

Checkpointing = Literal["none", "selective", "full"]
_SAMPLES = next(field.default for field in fields(Cluster) if field.name == "sample_prompts")


@dataclass(frozen=True)
class ParallelLayout:
    """Degrees of parallelism and what each device keeps (ZeRO: arXiv:1910.02054; tensor: arXiv:1909.08053; pipeline:
    arXiv:2104.04473). `data` x `tensor` x `pipeline` devices; `rows` of the batch go through a replica at once."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1  # workers that share the tokens of a micro-batch (Ulysses, arXiv:2309.14509)
    zero: int = 2
    rows: int = 1  # of a micro-batch
    micro_tokens: int = 0  # of a micro-batch at most, in any phase; 0: those of its rows
    checkpointing: Checkpointing = "none"  # of activations
    offload: bool = False  # optimiser states and master weights in the host's memory
    offload_parameters: bool = False  # ZeRO-3: the weights too, until a layer needs them
    optimiser_on_disk: bool = False  # what is offloaded of the optimiser lies on a local disk
    parameters_on_disk: bool = False  # so do offloaded weights
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
        >>> ParallelLayout(data=8, tensor=8, zero=1, checkpointing="full").describe()
        '64 devices: data 8 x tensor 8, bf16, ZeRO 1, micro-batch 1, full checkpointing'
        """
        degrees = [f"data {self.data}"]
        degrees += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        degrees += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        degrees += [f"sequence {self.sequence}"] if self.sequence > 1 else []
        more = [self.precision, f"ZeRO {self.zero}", f"micro-batch {self.rows}"]
        more += [f"{self.checkpointing} checkpointing"] if self.checkpointing != "none" else []
        more += ["optimiser offloaded" + " to disk" * self.optimiser_on_disk] if self.offload else []
        more += ["weights offloaded" + " to disk" * self.parameters_on_disk] if self.offload_parameters else []
        devices = f"{self.devices:,} device{'s' if self.devices > 1 else ''}"
        return f"{devices}: {' x '.join(degrees)}, {', '.join(more)}"

    def overrides(self, cluster: Cluster) -> Iterator[str]:
        """What to change in a cluster file to have it: each key of which the file has another value."""
        machine = cluster.engine
        nvme = self.optimiser_on_disk or self.parameters_on_disk
        alone = self.tensor * self.pipeline * self.sequence == 1
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
            ("offload_optimizer", _place(self.offload, self.optimiser_on_disk)),
            ("offload_param", _place(self.offload_parameters, self.parameters_on_disk)),
            ("nvme_path", machine.nvme_path if nvme else ""),
            ("overlap_comm", self.overlap),
            ("torch_compile", machine.torch_compile and alone),
        ):
            if value != getattr(machine, key):
                yield f"cluster.engine.{key}={_written(value)}"
        if (near := near_partition(machine)) > 1 and (self.zero < 3 or not alone or self.devices % near):
            yield "cluster.engine.deepspeed={}"
        if (self.zero == 3 or not alone) and cluster.sample_prompts not in ((), _SAMPLES):
            yield "cluster.sample_prompts=[]"


def _place(offloaded: bool, on_disk: bool) -> str:
    return "nvme" if offloaded and on_disk else "cpu" if offloaded else "none"


def _written(value: object) -> str:
    """As an override says it."""
    return str(value).lower() if isinstance(value, bool) else '""' if value == "" else str(value)


def near_partition(machine: EngineSettings) -> int:
    """Workers that have all weights together, of ZeRO-3's second partition; 1: there is none."""
    return int(machine.deepspeed.get("zero_optimization", {}).get("zero_hpz_partition_size", 1))


def layout_of(machine: EngineSettings, workers: int, row_tokens: int, batch: int) -> ParallelLayout:
    """The layout that a cluster file says, for rows of so many tokens (Demand.row_tokens), `batch` of them."""
    tensor, sequence = machine.tensor_parallel_size, machine.sequence_parallel_size
    data = max(1, workers // machine.workers_per_row)
    further = machine.deepspeed.get("zero_optimization", {})
    return ParallelLayout(
        data=data,
        tensor=tensor,
        pipeline=machine.pipeline_parallel_size,
        sequence=sequence,
        zero=machine.zero_stage,
        rows=max(1, min(machine.micro_batch_tokens // row_tokens, -(-batch // data))),
        micro_tokens=machine.micro_batch_tokens,
        checkpointing=machine.activation_checkpointing,
        offload=machine.offload_optimizer != "none",
        offload_parameters=machine.offload_param != "none",
        optimiser_on_disk=machine.offload_optimizer == "nvme",
        parameters_on_disk=machine.offload_param == "nvme",
        precision=machine.precision,
        reduce_bytes=4 if machine.reduce_dtype == "fp32" else 2,
        overlap=machine.overlap_comm,
        persistent=machine.param_persistence_threshold,
        bucket=int(further.get("reduce_bucket_size", BUCKET)),
        prefetch=int(further.get("stage3_prefetch_bucket_size", PREFETCH)),
        live=int(further.get("stage3_max_live_parameters", LIVE)),
    )
