"""Measured steps of Sesame, compared with the prediction of `plan`. The overheads of Sesame were calibrated with these
steps.

Measured on one NVIDIA H200 (132 SMs, 139 GiB, 4.3 TB/s measured) on 2026-11-26: torch 2.11+cu130, DeepSpeed 0.19.8,
Python 3.12, bf16, one process with DeepSpeed, ZeRO 2. Steps with the source `loop` ran the training loop with its
loader on real corpora. Slices had 2^23 logits, if a step does not say otherwise (overheads.py). With large slices, the
head of that day needed more memory per logit than today's, for which the plan is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestration.config import load
from orchestration.planning.devices import DEVICES
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import device_memory
from orchestration.planning.overheads import SESAME
from orchestration.planning.timing import step_seconds
from orchestration.planning.workload import workload_of
from training.specs import LOGITS_AT_ONCE

DATE: Final = "2026-11-26"
DEVICE: Final = "h200"


@dataclass(frozen=True)
class TimedStep:
    """A step of `batch` sequences of `length` tokens; a fraction `filled` of the tokens is not padding."""

    name: str
    recipe: str
    layout: ParallelLayout
    length: int
    batch: int
    step_s: float
    filled: float = 1.0
    gib: float = 0.0  # maximum memory of torch on the device; 0: not recorded
    overrides: tuple[str, ...] = ()
    source: str = "loop"
    logits_at_once: int = LOGITS_AT_ONCE  # logits per slice


def _one(rows: int) -> ParallelLayout:
    """A lone worker with DeepSpeed, which all lone workers had."""
    return ParallelLayout(rows=rows, deepspeed=True)


_NO_DROPOUT: Final = ("model.attention_dropout=0",)
_LARGEST: Final = ParallelLayout(zero=3, rows=1, checkpointing="full", offload=True, offload_parameters=True)
_WIDE: Final = ("model.num_hidden_layers=20", "model.hidden_size=4096", "model.num_attention_heads=32")
_LARGE: Final = 1 << 28  # logits
_GPU: Final = "benchmarks/gpu.py"
STEPS: Final[Sequence[TimedStep]] = (
    TimedStep("GPT-2 124M", "gpt2", _one(64), 1_024, 512, 3.33, gib=23.1),
    TimedStep("GPT-2 124M, short", "gpt2", _one(64), 512, 64, 64 * 512 / 147_856, source=_GPU),
    TimedStep("BERT base, 512", "bert_base", _one(128), 512, 256, 0.319, 0.785, 20.5),
    TimedStep(
        *("BERT base, 512, no attention dropout", "bert_base", _one(128), 512, 256, 0.215, 0.785, 20.3),
        overrides=_NO_DROPOUT,
    ),
    TimedStep("BERT base, 512, no padding", "bert_base", _one(64), 512, 64, 64 * 512 / 348_276, source=_GPU),
    TimedStep("BERT base, 128", "bert_base", _one(256), 128, 256, 0.103, 0.925, 11.9),
    TimedStep(
        *("BERT base, 128, no attention dropout", "bert_base", _one(256), 128, 256, 0.088, 0.925, 12.2),
        overrides=_NO_DROPOUT,
    ),
    TimedStep(
        *("GPT-2 124M, large slices", "gpt2", _one(64), 1_024, 512, 1.42, 1.0, 26.8),
        overrides=("data.tokenizer.padded_vocab_size=50304",),
        logits_at_once=_LARGE,
    ),
    TimedStep(
        *("BERT base, 512, large slices", "bert_base", _one(128), 512, 256, 0.313, 0.785, 22.0), logits_at_once=_LARGE
    ),
    TimedStep(
        *("GPT 4.2B, optimizer and weights offloaded", "gpt2", _LARGEST, 512, 1, 10.4),
        gib=4.15,
        overrides=_WIDE,
        source=_GPU,
    ),
)


@dataclass(frozen=True)
class TimedPrediction:
    """A measured step with its prediction."""

    run: TimedStep
    parameters: int
    planned_s: float
    planned_gib: float  # predicted memory, without the memory of CUDA itself

    @property
    def ratio(self) -> float:
        """Predicted time divided by measured time."""
        return self.planned_s / self.run.step_s

    @property
    def memory_ratio(self) -> float:
        """Predicted memory divided by measured memory; 0 if it was not recorded."""
        return self.planned_gib / self.run.gib if self.run.gib else 0.0

    def values(self) -> dict[str, Any]:
        """Values as plain types."""
        return {
            "run": self.run.name,
            "date": DATE,
            "device": DEVICE,
            "parameters": self.parameters,
            "batch": self.run.batch,
            "length": self.run.length,
            "filled": self.run.filled,
            "measured_step_s": self.run.step_s,
            "planned_step_s": self.planned_s,
            "ratio": self.ratio,
            "measured_gib": self.run.gib or None,
            "planned_gib": self.planned_gib,
            "source": self.run.source,
        }


def predict_timed_steps(runs: Sequence[TimedStep] = STEPS) -> Iterator[TimedPrediction]:
    """Each measured step with its prediction."""
    device = DEVICES[DEVICE]
    for run in runs:
        demand = workload_of(load(run.recipe, run.overrides))
        code = replace(SESAME, logits_at_once=run.logits_at_once)
        step = step_seconds(demand, run.layout, device, run.length, run.batch, code=code, filled=run.filled)
        # the memory of today's slices, whose number of logits is that of steps with large slices
        gpu_memory = device.memory if run.logits_at_once > LOGITS_AT_ONCE else 0.0
        needed = device_memory(demand, run.layout, run.length, gpu_memory=gpu_memory)
        yield TimedPrediction(run, demand.parameters, step.total, (needed.peak - needed.cuda_context) / 2**30)
