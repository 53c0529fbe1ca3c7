"""Sequences that continue each other, columns on request, and every objective."""

import numpy as np
import pytest

from preprocessing import objectives
from preprocessing.collate import collate_padded
from preprocessing.errors import BadInput
from preprocessing.masking import (
    FragmentMasking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
)
from preprocessing.objectives import (
    CausalLM,
    Denoising,
    Deshuffling,
    GapSentenceGeneration,
    MaskedLM,
    PermutationLM,
    PrefixLM,
    SpanCorruption,
    UnifiedLM,
)
from preprocessing.packing import (
    BestFit,
    Contiguous,
    ParallelSentences,
    SegmentPair,
    SingleSentence,
    Stream,
    StreamPair,
)
from preprocessing.part_combinations import impossible
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import IGNORE
from tests.preprocessing.toy import ToyStore, ToyVocab, random_shard

STORE = ToyStore(tuple(random_shard(40, seed=seed) for seed in range(3)))
ROBERTA = {
    "packing": Contiguous(unit="sentence"),
    "masking": TokenMasking(rounding="stochastic"),
    "objective": MaskedLM(),
}
LABELS = frozenset({"labels"})


def rows_of(parts, store=STORE, *, length=64, seed=0, duplicates=0) -> ExampleDataset:
    return ExampleDataset(store, ToyVocab(), ExampleSpec(**parts, seed=seed, static_masks=duplicates), length)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


# Sequences that continue each other

TXL = {"packing": Stream(), "masking": NoMasking(), "objective": CausalLM()}
XLNET = {"packing": StreamPair(reuse_len=24), "masking": PartialPrediction(), "objective": PermutationLM(perm_size=24)}
STREAMS = pytest.mark.parametrize("parts", [TXL, XLNET], ids=["transformer_xl", "xlnet"])


@STREAMS
@pytest.mark.parametrize("streams", [1, 4, 7])
def test_each_stream_reads_its_part_of_every_epoch_in_order(parts, streams):
    rows = rows_of(parts)
    each = rows.count(0) // streams
    found = rows.stream_rows(0, streams * (2 * each + 3), streams)
    for stream in range(streams):
        mine = found[stream::streams]
        wanted = [(epoch, stream * each + place) for epoch in range(3) for place in range(each)][: len(mine)]
        assert [address for *address, _ in mine] == [list(address) for address in wanted]


def is_backward(rows: ExampleDataset, address) -> bool:
    return rows.row(*address)["positions"][0] > 0


def test_half_of_the_streams_read_backward():
    rows = rows_of(XLNET)
    each = rows.count(0) // 8
    for turn in range(each):
        found = rows.stream_rows(8 * turn, 8 * turn + 8, 8)
        ways = [is_backward(rows, address) for *address, _ in found]
        assert ways == [False] * 4 + [True] * 4 or turn < 4  # the last few sequences before the direction changes


