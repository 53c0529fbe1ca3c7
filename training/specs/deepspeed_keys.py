"""Keys of DeepSpeed's configuration, in the pinned version, that a cluster file may have under `engine.deepspeed`.

DeepSpeed silently ignores unknown top-level keys. Therefore, this module lists all valid keys, except the keys that
Sesame sets itself: these come from other keys, or would change the training. A test compares the lists with the classes
and constants of DeepSpeed. This module does not import DeepSpeed, so that `sesame check` starts quickly.
"""

import difflib
import math
from collections.abc import Mapping
from typing import Any, Final

from preprocessing.folders import is_address
from preprocessing.spec import require

VALUES: Final = frozenset(
    {"disable_allgather", "disable_python_gc", "dump_state", "memory_breakdown", "wall_clock_breakdown"}
)
BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "zero_optimization": frozenset(
        {"allgather_bucket_size", "allgather_partitions", "contiguous_gradients", "enable_sanity_checks"}
        | {"log_trace_cache_warnings", "parameter_alignment", "reduce_bucket_size", "reduce_scatter"}
        | {"stage3_allgather_sequential", "stage3_max_live_parameters"}
        | {"stage3_max_reuse_distance", "stage3_model_persistence_threshold", "stage3_module_granularity_threshold"}
        | {"stage3_prefetch_bucket_size", "stage3_use_all_reduce_for_fetch_params", "sub_group_size"}
        | {"use_multi_rank_bucket_allreduce", "zero_hpz_partition_size"}
    ),
    "fp16": frozenset(
        {"consecutive_hysteresis", "hysteresis", "initial_scale_power", "loss_scale", "loss_scale_window"}
        | {"min_loss_scale"}
    ),
    "aio": frozenset({"block_size", "intra_op_parallelism", "overlap_events", "queue_depth", "single_submit"}),
    "comms_logger": frozenset({"debug", "enabled", "prof_all", "prof_ops", "verbose"}),
    "flops_profiler": frozenset(
        {"detailed", "enabled", "module_depth", "output_file", "profile_step", "recompute_fwd_factor", "top_modules"}
    ),
}
SWITCHES: Final = VALUES | {  # true or false
    *("allgather_partitions", "contiguous_gradients", "enable_sanity_checks", "log_trace_cache_warnings"),
    *("parameter_alignment", "reduce_scatter", "stage3_allgather_sequential", "stage3_use_all_reduce_for_fetch_params"),
    *("use_multi_rank_bucket_allreduce", "consecutive_hysteresis", "overlap_events", "single_submit"),
    *("debug", "enabled", "prof_all", "verbose", "detailed"),
}
OTHERS: Final[Mapping[str, tuple[type, ...]]] = {
    "loss_scale": (int, float),
    "recompute_fwd_factor": (int, float),
    "output_file": (str,),
    "prof_ops": (list,),
}
LEAST: Final[Mapping[str, int]] = {  # minimum of the other keys, which are integers; 0 if missing
    **dict.fromkeys(("reduce_bucket_size", "zero_hpz_partition_size", "loss_scale_window", "hysteresis"), 1),
    **dict.fromkeys(("block_size", "intra_op_parallelism", "queue_depth", "profile_step", "top_modules"), 1),
    "module_depth": -1,
}
OWNED: Final[Mapping[str, str]] = {  # keys that Sesame sets, and the key of Sesame that controls them; "": none
    "zero_optimization.stage": "engine.zero_stage",
    "zero_optimization.overlap_comm": "engine.overlap_comm",
    "zero_optimization.offload_optimizer": "engine.offload_optimizer",
    "zero_optimization.offload_param": "engine.offload_param",
    "zero_optimization.stage3_param_persistence_threshold": "engine.param_persistence_threshold",
    "fp16.enabled": "engine.precision",
    "bf16": "engine.precision",
    "torch_autocast": "engine.precision",
    "data_types": "",
    "communication_data_type": "engine.reduce_dtype",
    "activation_checkpointing": "engine.activation_checkpointing",
    "compile": "engine.torch_compile",
    "gradient_clipping": "optimizer.max_grad_norm",
    "optimizer": "optimizer",
    "scheduler": "optimizer.lr_schedule",
    "train_batch_size": "phases.0.global_batch_size",
    "train_micro_batch_size_per_gpu": "engine.micro_batch_tokens",
    "gradient_accumulation_steps": "engine.micro_batch_tokens",
    "managed_gradient_accumulation": "",
    "gradient_allreduce_op": "",
    "zero_allow_untested_optimizer": "",
    "zero_force_ds_cpu_optimizer": "",
    "steps_per_print": "log_every",
    "checkpoint": "save_every",
}
UNSCALED: Final = (
    "stages 2 and 3 fail with it, and stage 3 without reduce_scatter divides gradients again by the number of workers"
)
WRONG: Final[Mapping[str, str]] = {  # keys of DeepSpeed that cannot be used with Sesame, and the reason
    "zero_optimization.round_robin_gradients": "it reorders the weights of the optimizer without recording the order, "
    "so that checkpoints and exports would have wrong weights",
    "prescale_gradients": UNSCALED,
    "gradient_predivide_factor": UNSCALED,
}
STAGE_3: Final = frozenset(  # keys of zero_optimization that no other stage reads
    {"log_trace_cache_warnings", "sub_group_size", "zero_hpz_partition_size"}
    | {key for key in BLOCKS["zero_optimization"] if key.startswith("stage3_")}
)


