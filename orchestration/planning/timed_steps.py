"""Measured steps of Sesame, compared with the prediction of `plan`. The overheads of Sesame were calibrated with these
steps.

Measured on one NVIDIA H200 (132 SMs, 139 GiB, 4.3 TB/s measured) on 2026-11-26: torch 2.11+cu130, DeepSpeed 0.19.8,
Python 3.12, bf16, one process, ZeRO 2. Steps with the source `loop` ran the training loop with its loader on real
corpora.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestration.config import load
from orchestration.planning.devices import DEVICES
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.memory import device_memory
from orchestration.planning.timing import step_seconds
from orchestration.planning.workload import workload_of

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


_NO_DROPOUT: Final = ("model.attention_dropout=0",)
_LARGEST: Final = ParallelLayout(zero=3, rows=1, checkpointing="full", offload=True, offload_parameters=True)
_WIDE: Final = ("model.num_hidden_layers=20", "model.hidden_size=4096", "model.num_attention_heads=32")
_GPU: Final = "benchmarks/gpu.py"
STEPS: Final[Sequence[TimedStep]] = (
    TimedStep("GPT-2 124M", "gpt2", ParallelLayout(rows=64), 1_024, 512, 3.33, gib=23.1),
    TimedStep("GPT-2 124M, short", "gpt2", ParallelLayout(rows=64), 512, 64, 64 * 512 / 147_856, source=_GPU),
    TimedStep("BERT base, 512", "bert_base", ParallelLayout(rows=128), 512, 256, 0.319, 0.785, 20.5),
    TimedStep(
        *("BERT base, 512, no attention dropout", "bert_base", ParallelLayout(rows=128), 512, 256, 0.215, 0.785, 20.3),
        overrides=_NO_DROPOUT,
    ),
    TimedStep(
        "BERT base, 512, no padding", "bert_base", ParallelLayout(rows=64), 512, 64, 64 * 512 / 348_276, source=_GPU
    ),
    TimedStep("BERT base, 128", "bert_base", ParallelLayout(rows=256), 128, 256, 0.103, 0.925, 11.9),
    TimedStep(
        *("BERT base, 128, no attention dropout", "bert_base", ParallelLayout(rows=256), 128, 256, 0.088, 0.925, 12.2),
        overrides=_NO_DROPOUT,
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
        step = step_seconds(demand, run.layout, device, run.length, run.batch, filled=run.filled)
        needed = device_memory(demand, run.layout, run.length)
        yield TimedPrediction(run, demand.parameters, step.total, (needed.peak - needed.cuda_context) / 2**30)
