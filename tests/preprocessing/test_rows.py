import pickle
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from preprocessing.collate import collate_padded
from preprocessing.errors import BadInput
from preprocessing.masking import EntityMasking, NoMasking, SpanMasking, TokenMasking, WholeWordMasking
from preprocessing.objectives import CausalLM, Denoising, MaskedLM
from preprocessing.order import rank_slice
from preprocessing.packing import Contiguous, SegmentPair
from preprocessing.part_combinations import impossible
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import IGNORE
from preprocessing.shards import Shard, write_shard
from tests.preprocessing.toy import ToyShard, ToyStore, ToyVocab, random_shard, shard

STORE = ToyStore(tuple(random_shard(40, seed=seed) for seed in range(3)))
BERT = {"packing": SegmentPair(negatives="random"), "masking": WholeWordMasking(), "objective": MaskedLM()}
ROBERTA = {
    "packing": Contiguous(unit="sentence"),
    "masking": TokenMasking(rounding="stochastic"),
    "objective": MaskedLM(),
}
SPANBERT = {
    "packing": Contiguous(unit="sentence"),
    "masking": SpanMasking(),
    "objective": MaskedLM(replace_unit="span"),
}
GPT = {"packing": Contiguous(unit="token"), "masking": NoMasking(), "objective": CausalLM()}
ALL = pytest.mark.parametrize("parts", [BERT, ROBERTA, SPANBERT, GPT], ids=["bert", "roberta", "spanbert", "gpt"])


def rows_of(parts, store=STORE, *, length=64, seed=0, duplicates=0) -> ExampleDataset:
    return ExampleDataset(store, ToyVocab(), ExampleSpec(**parts, seed=seed, static_masks=duplicates), length)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@ALL
def test_sequences_are_independent_of_the_process_and_the_order_of_access(parts):
    rows, again = rows_of(parts), rows_of(parts)
    samples = [(epoch, sample) for epoch in (0, 5, 1) for sample in range(0, 60, 7)]
    forwards = [rows.row(*address) for address in samples]
    backwards = [again.row(*address) for address in reversed(samples)][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert_same(one, other)


class Wrong:
    """A masking scheme that returns another column than whole-word masking."""

    kind, predicted, span_mean, required_annotations = "wrong", 0.15, 0.0, frozenset()
    required_columns, produced_columns = WholeWordMasking.required_columns, WholeWordMasking.produced_columns

    def __init__(self, change):
        self.change = change

    def __call__(self, row, rng):
        return self.change(WholeWordMasking()(row, rng))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda hit_S: hit_S[:-1],
            r"got the shape \[\d+\], expected one integer for each of the \d+ tokens; return one",
        ),
        (lambda hit_S: hit_S[:, None], r"got the shape \[\d+, 1\], expected one integer for each of the \d+ tokens; "),
        (lambda hit_S: hit_S > 0, r"got the dtype bool, expected one integer .*, with \.astype\(np\.int32\)$"),
        (lambda hit_S: hit_S / 2, "got the dtype float64, expected one integer"),
        (lambda hit_S: hit_S.tolist(), "got a list, expected .*; return a numpy array of dtype int32$"),
        (lambda _: None, "got a NoneType, expected "),
        (lambda hit_S: hit_S - 1, "got the value -1, expected numbers from 0 to "),
        (
            lambda hit_S: hit_S * 1_000,
            "got the value [0-9]+000, expected numbers from 0 to [0-9]+, the number of tokens; ",
        ),
        (lambda hit_S: np.ones_like(hit_S), "got 3 selected special tokens, expected none; return 0 where row"),
    ],
)
def test_a_wrong_result_of_a_masking_scheme_is_refused_with_the_name_of_its_class(change, message):
    parts = BERT | {"masking": Wrong(change)}
    with pytest.raises(BadInput, match=rf"^invalid hits from tests\.preprocessing\.test_rows\.Wrong: {message}"):
        rows_of(parts).row(0, 0)


def test_the_dtype_of_hits_is_validated_in_every_row_and_their_values_in_some():
    for sample in (1, 16):
        with pytest.raises(BadInput, match="invalid hits"):
            rows_of(BERT | {"masking": Wrong(lambda hit_S: hit_S > 0)}).row(0, sample)
    rows_of(BERT | {"masking": Wrong(np.ones_like)}).row(0, 1)
    with pytest.raises(BadInput, match="invalid hits"):
        rows_of(BERT | {"masking": Wrong(np.ones_like)}).row(0, 16)


@ALL
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_any_number_of_workers_makes_the_same_batch(parts, world):
    batch = [rows_of(parts).row(*address) for address in rows_of(parts).addresses(0, 16)]
    shared = []
    for rank in range(world):
        own, mine = rows_of(parts), range(16)[rank_slice(16, rank, world)]
        shared += [own.row(*own.at(position)) for position in mine]
    for one, other in zip(batch, shared, strict=True):
        assert_same(one, other)


