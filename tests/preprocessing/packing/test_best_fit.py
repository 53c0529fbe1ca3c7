"""Best-fit packing against best-fit decreasing of one piece at a time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.masking import NoMasking
from preprocessing.objectives import CausalLM
from preprocessing.packing import BestFit, lines_of
from preprocessing.packing import pool as pools
from preprocessing.packing.best_fit import fit
from preprocessing.packing.pool import Pool
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.planned import CLS, DOCUMENTS, SEP, VOCAB, ids_of, plan_of, rows_of
from tests.preprocessing.toy import ToyShard, ToyStore, shard

ENCODER = BestFit(add_cls=True)


def fit_one_by_one(sizes: list[int], room: int) -> list[int]:
    """The sequence of each piece: the least space that suffices, and of equal ones the one that changed first."""
    spaces, changed, found = list[int](), list[int](), [0] * len(sizes)
    for time, piece in enumerate(sorted(range(len(sizes)), key=lambda piece: -sizes[piece])):
        fitting = [(space, changed[k], k) for k, space in enumerate(spaces) if space >= sizes[piece]]
        if not fitting:
            spaces, changed = [*spaces, room], [*changed, time]
        k = min(fitting)[2] if fitting else len(spaces) - 1
        spaces[k], changed[k], found[piece] = spaces[k] - sizes[piece], time, k
    return found


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_fit_is_best_fit_decreasing(data):
    room = data.draw(st.integers(1, 40))
    sizes = data.draw(st.lists(st.integers(1, room), max_size=120))
    assert fit(np.array(sizes, np.int64), room).tolist() == fit_one_by_one(sizes, room)


def test_a_large_fit_is_best_fit_decreasing_and_almost_full():
    sizes = np.minimum(np.random.default_rng(0).geometric(1 / 200, 2_000), 512)
    found = fit(sizes, 512)
    assert found.tolist() == fit_one_by_one(sizes.tolist(), 512)
    assert sizes.sum() / (512 * (found.max() + 1)) > 0.998


def test_long_documents_are_cut_and_rests_fill_sequences():
    text = shard([[9], [2], [3, 5], [1]])  # 10 ... 18, 19 20, 21 ... 28, 29; the separator takes one more place
    assert ids_of(BestFit(), text, 8) == [
        [10, 11, 12, 13, 14, 15, 16, 17],
        [21, 22, 23, 24, 25, 26, 27, 28],  # fills the sequence without a separator
        [18, SEP, 19, 20, SEP, 29, SEP],
    ]
    assert plan_of(BestFit(), text, 8).counts == {
        "documents": 4,
        "cut_documents": 1,
        "unfilled_tokens": 1,
        "rows": 3,
    }
    assert ids_of(BestFit(), text, 7, lookahead=1) == ids_of(BestFit(), text, 8)


def test_sequences_of_encoders_have_a_frame_as_in_roberta():
    text = shard([[9], [2], [3], [1]])
    assert ids_of(ENCODER, text, 8) == [
        [CLS, 10, 11, 12, 13, 14, 15, SEP],
        [CLS, 16, 17, 18, SEP, 19, 20, SEP],
        [CLS, 21, 22, 23, SEP, 24, SEP],
    ]


@settings(deadline=None, max_examples=40)
@given(documents=DOCUMENTS, length=st.integers(3, 90), lookahead=st.integers(0, 1), add_cls=st.booleans())
def test_every_token_is_in_one_sequence_and_documents_that_fit_are_whole(documents, length, lookahead, add_cls):
    text, packing = shard(documents), BestFit(add_cls=add_cls)
    rows = ids_of(packing, text, length, lookahead)
    room = length + lookahead
    assert all(len(ids) <= room for ids in rows)
    assert sorted(token for ids in rows for token in ids if token >= 10) == text.ids_T.tolist()
    plan = plan_of(packing, text, length, lookahead)
    assert plan.counts["unfilled_tokens"] == sum(room - len(ids) for ids in rows)
    sequence_of = {token: i for i, ids in enumerate(rows) for token in ids}
    num_cut = 0
    for start, stop in pairwise((10 + text.offset_N1).tolist()):
        num_sequences = len({sequence_of[token] for token in range(start, stop)})
        assert num_sequences == -(-(stop - start) // (room - 2 * add_cls))
        num_cut += num_sequences > 1
        ids = rows[sequence_of[stop - 1]]
        end = ids.index(stop - 1) + 1
        assert ids[end:] == [] if end == room else ids[end] == SEP
    assert plan.counts["cut_documents"] == num_cut
    for ids in rows:
        assert [token for token in ids if token >= 10] == sorted(token for token in ids if token >= 10)
        assert (ids[0] == CLS) == add_cls
        assert CLS not in ids[1:]


@settings(deadline=None, max_examples=30)
@given(documents=DOCUMENTS, add_cls=st.booleans())
def test_words_start_where_those_of_the_text_do(documents, add_cls):
    text = shard(documents, word_every=3)
    for row in rows_of(BestFit(add_cls=add_cls), text, 30):
        special_S = row["special_tokens_mask"]
        assert np.array_equal(special_S, row["input_ids"] < 10)
        behind_S = np.append(True, special_S[:-1])
        begins_S = np.isin(row["input_ids"] - 10, np.flatnonzero(text.starts_T))
        assert np.array_equal(row["word_starts"], begins_S | special_S | behind_S)


def test_a_shard_without_documents_has_no_sequences():
    assert [len(plan_of(packing, shard([]), 32)) for packing in (BestFit(), ENCODER)] == [0, 0]


# Several shards


def letters(sizes: list[int]) -> tuple[ToyShard, ...]:
    """Shards of one document each, with these numbers of tokens; all token IDs differ."""
    made, first = [], 10
    for size in sizes:
        text = shard([[size]])
        made.append(ToyShard(text.ids_T - 10 + first, text.offset_N1, text.sentence_at_M, text.starts_T))
        first += size
    return tuple(made)


@pytest.mark.parametrize(
    ("sizes", "grouped"),
    [
        ([10, 12], [[10], [12]]),
        ([4, 4, 4, 11, 3, 10, 6], [[4, 4, 4], [11], [3, 10, 6]]),
        ([4, 4], [[4, 4]]),
        ([30, 1, 2], [[30, 1, 2]]),
        ([5], [[5]]),
    ],
)
def test_small_shards_are_packed_together(sizes, grouped, monkeypatch):
    monkeypatch.setattr(pools, "ENOUGH_TOKENS", 10)
    lines = lines_of(BestFit(), letters(sizes))
    found = [line.shards if isinstance(line, Pool) else (line,) for line in lines]
    assert [[len(one.ids_T) for one in shards] for shards in found] == grouped


def test_a_sequence_may_have_documents_of_several_shards():
    made = ExampleSpec(packing=BestFit(), masking=NoMasking(), objective=CausalLM())
    rows = ExampleDataset(ToyStore(letters([9, 2, 5, 3])), VOCAB, made, 12)
    assert rows.count(0) == 2
    assert [rows.row(0, sample)["input_ids"].tolist() for sample in (0, 1)] == [
        [10, 11, 12, 13, 14, 15, 16, 17, 18, SEP, 19, 20],
        [21, 22, 23, 24, 25, SEP, 26, 27, 28],
    ]
