"""Rows -> one batch with the columns of schema.py: end to end (unpadded) or as a rectangle (padded)."""

from collections.abc import Sequence

import numpy as np

from preprocessing.schema import IGNORE, Batch, Row


def unpadded(rows: Sequence[Row]) -> Batch:
    """Rows end to end: ids, positions and segments are [T]; not one position is spent on padding.

    >>> row = {"ids": np.array([5, 6, 7]), "segments": np.zeros(3), "labels": np.array([IGNORE, 9, IGNORE])}
    >>> batch = unpadded([row, row])
    >>> batch["positions"].tolist(), batch["targets_at"].tolist(), batch["targets"].tolist()
    ([0, 1, 2, 0, 1, 2], [1, 4], [9, 9])
    """
    lengths_B = np.array([len(row["ids"]) for row in rows], dtype=np.int32)
    first_at_B = np.cumsum(lengths_B, dtype=np.int64) - lengths_B
    labels_T = np.concatenate([row["labels"] for row in rows])
    targets_at_M = np.flatnonzero(labels_T != IGNORE)
    batch: Batch = {
        "ids": np.concatenate([row["ids"] for row in rows], dtype=np.int64, casting="unsafe"),
        "positions": np.arange(len(labels_T), dtype=np.int64) - np.repeat(first_at_B, lengths_B),
        "segments": np.concatenate([row["segments"] for row in rows], dtype=np.int64, casting="unsafe"),
        "lengths": lengths_B,
        "first_at": first_at_B,
        "targets_at": targets_at_M,
        "targets": labels_T[targets_at_M].astype(np.int64),
    }
    if "pair_label" in rows[0]:
        batch["pair_label"] = np.array([row["pair_label"] for row in rows], dtype=np.int64)
    return batch


def padded(rows: Sequence[Row], length: int, pad: int) -> Batch:
    """Rows as a rectangle [B, length], each filled up on the right with the token `pad`.

    >>> row = {"ids": np.array([5, 6]), "segments": np.zeros(2), "labels": np.array([9, IGNORE])}
    >>> batch = padded([row, row], length=3, pad=0)
    >>> batch["ids"].tolist(), batch["targets_at"].tolist()
    ([[5, 6, 0], [5, 6, 0]], [0, 3])
    """
    flat = unpadded(rows)
    lengths_B, num_rows = flat["lengths"], len(rows)
    if lengths_B.max() > length:
        raise ValueError(f"a row of {lengths_B.max()} tokens does not fit a batch of length {length}")
    first_at_B = length * np.arange(num_rows, dtype=np.int64)
    at_T = flat["positions"] + np.repeat(first_at_B, lengths_B)
    ids_BS = np.full((num_rows, length), pad, dtype=np.int64)
    segments_BS = np.zeros((num_rows, length), dtype=np.int64)
    ids_BS.flat[at_T] = flat["ids"]
    segments_BS.flat[at_T] = flat["segments"]
    return flat | {
        "ids": ids_BS,
        "positions": np.tile(np.arange(length, dtype=np.int64), (num_rows, 1)),
        "segments": segments_BS,
        "first_at": first_at_B,
        "targets_at": at_T[flat["targets_at"]],
    }
