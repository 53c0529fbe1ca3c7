"""DeepSpeed with the methods of engine.Engine: ZeRO 0 to 3, with a configuration that we write, never the user.

DeepSpeed ignores top-level keys that it does not know, and has changed defaults between patch releases: so each value
that matters is given, and a test checks that DeepSpeed reads every one of them.
"""

import math
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from preprocessing.errors import BadInput, ResourceError
from preprocessing.schema import Batch
from training.engines import lean, ops
from training.engines.engine import M, StepResult, load_memory, save_memory, set_rate, to_tensors
from training.engines.mesh import mesh_of
from training.model import net_of, parameter_groups
from training.optim import Optim
from training.score import Score
from training.specs import Machine
from training.trunks import set_chunks

TAG = "zero"  # DeepSpeed's name for the folder inside a checkpoint


def connect(machine: Machine) -> None:
    """Join the group of workers that RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    DeepSpeed is imported here, and decides at its import what it runs on: set DS_ACCELERATOR to the device's name
    before. Raises ResourceError where the two differ.
    """
    deepspeed = lean.deepspeed()
    found = deepspeed.get_accelerator().device_name()
    if found != machine.device:
        raise ResourceError(
            f"the cluster says device: {machine.device}, but DeepSpeed found {found}: "
            f"set DS_ACCELERATOR={machine.device} in the workers' environment, or choose another cluster"
        )
    # DeepSpeed calls collectives by names that torch 2.13 has renamed; torch says so at every single call.
    warnings.filterwarnings("ignore", r".torch\.distributed\.\w+. is deprecated", FutureWarning)
    torch.set_num_threads(machine.threads)
    ops.switch()
    backend = "nccl" if machine.device == "cuda" else "gloo"
    deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False)


def deepspeed_config(machine: Machine, spec: Optim) -> dict[str, Any]:
    """The whole of what DeepSpeed is told.

    The batch keys are place-holders: the loop owns accumulation (`managed_gradient_accumulation`), calls `step` when a
    batch is complete, and has already divided the loss by the global count.
    """
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_allreduce_op": "mean",
        "gradient_clipping": spec.clip,  # DeepSpeed's own default has been 1.0 since June 2026
        "zero_allow_untested_optimizer": True,  # optim.py knows of the pieces
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": machine.precision == "bf16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",  # else gradients of bf16 weights are summed over the workers in bf16
        "zero_optimization": {
            "stage": machine.zero,
            "overlap_comm": False,  # with our own accumulation DeepSpeed allows it for stage 2 alone
            "reduce_bucket_size": 50_000_000,  # elements; the buffers are that large even for a tiny net
            "allgather_bucket_size": 50_000_000,
            "stage3_param_persistence_threshold": machine.persistence_threshold,
        },
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
    }


class DeepSpeedEngine(Generic[M]):
    """One of `world` workers; call `connect` first.

    Stage 0 is for parity tests: DeepSpeed then applies a gradient that is not finite. `groups` are the parameters for
    the optimiser, where they are not those of `parameter_groups`.
    """

    def __init__(self, model: M, spec: Optim, machine: Machine, groups: Sequence[dict[str, Any]] | None = None) -> None:
        self.model, self.mesh = model, mesh_of(machine)
        self.zero: int | str = machine.zero
        self.cuts = net_of(model).cuts
        set_chunks(model, self.mesh.chunk)
        if machine.tensor_parallel > 1 and not self.cuts:
            raise BadInput(f"tensor_parallel is {machine.tensor_parallel}, allowed is 1 for a net that is not split")
        for name, weight in model.named_parameters():
            # the others count once in the norm of the gradient
            weight.tensor_model_parallel = name in self.cuts  # type: ignore[attr-defined]  # DeepSpeed's own
        mpu = self.mesh if machine.tensor_parallel > 1 else None
        lean.deepspeed().utils.groups.mpu = mpu  # that of the engine before would stay
        with redirect_stdout(StringIO()):  # stage 1 in bf16 prints tables of memory
            self.engine, self.optimizer, _, _ = lean.deepspeed().initialize(
                model=model,
                optimizer=spec.build(groups or parameter_groups(model, spec.decay, spec.decays)),
                config=deepspeed_config(machine, spec),
                dist_init_required=False,
                mpu=mpu,
            )
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.data_rank, self.data_world = self.mesh.data_rank, self.mesh.data_world
        self.counts = self.mesh.share.number == self.mesh.chunk.number == 0

    def forward(self, batch: Batch) -> dict[str, Score]:
        return self.engine(to_tensors(batch, self.engine.device))

    def backward(self, loss: Tensor) -> None:
        self.engine.backward(loss)

    def step(self, rate: float) -> StepResult:
        set_rate(self.optimizer, rate)
        self.engine.step()
        norm = self.engine.get_global_grad_norm()
        return StepResult(math.nan if norm is None else float(norm), skipped=not self.engine.was_step_applied())

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64, device=self.engine.device)
        torch.distributed.all_reduce(sums)
        return sums.tolist()

    def save(self, folder: Path) -> None:
        # Without its file `latest`, which is written before the other workers are done; ours is the manifest.
        self.engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)
        save_memory(self.model, folder, self.rank)

    def load(self, folder: Path) -> None:
        loaded, _ = self.engine.load_checkpoint(str(folder), tag=TAG)
        if loaded is None:  # DeepSpeed only warns, and would train from scratch
            raise BadInput(f"{folder}: DeepSpeed found no state in it; start again with --resume never")
        load_memory(self.model, folder, self.rank, self.engine.device)

    def full_state(self) -> dict[str, Tensor]:
        state, whole_of = {}, lean.deepspeed().utils.safe_get_full_fp32_param
        for name, weight in self.model.named_parameters():
            whole = whole_of(weight)  # a collective call; None on stage 0, where each worker has it all
            whole = (weight if whole is None else whole).detach().float()
            if name in self.cuts:
                whole = self.cuts[name].joined(whole)  # a collective call too
            if self.rank == 0:
                state[name] = whole.cpu().clone()
        return state


def saved_weights(folder: Path) -> dict[str, Tensor]:
    """The float32 weights by name, and buffers, that the workers of a DeepSpeedEngine saved; one process reads them.

    Raises BadInput where DeepSpeed cannot do that, as of stage 1 in bf16.
    """
    if (folder / TAG / "mp_rank_01_model_states.pt").exists() or any((folder / TAG).glob("zero_pp_rank_0_mp_rank_01*")):
        remedy = "train with cluster.weights_every=STEPS; the end of the run exports whole weights too"
        raise BadInput(f"{folder}: DeepSpeed joins no weights that tensor parallelism has split; {remedy}")
    if not any((folder / TAG).glob("*_optim_states.pt")):  # stage 0: each worker had all of it
        whole = torch.load(folder / TAG / "mp_rank_00_model_states.pt", map_location="cpu", weights_only=True)
        return dict(whole["module"])
    gathered = lean.deepspeed().utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # it prints what it does
            return dict(gathered(str(folder), tag=TAG))
    except ValueError as error:
        remedy = "train with cluster.weights_every=STEPS, or with cluster.machine.zero=2"
        raise BadInput(f"{folder}: DeepSpeed reads no weights from this checkpoint ({error}); {remedy}") from None
