"""The results as Markdown and as JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.parity.cells import AXES, Cell
from tests.parity.group import Seen

TOLERANCE: Final = {"fp32": 1e-5, "bf16": 1e-2}  # relative, for each loss; the value for bf16 was measured


@dataclass(frozen=True)
class Outcome:
    """The comparison of a cell with one process."""

    cell: Cell
    cpu_s: float
    error: str = ""  # why there are no losses
    difference: float = 0.0  # greatest relative difference of a loss
    wanted: tuple[float, float] = (0.0, 0.0)  # first and last loss of the reference process

    @property
    def tolerance(self) -> float:
        return TOLERANCE["bf16" if self.cell.rounds else "fp32"]

    @property
    def failed(self) -> bool:
        return bool(self.error) or not self.difference <= self.tolerance

    @property
    def verdict(self) -> str:
        if self.error:
            return f"FAILED: {self.error}"
        return f"{'FAILED: ' if self.failed else ''}{self.difference:.1e}"

    def values(self) -> dict[str, Any]:
        return {**self.cell._asdict(), **asdict(self), "cell": self.cell.name, "failed": self.failed}


def outcome(cell: Cell, seen: Seen, plain: Seen) -> Outcome:
    error = seen.error or (f"one process: {plain.error}" if plain.error else "")
    if error:
        return Outcome(cell, seen.cpu_s, error)
    differences = [abs(a - b) / abs(b) for a, b in zip(seen.losses, plain.losses, strict=True)]
    return Outcome(
        cell, seen.cpu_s, difference=max(differences, key=_nan_first), wanted=(plain.losses[0], plain.losses[-1])
    )


def _nan_first(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def layout(cell: Cell) -> str:
    """The parallel layout of a cell, in words.

    >>> layout(Cell("BERT", 1, 2, 2, 1, 1, "fp32", "AdamW"))
    'data 2 x tensor 2'
    """
    degrees = {"data": cell.data, "tensor": cell.tensor, "pipeline": cell.pipeline, "sequence": cell.sequence}
    return " x ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1) or "one worker"


def markdown(
    heading: Sequence[str], outcomes: Sequence[Outcome], plainly: Sequence[Cell], refused: Mapping[str, int]
) -> str:
    """The page as text. `plainly` contains the cells of the full product; `refused` counts the cells by message."""
    by_cell = {one.cell: one for one in outcomes}
    others = [one for one in outcomes if one.cell not in set(plainly)]
    parts = [
        *heading,
        "## By value",
        _rows(["axis", "value", "cells", "failed", "greatest in fp32", "greatest in bf16"], _by_value(outcomes)),
        "## AdamW in float32 on every stage",
        _rows(["net", "layout", *(f"ZeRO {zero}" for zero in AXES["zero"])], _stages(by_cell, plainly)),
        "## Pairs of values",
        _rows(["net", "ZeRO", "layout", "mode", "optimizer", "difference"], map(_row, others)),
        "## Cells refused by `sesame check`",
        _rows(["cells", "line"], ([f"{count:,}", line] for line, count in refused.items())),
    ]
    return "\n\n".join(parts) + "\n"


def bare_markdown(heading: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """The page of bare DeepSpeed. A difference there is not a failure of Sesame."""
    lines = ([*_row(one)[:-1], f"fails: {one.error}" if one.error else f"{one.difference:.1e}"] for one in outcomes)
    return "\n\n".join([*heading, _rows(["net", "ZeRO", "layout", "mode", "optimizer", "difference"], lines)]) + "\n"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _row(one: Outcome) -> list[str]:
    cell = one.cell
    return [cell.net, str(cell.zero), layout(cell), cell.mode, cell.optimizer, one.verdict]


def _by_value(outcomes: Sequence[Outcome]) -> Iterable[list[str]]:
    for axis, values in AXES.items():
        for value in values if len(values) > 1 else ():
            mine = [one for one in outcomes if getattr(one.cell, axis) == value]
            failed = sum(one.failed for one in mine)
            yield [axis, str(value), str(len(mine)), str(failed), _greatest(mine, False), _greatest(mine, True)]


def _greatest(outcomes: Iterable[Outcome], bf16: bool) -> str:
    found = [one.difference for one in outcomes if not one.error and one.cell.rounds == bf16]
    return f"{max(found):.1e}" if found else ""


def _stages(by_cell: Mapping[Cell, Outcome], plainly: Sequence[Cell]) -> Iterable[list[str]]:
    """One line for each model and layout, with a column for each stage."""
    lines = dict[tuple[str, str], list[str]]()
    for cell in plainly:
        actual = by_cell[cell].verdict if cell in by_cell else ""
        lines.setdefault((cell.net, layout(cell)), [""] * len(AXES["zero"]))[AXES["zero"].index(cell.zero)] = actual
    return ([*key, *columns] for key, columns in lines.items())
