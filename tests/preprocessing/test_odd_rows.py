"""Sequences of unusual text: single tokens, single sentences, long words.

No combination is refused, empty, or longer than the limit.
"""

from contextlib import suppress
from itertools import pairwise, product

import numpy as np
import pytest

from preprocessing.collate import collate_padded
from preprocessing.errors import BadInput
from preprocessing.masking import (
    EntityMasking,
    FragmentMasking,
    Masking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from preprocessing.objectives import (
    CausalLM,
    Denoising,
    Deshuffling,
    GapSentenceGeneration,
    MaskedLM,
    Objective,
    PermutationLM,
    PrefixLM,
    SpanCorruption,
)
from preprocessing.objectives import MaskedSeq2Seq as Masked
from preprocessing.packing import BestFit, Contiguous, Packing, SegmentPair, SingleSentence, Stream
from preprocessing.part_combinations import impossible
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.family import Words as Vocabulary
from tests.preprocessing.toy import ToyShard, ToyStore

LENGTH = 12
SEGMENTS: tuple[Packing, ...] = (
    Contiguous(unit="token"),
    Contiguous(unit="token", add_separators=False, cross_documents=False),
    Contiguous(unit="sentence", cross_documents=False),
    BestFit(),
    BestFit(add_cls=True),
    SegmentPair(negatives="none", single_segment_prob=0.3),
    SegmentPair(negatives="swapped", short_seq_prob=1.0),
    SingleSentence(),
    Stream(),
)
CHOICES: tuple[Masking, ...] = (
    NoMasking(),
    TokenMasking(rounding="independent"),
    WholeWordMasking(rate=0.1),
    NgramMasking(),
    EntityMasking(),
    SpanMasking(),
    PartialPrediction(),
    FragmentMasking(),
    RandomSpans(),
)
REWRITES: tuple[Objective, ...] = (
    MaskedLM(),
    Masked(),
    SpanCorruption(),
    SpanCorruption(collapse_spans=False),
    PrefixLM(),
    Deshuffling(),
    GapSentenceGeneration(),
    Denoising(noise_types=("sentence_permutation", "text_infilling", "document_rotation"), mask_ratio=0.9),
    Denoising(noise_types=("token_deletion",), mask_ratio=1.0),
    PermutationLM(perm_size=4),
    CausalLM(),
)
FITTING = [parts for parts in product(SEGMENTS, CHOICES, REWRITES) if not impossible(*parts, {})]


def text(lengths: list[int], sentence: int, word: int) -> ToyStore:
    """Documents with these token counts; `sentence` and `word` are the lengths of sentences and words."""
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TEXTS)
def test_every_sequence_of_unusual_text_can_be_read(name: str) -> None:
    for segment, masking, objective in FITTING:
        sampling = ExampleSpec(packing=segment, masking=masking, objective=objective)
        rows = ExampleDataset(TEXTS[name], Vocabulary(), sampling, LENGTH)  # type: ignore[arg-type]
        count = 0
        with suppress(BadInput):  # if the text gives no such sequences at all
            count = rows.count(0)
        for at in {*range(min(count, 4)), max(count - 1, 0)} if count else ():
            row = rows.row(0, at)
            sides = [row[side] for side in ("input_ids", "source_input_ids") if side in row]
            assert all(0 < len(side) <= LENGTH for side in sides), (segment, masking, objective, at)
            collate_padded([row], LENGTH, 0)