@ALL
def test_sequences_fit_the_length_and_form_a_batch(parts):
    rows = rows_of(parts)
    found = [rows.row(0, sample) for sample in range(rows.count(0))]
    assert max(len(row["input_ids"]) for row in found) == 64
    batch = collate_padded(found, 64, pad=0)
    assert batch["targets"].min() >= 5 or parts is GPT  # GPT also predicts the end of a document
    assert batch["input_ids"].shape == (rows.count(0), 64)


@ALL
def test_every_sample_of_an_epoch_occurs_once_before_the_next_epoch(parts):
    rows = rows_of(parts)
    size, following = rows.count(0), rows.count(1)
    addresses = rows.addresses(0, size + following)
    assert sorted(addresses[:size]) == [(0, sample) for sample in range(size)]
    assert sorted(addresses[size:]) == [(1, sample) for sample in range(following)]
    assert [sample for _, sample in addresses[:20]] != [sample for _, sample in addresses[size : size + 20]]


def test_single_positions_and_ranges_agree_across_epochs():
    rows = rows_of(BERT)
    end = rows.count(0) + rows.count(1)
    assert rows.addresses(end - 3, end + 3) == [rows_of(BERT).at(position) for position in range(end - 3, end + 3)]
    assert rows.at(end) == rows.addresses(end, end + 1)[0]
    assert rows.at(end)[0] == 2


@ALL
def test_without_static_masks_each_epoch_draws_new_pairs_and_masks(parts):
    rows = rows_of(parts, length=512)
    same = [np.array_equal(rows.row(0, i)["input_ids"], rows.row(1, i)["input_ids"]) for i in range(50)]
    assert all(same) if parts is GPT else not any(same)


@ALL
def test_static_masks_repeat_pairs_and_masks_but_not_the_order(parts):
    rows = rows_of(parts, duplicates=2)
    for sample in range(20):
        assert_same(rows.row(0, sample), rows.row(2, sample))
        assert_same(rows.row(1, sample), rows.row(3, sample))
    first, third = (
        rows.addresses(0, 20),
        rows.addresses(rows.count(0) + rows.count(1), rows.count(0) + rows.count(1) + 20),
    )
    assert [sample for _, sample in first] != [sample for _, sample in third]


def test_static_masks_are_different_copies():
    rows = rows_of(BERT, duplicates=2)
    assert not any(np.array_equal(rows.row(0, i)["input_ids"], rows.row(1, i)["input_ids"]) for i in range(50))


def test_another_seed_gives_other_pairs_masks_and_order():
    one, other = rows_of(BERT, seed=0), rows_of(BERT, seed=1)
    assert not any(np.array_equal(one.row(0, i)["input_ids"], other.row(0, i)["input_ids"]) for i in range(50))
    assert one.addresses(0, 20) != other.addresses(0, 20)


def test_a_sequence_is_the_same_after_its_plan_left_the_cache():
    rows = rows_of(BERT)
    before = rows.row(0, 3)
    for epoch in range(1, 5):
        rows.row(epoch, 0)
    assert len(rows._plans._cached_plans) == 2
    assert_same(rows.row(0, 3), before)


def test_caches_do_not_affect_equality_or_copies():
    """The caches are not part of the equality or of the pickled state."""
    used, new = rows_of(BERT), rows_of(BERT)
    far = used.count(0) + used.count(1) + 3
    known = used.addresses(far, far + 5), used.rows_in_token_range(900, 1_800), used.row(1, 2)
    assert used == new
    assert repr(used) == repr(new)
    assert [each.name for each in fields(used)] == ["store", "vocab", "sampling", "length", "blends", "record"]
    for other in (new, pickle.loads(pickle.dumps(used)), used):
        assert_same(other.row(1, 2), known[2])
        assert other.rows_in_token_range(900, 1_800) == known[1]
        assert other.addresses(far, far + 5) == known[0]


def test_sequences_follow_the_order_of_the_shards():
    text = (shard([[19]]), shard([[9]]), shard([[29]]))
    for k, one in enumerate(text):
        one.ids_T[:] += 100 * k
    rows = rows_of(GPT, ToyStore(text), length=10)
    firsts = [int(rows.row(0, sample)["input_ids"][0]) for sample in range(rows.count(0))]
    assert firsts == [10, 20, 110, 210, 220, 230]


def test_an_empty_shard_is_skipped():
    rows = rows_of(BERT, ToyStore((shard([]), STORE.shards[0], shard([]), STORE.shards[1])))
    assert len(rows.row(0, 0)["input_ids"])
    assert len(rows.row(0, rows.count(0) - 1)["input_ids"])


