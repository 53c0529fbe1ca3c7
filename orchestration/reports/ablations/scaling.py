"""A scaling ladder: models of several sizes at several equal budgets, and the exponent of the optimal size.

Unlike the other tables, it has no claims of a paper. Its rows are pretrained like those of the other tables.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, Measure

_SIZES_OF_A_BUDGET = 5
_BUDGETS: Final = (1 / 27, 1 / 9, 1 / 3, 1.0)  # of the FLOPs of row `equal_to`
_UNITS: Final = {"tiny": (16, 9e-3), "small": (64, 2e-3)}  # by scale: width of one unit, and its learning rate
_HEADS: Final = {"tiny": 1, "small": 2}  # heads of one unit


@dataclass(frozen=True, kw_only=True)
class ScalingLadder(Ablation):
    """A table whose rows are the sizes of a ladder at several budgets: `compute` of a row is its budget."""

    num_seeds: ClassVar[int] = 1  # its interval is from the residuals of all runs

    def with_recipe(self, recipe: str) -> "ScalingLadder":
        """The same ladder of another recipe."""
        return replace(self, rows={label: replace(row, recipe=recipe) for label, row in self.rows.items()})


def size(number: int) -> tuple[int, int]:
    """Layers and width of a size of the ladder; the width is in units. A step adds a unit of width, or a layer.

    >>> [size(number) for number in range(6)]
    [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4)]
    """
    return 1 + number // 2, 1 + (number + 1) // 2


def _row(number: int, compute: float) -> AblationRow:
    layers, units = size(number)

    def overrides(scale: str) -> tuple[str, ...]:
        width, learning_rate = _UNITS[scale]
        return (
            f"model.num_hidden_layers={layers}",
            f"model.hidden_size={units * width}",
            f"model.num_attention_heads={units * _HEADS[scale]}",
            f"model.init_std={0.55 / math.sqrt(units * width):.3f}",
            f"optimizer.learning_rate={learning_rate / units:.2e}",
        )

    return AblationRow(recipe="gpt2", sizes={scale: overrides(scale) for scale in _UNITS}, compute=compute)


def _label(number: int, compute: float) -> str:
    layers, units = size(number)
    budget = "1" if compute == 1 else f"1/{round(1 / compute)}"
    return f"compute {budget}: {layers}L {units}W"


def _rows() -> Mapping[str, AblationRow]:
    """The sizes of each budget: five in sequence, one step larger for each budget."""
    return {
        _label(number, compute): _row(number, compute)
        for place, compute in enumerate(_BUDGETS)
        for number in range(place, place + _SIZES_OF_A_BUDGET)
    }


def computes(table: Ablation) -> dict[str, float]:
    """The budget of each row."""
    return {label: row.compute for label, row in table.rows.items()}


SCALING: Final = ScalingLadder(
    name="scaling",
    title="A scaling law: the optimal size for a budget of FLOPs",
    paper="Chinchilla, Hoffmann et al. 2022, arXiv:2203.15556, section 3.2",
    stub="budget and size",
    rows=_rows(),
    columns={
        "loss": Measure(kind="validation", means="the loss on held-out text after the last step, per target"),
    },
    claims=(),
    varies=(
        "model.num_hidden_layers",
        "model.hidden_size",
        "model.num_attention_heads",
        "model.init_std",
        "optimizer.learning_rate",
        "phases.0.steps",
    ),
    text="demo",
    budget={
        "tiny": (
            "phases=[{seq_length: 64, global_batch_size: 8, steps: 2_000}]",
            "optimizer.warmup_steps=20",
            "data.tokenizer.vocab_size=512",
        ),
        "small": (
            "phases=[{seq_length: 128, global_batch_size: 32, steps: 8_000}]",
            "optimizer.warmup_steps=100",
            "data.tokenizer.vocab_size=4_096",
        ),
    },
    equal_to=_label(5, 1.0),
    facts=("parameters", "tokens", "FLOPs"),
    note="A size has layers (L) and units of width (W): 16 at tiny scale, 64 at small scale. All parameters are "
    "counted, as in the paper. The learning rate is divided by the units, and is not tuned for any size. Each run "
    "decays its learning rate until its own last step.",
)
