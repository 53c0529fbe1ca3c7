"""Micro-batches that all have the same shape, so that a GPU compiles and allocates once.

Sequences are concatenated without padding, as in `collate_unpadded`. The rest of a micro-batch is filler: sequences of
the padding token, which no loss counts and to which no other sequence attends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from preprocessing.collate import split_batch
from preprocessing.schema import IGNORE, PER_ROW, PER_TOKEN, UNSEEN, Batch, Ints

MULTIPLE: Final = 128  # the tokens of a micro-batch are a multiple of it: a tile of a matrix product on a GPU
USUAL: Final = 0.98  # fraction of sequences of one size, such that the others may have batches of their own
DEVIATIONS: Final = 2.0  # standard deviations of a step's tokens for which its micro-batches have room


@dataclass(frozen=True)
class RowSizes:
    """Sizes of a sample of N sequences, int64 [N] each."""

    tokens: Ints
    sources: Ints  # tokens of the source; 0 without one
    targets: Ints

    @classmethod
    def of(cls, batch: Batch) -> "RowSizes":
        """The sizes of the sequences of an unpadded batch."""
        tokens_B = batch["lengths"].astype(np.int64)
        sources_B = batch["source_lengths"].astype(np.int64) if "source_lengths" in batch else 0 * tokens_B
        row_of_M = np.searchsorted(batch["first_at"], batch["targets_at"], side="right") - 1
        return cls(tokens_B, sources_B, np.bincount(row_of_M, minlength=len(tokens_B)))

    @classmethod
    def join(cls, parts: Sequence["RowSizes"]) -> "RowSizes":
        """The sizes of all sequences of several samples."""
        tokens, sources, targets = zip(*((part.tokens, part.sources, part.targets) for part in parts), strict=True)
        return cls(np.concatenate(tokens), np.concatenate(sources), np.concatenate(targets))

    def find_constant(self) -> tuple[int, int, int] | None:
        """Tokens, source tokens and targets of nearly all sequences, if no other sequence is longer; else None.

        >>> RowSizes(np.array([8] * 99 + [5]), np.zeros(100, np.int64), np.array([8] * 99 + [4])).find_constant()
        (8, 0, 8)
        """
        sizes, counts = np.unique(np.stack([self.tokens, self.sources, self.targets]), axis=1, return_counts=True)
        usual = sizes[:, counts.argmax()]
        if counts.max() < USUAL * counts.sum() or (sizes > usual[:, None]).any():
            return None
        tokens, sources, targets = usual.tolist()
        return tokens, sources, targets


@dataclass(frozen=True)
class MicroBatchShape:
    """Numbers of every micro-batch of a phase."""

    tokens: int
    rows: int  # sequences, including filler
    targets: int
    length: int  # most tokens of a sequence
    sources: int = 0  # tokens of all sources; 0 without sources

    def fits(self, rows: int, tokens: int, sources: int, targets: int) -> bool:
        """Whether a micro-batch may have these sequences: filler sequences have 1 to `length` tokens on each side.

        >>> shape = MicroBatchShape(tokens=20, rows=4, targets=6, length=8)
        >>> shape.fits(3, 18, 0, 6), shape.fits(3, 20, 0, 6), shape.fits(3, 11, 0, 6)
        (True, False, False)
        """
        filler = self.rows - rows
        sides = [(self.tokens, tokens), (self.sources, sources)] if self.sources else [(self.tokens, tokens)]
        has_room = filler >= 0 and all(filler <= room - used <= filler * self.length for room, used in sides)
        # targets that are missing are at the last token, which then must be filler
        return has_room and (targets == self.targets or (targets < self.targets and filler > 0))


def choose_shape(sizes: RowSizes, rows: int, length: int, most_tokens: int) -> MicroBatchShape:
    """The shape of micro-batches of at most `most_tokens` tokens, for steps of `rows` sequences like those in `sizes`.

    The fewest micro-batches that hold the sequences of nearly every step; a step with longer sequences gets one more.

    >>> ones = np.ones(100, np.int64)
    >>> choose_shape(RowSizes(512 * ones, 0 * ones, 77 * ones), rows=256, length=512, most_tokens=65_536)
    MicroBatchShape(tokens=65536, rows=128, targets=9856, length=512, sources=0)
    """
    each = sizes.tokens + sizes.sources
    if constant := sizes.find_constant():
        tokens, sources, targets = constant
        count = -(-rows // max(1, min(rows, most_tokens // (tokens + sources))))
        held = -(-rows // count)
        return MicroBatchShape(held * tokens, held, held * targets, length, held * sources)
    sampled = len(each)

    def spread(of_row: Ints, number: float) -> float:
        """DEVIATIONS of the sum over a number of sequences, whose mean is known from a sample only."""
        return DEVIATIONS * float(of_row.std()) * math.sqrt(number + number**2 / sampled)

    count = max(1, math.ceil((rows * each.mean() + spread(each, rows)) / max(1, most_tokens - length)))

    def room_for(of_row: Ints) -> int:
        """Tokens of a micro-batch on one side, with room for the sequence that no longer fits."""
        if not of_row.any():
            return 0
        return _round_up(
            math.ceil((rows * of_row.mean() + spread(of_row, rows)) / count + of_row.mean()) + MULTIPLE // 2
        )

    tokens, sources = room_for(sizes.tokens), room_for(sizes.sources)
    number = max(room / side.mean() for room, side in ((tokens, sizes.tokens), (sources, sizes.sources)) if side.any())
    held = math.ceil(number + spread(each, number) / each.mean()) + 1
    held = max(held, -(-max(tokens, sources) // length) + 1)
    tokens, sources = (_round_up(max(room, length + held)) if room else 0 for room in (tokens, sources))
    ratio = sizes.targets.sum() / sizes.tokens.sum()
    deviation = spread(sizes.targets - ratio * sizes.tokens, number)
    targets = _round_up(math.ceil(ratio * tokens + deviation + sizes.targets.mean()))
    return MicroBatchShape(tokens, held, min(max(targets, int(sizes.targets.max())), tokens), length, sources)


def _round_up(number: int) -> int:
    return -(-number // MULTIPLE) * MULTIPLE


def make_batches(batch: Batch, shape: MicroBatchShape, pad: int) -> list[Batch]:
    """Divide an unpadded batch into batches of this shape, in the order of its sequences.

    A sequence that fits no such batch, such as a short last sequence of an epoch where all others are full, forms an
    unpadded batch of its own.
    """
    return [
        fill_batch(part, shape, pad) if shape.fits(len(part["lengths"]), *_add_sizes(part)) else part
        for part in split_batch(batch, _find_bounds(RowSizes.of(batch), shape))
    ]


def _find_bounds(sizes: RowSizes, shape: MicroBatchShape) -> list[int]:
    """The first sequence of each batch, and the end: as many sequences as fit the shape at a time, and at least one."""
    bounds, used = [0], (0, 0, 0)
    of_rows = zip(sizes.tokens.tolist(), sizes.sources.tolist(), sizes.targets.tolist(), strict=True)
    for number, (tokens, sources, targets) in enumerate(of_rows):
        more = used[0] + tokens, used[1] + sources, used[2] + targets
        if number > bounds[-1] and not shape.fits(number - bounds[-1] + 1, *more):
            bounds.append(number)
            more = (tokens, sources, targets)
        used = more
    return [*bounds, len(sizes.tokens)]


def fill_batch(flat: Batch, shape: MicroBatchShape, pad: int) -> Batch:
    """Add filler to an unpadded batch, up to this shape; `pad` is the token of the filler.

    The additional columns `real_rows` and `real_tokens` count the sequences and tokens without filler; `longest` is the
    length of the longest sequence that any batch of the shape may have. Missing targets have the label IGNORE.

    >>> from preprocessing.collate import collate_unpadded
    >>> row = {"input_ids": np.array([5, 6, 7]), "token_type_ids": np.zeros(3), "labels": np.array([IGNORE, 9, IGNORE])}
    >>> shape = MicroBatchShape(tokens=10, rows=4, targets=3, length=4)
    >>> batch = fill_batch(collate_unpadded([row, row]), shape, pad=0)
    >>> batch["input_ids"].tolist(), batch["lengths"].tolist(), batch["targets"].tolist()
    ([5, 6, 7, 5, 6, 7, 0, 0, 0, 0], [3, 3, 2, 2], [9, 9, -100])
    """
    real_rows, real_tokens = len(flat["lengths"]), len(flat["input_ids"])
    filler = shape.rows - real_rows
    batch = _fill_side(flat, "", shape.tokens, filler, pad)
    missing = shape.targets - len(flat["targets"])
    batch["targets_at"] = np.append(flat["targets_at"], np.full(missing, shape.tokens - 1))
    batch["targets"] = np.append(flat["targets"], np.full(missing, IGNORE))
    lengths_B = batch["lengths"].astype(np.int64)
    batch["first_at"] = np.cumsum(lengths_B) - lengths_B
    if shape.sources:
        batch |= _fill_side(flat, "source_", shape.sources, filler, pad) | {"source_longest": np.array(shape.length)}
    for name in PER_ROW:
        if name in flat:
            batch[name] = np.append(flat[name], np.full(filler, IGNORE, flat[name].dtype))
    batch |= {name: np.array(number) for name, number in (("real_rows", real_rows), ("real_tokens", real_tokens))}
    return batch | {"longest": np.array(shape.length)}


def _fill_side(flat: Batch, side: str, tokens: int, filler: int, pad: int) -> Batch:
    """The token columns of one side and its lengths, with the filler; its tokens are divided evenly."""
    missing = tokens - len(flat[f"{side}input_ids"])
    lengths_F = np.diff(np.arange(filler + 1) * missing // max(1, filler)).astype(np.int32)
    starts_F = np.cumsum(lengths_F) - lengths_F
    filling: dict[str, Any] = {
        "input_ids": pad,
        "positions": np.arange(missing) - np.repeat(starts_F, lengths_F),
        "rank": UNSEEN,
        "reach": -1,
        "seen": True,
    }
    batch: Batch = {}
    for name in (*PER_TOKEN, "seen"):
        if side + name in flat:
            column = flat[side + name]
            batch[side + name] = np.append(column, np.broadcast_to(filling.get(name, 0), missing).astype(column.dtype))
    return batch | {f"{side}lengths": np.append(flat[f"{side}lengths"], lengths_F)}


def _add_sizes(batch: Batch) -> tuple[int, int, int]:
    """Tokens, source tokens and targets of an unpadded batch."""
    sources = len(batch["source_input_ids"]) if "source_input_ids" in batch else 0
    return len(batch["input_ids"]), sources, len(batch["targets"])


def real_lengths(batch: Batch, side: str = "") -> npt.NDArray[np.int64]:
    """The lengths of the sequences of a batch, without filler."""
    lengths_B = batch[f"{side}lengths"].astype(np.int64)
    return lengths_B[: int(batch["real_rows"])] if "real_rows" in batch else lengths_B
