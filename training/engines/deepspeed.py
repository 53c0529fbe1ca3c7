"""The engine that uses DeepSpeed, with ZeRO stages 0 to 3 and a configuration that Sesame writes.

DeepSpeed ignores unknown top-level keys and has changed defaults between patch releases. The configuration therefore
sets each relevant value, and a test checks that DeepSpeed reads all of them.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any, Generic

import torch
from torch import Tensor, nn

from preprocessing.errors import BadInput, ResourceError
from preprocessing.schema import Batch
from training.architectures import StageInputs, set_chunks, set_recompute, trust_kernels, use_float8
from training.engines import deepspeed_import, local_shards, loopback
from training.engines.engine import M, StepResult, memory_of, score_micro_batches, set_rate
from training.engines.fragments import CheckpointFragment, Fragments
from training.engines.local_shards import Copy
from training.engines.mesh import Mesh, mesh_of
from training.engines.pipeline import PipelineRunner
from training.engines.upload import Uploader, to_tensors
from training.model import ALONE, Model, ReplicaGroup, materialize, net_of, parameter_groups
from training.optimizers import Optimizer
from training.score import Score
from training.specs import BUCKET, LIVE, PREFETCH, EngineSettings, Offload

SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # state of DeepSpeed's loss scaler


def connect(machine: EngineSettings) -> None:
    """Join the process group of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

    This function imports DeepSpeed, which selects its device during the import: set DS_ACCELERATOR to the name of the
    device before. Raises ResourceError if DeepSpeed has selected another device.
    """
    deepspeed = deepspeed_import.deepspeed()
    device = deepspeed.get_accelerator().device_name()
    if device != machine.device:
        raise ResourceError(
            f"invalid device of DeepSpeed: got {device}, expected {machine.device}, the device of the cluster; "
            f"set DS_ACCELERATOR={machine.device} in the workers' environment, or choose another cluster"
        )
    # DeepSpeed uses names of collectives that torch 2.13 has deprecated; torch warns at every call.
    warnings.filterwarnings("ignore", r".torch\.distributed\.\w+. is deprecated", FutureWarning)
    _check_disk(machine)
    torch.set_num_threads(machine.cpu_threads)
    backend = "nccl" if machine.device == "cuda" else "gloo"
    timeout = timedelta(seconds=machine.init_timeout_seconds)
    if loopback.is_local_rendezvous():
        loopback.join(backend, timeout)
    deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)


def _check_disk(machine: EngineSettings) -> None:
    """Raise ResourceError if the configuration offloads to a disk and DeepSpeed cannot do that on this machine."""
    keys = [key for key in ("offload_optimizer", "offload_param") if getattr(machine, key) == "nvme"]
    if keys and not deepspeed_import.deepspeed().ops.op_builder.AsyncIOBuilder().is_compatible(verbose=False):
        raise ResourceError(
            f"invalid engine.{keys[0]}: got nvme, expected cpu, because DeepSpeed cannot build async_io on this "
            "machine; set it to cpu, or install libaio (apt install libaio-dev)"
        )


def deepspeed_config(machine: EngineSettings, spec: Optimizer) -> dict[str, Any]:
    """Return the complete configuration for DeepSpeed; the key `engine.deepspeed` overrides values.

    The batch sizes are placeholders. The training loop accumulates gradients (`managed_gradient_accumulation`), calls
    `step` when a batch is complete, and divides the loss by the global count before the backward pass.
    """
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_allreduce_op": "mean",
        # set always, because DeepSpeed's default has been 1.0 since June 2026; stage 0: see `_clip_on_stage_0`
        "gradient_clipping": spec.max_grad_norm if machine.zero_stage else 0.0,
        "zero_allow_untested_optimizer": True,  # the optimizers of this package support shards
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": machine.precision == "bf16"},
        # dynamic loss scale: it starts at 2^16, decreases after an overflow, which skips the update, and increases
        # after 1000 updates without an overflow
        "fp16": {"enabled": machine.precision == "fp16", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": machine.reduce_dtype,  # the default sums gradients of bf16 weights in bf16
        "zero_optimization": {
            "stage": machine.zero_stage,
            "overlap_comm": machine.overlap_comm,
            "offload_optimizer": _offload(machine, machine.offload_optimizer),
            "offload_param": _offload(machine, machine.offload_param),
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
            "stage3_prefetch_bucket_size": PREFETCH,
            "stage3_max_live_parameters": LIVE,
            "stage3_param_persistence_threshold": machine.param_persistence_threshold,
        },
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
    }
    for key, value in machine.deepspeed.items():
        config[key] = config.get(key, {}) | value if isinstance(value, dict) else value
    return config


def _offload(machine: EngineSettings, to: Offload) -> dict[str, Any] | None:
    """DeepSpeed's offload configuration of the optimizer state or of the parameters."""
    if to == "none":
        return None
    path = {"nvme_path": machine.nvme_path} if to == "nvme" else {}
    return {"device": to, "pin_memory": machine.device == "cuda", **path}


