"""Helpers that plan segments over toy shards and make their sequences."""

import numpy as np
from hypothesis import strategies as st

from preprocessing.packing import Packing
from preprocessing.rng import key
from tests.preprocessing.toy import ToyShard, ToyVocab

SEGMENT = key(0, "segment")
VOCAB = ToyVocab()
CLS, SEP = VOCAB.cls, VOCAB.sep
DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), min_size=2, max_size=8)


def plan_of(segment: Packing, text: ToyShard, length: int, lookahead: int = 0, copy: int = 0):
    return segment.plan(text, length, lookahead, SEGMENT.at(copy, 0))


def rows_of(segment: Packing, text: ToyShard, length: int, lookahead: int = 0, copy: int = 0):
    plan = plan_of(segment, text, length, lookahead, copy)
    return [segment.row(plan, i, text, VOCAB) for i in range(len(plan))]


def ids_of(segment: Packing, text: ToyShard, length: int, lookahead: int = 0) -> list[list[int]]:
    return [row["input_ids"].tolist() for row in rows_of(segment, text, length, lookahead)]


def halves(row) -> tuple[np.ndarray, np.ndarray]:
    """Return the token IDs of segment A and of segment B, without special tokens."""
    first, middle, last = np.flatnonzero(row["special_tokens_mask"])
    return row["input_ids"][first + 1 : middle], row["input_ids"][middle + 1 : last]


def document_of(text: ToyShard, ids) -> int:
    """Return the number of the document that contains all `ids`; the token IDs of `text` count up from 10."""
    numbers = np.unique(np.searchsorted(text.offset_N1, np.asarray(ids) - 10, side="right") - 1)
    (number,) = numbers.tolist()
    return number
