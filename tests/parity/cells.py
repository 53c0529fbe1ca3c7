"""The axes of parity, and which cells of their product are trained: it has thousands."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from training.specs import EngineSettings

DEGREES: Final = ("tensor", "pipeline", "sequence")  # axes that are a key of the machine, KEY_parallel
MODES: Final[dict[str, dict[str, str | bool]]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "checkpointing": {"activation_checkpointing": "full"},
    "offload": {"offload_optimizer": "cpu"},
}
COMBINED: Final[dict[str, dict[str, str | bool]]] = {  # of cells beside the product
    "bf16+offload": {"precision": "bf16", "offload_optimizer": "cpu"},
    "bf16+checkpointing": {"precision": "bf16", "activation_checkpointing": "full"},
    "bf16+selective+overlap": {"precision": "bf16", "activation_checkpointing": "selective", "overlap_comm": True},
    "checkpointing+offload": {"activation_checkpointing": "full", "offload_optimizer": "cpu"},
    "selective": {"activation_checkpointing": "selective"},
    "overlap": {"overlap_comm": True},
    "sums in bf16": {"reduce_dtype": "bf16"},
}


class Cell(NamedTuple):
    """A net, an optimiser, and how many workers train it in which way."""

    net: str
    zero: int
    data: int
    tensor: int
    pipeline: int
    sequence: int
    mode: str
    optimiser: str

    @property
    def world(self) -> int:
        """Workers."""
        return self.data * self.tensor * self.pipeline * self.sequence

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    @property
    def machine(self) -> dict[str, Any]:
        """The keys of the cluster file's machine that say it."""
        degrees = {f"{axis}_parallel_size": getattr(self, axis) for axis in DEGREES if len(AXES[axis]) > 1}
        parameters = {"offload_param": "cpu"} if "offload" in self.mode and self.zero == 3 else {}
        return {"zero_stage": self.zero, **degrees, **self._keys, **parameters}

    @property
    def _keys(self) -> dict[str, Any]:
        return {**MODES, **COMBINED}[self.mode]

    @property
    def precision(self) -> str:
        """Of the one process that it is compared with."""
        return self._keys.get("precision", "fp32")

    @property
    def rounds(self) -> bool:
        """Whether weights or sums of gradients are in bf16."""
        return "bf16" in self._keys.values()


def _degree(axis: str) -> tuple[int, ...]:
    """Workers that share something; none where the machine has no such key."""
    return (1, 2) if f"{axis}_parallel_size" in {field.name for field in fields(EngineSettings)} else (1,)


AXES: Final[dict[str, tuple[Any, ...]]] = {
    "net": ("BERT", "GPT-2", "ALBERT", "T5", "ELECTRA"),
    "zero": (0, 1, 2, 3),
    "data": (1, 2, 4),
    **{axis: _degree(axis) for axis in DEGREES},
    "mode": tuple(MODES),
    "optimiser": ("AdamW", "LAMB", "Adafactor", "Muon", "Lion"),
}
COST: Final = {1: 1.0, 2: 1.5, 4: 3.0, 8: 8.0, 16: 20.0}  # of a cell, by its workers, on two cores
Pair = tuple[int, Any, int, Any]


def whole_product() -> list[Cell]:
    """Every combination of values."""
    return [Cell(*values) for values in product(*AXES.values())]


def plain_product() -> list[Cell]:
    """Every stage on every number of data-parallel workers, and on two that share something, with AdamW in float32."""
    plainly = [cell for cell in whole_product() if (cell.mode, cell.optimiser) == ("fp32", "AdamW")]
    return [cell for cell in plainly if cell.world in (cell.data, 2)]


def combined() -> list[Cell]:
    """What a machine can do at the same time, on two workers, for each net once or twice."""
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
    """Any two of its values, with their axes."""
    return {(a, cell[a], b, cell[b]) for a, b in combinations(range(len(cell)), 2)}


def covering(cells: Sequence[Cell], done: Iterable[Cell] = ()) -> list[Cell]:
    """Of these cells so many that every two values which stand together in one do so in one that is chosen or done.

    The cell with the most new pairs for its cost comes first; of equals the first.
    """
    by_cell = {cell: pairs(cell) for cell in cells}
    left = set[Pair]().union(*by_cell.values()).difference(*map(pairs, done))
    gain: Callable[[Cell], float] = lambda cell: len(by_cell[cell] & left) / COST[cell.world]  # noqa: E731
    chosen = list[Cell]()
    while left:
        chosen.append(max(cells, key=gain))
        left -= by_cell[chosen[-1]]
    return chosen