def test_a_stream_is_fresh_where_its_direction_changes():
    rows = rows_of(XLNET)
    found = rows.stream_rows(0, rows.count(0), 1)
    ways = [is_backward(rows, address) for *address, _ in found]
    assert ways == [False] * (len(found) // 2) + [True] * (len(found) // 2)
    assert found[len(found) // 2][2]


def test_forward_sequences_are_the_same_with_one_or_both_directions():
    both, forward = rows_of(XLNET), rows_of(XLNET | {"packing": StreamPair(reuse_len=24, directions="forward")})
    assert both.count(0) == 2 * forward.count(0)
    assert both.stats()["documents"] == forward.stats()["documents"]
    for sample in range(forward.count(0)):
        row = forward.row(0, sample)
        assert_same(both.row(0, sample), row | {"positions": np.arange(len(row["input_ids"]))})


@STREAMS
def test_a_sequence_is_fresh_at_the_start_of_an_epoch_or_shard(parts):
    rows = rows_of(parts)
    ends = set(rows._plans.epoch(0, 0).end_K.tolist())
    assert len(ends) == len(STORE.shards) * (2 if parts is XLNET else 1)
    each = rows.count(0) // 2
    for epoch, sample, fresh in rows.stream_rows(0, 4 * each, 2):
        assert fresh == (sample % each == 0 or sample in ends), (epoch, sample)


def test_a_sequence_continues_the_previous_one_unless_it_is_fresh():
    rows = rows_of(TXL)
    found = rows.stream_rows(0, 3 * (rows.count(0) // 3), 3)
    for (*before, _), (*after, fresh) in zip(found, found[3:], strict=False):
        last, first = rows.row(*before)["labels"][-1], rows.row(*after)["input_ids"][0]
        assert fresh or last == first


def test_stream_positions_are_independent_of_the_requested_range():
    rows = rows_of(XLNET)
    whole = rows.stream_rows(0, 40, 8)
    assert [row for start in range(0, 40, 3) for row in rows.stream_rows(start, min(start + 3, 40), 8)] == whole


def test_more_streams_than_sequences_are_refused_in_one_line():
    with pytest.raises(BadInput, match=r"toy: train has only \d+ sequences of 64 tokens for 5000 streams; give"):
        rows_of(TXL).stream_rows(0, 5, 5000)


# Columns on request, and every objective


def test_columns_are_present_if_masking_or_objective_requires_them():
    bart = {"packing": Contiguous(unit="sentence"), "masking": NoMasking(), "objective": Denoising()}
    rows = rows_of(bart)
    assert rows._required_columns >= {"sentence_starts"}
    assert "source_input_ids" in rows.row(0, 0)
    counted = rows_of(ROBERTA | {"masking": TokenMasking(sample_alpha=0.5)}).row(0, 0)
    ids_T = STORE.shards[0].ids_T
    inner = ~counted["special_tokens_mask"]
    before = np.where(counted["labels"] == IGNORE, counted["input_ids"], counted["labels"])
    assert counted["counts"][inner].tolist() == [np.count_nonzero(ids_T == id) for id in before[inner]]


def test_an_objective_may_read_longer_sequences_than_the_model():
    t5 = {"packing": Contiguous(unit="token"), "masking": RandomSpans(), "objective": SpanCorruption()}
    vocab = ToyVocab(sentinels=100)
    rows = ExampleDataset(STORE, vocab, ExampleSpec(**t5), length=64)
    raw = SpanCorruption().raw_length(64, RandomSpans())
    assert raw == 70
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row["source_input_ids"]) for row in found) == 64
    assert max(len(row["input_ids"]) for row in found) == 14


COIN = TokenMasking(rounding="independent")


@pytest.mark.parametrize(
    ("masking", "objective"),
    [
        (RandomSpans(), SpanCorruption()),
        (COIN, SpanCorruption(targets="spans", collapse_spans=False)),
        (COIN, SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=0.1)),
        (NoMasking(), Deshuffling()),
        (NoMasking(), PrefixLM()),
    ],
)
def test_t5_sequences_have_one_end_token_at_the_end_of_each_side(masking, objective):
    segment, vocab = Contiguous(unit="token", add_separators=False), ToyVocab(sentinels=100)
    rows = ExampleDataset(STORE, vocab, ExampleSpec(packing=segment, masking=masking, objective=objective), length=64)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    for row in found:
        assert [np.flatnonzero(side == vocab.sep).tolist() for side in (row["source_input_ids"], row["labels"])] == [
            [len(row["source_input_ids"]) - 1],
            [len(row["labels"]) - 1],
        ]
    assert len(collate_padded(found, 64, pad=0)["input_ids"]) == len(found)


NEW = {
    "electra": {
        "packing": SegmentPair(negatives="none", single_segment_prob=0.1),
        "masking": TokenMasking(),
        "objective": MaskedLM(mask_replace_prob=0.85, random_replace_prob=0.0),
    },
    "ernie": {
        "packing": SegmentPair(negatives="dialogue"),
        "masking": TokenMasking(rounding="independent"),
        "objective": MaskedLM(),
    },
    "transformer_xl": TXL,
    "xlnet": XLNET,
    "xlm": {
        "packing": ParallelSentences(translation_ratio=0.0),
        "masking": TokenMasking(sample_alpha=0.5),
        "objective": MaskedLM(random_token_source="vocabulary"),
    },
    "mass": {"packing": SingleSentence(), "masking": FragmentMasking(), "objective": objectives.MaskedSeq2Seq()},
    "mass_summarisation": {
        "packing": Contiguous(unit="token"),
        "masking": FragmentMasking(block_size=16),
        "objective": objectives.MaskedSeq2Seq(hide_masked_from_decoder=False),
    },
    "best_fit": {"packing": BestFit(), "masking": NoMasking(), "objective": CausalLM()},
    "best_fit_encoder": {"packing": BestFit(add_cls=True), "masking": SpanMasking(), "objective": MaskedLM()},
    "bart": {"packing": Contiguous(unit="sentence"), "masking": NoMasking(), "objective": Denoising()},
    "pegasus": {
        "packing": Contiguous(unit="sentence", cross_documents=False),
        "masking": NoMasking(),
        "objective": GapSentenceGeneration(),
    },
    "t5": {
        "packing": Contiguous(unit="token", add_separators=False),
        "masking": RandomSpans(),
        "objective": SpanCorruption(),
    },
    "unilm": {
        "packing": SegmentPair(negatives="random"),
        "masking": NgramMasking(ngram_unit="token"),
        "objective": UnifiedLM(),
    },
}


FIXED = (CausalLM(), GapSentenceGeneration())  # these objectives make no random draws


@pytest.mark.parametrize("parts", NEW.values(), ids=NEW)
def test_sequences_are_deterministic_and_static_masks_repeat_them(parts):
    rows, again = (
        ExampleDataset(STORE, ToyVocab(sentinels=100), ExampleSpec(**parts, static_masks=2), length=64)
        for _ in range(2)
    )
    samples = [(epoch, sample) for epoch in (0, 1) for sample in range(0, 60, 7)]
    forwards = [rows.row(*address) for address in samples]
    backwards = [again.row(*address) for address in reversed(samples)][::-1]
    for one, other, (epoch, sample) in zip(forwards, backwards, samples, strict=True):
        assert_same(one, other)
        assert_same(one, rows.row(epoch + 2, sample))
    is_fixed = parts["packing"].fresh is False and parts["masking"] == NoMasking() and parts["objective"] in FIXED
    first, second = forwards[: len(forwards) // 2], forwards[len(forwards) // 2 :]
    anew = [
        not np.array_equal(a["labels"], b["labels"])
        or not np.array_equal(a.get("source_input_ids"), b.get("source_input_ids"))
        for a, b in zip(first, second, strict=True)
    ]
    assert not any(anew) if is_fixed else np.mean(anew) > 0.5
    assert len(collate_padded(forwards, 64, pad=0)["input_ids"]) == len(samples)  # no sequence exceeds the length
    assert impossible(*parts.values(), {"any": LABELS}) is None


@pytest.mark.parametrize("parts", NEW.values(), ids=NEW)
def test_sequences_have_the_declared_number_of_segments(parts):
    rows = ExampleDataset(STORE, ToyVocab(sentinels=100), ExampleSpec(**parts), length=64)
    found = np.concatenate([rows.row(0, sample)["token_type_ids"] for sample in range(0, rows.count(0), 3)])
    made = parts["objective"].segments if parts["objective"].segments > 1 else parts["packing"].segments
    assert set(found.tolist()) == set(range(made))


def test_unified_lm_needs_two_segments():
    problem = impossible(Contiguous(unit="sentence"), TokenMasking(), UnifiedLM(), {"masked_tokens": LABELS})
    message = "objective 'unified_lm' needs sequences of 2 segments, but packing 'contiguous' makes 1"
    assert problem == f"{message}: use packing kind 'segment_pair'"


def test_unified_lm_refuses_the_three_segments_of_stream_pair():
    problem = impossible(StreamPair(), TokenMasking(), UnifiedLM(), {"masked_tokens": LABELS})
    message = "objective 'unified_lm' needs sequences of 2 segments, but packing 'stream_pair' makes 3"
    assert problem == f"{message}: use packing kind 'segment_pair'"


def test_a_vocabulary_without_sentinels_is_bad_input():
    with pytest.raises(BadInput, match=r"needs the special token 'sentinel', .*; use a tokenizer of kind unigram"):
        ExampleDataset(STORE, ToyVocab(), ExampleSpec(**NEW["t5"]), length=64)
