"""Positions of later epochs: equal to a walk over all epochs, without the plans of all of them."""

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from preprocessing import packing, row_plans
from preprocessing.epoch_record import EpochRecord, EpochSizes
from preprocessing.errors import BadInput
from preprocessing.files import to_checked_json
from preprocessing.masking import NoMasking
from preprocessing.objectives import CausalLM
from preprocessing.order import deal, turns, whole_shares
from preprocessing.packing import SegmentPair, SingleSentence, StreamPair, lines_of
from preprocessing.rng import key
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.test_mixture import BERT, GPT, mixed, shares_of
from tests.preprocessing.toy import ToyStore, ToyVocab, random_shard

SENTENCES = {"packing": SingleSentence(), "masking": NoMasking(), "objective": CausalLM()}
PLAIN = ToyStore((random_shard(12, seed=1), random_shard(9, seed=2)))
MIXED = mixed(weights=(8.0, 60.0, 30.0), documents=(9, 14, 4))
STEP = 10**9
BATCH = 256


def rows_of(parts, store=PLAIN, *, static=0, length=32, **more) -> ExampleDataset:
    return ExampleDataset(store, ToyVocab(), ExampleSpec(**parts, static_masks=static), length, **more)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs whose plans are made."""
    made: list[int] = []
    make = row_plans.RowPlans._make

    def count(self, group, turn):
        made.append(turn)
        return make(self, group, turn)

    monkeypatch.setattr(row_plans.RowPlans, "_make", count)
    return made


def walk(rows: ExampleDataset, num: int) -> np.ndarray:
    """The addresses of the first positions, by a walk over the epochs of each group; int64 [num, 2]."""
    groups = len(rows._plans.groups)
    which_N = np.zeros(num, np.int64) if groups == 1 else deal(np.arange(num), rows._order._turns._share_BK[0])[0]
    found_N2 = np.empty((num, 2), np.int64)
    for group in range(groups):
        epochs, place = [], 0
        while place < (which_N == group).sum():
            count, epoch = len(rows._plans.epoch(group, len(epochs)).long_R), len(epochs)
            sample_R = row_plans.shuffle(np.arange(count), count, rows._order._key, epoch) * groups + group
            epochs.append(np.stack([np.full(count, epoch), sample_R], axis=1))
            place += count
        found_N2[which_N == group] = np.concatenate(epochs)[: (which_N == group).sum()]
    return found_N2


CASES = [
    pytest.param(GPT, PLAIN, 0, id="gpt"),
    pytest.param(BERT, PLAIN, 0, id="bert, fresh"),
    pytest.param(BERT, PLAIN, 2, id="bert, static"),
    pytest.param(BERT, MIXED, 0, id="bert, mixture", marks=pytest.mark.slow),
    pytest.param(SENTENCES, MIXED, 0, id="sentences, mixture"),
]


@pytest.mark.parametrize(("parts", "store", "static"), CASES)
def test_addresses_and_tokens_equal_a_walk_over_all_epochs(parts, store, static, monkeypatch: pytest.MonkeyPatch):
    """Plans repeat after three epochs here; positions and tokens are visited from far to near and back."""
    monkeypatch.setattr(row_plans, "FRESH_EPOCHS", 3)
    num = 8 * rows_of(parts, store, static=static).count(0)
    expected_N2, rows = walk(rows_of(parts, store, static=static), num), rows_of(parts, store, static=static)
    for start in (num - 40, 0, num // 2, num // 3):
        np.testing.assert_array_equal(rows.addresses(start, start + 40), expected_N2[start : start + 40])
    groups = len(rows._plans.groups)
    long_N = [rows._plans.epoch(at % groups, epoch).long_R[at // groups] for epoch, at in expected_N2.tolist()]
    start_N = np.cumsum([0, *long_N])
    token_K = np.random.default_rng(0).integers(int(start_N[-1]), size=60)
    found = [rows.rows_in_token_range(0, token).stop for token in (*token_K.tolist(), *start_N[:9].tolist())]
    assert found == np.searchsorted(start_N, [*token_K, *start_N[:9]]).tolist()


@pytest.mark.parametrize(
    ("parts", "store", "static", "most"),
    [
        pytest.param(GPT, PLAIN, 0, 1, id="gpt"),
        pytest.param(BERT, PLAIN, 0, row_plans.FRESH_EPOCHS + 2, id="bert, fresh"),
        pytest.param(BERT, PLAIN, 10, 10 + 2, id="bert, static"),
        pytest.param(BERT, MIXED, 10, 3 * (10 + 2), id="bert, mixture", marks=pytest.mark.slow),
        pytest.param(GPT, MIXED, 0, 3, id="gpt, mixture"),
    ],
)
def test_the_batch_of_step_1e9_needs_few_plans(parts, store, static, most, plans: list[int]):
    """The addresses are recomputed with Python's integers from the sizes of the epochs."""
    rows = rows_of(parts, store, static=static)
    position = STEP * BATCH
    assert len(rows.batch_at(position, position + 8)["lengths"]) == 8
    assert len(plans) <= most
    group_N, place_N = rows._order._turns.deal(position, position + 1)
    group, place, period = int(group_N[0]), int(place_N[0]), rows._plans.period
    assert place == rows._order.turns(position)[group]
    sizes = [rows._plans.count(group, epoch) for epoch in range(period)]
    epoch = period * (place // sum(sizes))
    place %= sum(sizes)
    while place >= sizes[epoch % period]:
        place -= sizes[epoch % period]
        epoch += 1
    groups = len(rows._plans.groups)
    sample = row_plans.shuffle(np.array([place]), sizes[epoch % period], rows._order._key, epoch)
    assert rows.at(position) == (epoch, int(sample[0]) * groups + group)


@pytest.mark.parametrize("store", [PLAIN, MIXED], ids=["plain", "mixture"])
def test_batches_of_tokens_at_step_1e9_need_few_plans(store, plans: list[int]):
    rows = rows_of(SENTENCES, store)
    start = STEP * BATCH * rows.length
    found = rows.rows_in_token_range(start, start + BATCH * rows.length)
    assert len(plans) == len(rows._plans.groups)
    assert rows._order.count_tokens(found.start) >= start > rows._order.count_tokens(found.start - 1)
    assert rows.rows_in_token_range(start + BATCH * rows.length, start + BATCH * rows.length) == range(
        found.stop, found.stop
    )


def test_streams_at_step_1e9_need_one_plan(plans: list[int]):
    parts = {"packing": StreamPair(reuse_len=8), "masking": NoMasking(), "objective": CausalLM()}
    rows = rows_of(parts)
    addresses = rows.stream_rows(STEP * 4, STEP * 4 + 4, streams=4)
    each = rows.count(0) // 4
    assert [(epoch, at) for epoch, at, _ in addresses] == [(STEP // each, k * each + STEP % each) for k in range(4)]
    assert len(rows.batch([(epoch, at) for epoch, at, _ in addresses])["lengths"]) == 4
    assert len(plans) <= 2


@pytest.mark.slow
def test_pairs_repeat_after_64_epochs_with_other_masks_in_another_order():
    rows, late = rows_of(BERT), row_plans.FRESH_EPOCHS
    first = sum(rows.count(epoch) for epoch in range(late))
    size = rows.count(0)
    assert {epoch for epoch, _ in rows.addresses(first, first + size)} == {late}
    assert sorted(sample for _, sample in rows.addresses(first, first + size)) == list(range(size))
    assert [at for _, at in rows.addresses(first, first + size)] != [at for _, at in rows.addresses(0, size)]
    pairs = [(rows.row(0, at), rows.row(late, at)) for at in range(20)]
    assert all(len(one["input_ids"]) == len(other["input_ids"]) for one, other in pairs)
    assert any(not np.array_equal(one["labels"], other["labels"]) for one, other in pairs)
    assert not np.array_equal(rows._plans.epoch(0, 1).long_R, rows._plans.epoch(0, late - 1).long_R)


@pytest.mark.parametrize("weights", [(60, 22, 8, 8, 3), (1, 1), (0.9, 0.1)])
def test_turns_are_exact_at_positions_beyond_int32(weights):
    """Compare with Python's integers, which cannot overflow."""
    shares = shares_of(weights)
    for at in (2**33 + 5, STEP * BATCH, STEP * 4096 + 1):
        group_N, turn_N = deal(np.arange(at, at + 300), shares)
        for group in range(len(weights)):
            assert turn_N[group_N == group][0] == turns(at, shares)[group]
            assert abs(int(turns(at, shares)[group]) - at * int(shares[group]) / int(shares.sum())) <= 2


PAIRS = [
    SegmentPair(negatives="random"),
    SegmentPair(negatives="random", unit="sentence", negative_prob=0.9),
    SegmentPair(negatives="swapped", short_seq_prob=0.5),
    SegmentPair(negatives="swapped", unit="sentence"),
    SegmentPair(negatives="dialogue"),
    SegmentPair(negatives="none", short_seq_prob=0.3, single_segment_prob=0.2),
]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", PAIRS, ids=str)
def test_kernels_count_the_sequences_of_a_plan(pairs: SegmentPair):
    pytest.importorskip("numba")
    text = (random_shard(300, seed=3), random_shard(8, seed=4), random_shard(2, seed=5))
    for line in (*lines_of(pairs, text), *text[:2]):
        for length in (16, 64, 512):
            for lookahead in (0, 1):
                draws = [key(epoch, "segment").at(epoch, 1) for epoch in (7, 7)]
                count = pairs.count(line, length, lookahead, draws[0])
                assert count == len(pairs.plan(line, length, lookahead, draws[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("store", "groups"), [(PLAIN, 1), (MIXED, 3)], ids=["plain", "mixture"])
def test_kernels_find_the_same_epochs_without_plans(
    store, groups: int, plans: list[int], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("numba")
    expected = rows_of(BERT, store).addresses(STEP * BATCH, STEP * BATCH + 8)
    plans.clear()
    monkeypatch.setattr(row_plans, "_WORTH_KERNELS", 0)
    assert rows_of(BERT, store).addresses(STEP * BATCH, STEP * BATCH + 8) == expected
    assert plans == [0] * groups
    plans.clear()
    monkeypatch.setattr(packing, "has_compiler", lambda: False)
    assert rows_of(BERT, store).addresses(STEP * BATCH, STEP * BATCH + 8) == expected
    assert len(plans) >= row_plans.FRESH_EPOCHS


def test_a_small_share_gets_turns_at_step_1e9():
    shares = whole_shares([1, 1_000])
    group_N, _ = deal(np.arange(STEP * BATCH, STEP * BATCH + 10_000), shares)
    assert 9 <= (group_N == 0).sum() <= 11


# The record of the sizes of past epochs


def record_of(path: Path, sampling: ExampleSpec, corpus: str = "1f", writes: bool = True) -> EpochRecord:
    return EpochRecord(path, corpus, sampling, writes)


def test_a_run_that_resumes_plans_only_its_epoch(tmp_path: Path, plans: list[int]):
    rows = rows_of(BERT, record=record_of(tmp_path / "epochs.json", ExampleSpec(**BERT)))
    at = sum(rows.count(epoch) for epoch in range(5))
    expected = rows_of(BERT).addresses(at + 3, at + 8)
    plans.clear()
    again = rows_of(BERT, record=record_of(tmp_path / "epochs.json", ExampleSpec(**BERT)))
    assert again.addresses(at + 3, at + 8) == expected
    again.batch_at(at + 3, at + 8)
    assert plans == [5]


def test_a_record_of_another_corpus_or_sampling_is_not_used(tmp_path: Path):
    path, sampling = tmp_path / "epochs.json", ExampleSpec(**BERT)
    record_of(path, sampling).put(32, 0, 7, EpochSizes(rows=5, tokens=99))
    assert record_of(path, sampling).get(32, 0, 7) == (5, 99)
    assert record_of(path, sampling).get(64, 0, 7) is None
    assert record_of(path, sampling, corpus="2f").get(32, 0, 7) is None
    assert record_of(path, dataclasses.replace(sampling, seed=1)).get(32, 0, 7) is None


def test_processes_that_write_a_record_keep_the_sizes_of_each_other(tmp_path: Path):
    path, sampling = tmp_path / "epochs.json", ExampleSpec(**BERT)
    one, other = record_of(path, sampling), record_of(path, sampling)
    one.put(32, 0, 1, EpochSizes(5, 50))
    other.put(32, 0, 2, EpochSizes(6, 60))
    record_of(path, sampling, writes=False).put(32, 0, 3, EpochSizes(7, 70))
    found = record_of(path, sampling)
    assert [found.get(32, 0, epoch) for epoch in (1, 2, 3)] == [(5, 50), (6, 60), None]


def test_a_damaged_record_is_reported_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, sampling = tmp_path / "epochs.json", ExampleSpec(**BERT)
    record_of(path, sampling).put(32, 0, 7, EpochSizes(rows=5, tokens=99))
    path.write_bytes(path.read_bytes().replace(b"99", b"98"))
    with caplog.at_level(logging.WARNING):
        assert record_of(path, sampling).get(32, 0, 7) is None
    assert "cannot read the sizes of earlier epochs" in caplog.text


def test_a_record_with_other_numbers_than_the_plans_stops_the_run(tmp_path: Path):
    """Another version of packing may plan other sequences; positions would then silently be those of others."""
    path, sampling = tmp_path / "epochs.json", ExampleSpec(**BERT)
    rows = rows_of(BERT, record=record_of(path, sampling))
    at = sum(rows.count(epoch) for epoch in range(3))
    record_of(path, sampling).put(32, 0, 2, EpochSizes(rows=rows.count(2) - 3, tokens=9))
    again = rows_of(BERT, record=record_of(path, sampling))
    with pytest.raises(BadInput, match=r"epochs\.json: epoch 2 was counted with .*; another version of Sesame"):
        again.batch_at(at - 8, at - 4)


def test_a_record_that_is_not_of_integers_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, sampling = tmp_path / "epochs.json", ExampleSpec(**BERT)
    record = record_of(path, sampling)
    path.write_bytes(to_checked_json({"identity": record._identity, "epochs": [["32", 0, 1, 5, 9]]}))
    assert record_of(path, sampling).get(32, 0, 1) is None
    assert "not all sizes are integers" in caplog.text
