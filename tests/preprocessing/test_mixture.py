"""Mixtures: each group has its fraction of the sequences, and its sequences occur equally often."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from preprocessing.errors import BadInput
from preprocessing.manifest import MixtureGroupStats
from preprocessing.masking import NoMasking, WholeWordMasking
from preprocessing.objectives import CausalLM, MaskedLM
from preprocessing.order import deal, rank_slice, turns, whole_shares
from preprocessing.packing import Contiguous, SegmentPair, SingleSentence, Stream
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.toy import ToyShard, ToyStore, ToyVocab, random_shard

GPT3 = (60, 22, 8, 8, 3)
MT_NLG = (14.3, 19.3, 5.7, 2.9, 4.8, 0.9, 1.0, 0.2, 1.4, 1.6, 9.4, 13.0, 15.7, 9.0, 0.9)
GPT = {"packing": Contiguous(unit="token"), "masking": NoMasking(), "objective": CausalLM()}
BERT = {"packing": SegmentPair(negatives="random"), "masking": WholeWordMasking(), "objective": MaskedLM()}
NAMES = ("books", "crawl", "wiki")
WEIGHTS = (8.0, 60.0, 3.0)


def shares_of(weights) -> np.ndarray:
    return whole_shares([Fraction(str(weight)) for weight in weights])


def named(text: ToyShard, name: str) -> ToyShard:
    return ToyShard(text.ids_T, text.offset_N1, text.sentence_at_M, text.starts_T, text.path.with_name(name))


def mixed(weights=WEIGHTS, documents=(60, 200, 12)) -> ToyStore:
    """Three groups; the second has two shards."""
    sizes = (documents[0], documents[1] // 2, documents[1] // 2, documents[2])
    shards = tuple(named(random_shard(size, seed=k), f"train-{k}.arrow") for k, size in enumerate(sizes))
    files = (("train-0.arrow",), ("train-1.arrow", "train-2.arrow"), ("train-3.arrow",))
    groups = tuple(
        MixtureGroupStats(weight=weight, share=weight / sum(weights), documents=0, tokens=0, epochs=0.0, shards=shards_)
        for weight, shards_ in zip(weights, files, strict=True)
    )
    return ToyStore(shards, groups=groups)


def rows_of(parts, store=None, *, length=64, seed=0, duplicates=0) -> ExampleDataset:
    return ExampleDataset(
        store or mixed(), ToyVocab(), ExampleSpec(**parts, seed=seed, static_masks=duplicates), length
    )


def groups_of(rows: ExampleDataset, addresses) -> list[int]:
    return [sample % len(rows.store.groups) for _, sample in addresses]


# Turns


@pytest.mark.parametrize(("weights", "bound"), [(GPT3, 0.83), (MT_NLG, 0.98), ((1, 1), 0.5), ((1, 1, 1), 0.67)])
def test_each_group_has_its_fraction_of_turns_to_within_one(weights, bound):
    """Compare with exact fractions at each of the first 20,000 positions."""
    total = sum(map(Fraction, map(str, weights)))
    who, _ = deal(np.arange(20_000), shares_of(weights))
    for number, weight in enumerate(weights):
        had = np.cumsum(who == number)
        asked = np.arange(1, 20_001) * float(Fraction(str(weight)) / total)
        assert np.abs(had - asked).max() <= bound


def test_random_weights_deviate_by_less_than_two_turns():
    rng = np.random.default_rng(0)
    for _ in range(60):
        weights = rng.random(rng.integers(2, 30)) ** 3 + 1e-3
        who, _ = deal(np.arange(3_000), shares_of(weights))
        had = np.cumsum(who[:, None] == np.arange(len(weights)), axis=0)
        assert np.abs(had - np.arange(1, 3_001)[:, None] * weights / weights.sum()).max() < 2


def test_gpt3_weights_are_exact_after_101_turns():
    for times in (1, 10, 10_000, 1_000_000):  # 101 million sequences of 2,048 tokens have 207 billion tokens
        assert turns(101 * times, shares_of(GPT3)).tolist() == [weight * times for weight in GPT3]


def test_turns_of_a_group_are_consecutive_from_any_start():
    shares = shares_of(MT_NLG)
    who, turn = deal(np.arange(5_000), shares)
    for number in range(len(shares)):
        assert turn[who == number].tolist() == list(range((who == number).sum()))
    for start in (0, 1, 999, 4_321):
        there = deal(np.arange(start, 5_000), shares)
        np.testing.assert_array_equal(there, (who[start:], turn[start:]))
        assert turns(start, shares).tolist() == np.bincount(who[:start], minlength=len(shares)).tolist()


def test_turns_at_large_positions_are_exact():
    at = (1 << 32) + 12_345
    who, turn = deal(np.arange(at, at + 101), shares_of(GPT3))
    had = turns(at, shares_of(GPT3))
    for number, weight in enumerate(GPT3):
        assert abs(had[number] - at * weight / 101) < 6  # error of at most 2**-31 of the positions, plus one turn
        if (who == number).any():
            assert turn[who == number][0] == had[number]


# Rows


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
@pytest.mark.parametrize("stop", [50, 333, 1_000, 7_000])
def test_groups_have_their_fractions_up_to_any_position(parts, stop):
    """Sequence counts are exact to within one; tokens are counted by the mean sequence length of each group."""
    rows = rows_of(parts)
    count = Counter(groups_of(rows, rows.addresses(0, stop)))
    means = [rows._plans.tokens(group, 0) / rows._plans.count(group, 0) for group in range(3)]
    per_row = np.array(WEIGHTS) / means
    for group, share in enumerate(per_row / per_row.sum()):
        assert abs(count[group] - share * stop) <= 1
    assert [found.rows for found in rows.count_realized_shares(stop)] == [count[group] for group in range(3)]


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
def test_trained_tokens_have_the_requested_fractions(parts):
    rows = rows_of(parts)
    addresses = rows.addresses(0, 2_500)
    tokens = Counter[int]()
    for (epoch, sample), group in zip(addresses, groups_of(rows, addresses), strict=True):
        tokens[group] += int((~rows.row(epoch, sample)["special_tokens_mask"]).sum())
    for group, weight in enumerate(WEIGHTS):
        assert tokens[group] / tokens.total() == pytest.approx(weight / sum(WEIGHTS), rel=0.03)


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
def test_a_group_is_exhausted_before_its_next_epoch_starts_in_another_order(parts):
    rows = rows_of(parts, mixed(weights=(1.0, 1.0, 30.0)))
    mine = [(epoch, sample) for epoch, sample in rows.addresses(0, 3_000) if sample % 3 == 2]
    orders, at = [], 0
    for epoch in range(3):
        size = rows._plans.count(2, epoch)
        orders.append([sample for _, sample in mine[at : at + size]])
        assert sorted(mine[at : at + size]) == [(epoch, 3 * i + 2) for i in range(size)]
        at += size
    assert orders[0] != orders[1] != orders[2]


def test_counts_of_the_sequences_in_a_group_differ_by_at_most_one():
    rows = rows_of(GPT)
    seen = Counter(sample for _, sample in rows.addresses(0, 4_567))
    for group in range(3):
        times = [seen[i * 3 + group] for i in range(rows._plans.count(group, 0))]
        assert max(times) - min(times) <= 1
        assert rows.count_realized_shares(4_567)[group].epochs == pytest.approx(np.mean(times))


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_batches_are_independent_of_the_number_of_workers_and_of_resuming(parts, world):
    whole = rows_of(parts).addresses(0, 900)
    workers = [rows_of(parts) for _ in range(world)]  # processes that start in the middle
    found = []
    for start in range(600, 900, 60):
        for rank, worker in enumerate(workers):
            mine = range(start, start + 60)[rank_slice(60, rank, world)]
            found += worker.addresses(mine.start, mine.stop)
    assert found == whole[600:]
    one, other = rows_of(parts), rows_of(parts)
    for address in whole[600:612]:
        row, again = one.row(*address), other.row(*address)
        assert all(np.array_equal(row[name], again[name]) for name in row)


def test_the_seed_changes_the_sequences_but_not_the_turns():
    one, other = (rows_of(GPT, seed=seed).addresses(0, 500) for seed in (0, 1))
    assert one != other
    assert [sample % 3 for _, sample in one] == [sample % 3 for _, sample in other]


def test_sequences_of_a_group_come_from_its_own_shards():
    store = mixed()
    rows = rows_of(GPT, store)
    for group, shards in enumerate(((0,), (1, 2), (3,))):
        alone = ExampleDataset(ToyStore(tuple(store.shards[k] for k in shards)), ToyVocab(), ExampleSpec(**GPT), 64)
        assert rows._plans.count(group, 0) == alone.count(0)
        for i in range(0, alone.count(0), 17):
            np.testing.assert_array_equal(rows.row(0, 3 * i + group)["input_ids"], alone.row(0, i)["input_ids"])


def test_token_sized_batches_are_consecutive_ranges_of_the_mixture():
    rows = rows_of({"packing": SingleSentence(), "masking": NoMasking(), "objective": CausalLM()})
    stretches = [rows.rows_in_token_range(start, start + 700) for start in range(0, 21_000, 700)]
    assert [part.start for part in stretches[1:]] == [part.stop for part in stretches[:-1]]
    for part in stretches[20:]:
        tokens = sum(int((~rows.row(*at)["special_tokens_mask"]).sum()) for at in rows.addresses(part.start, part.stop))
        assert 500 < tokens < 900


def test_each_yields_every_sequence_of_an_epoch_once():
    rows = rows_of(GPT)
    each = list(rows.each(0))
    assert len(set(each)) == len(each) == rows.count(0)
    assert all(len(rows.row(*address)["input_ids"]) for address in each[::50])


def test_continuing_streams_cannot_be_mixed():
    with pytest.raises(BadInput, match=r"is a mixture, but sequences of packing stream continue .*--data PATH"):
        rows_of({"packing": Stream(), "masking": NoMasking(), "objective": CausalLM()})


def test_a_group_without_sequences_is_named():
    store = mixed()
    short = ToyShard(np.arange(10, 14), np.array([0, 1, 2, 3, 4]), np.arange(4), np.ones(4, bool), store.shards[3].path)
    with pytest.raises(BadInput, match=r"train of train-3.arrow has no sequence for packing segment_pair"):
        rows_of(BERT, ToyStore((*store.shards[:3], short), groups=store.groups)).addresses(0, 5)