def test_masks_meet_the_budget_and_80_10_10_over_a_million_tokens():
    rows = rows_of(BERT | {"masking": TokenMasking()}, ToyStore((random_shard(2400),)), length=512)
    kinds, num_tokens = np.zeros(3, int), 0
    for sample in range(rows.count(0)):
        row = rows.row(0, sample)
        asked_S = row["labels"] != IGNORE
        assert np.count_nonzero(asked_S) == max(1, round(0.15 * len(row["input_ids"])))
        assert not (asked_S & row["special_tokens_mask"]).any()
        kinds += [
            np.count_nonzero(row["input_ids"][asked_S] == 4),
            np.count_nonzero((row["input_ids"] != row["labels"])[asked_S] & (row["input_ids"][asked_S] != 4)),
            np.count_nonzero(row["input_ids"][asked_S] == row["labels"][asked_S]),
        ]
        num_tokens += len(row["input_ids"])
    assert num_tokens > 1e6
    np.testing.assert_allclose(kinds / kinds.sum(), [0.8, 0.1, 0.1], atol=0.005)


def test_sequences_from_written_shards_equal_those_from_memory(tmp_path):
    text = random_shard(20)
    rows = rows_of(BERT, ToyStore((write_and_open(text, tmp_path / "train-00000-of-00001.arrow"),)))
    expected = rows_of(BERT, ToyStore((text,)))
    assert rows.count(0) == expected.count(0)
    for sample in range(rows.count(0)):
        assert_same(rows.row(0, sample), expected.row(0, sample))


def test_random_tokens_follow_corpus_frequencies_on_every_worker(tmp_path):
    # a small vocabulary; most sequences lack some of its tokens
    ids_T = np.minimum(np.random.default_rng(0).geometric(0.1, 4000) + 4, 60)
    text = ToyShard(**{**vars(shard([[20] * 10] * 20)), "ids_T": ids_T.astype(np.uint16)})
    on_disk = write_and_open(text, tmp_path / "train-00000-of-00001.arrow")
    parts = SPANBERT | {
        "objective": MaskedLM(
            mask_replace_prob=0.0, random_replace_prob=1.0, replace_unit="span", random_token_source="corpus"
        )
    }
    rows = rows_of(parts, ToyStore((on_disk,)))
    again = pickle.loads(pickle.dumps(rows))
    assert np.shares_memory(rows._stream_T, on_disk.ids_T)
    put, is_foreign = [], []
    for epoch, sample in rows.addresses(0, 20 * rows.count(0)):
        row = rows.row(epoch, sample)
        assert "stream" not in row
        if epoch == 1:
            assert_same(row, again.row(epoch, sample))
        is_asked_S = row["labels"] != IGNORE
        put.append(row["input_ids"][is_asked_S])
        text_S = np.where(is_asked_S, row["labels"], row["input_ids"])
        is_foreign.append(~np.isin(put[-1], text_S))
    assert 0.01 < np.concatenate(is_foreign).mean() < 0.9
    count_V = np.bincount(ids_T)
    found_V = np.bincount(np.concatenate(put), minlength=len(count_V))
    is_there_V = count_V > 0
    assert not found_V[~is_there_V].any()
    wanted_V = count_V[is_there_V] / count_V.sum() * found_V.sum()
    assert stats.chisquare(found_V[is_there_V], wanted_V).pvalue > 0.001


def test_a_dataset_can_be_pickled(tmp_path):
    rows = rows_of(BERT, ToyStore((write_and_open(random_shard(20), tmp_path / "train-00000-of-00001.arrow"),)))
    assert_same(pickle.loads(pickle.dumps(rows)).row(1, 2), rows.row(1, 2))


def test_without_phrases_there_is_no_unit_column_and_entity_masking_is_refused():
    assert "unit_starts" not in rows_of(BERT).row(0, 0)
    assert impossible(SegmentPair(negatives="swapped"), EntityMasking(), MaskedLM(), {"masked_tokens": LABELS}) is None
    with pytest.raises(
        BadInput, match="needs phrases, which this corpus does not have; set `phrases` in the corpus file"
    ):
        rows_of(BERT | {"masking": EntityMasking()})


@pytest.mark.parametrize(
    "segment", [SegmentPair(negatives="random"), Contiguous(unit="sentence"), Contiguous(unit="token")]
)
def test_entities_are_masked_as_one_unit(tmp_path, segment):
    text = random_shard(20)
    phrases_T = text.starts_T & (np.arange(len(text.ids_T)) % 3 == 0)
    phrases_T[text.sentence_at_M] = True
    store = ToyStore((write_and_open(text, tmp_path / "train-00000-of-00001.arrow", phrases_T),))
    parts = {"packing": segment, "masking": EntityMasking(), "objective": MaskedLM(replace_unit="span")}
    for sample in range(10):
        row = rows_of(parts, store).row(0, sample)
        assert row["unit_starts"][row["special_tokens_mask"]].all()
        for unit in np.split(row["hits"], np.flatnonzero(row["unit_starts"])[1:]):
            assert len(set(unit.tolist())) == 1
        assert row["hits"].any()


