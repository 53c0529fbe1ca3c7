"""DeepSpeed with the methods of engine.Engine: ZeRO 0 to 3, with a configuration that we write, never the user.

DeepSpeed ignores top-level keys that it does not know, and has changed defaults between patch releases: so each value
that matters is given, and a test checks that DeepSpeed reads every one of them.
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
from training.architectures import StageInputs, set_chunks, set_recompute
from training.engines import deepspeed_import, local_shards, loopback, ops
from training.engines.engine import M, StepResult, memory_of, score_micro_batches, set_rate, to_tensors
from training.engines.fragments import CheckpointFragment, Fragments
from training.engines.local_shards import Copy
from training.engines.mesh import Mesh, mesh_of
from training.engines.pipeline import PipelineRunner
from training.model import ALONE, Model, ReplicaGroup, materialize, net_of, parameter_groups
from training.optimizers import Optimizer
from training.score import Score
from training.specs import BUCKET, LIVE, PREFETCH, EngineSettings, Offload

SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # what changes of DeepSpeed's loss scale


def connect(machine: EngineSettings) -> None:
    """Join the group of workers that RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    DeepSpeed is imported here, and decides at its import what it runs on: set DS_ACCELERATOR to the device's name
    before. Raises ResourceError where the two differ.
    """
    deepspeed = deepspeed_import.deepspeed()
    found = deepspeed.get_accelerator().device_name()
    if found != machine.device:
        raise ResourceError(
            f"the cluster says device: {machine.device}, but DeepSpeed found {found}: "
            f"set DS_ACCELERATOR={machine.device} in the workers' environment, or choose another cluster"
        )
    # DeepSpeed calls collectives by names that torch 2.13 has renamed; torch says so at every single call.
    warnings.filterwarnings("ignore", r".torch\.distributed\.\w+. is deprecated", FutureWarning)
    _check_disk(machine)
    torch.set_num_threads(machine.cpu_threads)
    ops.switch()
    backend = "nccl" if machine.device == "cuda" else "gloo"
    timeout = timedelta(seconds=machine.init_timeout_seconds)
    if loopback.is_local_rendezvous():
        loopback.join(backend, timeout)
    deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)


def _check_disk(machine: EngineSettings) -> None:
    """Raise ResourceError where something is to be offloaded to a disk, and DeepSpeed cannot do that here."""
    keys = [key for key in ("offload_optimizer", "offload_param") if getattr(machine, key) == "nvme"]
    if keys and not deepspeed_import.deepspeed().ops.op_builder.AsyncIOBuilder().is_compatible(verbose=False):
        raise ResourceError(
            f"engine.{keys[0]} is nvme, but DeepSpeed cannot build async_io here: install libaio "
            "(apt install libaio-dev), or offload to the cpu"
        )


def deepspeed_config(machine: EngineSettings, spec: Optimizer) -> dict[str, Any]:
    """The whole of what DeepSpeed is told; `engine.deepspeed` has the last word on keys that it may have.

    The batch keys are place-holders: the loop owns accumulation (`managed_gradient_accumulation`), calls `step` when a
    batch is complete, and has already divided the loss by the global count.
    """
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_allreduce_op": "mean",
        # DeepSpeed's own default has been 1.0 since June 2026; on stage 0 the engine below clips
        "gradient_clipping": spec.max_grad_norm if machine.zero_stage else 0.0,
        "zero_allow_untested_optimizer": True,  # training/optimizers/steps knows of the pieces
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": machine.precision == "bf16"},
        # dynamic: from 2^16 down at an overflow, which skips the update, and up again after a thousand without
        "fp16": {"enabled": machine.precision == "fp16", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": machine.reduce_dtype,  # by default gradients of bf16 weights are summed in bf16
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
    """Where DeepSpeed keeps the optimiser or the parameters."""
    if to == "none":
        return None
    place = {"nvme_path": machine.nvme_path} if to == "nvme" else {}
    return {"device": to, "pin_memory": machine.device == "cuda", **place}


def placement(machine: EngineSettings, config: dict[str, Any], mesh: Mesh) -> Callable[[Tensor], nn.Parameter]:
    """What becomes of a new weight: in the type and on the device of training, and on stage 3 in the shares of the
    workers that have the same of the net.

    What zero.Init does where a module is made, without its broadcast: all workers have the same value (`peers_of`).
    """
    deepspeed = deepspeed_import.deepspeed()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[machine.precision]
    device = torch.device(deepspeed.get_accelerator().current_device_name())
    partition = None
    if machine.zero_stage == 3:
        init = deepspeed.zero.Init
        # its dtype is that of the config: a CPU without fp16 takes any that is given for bf16
        partition = init(data_parallel_group=mesh.same_share, config_dict_or_path=config)

    def settle(value: Tensor) -> nn.Parameter:
        parameter = nn.Parameter(value.to(device, dtype))
        if partition is not None:
            partition._convert_to_deepspeed_param(parameter)
            parameter.partition()  # type: ignore[attr-defined]  # a method that DeepSpeed has given it
        return parameter

    return settle


def peers_of(mesh: Mesh) -> ReplicaGroup:
    """The workers with the same share of the net, which make its first weights together."""
    ranks = mesh.get_data_parallel_group_ranks()
    if len(ranks) == 1:
        return ALONE
    device = torch.device(deepspeed_import.deepspeed().get_accelerator().current_device_name())

    def passed(value: Tensor, owner: int) -> Tensor:
        there = value.to(device)
        torch.distributed.broadcast(there, ranks[owner], group=mesh.same_share)
        return there

    return ReplicaGroup(mesh.get_data_parallel_rank(), len(ranks), passed, device)


class DeepSpeedEngine(Generic[M]):
    """One of `world` workers; call `connect` first. Of a model on the meta device each makes its share of the weights.

    `groups` are the parameters for the optimiser, where they are not those of `parameter_groups`.
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
                f"tensor_parallel is {machine.tensor_parallel_size}, allowed is 1 for a net that is not split"
            )
        if machine.pipeline_parallel_size > 1 and not (isinstance(model, Model) and model.stage.of > 1):
            raise BadInput(
                f"pipeline_parallel is {machine.pipeline_parallel_size}, allowed is 1 for a net without stages"
            )
        mpu = self.mesh if self.mesh.divides else None
        deepspeed_import.deepspeed().utils.groups.mpu = mpu  # that of the engine before would stay
        config = deepspeed_config(machine, spec)
        if machine.offload_param == "nvme":  # each of five buffers takes the share of any weight
            sizes = (weight.numel() for weight in model.parameters())
            most = -(-max(sizes) // self.mesh.get_data_parallel_world_size())
            config["zero_optimization"]["offload_param"]["buffer_size"] = most
        if any(weight.is_meta for weight in model.parameters()):
            assert isinstance(model, Model)
            materialize(model, placement(machine, config, self.mesh), peers_of(self.mesh))
        for name, weight in model.named_parameters():
            # the others count once in the norm of the gradient
            weight.tensor_model_parallel = name in self.cuts  # type: ignore[attr-defined]  # DeepSpeed's own
        groups = groups or parameter_groups(model, spec.weight_decay, spec.weight_decay_params)
        with redirect_stdout(StringIO()):  # stage 1 in bf16 prints tables of memory
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
        self.pipeline: PipelineRunner | None = None
        if isinstance(model, Model) and model.stage.of > 1:
            self.pipeline = PipelineRunner(model, self.mesh, self._run_stage, self._backward_of_stage)
        self.norm_of_stage_0 = math.nan
        self.has_no_loss = torch.zeros((), dtype=torch.bool, device=self.engine.device)  # since the last update
        if self._scaler():  # else DeepSpeed ends with a traceback: the loop counts what is skipped, and ends in words
            self.optimizer.loss_scaler.raise_error_at_min_scale = False
        if machine.zero_stage == 0:
            self._guard(spec.max_grad_norm)
        elif self.mesh.divides and hasattr(self.optimizer, "scaled_global_norm"):  # stages 1 and 2
            self._sum_norms_once()

    def _guard(self, clip: float) -> None:
        """Clip on stage 0, and let it apply no gradient that is not finite, as DeepSpeed does on the others alone."""
        update, clip_by = self.optimizer.step, deepspeed_import.deepspeed().runtime.utils.clip_grad_norm_

        def step() -> None:
            self.norm_of_stage_0 = float(clip_by(self.model.parameters(), clip or math.inf, mpu=self.engine.mpu))
            if math.isfinite(self.norm_of_stage_0):
                update()

        self.optimizer.step = step

    def _sum_norms_once(self) -> None:
        """Add up the norms of those that share a net in one call.

        Stages 1 and 2 make a call for each group of parameters. Of an optimiser of whole tensors each parameter is a
        group, and the stages of a pipeline have different numbers of them: then one waits for ever, or adds up numbers
        that do not belong together. On stage 3 no line of workers is cut into stages.
        """
        zero = self.optimizer
        norm_here = zero.scaled_global_norm

        def norm(norm_type: int = 2) -> Tensor:
            zero._model_parallel_all_reduce = lambda tensor, op: None
            try:
                square = norm_here(norm_type).square()
            finally:
                del zero._model_parallel_all_reduce  # the method of its class is there again
            torch.distributed.all_reduce(square, group=self.mesh.get_model_parallel_group())
            return square.sqrt()

        zero.scaled_global_norm = norm

    def forward(self, batch: Batch) -> dict[str, Score]:
        if self.pipeline:
            raise RuntimeError("a stage of a pipeline has no scores of its own: call `scored`")
        return self.engine(to_tensors(batch, self.engine.device))

    def _run_stage(self, batch: Batch, given: StageInputs) -> Any:
        return self.engine(to_tensors(batch, self.engine.device), given)

    def _backward_of_stage(self, loss: Tensor) -> None:
        """Stage 1 adds up gradients of 16 bit in float32, and DeepSpeed forgets those of a micro-batch when the next
        forward pass begins, or when a backward pass comes to what a forward pass has returned. Neither is so of every
        backward pass of a stage: what stays would be counted twice."""
        if self.zero:
            self.optimizer.clear_backward_seen_flag()
            self.optimizer.backward_prologue()
        self.engine.backward(loss)

    def scored(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        return self.pipeline.scored(batches) if self.pipeline else score_micro_batches(self.forward, batches)

    def backward(self, loss: Tensor) -> None:
        if self._scaler():
            self.has_no_loss = self.has_no_loss | ~loss.detach().isfinite()  # nobody waits for it
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
        overflow = skipped and bool(scaler) and self._has_overflown(scaler)
        self.has_no_loss = torch.zeros_like(self.has_no_loss)
        return StepResult(math.nan if norm is None else float(norm), skipped, overflow)

    def _has_overflown(self, before: Mapping[str, float]) -> bool:
        """Whether a lower loss scale may help a skipped update; all workers call it.

        Where the loss itself was not finite no scale helps: it becomes what it was. Nor where it was the smallest."""
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
            return replace(
                CheckpointFragment(), tensors=memory_of(self.model)
            )  # the first with this share of the net has all of it
        if self.zero == 3:  # an evaluation leaves parameters whole
            self.optimizer.checkpoint_event_prologue()
            self.optimizer.checkpoint_event_epilogue()
        is_first = self.mesh.get_data_parallel_rank() == self.mesh.share.number == 0  # of its stage
        part = local_shards.part_of(self.model, self._flats(), self._stepping, copy, is_first=is_first)
        part.tensors.update(memory_of(self.model))
        return replace(part, scaler=self._scaler())

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        local_shards.load(self._flats(), self._stepping, fragments)
        local_shards.load_buffers(self.model, fragments)
        if self.zero in (1, 2):
            self.optimizer.update_lp_params()  # cast to 16 bit, and made whole on all workers
        elif self.zero == 3:
            self._load_partitions()
        for key, value in self._scaler().items():
            setattr(self.optimizer.loss_scaler, key, fragments.scaler.get(key, value))
        net_of(self.model).load_memory_state(memory, self.engine.device)

    def _load_partitions(self) -> None:
        """Stage 3: the weights of the net from those of the optimiser, as after a step."""
        zero = self.optimizer
        zero.checkpoint_event_prologue()  # no parameter is whole
        for number in range(len(zero.fp16_groups)):
            with local_shards.in_memory(zero, number):
                zero._reassign_or_swap_out_partitioned_parameters(number)
        if zero.persistent_parameters:
            zero.persistent_parameters[0].partition(zero.persistent_parameters)
        zero.checkpoint_event_epilogue()  # but the small ones, of which there is no other copy

    def _flats(self) -> Iterator[local_shards.FlatParameter]:
        """What this worker's optimiser updates."""
        if self.zero == 0:
            return local_shards.parameters(self.model, self._stepping, self.shares)
        cut_up = local_shards.partitions if self.zero == 3 else local_shards.groups
        return cut_up(self.model, self.optimizer, self.shares)

    @property
    def _stepping(self) -> torch.optim.Optimizer:
        """Our optimiser, inside of DeepSpeed's."""
        return self.optimizer if self.zero == 0 else self.optimizer.optimizer

    def _scaler(self) -> dict[str, float]:
        """The state of a loss scale that changes; nothing where there is none."""
        scaler = getattr(self.optimizer, "loss_scaler", None)
        return {key: getattr(scaler, key) for key in SCALER} if getattr(scaler, "dynamic", False) else {}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        if self.pipeline:
            yield from self.pipeline.weights(self._own_weights())
            return
        for name, whole in self._own_weights():
            if self.rank == 0:
                yield name, whole.cpu().clone()

    def _own_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Those of this worker's stage, whole, one after the other."""
        whole_of = deepspeed_import.deepspeed().utils.safe_get_full_fp32_param
        for name, weight in self.model.named_parameters():
            whole = whole_of(weight)  # a collective call; None on stage 0, where each worker has it all
            whole = (weight if whole is None else whole).detach().float()
            yield name, self.cuts[name].joined(whole) if name in self.cuts else whole  # a collective call too

    def full_state(self) -> dict[str, Tensor]:
        return dict(self.weights())
