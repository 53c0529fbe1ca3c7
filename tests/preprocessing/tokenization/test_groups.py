"""Groups of sentences that are encoded separately, against a loop over the sentences; batches of encoded documents."""

from collections.abc import Sequence

import numpy as np
import pytest

from preprocessing.tokenization import EncodedBatch
from preprocessing.tokenization.cuts import _BLANKS, _MARKS, Cut, find_group_starts


def find_slowly(documents: Sequence[Sequence[str]], cut: Cut) -> list[bool]:
    starts = list[bool]()
    for sentences in documents:
        before = ""
        for number, after in enumerate(sentences):
            is_safe = after[:1] in {*_BLANKS} or (cut == "marks" and before[-1:] in {*_MARKS})
            starts.append(number == 0 or (cut != "nowhere" and before != "" and after != "" and is_safe))
            before = after
    return starts


@pytest.mark.parametrize("cut", ["blanks", "marks", "rounding", "nowhere"])
def test_groups_begin_where_a_loop_finds_them(cut: Cut) -> None:
    rng = np.random.default_rng(1)
    pieces = ["", " a.", "b", "\nc", "\u3002", "d\u3002", " ", "\U0001f600.", "\u2028e", "\tf!", "\ud800"]
    documents = [rng.choice(pieces, rng.integers(0, 7)).tolist() for _ in range(500)]
    sentences = [sentence for document in documents for sentence in document]
    found_N = find_group_starts(sentences, list(map(len, documents)), cut)
    assert found_N.tolist() == find_slowly(documents, cut)
    assert find_group_starts([], [0, 0], cut).tolist() == []
    assert find_group_starts(["", ""], [2], cut).tolist() == [True, False]


def test_a_batch_is_its_documents_end_to_end() -> None:
    flags = np.array([True, False, True, True])
    batch = EncodedBatch(np.arange(4, dtype=np.int32), flags, ~flags, np.array([0, 3, 3, 4]))
    again = EncodedBatch.join(batch.split())
    assert [document.ids.tolist() for document in batch.split()] == [[0, 1, 2], [], [3]]
    for one, other in zip(batch[:4], again[:4], strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    with_units = [document._replace(unit_starts=document.word_starts, num_lost=2) for document in batch.split()]
    joined = EncodedBatch.join(with_units)
    assert joined.unit_starts_T is not None
    assert np.array_equal(joined.unit_starts_T, ~flags)
    assert joined.num_lost == 6
    assert EncodedBatch.join([]).stop_D1.tolist() == [0]
