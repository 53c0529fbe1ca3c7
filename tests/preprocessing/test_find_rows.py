"""The documents of a sequence, and for each token its document."""

from dataclasses import replace

import numpy as np
import pytest

from preprocessing.masking import NoMasking
from preprocessing.objectives import CausalLM
from preprocessing.packing import (
    BestFit,
    Contiguous,
    Packing,
    ParallelSentences,
    SegmentPair,
    SingleSentence,
    StreamPair,
)
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.toy import ToyStore, ToyVocab, random_shard, shard

PACKINGS: list[Packing] = [
    Contiguous(unit="token"),
    BestFit(),
    BestFit(add_cls=True),
    Contiguous(unit="sentence"),
    SegmentPair(negatives="random"),
    SegmentPair(negatives="swapped"),
    SingleSentence(),
    ParallelSentences(translation_ratio=0.0, sentence_order="shuffled"),
    StreamPair(reuse_len=16),
]


def rows_of(packing: Packing, *shards) -> ExampleDataset:
    spec = ExampleSpec(packing=packing, masking=NoMasking(), objective=CausalLM())
    return ExampleDataset(ToyStore(shards), ToyVocab(size=100_000), spec, 48)


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda packing: f"{packing.kind}")
def test_the_documents_of_a_sequence_have_its_tokens(packing: Packing) -> None:
    one = random_shard(9, most_sentences=6)
    ids_T = np.arange(10, 10 + len(one.ids_T), dtype=np.uint32)
    rows = rows_of(packing, replace(one, ids_T=ids_T), replace(one, ids_T=ids_T + len(ids_T)))
    for epoch, sample in list(rows.each(1))[::7]:
        spans, number_S = rows.documents_of(epoch, sample)
        ids_S, number_S = rows.row(epoch, sample)["input_ids"], number_S[:-1]  # the last token is only predicted
        assert np.array_equal(ids_S < 10, number_S < 0)
        for number, span in enumerate(spans):
            first = span.shard.offset_N1[span.document]
            tokens = span.shard.ids_T[first + span.start : first + span.stop]
            assert set(ids_S[number_S == number].tolist()) <= set(tokens.tolist())
            assert (number_S == number).sum() >= len(tokens) - 1
            assert first + span.stop <= span.shard.offset_N1[span.document + 1]


def test_a_document_on_both_sides_of_a_separator_is_one_range() -> None:
    rows = rows_of(SegmentPair(negatives="swapped", negative_prob=0.0, short_seq_prob=0.0), shard([[5, 6], [4, 4]]))
    assert [rows.documents_of(0, sample)[0] for sample in (0, 1)] == [
        [(rows.store.shards[0], 0, 0, 11)],
        [(rows.store.shards[0], 1, 0, 8)],
    ]
    for sample, length in enumerate((11, 8)):
        number_S = rows.documents_of(0, sample)[1]
        assert number_S[[0, -1]].tolist() == [-1, -1]
        assert sorted(number_S[1:-1].tolist()) == [-1, *[0] * length]