def placement(machine: EngineSettings, config: dict[str, Any], mesh: Mesh) -> Callable[[Tensor], nn.Parameter]:
    """Return a function that converts an initial value to a parameter with the data type and the device of training.

    On stage 3, it also partitions the parameter over the workers with the same slice of the model. This is what
    zero.Init does when a module is built, except for the broadcast: all workers have the same value (`peers_of`).
    """
    deepspeed = deepspeed_import.deepspeed()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[machine.precision]
    device = torch.device(deepspeed.get_accelerator().current_device_name())
    partition = None
    if machine.zero_stage == 3:
        init = deepspeed.zero.Init
        # the data type comes from `config`; on a CPU without fp16, an explicit `dtype` would always mean bf16
        partition = init(data_parallel_group=mesh.same_share, config_dict_or_path=config)

    def settle(value: Tensor) -> nn.Parameter:
        parameter = nn.Parameter(value.to(device, dtype))
        if partition is not None:
            partition._convert_to_deepspeed_param(parameter)
            parameter.partition()  # type: ignore[attr-defined]  # a method that DeepSpeed adds
        return parameter

    return settle


def peers_of(mesh: Mesh) -> ReplicaGroup:
    """The workers with the same slice of the model, which divide the work of initializing its weights."""
    ranks = mesh.get_data_parallel_group_ranks()
    if len(ranks) == 1:
        return ALONE
    device = torch.device(deepspeed_import.deepspeed().get_accelerator().current_device_name())

    def broadcast(value: Tensor, owner: int) -> Tensor:
        on_device = value.to(device)
        torch.distributed.broadcast(on_device, ranks[owner], group=mesh.same_share)
        return on_device

    return ReplicaGroup(mesh.get_data_parallel_rank(), len(ranks), broadcast, device)


