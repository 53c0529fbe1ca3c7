"""The axes of parity, and the selection of cells (combinations of values) that are trained.

The full product has thousands of cells.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from training.specs import EngineSettings

DEGREES: Final = ("tensor", "pipeline", "sequence")  # axes that correspond to a machine key, KEY_parallel_size
MODES: Final[dict[str, dict[str, str | bool]]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "checkpointing": {"activation_checkpointing": "full"},
    "offload": {"offload_optimizer": "cpu"},
}
COMBINED: Final[dict[str, dict[str, str | bool]]] = {  # modes of several keys, outside of the product
    "bf16+offload": {"precision": "bf16", "offload_optimizer": "cpu"},
    "bf16+checkpointing": {"precision": "bf16", "activation_checkpointing": "full"},
    "bf16+selective+overlap": {"precision": "bf16", "activation_checkpointing": "selective", "overlap_comm": True},
    "checkpointing+offload": {"activation_checkpointing": "full", "offload_optimizer": "cpu"},
    "selective": {"activation_checkpointing": "selective"},
    "overlap": {"overlap_comm": True},
    "sums in bf16": {"reduce_dtype": "bf16"},
}


class Cell(NamedTuple):
    """One combination of values: a model, an optimizer, and the layout in which the workers train it."""

    net: str
    zero: int
    data: int
    tensor: int
    pipeline: int
    sequence: int
    mode: str
    optimizer: str

    @property
    def world(self) -> int:
        """Number of workers."""
        return self.data * self.tensor * self.pipeline * self.sequence

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    @property
    def machine(self) -> dict[str, Any]:
        """The keys of the machine in the cluster file for this cell."""
        degrees = {f"{axis}_parallel_size": getattr(self, axis) for axis in DEGREES if len(AXES[axis]) > 1}
        parameters = {"offload_param": "cpu"} if "offload" in self.mode and self.zero == 3 else {}
        return {"zero_stage": self.zero, **degrees, **self._keys, **parameters}

    @property
    def _keys(self) -> dict[str, Any]:
        return {**MODES, **COMBINED}[self.mode]

    @property
    def precision(self) -> str:
        """The precision of the reference process."""
        return self._keys.get("precision", "fp32")

    @property
    def rounds(self) -> bool:
        """Whether weights or sums of gradients are in bf16."""
        return "bf16" in self._keys.values()


def _degree(axis: str) -> tuple[int, ...]:
    """The degrees of an axis; only 1 if the machine has no such key."""
    return (1, 2) if f"{axis}_parallel_size" in {field.name for field in fields(EngineSettings)} else (1,)


AXES: Final[dict[str, tuple[Any, ...]]] = {
    "net": ("BERT", "GPT-2", "ALBERT", "T5", "ELECTRA"),
    "zero": (0, 1, 2, 3),
    "data": (1, 2, 4),
    **{axis: _degree(axis) for axis in DEGREES},
    "mode": tuple(MODES),
    "optimizer": ("AdamW", "LAMB", "Adafactor", "Muon", "Lion"),
}
# estimated cost of a cell by its number of workers, on two cores
COST: Final = {1: 1.0, 2: 1.5, 4: 3.0, 8: 8.0, 16: 20.0}
Pair = tuple[int, Any, int, Any]


def whole_product() -> list[Cell]:
    """Every combination of the values."""
    return [Cell(*values) for values in product(*AXES.values())]


def plain_product() -> list[Cell]:
    """AdamW in float32: every stage on every number of data-parallel workers, and on two model-parallel workers."""
    plainly = [cell for cell in whole_product() if (cell.mode, cell.optimizer) == ("fp32", "AdamW")]
    return [cell for cell in plainly if cell.world in (cell.data, 2)]


def combined() -> list[Cell]:
    """Combinations of machine keys on two workers, one or two for each model."""
    modes = (
        ("BERT", 3, "bf16+offload"),
        ("GPT-2", 2, "bf16+checkpointing"),
        ("ALBERT", 2, "bf16+selective+overlap"),
        ("T5", 3, "checkpointing+offload"),
        ("GPT-2", 1, "checkpointing+offload"),
        ("ELECTRA", 3, "selective"),
        ("T5", 2, "overlap"),
        ("BERT", 2, "sums in bf16"),
    )
    return [Cell(net, zero, 2, 1, 1, 1, mode, "AdamW") for net, zero, mode in modes]


def pairs(cell: Cell) -> set[Pair]:
    """All pairs of values of a cell, with their axes."""
    return {(a, cell[a], b, cell[b]) for a, b in combinations(range(len(cell)), 2)}


def covering(cells: Sequence[Cell], done: Iterable[Cell] = ()) -> list[Cell]:
    """Choose cells so that each pair of values of the given cells is in a chosen cell or in one of `done`.

    The cell with the most new pairs for its cost comes first; of equal cells, the first one.
    """
    by_cell = {cell: pairs(cell) for cell in cells}
    left = set[Pair]().union(*by_cell.values()).difference(*map(pairs, done))
    gain: Callable[[Cell], float] = lambda cell: len(by_cell[cell] & left) / COST[cell.world]  # noqa: E731
    chosen = list[Cell]()
    while left:
        chosen.append(max(cells, key=gain))
        left -= by_cell[chosen[-1]]
    return chosen
