"""Sequences -> batches with the columns of schema.py: concatenated (unpadded) or as a rectangle (padded)."""

from collections.abc import Sequence

import numpy as np

from preprocessing.schema import IGNORE, PER_ROW, PER_TOKEN, UNSEEN, Batch, Ints, Row


def collate_unpadded(rows: Sequence[Row]) -> Batch:
    """Concatenate sequences: input_ids, positions and token_type_ids have shape [T], without padding.

    >>> row = {"input_ids": np.array([5, 6, 7]), "token_type_ids": np.zeros(3), "labels": np.array([IGNORE, 9, IGNORE])}
    >>> batch = collate_unpadded([row, row])
    >>> batch["positions"].tolist(), batch["targets_at"].tolist(), batch["targets"].tolist()
    ([0, 1, 2, 0, 1, 2], [1, 4], [9, 9])
    """
    lengths_B, first_at_B = _rows_of(rows, "input_ids")
    labels_T = np.concatenate([row["labels"] for row in rows])
    targets_at_M = np.flatnonzero(labels_T != IGNORE)
    batch = _end_to_end(rows, "") | {
        "lengths": lengths_B,
        "first_at": first_at_B,
        "targets_at": targets_at_M,
        "targets": labels_T[targets_at_M].astype(np.int64),
    }
    if "source_input_ids" in rows[0]:
        batch |= _end_to_end(rows, "source_") | {"source_lengths": _rows_of(rows, "source_input_ids")[0]}
    for name in PER_ROW:
        if name in rows[0]:
            batch[name] = np.array([row[name] for row in rows], np.float32 if name == "value" else np.int64)
    return batch


def split_batch(batch: Batch, bounds: Sequence[int]) -> list[Batch]:
    """The sequences bounds[i] ... bounds[i + 1] - 1 of an unpadded batch, for each i; columns are views where possible.

    >>> row = {"input_ids": np.array([5, 6, 7]), "token_type_ids": np.zeros(3), "labels": np.array([IGNORE, 9, IGNORE])}
    >>> one, other = split_batch(collate_unpadded([row, row]), [0, 1, 2])
    >>> other["input_ids"].tolist(), other["first_at"].tolist(), other["targets_at"].tolist()
    ([5, 6, 7], [0], [1])
    """
    sides = ("", "source_") if "source_lengths" in batch else ("",)
    token_bounds = {side: np.append(0, np.cumsum(batch[f"{side}lengths"], dtype=np.int64))[bounds] for side in sides}
    target_bounds = np.searchsorted(batch["targets_at"], token_bounds[""])
    parts = list[Batch]()
    for number, of_part in enumerate(map(slice, bounds[:-1], bounds[1:])):
        part: Batch = {}
        for side in sides:
            tokens = slice(*token_bounds[side][number : number + 2])
            part |= {side + name: batch[side + name][tokens] for name in (*PER_TOKEN, "seen") if side + name in batch}
        first, targets = token_bounds[""][number], slice(*target_bounds[number : number + 2])
        per_row = ("lengths", "source_lengths", *PER_ROW)
        part |= {name: batch[name][of_part] for name in per_row if name in batch}
        part |= {name: batch[name][places] - first for name, places in (("first_at", of_part), ("targets_at", targets))}
        parts.append(part | {"targets": batch["targets"][targets]})
    return parts


def _rows_of(rows: Sequence[Row], ids: str) -> tuple[Ints, Ints]:
    """The length of each sequence, int32, and its start in the concatenation, int64."""
    lengths_B = np.array([len(row[ids]) for row in rows], dtype=np.int32)
    return lengths_B, np.cumsum(lengths_B, dtype=np.int64) - lengths_B


def _end_to_end(rows: Sequence[Row], side: str) -> Batch:
    """The token columns of one side ("" or "source_"), concatenated.

    Without a column `positions`, the positions of a sequence are 0, 1, 2, ...
    """
    batch: Batch = {}
    for name in PER_TOKEN:
        if side + name in rows[0] and name != "positions":
            batch[side + name] = np.concatenate([row[side + name] for row in rows], dtype=np.int64, casting="unsafe")
    lengths_B, first_at_B = _rows_of(rows, f"{side}input_ids")
    position_T = np.arange(len(batch[f"{side}input_ids"]), dtype=np.int64) - np.repeat(first_at_B, lengths_B)
    for row, first, length in zip(rows, first_at_B.tolist(), lengths_B.tolist(), strict=True):
        if f"{side}positions" in row:  # sequences with and without positions may share a batch
            position_T[first : first + length] = row[f"{side}positions"]
    batch[f"{side}positions"] = position_T
    if side and "source_seen" in rows[0]:
        batch["source_seen"] = np.concatenate([row["source_seen"] for row in rows])
    return batch


def collate_padded(rows: Sequence[Row], length: int, pad: int) -> Batch:
    """Sequences as a rectangle [B, length], padded on the right with the token `pad`.

    If sequences have a source, each side is only as wide as its longest sequence, because targets are often much
    shorter than sources.

    >>> row = {"input_ids": np.array([5, 6]), "token_type_ids": np.zeros(2), "labels": np.array([9, IGNORE])}
    >>> batch = collate_padded([row, row], length=3, pad=0)
    >>> batch["input_ids"].tolist(), batch["targets_at"].tolist()
    ([[5, 6, 0], [5, 6, 0]], [0, 3])
    """
    return pad_batch(collate_unpadded(rows), length, pad)


def pad_batch(flat: Batch, length: int, pad: int) -> Batch:
    """The same for an unpadded batch."""
    longest = max(int(flat[side].max()) for side in ("lengths", "source_lengths") if side in flat)
    if longest > length:
        raise ValueError(f"invalid sequence: got {longest} tokens, expected at most {length}")
    if "source_input_ids" not in flat:
        return flat | _rectangles(flat, "", length, pad)
    width, source_width = int(flat["lengths"].max()), int(flat["source_lengths"].max())
    return flat | _rectangles(flat, "", width, pad) | _rectangles(flat, "source_", source_width, pad)


def _rectangles(flat: Batch, side: str, width: int, pad: int) -> Batch:
    """The columns of one side of an unpadded batch as [B, width], with the new indices of first tokens and targets."""
    lengths_B = flat[f"{side}lengths"]
    row_B = np.arange(len(lengths_B), dtype=np.int64)
    shift_B = width * row_B - (np.cumsum(lengths_B) - lengths_B)
    at_T = np.arange(lengths_B.sum()) + np.repeat(shift_B, lengths_B)
    batch = {
        side + name: _rectangle(flat[side + name], at_T, (len(lengths_B), width), _make_padding(name, width, pad))
        for name in (*PER_TOKEN, "seen")
        if side + name in flat
    }
    return batch if side else batch | {"first_at": width * row_B, "targets_at": at_T[flat["targets_at"]]}


def _rectangle(value_T: np.ndarray, at_T: Ints, shape: tuple[int, int], filling: np.ndarray | np.generic) -> np.ndarray:
    """A rectangle with the values at the flat indices `at_T` and `filling` at all other places."""
    whole = np.empty(shape, value_T.dtype)
    whole[:] = filling
    whole.flat[at_T] = value_T
    return whole


def _make_padding(name: str, length: int, pad: int) -> np.ndarray | np.generic:
    """The padding values of a column: one for each position, or one for all positions."""
    if name == "positions":
        return np.arange(length)
    return np.int64({"input_ids": pad, "rank": UNSEEN, "reach": -1}.get(name, 0))
