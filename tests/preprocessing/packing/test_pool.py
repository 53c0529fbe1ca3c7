"""Random partners of shards with few documents also come from other shards."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from preprocessing.masking import WholeWordMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import SegmentPair, lines_of
from preprocessing.packing import pool as pools
from preprocessing.packing.pool import Pool
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.planned import SEGMENT, VOCAB
from tests.preprocessing.toy import ToyShard, ToyStore, random_shard, shard

RNG = np.random.default_rng(5)
NSP = SegmentPair(negatives="random")


def books(sizes: list[int], sentences: int = 40) -> tuple[ToyShard, ...]:
    """Make shards with these numbers of documents; all token IDs differ."""
    made, first = [], 10
    for size in sizes:
        text = shard([RNG.integers(3, 20, sentences).tolist() for _ in range(size)])
        made.append(ToyShard(text.ids_T - 10 + first, text.offset_N1, text.sentence_at_M, text.starts_T))
        first += len(text.ids_T)
    return tuple(made)


def partners(shards: tuple[ToyShard, ...], epochs: int) -> tuple[dict[int, set[int]], Counter[int]]:
    """Return the random partners per document, and a count of each (label, whether both segments have one document)."""
    begin = np.concatenate([text.ids_T[text.offset_N1[:-1]] for text in shards])
    rows = ExampleDataset(
        ToyStore(shards), VOCAB, ExampleSpec(packing=NSP, masking=WholeWordMasking(), objective=MaskedLM()), 64
    )
    found, labels = defaultdict(set), Counter()
    for epoch in range(epochs):
        copy = rows._plans.epoch(0, epoch)
        for plan, line in zip(copy.plans, rows._plans.lines[0], strict=True):
            for (a, b), label in zip(plan.start_RP.tolist(), plan.pair_label_R.tolist(), strict=True):
                one, other = (int(np.searchsorted(begin, line.ids_T[at : at + 1][0], "right")) - 1 for at in (a, b))
                labels[label, one == other] += 1
                if label:
                    found[one].add(other)
    return found, labels


def test_each_document_has_all_others_as_partners_across_shards():
    found, labels = partners(books([4, 3, 3, 4, 3, 3, 3], sentences=200), epochs=16)
    assert {len(others) for others in found.values()} == {22}
    assert labels[1, True] == 0  # never the document itself
    assert labels[0, False] == 0  # a true next segment is always from the same document
    share = sum(count for (label, _), count in labels.items() if label) / labels.total()
    assert abs(share - 0.5) < 0.02


def test_partners_are_uniform_over_the_other_documents():
    shards = books([2, 2, 2], sentences=400)
    pooled = lines_of(NSP, shards)[0]
    plan = NSP.plan(pooled, 32, 0, SEGMENT.at(0, 0))
    of = np.searchsorted(pooled.offset_N1, plan.start_RP[:, 1], "right") - 1
    own = np.searchsorted(pooled.offset_N1, plan.start_RP[:, 0], "right") - 1
    of = of[(plan.pair_label_R == 1) & (own == 0)]
    count = np.bincount(of, minlength=6)[1:]
    assert count.sum() > 50
    assert ((count - count.mean()) ** 2 / count.mean()).sum() < 18.5  # chi-square, 4 degrees of freedom, p = .001


def test_pooled_pairs_are_contiguous_ranges_of_two_documents():
    shards = books([3, 3])
    rows = ExampleDataset(
        ToyStore(shards), VOCAB, ExampleSpec(packing=NSP, masking=WholeWordMasking(), objective=MaskedLM()), 64
    )
    plan, line = rows._plans.epoch(0, 0).plans[0], rows._plans.lines[0][0]
    for i in range(len(plan)):
        row = NSP.row(plan, i, line, VOCAB, frozenset({"sentence_starts"}))
        ids = row["input_ids"][~row["special_tokens_mask"]]
        assert ids.min() >= 10
        assert (np.diff(ids) != 1).sum() <= 1  # at most two contiguous ranges


def test_a_shard_with_enough_documents_needs_no_pool():
    enough = tuple(random_shard(pools.ENOUGH, seed=seed, most_sentences=6) for seed in range(2))
    assert lines_of(NSP, enough) == enough


@pytest.mark.parametrize("negative", ["swapped", "none"])
def test_pairs_without_random_partners_need_no_pool(negative: str):
    few = books([2, 2])
    assert lines_of(SegmentPair(negatives=negative), few) == few


def test_a_pool_has_no_more_shards_than_needed():
    sizes = [len(pool.shards) for pool in lines_of(NSP, books([100] * 9, sentences=2)) if isinstance(pool, Pool)]
    assert sizes == [3] * 9


def test_a_single_document_of_a_shard_has_partners_in_other_shards():
    found, _ = partners(books([1, 1, 2]), epochs=8)
    assert found[0] == {1, 2, 3}