class DeepSpeedEngine(Generic[M]):
    """One of `world` workers; call `connect` first. The engine initializes the weights of a model on the meta device.

    `groups` are the parameter groups of the optimizer; the default is the result of `parameter_groups`.
    """

    def __init__(
        self, model: M, spec: Optimizer, machine: EngineSettings, groups: Sequence[dict[str, Any]] | None = None
    ) -> None:
        self.model, self.mesh = model, mesh_of(machine)
        self.zero: int | str = machine.zero_stage
        set_recompute(model, machine.activation_checkpointing)
        set_chunks(model, self.mesh.chunk)
        self.cuts = net_of(model).cuts
        self.shares = local_shards.tensor_shares_of(model, is_first=self.mesh.share.number == 0)
        if machine.tensor_parallel_size > 1 and not self.cuts:
            raise BadInput(
                f"invalid engine.tensor_parallel_size: got {machine.tensor_parallel_size}, expected 1 for a model "
                "without tensor-parallel layers; set it to 1"
            )
        if machine.pipeline_parallel_size > 1 and not (isinstance(model, Model) and model.stage.of > 1):
            raise BadInput(
                f"invalid engine.pipeline_parallel_size: got {machine.pipeline_parallel_size}, expected 1 for a model "
                "without pipeline stages; set it to 1"
            )
        mpu = self.mesh if self.mesh.divides else None
        deepspeed_import.deepspeed().utils.groups.mpu = mpu  # replaces the mpu of an earlier engine
        config = deepspeed_config(machine, spec)
        if machine.offload_param == "nvme":  # each of five buffers must have room for a partition of any weight
            sizes = (weight.numel() for weight in model.parameters())
            most = -(-max(sizes) // self.mesh.get_data_parallel_world_size())
            config["zero_optimization"]["offload_param"]["buffer_size"] = most
        if any(weight.is_meta for weight in model.parameters()):
            assert isinstance(model, Model)
            materialize(model, placement(machine, config, self.mesh), peers_of(self.mesh))
        for name, weight in model.named_parameters():
            # the gradient norm counts parameters without this flag only on one worker
            weight.tensor_model_parallel = name in self.cuts  # type: ignore[attr-defined]  # attribute of DeepSpeed
        pretrains = groups is None
        groups = groups or parameter_groups(model, spec.weight_decay, spec.weight_decay_params)
        with redirect_stdout(StringIO()):  # stage 1 in bf16 prints tables of memory use
            self.engine, self.optimizer, _, _ = deepspeed_import.deepspeed().initialize(
                model=model,
                optimizer=spec.build([group | {"workers": self.mesh.same_share} for group in groups]),
                config=config,
                dist_init_required=False,
                mpu=mpu,
            )
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.data_rank, self.data_world = self.mesh.data_rank, self.mesh.data_world
        self.counts = self.mesh.share.number == self.mesh.chunk.number == 0 and self.mesh.line.stage.is_last
        self.uploader = Uploader(self.engine.device)
        trust_kernels(model, next(model.parameters()).dtype, self.engine.device)
        if pretrains:
            use_float8(model, machine.fp8_recipe, self.engine.device)
        self.pipeline: PipelineRunner | None = None
        if isinstance(model, Model) and model.stage.of > 1:
            self.pipeline = PipelineRunner(model, self.mesh, self._run_stage, self._backward_of_stage)
        self.norm_of_stage_0 = math.nan
        # whether a loss was not finite since the last update
        self.has_no_loss = torch.zeros((), dtype=torch.bool, device=self.engine.device)
        if self._scaler():  # the loop counts skipped updates and stops with a clearer message
            self.optimizer.loss_scaler.raise_error_at_min_scale = False
        if machine.zero_stage == 0:
            self._clip_on_stage_0(spec.max_grad_norm)
        elif self.mesh.divides and hasattr(self.optimizer, "scaled_global_norm"):  # stages 1 and 2
            self._sum_norms_once()

    def _clip_on_stage_0(self, clip: float) -> None:
        """Clip gradients on stage 0 and skip updates if they are not finite; DeepSpeed does so only on other stages."""
        update, clip_by = self.optimizer.step, deepspeed_import.deepspeed().runtime.utils.clip_grad_norm_

        def step() -> None:
            self.norm_of_stage_0 = float(clip_by(self.model.parameters(), clip or math.inf, mpu=self.engine.mpu))
            if math.isfinite(self.norm_of_stage_0):
                update()

        self.optimizer.step = step

    def _sum_norms_once(self) -> None:
        """Sum the gradient norms of the workers that share a model in one collective call.

        ZeRO stages 1 and 2 make one call for each parameter group. An optimizer of whole tensors has one group for each
        parameter, and pipeline stages have different numbers of parameters. A worker would then wait forever, or sum
        numbers of different groups. Sesame does not combine ZeRO stage 3 with pipelines.
        """
        zero = self.optimizer
        local_norm = zero.scaled_global_norm

        def norm(norm_type: int = 2) -> Tensor:
            zero._model_parallel_all_reduce = lambda tensor, op: None
            try:
                square = local_norm(norm_type).square()
            finally:
                del zero._model_parallel_all_reduce  # restores the method of the class
            torch.distributed.all_reduce(square, group=self.mesh.get_model_parallel_group())
            return square.sqrt()

        zero.scaled_global_norm = norm

    def forward(self, batch: Batch) -> dict[str, Score]:
        if self.pipeline:
            raise RuntimeError("forward is not available with a pipeline; call `scored`")
        return self.engine(self.uploader.take(batch))

    def _run_stage(self, batch: Batch, inputs: StageInputs) -> Any:
        return self.engine(to_tensors(batch, self.engine.device), inputs)

    def _backward_of_stage(self, loss: Tensor) -> None:
        """Run a backward pass of a pipeline stage, after clearing DeepSpeed's gradients of the previous one.

        ZeRO stage 1 accumulates 16-bit gradients in float32. DeepSpeed clears the gradients of a micro-batch when the
        next forward pass starts, or when a backward pass reaches an output of a forward pass. Not every backward pass
        of a pipeline stage meets one of these conditions, and gradients that are not cleared would be counted twice.
        """
        if self.zero:
            self.optimizer.clear_backward_seen_flag()
            self.optimizer.backward_prologue()
        self.engine.backward(loss)

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        if self.pipeline:
            return self.pipeline.iterate_scores(batches)
        return score_micro_batches(self.forward, self.uploader, batches)

    def backward(self, loss: Tensor) -> None:
        if self._scaler():
            self.has_no_loss = self.has_no_loss | ~loss.detach().isfinite()  # on the device, without synchronization
        if self.pipeline:
            self.pipeline.backward(loss)
        else:
            self.engine.backward(loss)

    def step(self, rate: float) -> StepResult:
        set_rate(self.optimizer, rate)
        scaler = self._scaler()
        self.engine.step()
        if self.zero == 0:
            return StepResult(self.norm_of_stage_0, skipped=not math.isfinite(self.norm_of_stage_0))
        norm, skipped = self.engine.get_global_grad_norm(), not self.engine.was_step_applied()
        overflow = skipped and bool(scaler) and self._has_overflowed(scaler)
        self.has_no_loss = torch.zeros_like(self.has_no_loss)
        return StepResult(math.nan if norm is None else float(norm), skipped, overflow)

    def _has_overflowed(self, before: Mapping[str, float]) -> bool:
        """Whether an update was skipped because of a loss scale that can be lowered; all workers call it.

        If the loss itself was not finite, a lower scale does not help, and the scaler is reset to its state `before`
        the update.
        """
        (workers,) = self.reduce_sums([float(self.has_no_loss)])
        if workers:
            for key, value in before.items():
                setattr(self.optimizer.loss_scaler, key, value)
        return not workers and before["cur_scale"] > self.optimizer.loss_scaler.min_scale

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64, device=self.engine.device)
        torch.distributed.all_reduce(sums)
        return sums.tolist()

    def part(self, copy: Copy) -> CheckpointFragment:
        if self.zero == 0 and self.mesh.get_data_parallel_rank():
            # the first worker with this slice of the model writes all other tensors
            return replace(CheckpointFragment(), tensors=memory_of(self.model))
        if self.zero == 3:  # an evaluation leaves parameters gathered: partition them again
            self.optimizer.checkpoint_event_prologue()
            self.optimizer.checkpoint_event_epilogue()
        is_first = self.mesh.get_data_parallel_rank() == self.mesh.share.number == 0  # first worker of its stage
        part = local_shards.part_of(self.model, self._flats(), self._stepping, copy, is_first=is_first)
        part.tensors.update(memory_of(self.model))
        return replace(part, scaler=self._scaler())

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        local_shards.load(self._flats(), self._stepping, fragments)
        local_shards.load_buffers(self.model, fragments)
        if self.zero in (1, 2):
            self.optimizer.update_lp_params()  # cast to 16 bits and gather on all workers
        elif self.zero == 3:
            self._load_partitions()
        for key, value in self._scaler().items():
            setattr(self.optimizer.loss_scaler, key, fragments.scaler.get(key, value))
        net_of(self.model).load_memory_state(memory, self.engine.device)

    def _load_partitions(self) -> None:
        """On stage 3, update the weights of the model from those of the optimizer, as after a step."""
        zero = self.optimizer
        zero.checkpoint_event_prologue()  # partitions all parameters
        for number in range(len(zero.fp16_groups)):
            with local_shards.in_memory(zero, number):
                zero._reassign_or_swap_out_partitioned_parameters(number)
        if zero.persistent_parameters:
            zero.persistent_parameters[0].partition(zero.persistent_parameters)
        zero.checkpoint_event_epilogue()  # gathers the small parameters, which have no other copy

    def _flats(self) -> Iterator[local_shards.FlatParameter]:
        """The tensors that this worker's optimizer updates."""
        if self.zero == 0:
            return local_shards.parameters(self.model, self._stepping, self.shares)
        flat_parameters = local_shards.partitions if self.zero == 3 else local_shards.groups
        return flat_parameters(self.model, self.optimizer, self.shares)

    @property
    def _stepping(self) -> torch.optim.Optimizer:
        """Sesame's optimizer, which DeepSpeed's optimizer wraps."""
        return self.optimizer if self.zero == 0 else self.optimizer.optimizer

    def _scaler(self) -> dict[str, float]:
        """The state of a dynamic loss scale; empty without one."""
        scaler = getattr(self.optimizer, "loss_scaler", None)
        return {key: getattr(scaler, key) for key in SCALER} if getattr(scaler, "dynamic", False) else {}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        if self.pipeline:
            yield from self.pipeline.weights(self._stage_weights())
            return
        for name, whole in self._stage_weights():
            if self.rank == 0:
                yield name, whole.cpu().clone()

    def _stage_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the names and complete weights of this worker's stage."""
        whole_of = deepspeed_import.deepspeed().utils.safe_get_full_fp32_param
        for name, weight in self.model.named_parameters():
            whole = whole_of(weight)  # a collective call; None on stage 0, where each worker has the whole weight
            whole = (weight if whole is None else whole).detach().float()
            yield name, self.cuts[name].join(whole) if name in self.cuts else whole  # also collective

    def full_state(self) -> dict[str, Tensor]:
        return dict(self.weights())