def write_and_open(text: ToyShard, path, phrases_T=None) -> Shard:
    pieces = [slice(*bounds) for bounds in zip(text.offset_N1[:-1], text.offset_N1[1:], strict=True)]
    is_start_T = np.isin(np.arange(len(text.ids_T)), text.sentence_at_M)
    columns = [[column[piece] for piece in pieces] for column in (text.ids_T, text.starts_T, is_start_T)]
    keys = [i.to_bytes(16, "big") for i in range(len(pieces))]
    units = None if phrases_T is None else [phrases_T[piece] for piece in pieces]
    write_shard(path, *columns, ["toy"] * len(pieces), keys, vocab_size=1000, unit_starts=units)
    return Shard(path)


def test_stats_sum_over_shards():
    rows = rows_of(BERT, ToyStore((shard([[5], [5, 5]]), shard([[5, 5], [5], [5]]))))
    assert rows.stats() | {"negatives": 0} == {"documents": 5, "unpaired_documents": 3, "rows": 2, "negatives": 0}


def test_text_without_a_single_sequence_is_bad_input():
    with pytest.raises(
        BadInput,
        match="toy: train has no sequence for packing segment_pair; its 2 documents have only 2 sentences: give",
    ):
        rows_of(BERT, ToyStore((shard([[5], [5]]),))).count(0)


def test_a_vocabulary_without_the_needed_special_tokens_is_bad_input():
    gpt2 = ToyVocab(pad=None, cls=None, mask=None, special_ids=(3,))
    assert ExampleDataset(STORE, gpt2, ExampleSpec(**GPT), length=64).count(0)
    with pytest.raises(BadInput, match="'contiguous' needs the special token 'cls', which the tokenizer does not have"):
        ExampleDataset(STORE, gpt2, ExampleSpec(**ROBERTA), length=64)
    remedy = (
        "use a tokenizer of kind wordpiece, byte_level_bpe with special_tokens 'roberta', unigram or sentencepiece_bpe"
    )
    with pytest.raises(
        BadInput, match=f"'mlm' needs the special token 'mask', which the tokenizer does not have; {remedy}$"
    ):
        ExampleDataset(STORE, ToyVocab(mask=None), ExampleSpec(**BERT), length=64)


LABELS, PAIR_LABEL = frozenset({"labels"}), frozenset({"next_sentence_label"})


@ALL
def test_the_published_compositions_are_possible(parts):
    assert impossible(*parts.values(), {"any": LABELS}) is None


def test_sentence_pair_loss_needs_pairs():
    problem = impossible(*ROBERTA.values(), {"masked_tokens": LABELS, "sentence_pair": PAIR_LABEL})
    assert problem == (
        "loss 'sentence_pair' needs column 'next_sentence_label', which packing 'contiguous' does not produce: "
        "use packing kind 'segment_pair', or remove the loss"
    )


def test_a_key_that_keeps_a_part_from_producing_a_column_is_named():
    parts = {**BERT, "packing": SegmentPair(negatives="none")}
    problem = impossible(*parts.values(), {"masked_tokens": LABELS, "sentence_pair": PAIR_LABEL})
    assert problem == (
        "loss 'sentence_pair' needs column 'next_sentence_label', which packing 'segment_pair' does not produce with "
        "negatives 'none': use negatives 'random', 'swapped' or 'dialogue', or remove the loss"
    )


def test_mlm_needs_masking():
    problem = impossible(Contiguous(unit="sentence"), NoMasking(), MaskedLM(), {"masked_tokens": LABELS})
    assert "objective 'mlm' needs column 'hits'" in problem
    assert "use masking kind 'token', 'whole_word', 'entity', 'span', 'ngram'" in problem


def test_a_loss_that_reads_hits_needs_masking():
    problem = impossible(Contiguous(unit="sentence"), NoMasking(), Denoising(), {"span_boundary": LABELS | {"hits"}})
    assert problem.startswith(
        "loss 'span_boundary' needs column 'hits', which masking 'none' does not produce: use masking kind 'token', "
    )
    assert problem.endswith("or 'partial_prediction', or remove the loss")


def test_masking_without_effect_is_refused():
    problem = impossible(Contiguous(unit="token"), TokenMasking(), CausalLM(), {"next_token": LABELS})
    assert problem == (
        "masking 'token' has no effect, objective 'causal_lm' does not read 'hits': use masking kind 'none'"
    )
