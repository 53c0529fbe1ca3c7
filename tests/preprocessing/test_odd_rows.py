"""Rows of odd text: one token, one sentence, one long word. None is refused, empty, or longer than a row may be."""

from contextlib import suppress
from itertools import pairwise, product

import numpy as np
import pytest

from preprocessing.choose import Choose, Entities, Fragment, Ngrams, NoiseSpans, Nothing, Partial, Spans, Tokens, Words
from preprocessing.collate import padded
from preprocessing.errors import BadInput
from preprocessing.rewrite import Cloze, Deshuffle, GapSentences, Noise, Permute, Prefix, Rewrite, Sentinel, Shift
from preprocessing.rewrite import Fragment as Masked
from preprocessing.rows import Rows, impossible
from preprocessing.sampling import Sampling
from preprocessing.segment import Packed, Pair, Segment, Sentence, Stream
from tests.family import Words as Vocabulary
from tests.preprocessing.toy import ToyShard, ToyStore

LENGTH = 12
SEGMENTS: tuple[Segment, ...] = (
    Packed(unit="token"),
    Packed(unit="token", add_separators=False, cross_documents=False),
    Packed(unit="sentence", cross_documents=False),
    Pair(negatives="none", single_segment_prob=0.3),
    Pair(negatives="swapped", short_seq_prob=1.0),
    Sentence(),
    Stream(),
)
CHOICES: tuple[Choose, ...] = (
    Nothing(),
    Tokens(rounding="independent"),
    Words(rate=0.1),
    Ngrams(),
    Entities(),
    Spans(),
    Partial(),
    Fragment(),
    NoiseSpans(),
)
REWRITES: tuple[Rewrite, ...] = (
    Cloze(),
    Masked(),
    Sentinel(),
    Sentinel(collapse_spans=False),
    Prefix(),
    Deshuffle(),
    GapSentences(),
    Noise(noise_types=("sentence_permutation", "text_infilling", "document_rotation"), mask_ratio=0.9),
    Noise(noise_types=("token_deletion",), mask_ratio=1.0),
    Permute(perm_size=4),
    Shift(),
)
FITTING = [parts for parts in product(SEGMENTS, CHOICES, REWRITES) if not impossible(*parts, {})]


def text(lengths: list[int], sentence: int, word: int) -> ToyStore:
    """Documents of so many tokens, of sentences and words of so many."""
    total, bounds = sum(lengths), np.append(0, np.cumsum(lengths))
    at = np.concatenate([np.arange(start, stop, sentence) for start, stop in pairwise(bounds)])
    starts_T = np.zeros(total, bool)
    starts_T[::word] = starts_T[at] = True
    ids_T = np.random.default_rng(0).integers(5, 900, total).astype(np.uint16)
    return ToyStore((ToyShard(ids_T=ids_T, offset_N1=bounds, sentence_at_M=at, starts_T=starts_T, units_T=starts_T),))


TEXTS = {
    "single tokens": text([1] * 30, 1, 1),
    "single sentences": text([7] * 20, 1_000, 1),
    "long words": text([40] * 6, 1_000, 1_000),
    "full stops": text([25] * 6, 1, 1),
    "all sorts": text([1, 2, 3, 60, 1, 9] * 4, 5, 3),
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_row_of_odd_text_can_be_read(name: str) -> None:
    for segment, choose, rewrite in FITTING:
        sampling = Sampling(packing=segment, masking=choose, objective=rewrite)
        rows = Rows(TEXTS[name], Vocabulary(), sampling, LENGTH)  # type: ignore[arg-type]
        count = 0
        with suppress(BadInput):  # where the text gives no such rows at all
            count = rows.count(0)
        for at in {*range(min(count, 4)), max(count - 1, 0)} if count else ():
            row = rows.row(0, at)
            sides = [row[side] for side in ("input_ids", "source_input_ids") if side in row]
            assert all(0 < len(side) <= LENGTH for side in sides), (segment, choose, rewrite, at)
            padded([row], LENGTH, 0)
