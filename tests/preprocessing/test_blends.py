"""Blends: each phase has its own weights, and each group is read in its own order without gaps."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from preprocessing.blends import Blend, BlendedTurns, weights_of
from preprocessing.errors import BadInput
from preprocessing.manifest import MixtureGroupStats
from preprocessing.order import whole_shares
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.test_mixture import BERT, GPT, mixed
from tests.preprocessing.toy import ToyStore, ToyVocab

BLENDS = (
    Blend(0, ()),
    Blend(150, (1.0, 0.0, 3.0)),
    Blend(200, (0.0, 0.0, 1.0)),
    Blend(290, (5.0, 3.0, 0.0)),
    Blend(450, (1.0, 1.0, 1.0)),
)


def rows_of(parts=GPT, blends=BLENDS, store: ToyStore | None = None) -> ExampleDataset:
    return ExampleDataset(store or mixed(), ToyVocab(), ExampleSpec(**parts), 64, blends)


def random_turns(rng: np.random.Generator, stop: int) -> tuple[BlendedTurns, list[int], list[np.ndarray]]:
    groups = int(rng.integers(1, 7))
    starts = [0, *np.unique(rng.integers(1, stop, size=rng.integers(0, 6))).tolist()]
    shares = []
    for _ in starts:
        share_G = np.zeros(groups, np.int64)
        read = np.unique(rng.integers(groups, size=groups))
        share_G[read] = whole_shares([1 + int(weight) for weight in rng.integers(1_000, size=len(read))])
        shares.append(share_G)
    return BlendedTurns(list(zip(starts, shares, strict=True))), starts, shares


def test_places_of_a_group_are_consecutive_over_all_blends_and_shares_hold_at_every_position():
    """All positions of 40 random curricula; from any start, the result is the same."""
    rng, stop = np.random.default_rng(0), 400
    for _ in range(40):
        found, starts, shares = random_turns(rng, stop)
        group_N, place_N = found.deal(0, stop)
        for group in range(len(shares[0])):
            assert place_N[group_N == group].tolist() == list(range((group_N == group).sum()))
        for (begin, end), share_G in zip(pairwise([*starts, stop]), shares, strict=True):
            had_NG = np.cumsum(group_N[begin:end, None] == np.arange(len(share_G)), axis=0)
            due_NG = np.arange(1, end - begin + 1)[:, None] * share_G / share_G.sum()
            assert np.abs(had_NG - due_NG).max() <= 2
            assert not had_NG[-1][share_G == 0].any()
        for at in rng.integers(stop, size=5).tolist():
            np.testing.assert_array_equal(found.deal(at, stop), (group_N[at:], place_N[at:]))
            assert found.turns(at).tolist() == np.bincount(group_N[:at], minlength=len(shares[0])).tolist()


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
def test_each_group_is_read_in_its_order_without_gaps_over_all_blends(parts):
    """The order of a group is that of the mixture without blends, of which a longer part is read."""
    blended, plain = rows_of(parts).addresses(0, 600), rows_of(parts, ()).addresses(0, 20_000)
    for group in range(3):
        mine = [at for at in blended if at[1] % 3 == group]
        assert mine == [at for at in plain if at[1] % 3 == group][: len(mine)]
    assert {at[1] % 3 for at in blended[150:200]} == {0, 2}
    assert {at[1] % 3 for at in blended[200:290]} == {2}
    assert {at[1] % 3 for at in blended[290:450]} == {0, 1}
    assert blended[:150] == plain[:150]


def test_equal_weights_in_a_blend_change_nothing():
    one = rows_of(GPT, (Blend(0, (8.0, 60.0, 3.0)),))
    assert one.addresses(0, 300) == rows_of(GPT, ()).addresses(0, 300)
    assert one.count_realized_shares(300) == rows_of(GPT, ()).count_realized_shares(300)


def test_realized_shares_count_the_sequences_of_all_blends():
    rows = rows_of()
    count = Counter(sample % 3 for _, sample in rows.addresses(0, 470))
    assert [found.rows for found in rows.count_realized_shares(470)] == [count[group] for group in range(3)]


def test_a_group_that_no_blend_reads_needs_no_sequence():
    """Its text may be too short, and it is not part of an epoch."""
    rows = rows_of(GPT, (Blend(0, (1.0, 0.0, 1.0)),))
    assert rows.count(0) == rows._plans.count(0, 0) + rows._plans.count(2, 0)
    assert {sample % 3 for _, sample in rows.each(0)} == {0, 2}
    assert rows.count_realized_shares(100)[1].rows == 0
    assert (rows._stream_T[:50] == rows.store.shards[0].ids_T[:50]).all()


def test_requested_epochs_read_each_group_so_often():
    """The sequences of a pass over the mixture: each of a group once, three times, and half of them."""
    wanted, store = (1.0, 3.0, 0.5), mixed()
    groups = tuple(
        MixtureGroupStats(**vars(group) | {"requested_epochs": epochs})
        for group, epochs in zip(store.groups, wanted, strict=True)
    )
    for parts in (GPT, BERT):
        rows = rows_of(parts, (), ToyStore(store.shards, groups=groups))
        whole = round(rows.count_pass())
        count = Counter(sample % 3 for _, sample in rows.addresses(0, whole))
        sizes = [rows._plans.count(group, 0) for group in range(3)]
        assert whole == round(sum(size * epochs for size, epochs in zip(sizes, wanted, strict=True)))
        for group in range(3):
            assert abs(count[group] - wanted[group] * sizes[group]) <= 1
        assert rows_of(parts, ()).count_pass() == rows_of(parts, ()).count(0)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
def test_kernels_make_the_same_batches(parts):
    pytest.importorskip("numba")
    compiled, plain = rows_of(parts), rows_of(parts)
    compiled.load_kernels()
    assert compiled._kernels
    for start in range(0, 500, 50):
        one, other = compiled.batch_at(start, start + 50), plain.batch_at(start, start + 50)
        assert one.keys() == other.keys()
        for name, column in other.items():
            np.testing.assert_array_equal(one[name], column, err_msg=name)


def test_weights_follow_the_order_of_the_groups_and_unknown_groups_are_named():
    assert weights_of({"wiki": 3, "books": 1.5}, ["books", "crawl", "wiki"], "phases.0.mixture") == (1.5, 0.0, 3.0)
    with pytest.raises(BadInput, match=r"invalid data\.mixture: got wikis, expected a group of the corpus \(a, wiki\)"):
        weights_of({"wikis": 1}, ["a", "wiki"], "data.mixture")
    with pytest.raises(BadInput, match=r"invalid data\.mixture: got .*, expected none, because the corpus has no grou"):
        weights_of({"wiki": 1}, [], "data.mixture")