def check_further(given: Mapping[str, Any]) -> None:
    """Raise ValueError, in one line, for a key that is not allowed or a value that is not valid."""
    known = [*VALUES, *BLOCKS, *(f"{block}.{key}" for block, keys in BLOCKS.items() for key in keys)]
    for key, value in given.items():
        if key in BLOCKS:
            is_block = isinstance(value, Mapping) and all(isinstance(inner, str) for inner in value)
            require(is_block, f"engine.deepspeed.{key}", value, "a block of keys")
        for name in (f"{key}.{inner}" for inner in value) if key in BLOCKS else (key,):
            if name in OWNED:
                reason = f"set {OWNED[name]} instead" if OWNED[name] else "Sesame sets it; leave it out"
                raise ValueError(f"deepspeed.{name} cannot be set: {reason}")
            if name in WRONG:
                raise ValueError(f"deepspeed.{name} cannot be set: {WRONG[name]}; leave it out")
            if name not in known:
                near = difflib.get_close_matches(name, [*known, *OWNED], n=1)
                remedy = f"did you mean {near[0]}?" if near else f"expected one of {sorted(VALUES | set(BLOCKS))}"
                raise ValueError(f"deepspeed.{name} is not an allowed key; {remedy}")
            if name not in BLOCKS:
                _check_value(name, value[name.partition(".")[2]] if key in BLOCKS else value)


def _check_value(name: str, value: object) -> None:
    """Raise ValueError for an invalid value, because DeepSpeed checks it only in the workers, or never."""
    key = name.rpartition(".")[2]
    if key in SWITCHES:
        return require(isinstance(value, bool), f"engine.deepspeed.{name}", value, "true or false")
    kinds = OTHERS.get(key, (int, float))
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    if kinds != (int, float):
        fits = fits and not (isinstance(value, str) and is_address(value))
        allowed = "the path of a local file" if kinds == (str,) else "a list"
        return require(fits, f"engine.deepspeed.{name}", value, allowed)
    least, number = LEAST.get(key, 0), value if fits and isinstance(value, int | float) else math.nan
    fits = least <= number < 2**63 and (key in OTHERS or number == int(number))
    kind = "a number" if key in OTHERS else "an integer"
    return require(fits, f"engine.deepspeed.{name}", value, f"{kind} of at least {least}")


def check_effect(given: Mapping[str, Any], zero: int, precision: str, to_disk: bool) -> None:
    """Raise ValueError, in one line, for a key that DeepSpeed ignores with this ZeRO stage and this precision."""
    if zero < 3 and (idle := sorted(STAGE_3.intersection(given.get("zero_optimization", ())))):
        raise ValueError(_idle(f"zero_optimization.{idle[0]}", f"zero_stage {zero}", "engine.zero_stage=3"))
    if precision != "fp16" and given.get("fp16"):
        raise ValueError(_idle("fp16", f"precision {precision}", "engine.precision=fp16"))
    if not to_disk and given.get("aio"):
        raise ValueError(_idle("aio", "no offload to a disk", "engine.offload_optimizer=nvme"))


def _idle(key: str, circumstance: str, remedy: str) -> str:
    return f"deepspeed.{key} has no effect with {circumstance}; leave it out, or set {remedy}"
