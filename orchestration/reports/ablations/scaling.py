"""A scaling ladder: models of several sizes at several equal budgets, and the exponent of the optimal size.

Unlike the other tables, it has no claims of a paper. Its rows are pretrained like those of the other tables.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from orchestration.config import load
from orchestration.reports.ablations.ablation import Ablation, AblationRow, Measure

_SIZES_OF_A_BUDGET = 6
_BUDGETS: Final = (1 / 27, 1 / 9, 1 / 3, 1.0)  # of the FLOPs of row `equal_to`
_UNITS: Final = {"tiny": 8, "small": 32}  # width of one unit, by scale; a unit is a head
_POSITIONS: Final = {"tiny": 66, "small": 130}  # the length of the sequences, and the offset of RoBERTa
_LEARNING_RATE = 0.144  # times 1 / width, as for the hidden weights of arXiv:2203.03466
_INIT_STD = 0.55  # times 1 / sqrt(width): 0.069 for a width of 64


@dataclass(frozen=True, kw_only=True)
class ScalingLadder(Ablation):
    """A table whose rows are the sizes of a ladder at several budgets: `compute` of a row is its budget."""

    num_seeds: ClassVar[int] = 1  # its interval is from the residuals of all runs

    def with_recipe(self, recipe: str) -> "ScalingLadder":
        """The same ladder of another recipe."""
        has_table = hasattr(load(recipe).model.position_embedding, "max_position_embeddings")
        return replace(self, rows=_rows(recipe, has_table))


def size(number: int) -> tuple[int, int]:
    """Layers and width of a size of the ladder; the width is in units. A step adds a unit of width, or a layer.

    >>> [size(number) for number in range(7)]
    [(1, 1), (1, 2), (1, 3), (2, 3), (2, 4), (2, 5), (3, 5)]
    """
    return 1 + number // 3, 1 + number - number // 3


def _row(recipe: str, number: int, compute: float, has_position_table: bool) -> AblationRow:
    layers, units = size(number)

    def overrides(scale: str) -> tuple[str, ...]:
        width = units * _UNITS[scale]
        positions = f"model.position_embedding.max_position_embeddings={_POSITIONS[scale]}"
        return (
            f"model.num_hidden_layers={layers}",
            f"model.hidden_size={width}",
            f"model.num_attention_heads={units}",
            f"model.init_std={_INIT_STD / math.sqrt(width):.3f}",
            f"optimizer.learning_rate={_LEARNING_RATE / width:.2e}",
            *([positions] if has_position_table else []),
        )

    return AblationRow(recipe=recipe, sizes={scale: overrides(scale) for scale in _UNITS}, compute=compute)


def _label(number: int, compute: float) -> str:
    layers, units = size(number)
    budget = "1" if compute == 1 else f"1/{round(1 / compute)}"
    return f"compute {budget}: {layers}L {units}W"


def _rows(recipe: str, has_position_table: bool) -> Mapping[str, AblationRow]:
    """The sizes of each budget: six in sequence, one step larger from the third budget on. A table of positions has
    no row that is not trained, because all parameters are counted."""
    return {
        _label(number, compute): _row(recipe, number, compute, has_position_table)
        for place, compute in enumerate(_BUDGETS)
        for number in range(place // 2, place // 2 + _SIZES_OF_A_BUDGET)
    }


def computes(table: Ablation) -> dict[str, float]:
    """The budget of each row."""
    return {label: row.compute for label, row in table.rows.items()}


SCALING: Final = ScalingLadder(
    name="scaling",
    title="A scaling law: the optimal size for a budget of FLOPs",
    paper="Chinchilla, Hoffmann et al. 2022, arXiv:2203.15556, section 3.2",
    stub="budget and size",
    rows=_rows("gpt2", has_position_table=True),
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
            "phases=[{seq_length: 64, global_batch_size: 8, steps: 1_500}]",
            "optimizer.warmup_steps=20",
            "data.tokenizer.vocab_size=512",
        ),
        "small": (
            "phases=[{seq_length: 128, global_batch_size: 16, steps: 8_000}]",
            "optimizer.warmup_steps=100",
            "data.tokenizer.vocab_size=4_096",
        ),
    },
    equal_to=_label(6, 1.0),
    facts=("parameters", "tokens", "FLOPs"),
    note="A size has layers (L) and units of width (W): 8 at tiny scale, 32 at small scale. All parameters are "
    "counted, as in the paper. The learning rate is inverse to the width, and is not tuned for any size. Each run "
    "decays its learning rate until its own last step.",
)
