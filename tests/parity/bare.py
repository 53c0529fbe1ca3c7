"""Train the models on DeepSpeed as its documentation describes, without our engine, to find failures and differences.

https://www.deepspeed.ai/getting-started and /docs/config-json: `loss = engine(batch)` is the mean over a micro-batch,
followed by `engine.backward(loss)` and `engine.step()`. Losses are averaged over `gradient_accumulation_steps` and over
the workers. Optimizers are named in the configuration (AdamW with `torch_adam`, because DeepSpeed compiles its own
AdamW at the first use). AutoTP is set by `tensor_parallel`.
"""

import gc
from contextlib import redirect_stdout
from io import StringIO
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn

from tests.parity.cells import Cell
from training.data import open_loader
from training.engines import deepspeed_import
from training.engines.upload import to_tensors
from training.formats import build_model
from training.loop import _noise_seed
from training.losses import Loss
from training.model import Model, parameter_groups
from training.optimizers import rate_at
from training.run import Run
from training.score import Score

ADAM: Final = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}
OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "AdamW": {"type": "AdamW", "params": ADAM | {"torch_adam": True}},
    "LAMB": {"type": "Lamb", "params": ADAM},
    "Adafactor": {"type": "Adafactor", "params": {"lr": 1e-3}},
    "Muon": {"type": "Muon", "params": {"lr": 1e-3, "momentum": 0.95, "weight_decay": 0.01, "torch_adam": True}},
    "Lion": {"type": "Lion", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.01}},
}
COLUMNS, ROWS = (".*\\.query\\.weight$", ".*\\.up\\.weight$"), (".*\\.out\\.weight$", ".*\\.down\\.weight$")
AUTOTP: Final = {
    "autotp_size": 2,
    "partition_config": {
        "use_default_specs": False,
        "layer_specs": [
            {"patterns": [*ROWS], "partition_type": "row"},
            {"patterns": [".*\\.qkv\\.weight$"], "partition_type": "column", "shape": [3, -1], "partition_dim": 0},
            {
                "patterns": [".*\\.key_value\\.weight$"],
                "partition_type": "column",
                "shape": [2, -1],
                "partition_dim": 0,
            },
            {"patterns": [*COLUMNS], "partition_type": "column"},
        ],
    },
}


def cells() -> list[Cell]:
    """Every model on one worker, on two workers with every stage, and by AutoTP; the other axes with BERT on two
    workers."""
    nets, stages = ("BERT", "GPT-2", "ALBERT", "T5", "ELECTRA"), (0, 1, 2, 3)
    found = [Cell(net, 0, 1, 1, 1, 1, "fp32", "AdamW") for net in nets]
    found += [Cell(net, zero, 2, 1, 1, 1, "fp32", "AdamW") for net, zero in product(nets, stages)]
    found += [Cell(net, zero, 1, 2, 1, 1, "fp32", "AdamW") for net, zero in product(nets[:2], stages)]
    found += [Cell(net, 1, 1, 2, 1, 1, "fp32", "AdamW") for net in nets[2:]]
    for mode, zeros in (("bf16", stages), ("offload", stages[1:])):
        found += [Cell("BERT", zero, 2, 1, 1, 1, mode, "AdamW") for zero in zeros]
    found += [Cell("BERT", 2, 2, 1, 1, 1, "fp32", optimizer) for optimizer in ("LAMB", "Lion")]
    for optimizer in ("Adafactor", "Muon"):
        found.append(Cell("BERT", 0, 1, 1, 1, 1, "fp32", optimizer))
        found += [Cell("BERT", zero, 2, 1, 1, 1, "fp32", optimizer) for zero in stages]
    return found


def has_our_rule(cell: Cell) -> bool:
    """Whether DeepSpeed's optimizer computes the same update as ours; its Adafactor and Muon do not."""
    return cell.optimizer not in ("Adafactor", "Muon")


def reference(cell: Cell) -> Cell:
    """The reference of a cell: one plain process if the update is the same as ours, else DeepSpeed itself on one
    worker."""
    if has_our_rule(cell):
        data = cell.data if cell.net == "ELECTRA" else 1
        return Cell(cell.net, 1, data, 1, 1, 1, "bf16" if cell.mode == "bf16" else "fp32", cell.optimizer)
    return Cell(cell.net, 0, 1, 1, 1, 1, "fp32", cell.optimizer)


class Averaged(nn.Module):
    """A model that returns its loss, as in DeepSpeed's tutorials; it also stores the sums behind the loss."""

    def __init__(self, model: Model, losses: tuple[Loss, ...]) -> None:
        super().__init__()
        self.model, self.losses = model, losses
        self.sums: dict[str, Score] = {}

    def forward(self, **batch: Tensor) -> Tensor:
        self.sums = self.model(batch)
        means = [loss.weight * self.sums[loss.kind].loss / max(1, self.sums[loss.kind].count) for loss in self.losses]
        return torch.stack(means).sum()


def config_of(cell: Cell, run: Run, accumulation: int) -> dict[str, Any]:
    """The DeepSpeed configuration, as a user would write it."""
    zero: dict[str, Any] = {"stage": cell.zero}
    if cell.zero == 3:
        zero["stage3_param_persistence_threshold"] = 0
    if cell.mode == "offload":
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": run.optimizer.max_grad_norm or 0.0,
        "optimizer": OPTIMIZERS[cell.optimizer],
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000_000,
        **({"bf16": {"enabled": True}} if cell.mode == "bf16" else {}),
        **({"tensor_parallel": AUTOTP} if cell.tensor > 1 else {}),
    }


def losses(run: Run, cell: Cell) -> list[float]:
    """The mean over all targets of each step, independent of how DeepSpeed averages."""
    deepspeed = deepspeed_import.deepspeed()
    deepspeed.utils.groups.mpu = None
    rank = distributed.get_rank() // cell.tensor
    loader = open_loader(run, rank, cell.data)
    model = Averaged(build_model(run), run.losses)
    groups = parameter_groups(model.model, run.optimizer.weight_decay, run.optimizer.weight_decay_params)
    for group in groups:
        for weight, is_hidden in zip(group["params"], group["hidden"], strict=True):
            weight.use_muon = is_hidden
    given = [{"params": group["params"], "weight_decay": group["weight_decay"]} for group in groups]
    config = config_of(cell, run, len(loader.at(0)))
    with redirect_stdout(StringIO()):
        parameters = model.parameters() if cell.optimizer == "Muon" else given
        engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=parameters, config=config)
    found = [_step(run, engine, optimizer, loader.at(step), step, rank) for step in range(run.steps)]
    engine.destroy()
    del engine, optimizer, model
    gc.collect()
    return found


def _step(run: Run, engine: Any, optimizer: Any, batches: list[Any], step: int, rank: int) -> float:
    """Do one update and return its mean loss over all targets."""
    sums = torch.zeros(len(run.losses), 2, dtype=torch.float64)
    torch.manual_seed(_noise_seed(run.seed, step, rank))
    for group in optimizer.param_groups:
        group["lr"] = rate_at(run.optimizer, run.phases, step)
    for batch in batches:
        loss = engine(**to_tensors(batch, engine.device))
        for number, each in enumerate(run.losses):
            score = engine.module.sums[each.kind]
            sums[number] += torch.tensor([float(score.loss.detach()), score.count], dtype=torch.float64)
        engine.backward(loss)
        engine.step()
    distributed.all_reduce(sums)
    return sum(
        each.weight * float(total / count) for each, (total, count) in zip(run.losses, sums, strict=True) if count
    )
