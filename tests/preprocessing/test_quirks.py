"""Known bugs of the reference pipelines (../shared/reference/data.md, section 2) are absent here.

Other tests cover these facts; "kept" means that Sesame deliberately behaves like the reference:
  BERT         a random partner may be the same document: test_segment_pair, ..._is_from_another_document;
               budgets include special tokens and round half to even (kept): test_choose, test_nearest_rounds_...;
               a random token may be special (kept as random_token_source: vocabulary): test_rewrite;
               words that exceed the budget are skipped (kept): test_choose, ..._that_exceeds_the_budget_is_skipped;
               one target length per document (kept): test_segment_pair, test_short_pairs_have_a_uniform_target
  RoBERTa      a sentence may exceed the block length: test_segment, ..._is_split_by_default
  HF           random token IDs include special tokens: test_rewrite, test_random_tokens_are_uniform_...;
               whole words need ## tokens: test_vocab, test_word_starts_follow_the_words_of_the_text
  SpanBERT     3.80 words per span, and 4.46 in Megatron: test_choose, test_span_lengths_have_the_paper_mean_...;
               the budget may cut a word (kept, one per sequence): test_choose, test_spans_meet_the_budget_exactly_...;
               the same seed gives other masks: test_rows, test_sequences_are_independent_of_the_process_...
  Megatron     documents of one sentence are skipped: test_segment_pair, ..._is_only_a_partner_and_counted;
               IDs up to 65,535 may need more than 16 bits: test_shards, test_ids_have_16_bits_...
  LDDL         a random B may be labeled as following: test_segment_pair, test_b_continues_a_...;
               text is cut at 512 and a tenth is lost: test_segment, test_contiguous_tokens_contain_every_token_...;
               partners come from the same partition only: test_pool (fixed for shards with few documents;
               kept for larger shards, which are a sample of the text by hash)
  ModernBERT   [CLS] and [SEP] are masked: test_choose, test_special_tokens_are_never_chosen_or_crossed
  T5           with more spans than sentinels, ordinary IDs are used; noise at the start of a sequence leaves targets
               without a sentinel; random IDs may be sentinels: test_span_corruption
  BART         less than the requested fraction is hidden (kept); at least one insertion is random; random IDs may be
               special; separators move with sentences; no rotation is twice as likely: test_denoising
  PEGASUS      the number of masked sentences is rounded down; a text of one sentence is fully masked (kept):
               test_gap_sentence_generation
  XLNet        all blocks of a half share one permutation: test_permutation_lm;
               tokens are counted instead of words, with few targets at the ends of a half: test_partial_prediction
  MASS         a fragment of one token at the end fails; the source is modified: test_masked_seq2seq
  UniLM        the fine-tuning loader masks only the target: test_unified_lm
Memory (BERT, (d)) and documentation (ALBERT, (f)) are not testable; the other sections are about missing features.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from preprocessing.masking import NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import Contiguous, SegmentPair
from preprocessing.rng import key
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import IGNORE
from tests.preprocessing import reference_scripts
from tests.preprocessing.reference_scripts import Instance
from tests.preprocessing.toy import ToyStore, ToyVocab, random_shard, row, shard

MASKING, SEGMENT = key(0, "masking"), key(0, "segment")
CLS, SEP, MASK = 2, 3, 4


@dataclass(frozen=True)
class WordPieceVocab(ToyVocab):
    """A vocabulary where IDs from 500 up continue a word."""

    kind: str = "wordpiece"
    starts_word_V: np.ndarray = field(default_factory=lambda: np.arange(1000) < 500)


VOCAB = WordPieceVocab()


def one_word_documents(num_documents: int, num_sentences: int, num_tokens: int) -> list[list[list[int]]]:
    """Documents of equal sentences; every token of document d is the word 10 + d."""
    return [[[10 + number] * num_tokens] * num_sentences for number in range(num_documents)]


def halves(one: Instance) -> tuple[list[int], list[int]]:
    """Return A and B as they were before masking."""
    ids = list(one.ids)
    for at, id in zip(one.positions, one.targets, strict=True):
        ids[at] = id
    middle = ids.index(SEP)
    return ids[1:middle], ids[middle + 1 : -1]


# BERT, 2.1


def test_bert_has_56_to_58_percent_random_pairs_and_sesame_50() -> None:
    made = reference_scripts.bert(reference_scripts.documents_of([random_shard(1000)]), VOCAB, duplicates=2)
    assert len(made) > 10_000
    assert 0.56 < np.mean([one.label for one in made]) < 0.58
    text = random_shard(1000)
    plans = [SegmentPair(negatives="random").plan(text, 128, 0, SEGMENT.at(copy, 0)) for copy in range(5)]
    label_R = np.concatenate([plan.pair_label_R for plan in plans])
    assert len(label_R) > 10_000
    assert abs(label_R.mean() - 0.5) < 0.01  # checked to .005 in test_segment_pair


def test_bert_labels_every_single_sentence_chunk_as_random() -> None:
    made = reference_scripts.bert(one_word_documents(20, num_sentences=1, num_tokens=9), VOCAB)
    assert {one.label for one in made} == {1}


def test_bert_may_pair_a_document_with_itself_and_label_it_random() -> None:
    made = reference_scripts.bert(one_word_documents(1, num_sentences=6, num_tokens=30), VOCAB)
    itself = [one for one in made if one.label]
    assert itself
    assert all(set(halves(one)[0]) == set(halves(one)[1]) for one in itself)


def boundary_targets(made: list[Instance]) -> list[tuple[bool, bool]]:
    """For pairs where B begins inside a word, return whether the last token of A and the first of B are targets."""
    found = []
    for one in made:
        a, b = halves(one)
        if b[0] >= 500:
            found.append((len(a) in one.positions, len(a) + 2 in one.positions))
    return found


def test_bert_masks_a_word_across_the_separator_and_sesame_never_does() -> None:
    documents = [[[10, 500] * 40] * 8] * 4  # words of two tokens; truncation at the front cuts every second one
    across = boundary_targets(reference_scripts.bert(documents, VOCAB, length=40, whole_word=True))
    assert len(across) > 100
    assert all(last == first for last, first in across)
    assert any(last for last, _ in across)
    ours = row(8, specials=[0, 3, 7], word_starts=[1, 5])  # [CLS] x ##x [SEP] ##x x ##x [SEP]
    units = {
        tuple(np.flatnonzero(WholeWordMasking(rate=0.3)(ours, MASKING.at(0, sample)))) for sample in range(50)
    }  # budget 2
    assert units == {(1, 2), (4,), (5, 6)}


def test_bert_has_one_target_length_per_document() -> None:
    made = reference_scripts.bert(
        one_word_documents(40, num_sentences=300, num_tokens=1), VOCAB, length=63, short=1.0, duplicates=1
    )
    longs: dict[int, set[int]] = {}
    for one in made:
        if not one.label:
            longs.setdefault(halves(one)[0][0], set()).add(len(one.ids))
    assert all(len(lengths - {max(lengths)}) <= 1 for lengths in longs.values())  # the last chunk may be shorter
    assert len({max(lengths) for lengths in longs.values()}) > 15


def test_bert_replaces_tokens_by_any_id_including_special_ones() -> None:
    tiny = WordPieceVocab(size=12, starts_word_V=np.ones(12, dtype=bool))
    made = reference_scripts.bert([[[7] * 20] * 6] * 9, tiny, rate=0.5, most=0)
    put = {one.ids[at] for one in made for at in one.positions}
    assert put == set(range(12))


def test_sesame_inserts_special_tokens_only_if_the_recipe_allows_them() -> None:
    tiny = WordPieceVocab(size=12, starts_word_V=np.ones(12, dtype=bool))
    text = replace(shard([[20] * 6] * 9), ids_T=np.full(1080, 7, dtype=np.uint16))
    put = dict[str, set[int]]()
    for swap_from in ("non_special", "vocabulary"):
        objective = MaskedLM(random_token_source=swap_from)
        parts = {"packing": SegmentPair(negatives="random"), "masking": TokenMasking(rate=0.5), "objective": objective}
        rows = ExampleDataset(ToyStore((text,)), tiny, ExampleSpec(**parts), length=64)
        made = [rows.row(epoch, sample) for epoch in range(20) for sample in range(rows.count(epoch))]
        put[swap_from] = {id for one in made for id in one["input_ids"][one["labels"] != IGNORE].tolist()}
    assert put == {"non_special": {MASK, *range(5, 12)}, "vocabulary": set(range(12))}


# ALBERT, 2.2


class CountingRandomState(np.random.RandomState):
    """Count the calls; return `fixed` instead of the draw if it is not 0."""

    fixed, asked = 0, 0

    def choice(self, *given, **shares):  # type: ignore[no-untyped-def]
        self.asked += 1
        drawn = super().choice(*given, **shares)
        return self.fixed or drawn


def test_albert_masks_depend_on_the_unseeded_numpy_generator() -> None:
    documents = one_word_documents(6, num_sentences=6, num_tokens=10)
    one, same, other = (
        reference_scripts.albert(documents, VOCAB, seed=1, duplicates=1, ngram_rng=np.random.RandomState(seed))
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
    assert reference_scripts.albert(documents, VOCAB, seed=1) == reference_scripts.albert(documents, VOCAB, seed=1)


def test_sesame_ngrams_ignore_the_global_numpy_generator() -> None:
    state = np.random.get_state()  # noqa: NPY002  # what a user's script may have done
    try:
        found = []
        for seed in (0, 1):
            np.random.seed(seed)  # noqa: NPY002
            found.append(NgramMasking()(row(100, [0, 99]), MASKING.at(0, 0)).tolist())
    finally:
        np.random.set_state(state)  # noqa: NPY002
    assert found[0] == found[1]


def test_albert_mixes_random_documents_into_sentence_order() -> None:
    made = reference_scripts.albert(one_word_documents(20, num_sentences=1, num_tokens=9), VOCAB, duplicates=2)
    assert {one.label for one in made} == {1}
    assert all(set(halves(one)[0]) != set(halves(one)[1]) for one in made)


def test_sesame_swapped_pairs_come_from_one_document() -> None:
    text = shard([[9]] * 20 + [[9, 9]] * 20)
    pair = SegmentPair(negatives="swapped")
    plan = pair.plan(text, 64, 0, SEGMENT.at(0, 0))
    assert len(plan) == 20  # a document of one sentence gives no pair
    assert np.array_equal(plan.start_RP.max(axis=1), plan.stop_RP.min(axis=1))


def test_albert_draws_a_length_even_for_masked_words() -> None:
    draws = CountingRandomState(0)
    settings = {
        "length": 32,
        "duplicates": 1,
        "rate": 1.0,
        "most": 0,
    }  # a budget that is never reached, so all words are tried
    made = reference_scripts.albert(
        one_word_documents(9, num_sentences=4, num_tokens=8), VOCAB, ngram_rng=draws, **settings
    )
    # the reference checks for masked words only after this draw
    assert draws.asked == sum(len(one.ids) - 3 for one in made)


def test_albert_masks_an_ngram_across_the_separator() -> None:
    draws = CountingRandomState(0)
    draws.fixed = 2  # each instance has one bigram as target
    made = reference_scripts.albert(
        one_word_documents(9, num_sentences=4, num_tokens=8), VOCAB, length=32, most=2, ngram_rng=draws
    )
    assert all(len(one.positions) == 2 for one in made)
    assert any(one.positions == [len(halves(one)[0]), len(halves(one)[0]) + 2] for one in made)


def test_albert_masks_the_first_word_half_as_often_as_others() -> None:
    made = reference_scripts.albert(
        one_word_documents(40, num_sentences=8, num_tokens=8), VOCAB, length=32, duplicates=40, short=0.0
    )
    count_S = np.bincount([at for one in made for at in one.positions], minlength=32)
    assert count_S[1] < 0.75 * count_S[3:12].mean()
    one, num_rows = row(32, [0, 15, 31]), 3000
    count_S = sum((NgramMasking()(one, MASKING.at(0, sample)) > 0).astype(int) for sample in range(num_rows))
    assert count_S[1] > 0.9 * count_S[3:12].mean()


def test_sesame_ngrams_never_cross_the_separator() -> None:
    one = row(9, specials=[0, 4, 8])
    for sample in range(100):
        hit_S = NgramMasking(rate=1.0)(one, MASKING.at(0, sample))
        assert not set(hit_S[1:4].tolist()) & set(hit_S[5:8].tolist())


def test_albert_treats_every_non_english_token_as_a_word() -> None:
    inner = ["2", "\u00e9t\u00e9", "\u4e2d", "\u20ac", "na\u00efve"]
    assert all(reference_scripts._albert_starts_word(piece) for piece in inner)
    assert not any(reference_scripts._albert_starts_word(piece) for piece in ("ing", "S", "e-mail", "!!"))


# RoBERTa, 2.3


def test_roberta_has_at_most_a_million_mask_seeds_and_sesame_one_per_address() -> None:
    theirs = {int(hash((1, 0, index)) % 1e6) for index in range(5000)}
    assert len(theirs) < 5000
    samples = [*range(1000), *range(10**6, 10**6 + 1000), *(2**32 + n for n in range(1000))]
    ours = {int(MASKING.at(epoch, sample).integers(2**63)) for epoch in (0, 1) for sample in samples}
    assert len(ours) == 6000


@pytest.mark.parametrize(
    "masking", [TokenMasking(rate=0.9), WholeWordMasking(rate=0.9), NgramMasking(rate=0.9), SpanMasking(rate=0.9)]
)
def test_separators_that_roberta_masks_are_not_masked(masking) -> None:
    store = ToyStore((shard([[5, 4]] * 12),))
    rows = ExampleDataset(
        store, VOCAB, ExampleSpec(packing=Contiguous(unit="sentence"), masking=masking, objective=MaskedLM()), length=48
    )
    one = rows.row(0, 0)
    assert np.count_nonzero(one["special_tokens_mask"]) > 4  # <s>, </s> and one extra separator between documents
    assert (one["labels"][one["special_tokens_mask"]] == IGNORE).all()
    assert np.isin(one["input_ids"][one["special_tokens_mask"]], (CLS, SEP)).all()


# Hugging Face, 2.4


@pytest.mark.parametrize(
    "masking", [TokenMasking(), WholeWordMasking(), NgramMasking(), SpanMasking()], ids=lambda masking: masking.kind
)
def test_short_sequences_always_have_a_masked_token_unlike_hugging_face(masking) -> None:
    # With one draw per token, .85 ** 5 = 44% of the sequences with five tokens would have no target.
    for num_tokens in (4, 5, 8):
        one = row(num_tokens, specials=[0, num_tokens - 1])
        assert all(masking(one, MASKING.at(0, sample)).any() for sample in range(50))


# Megatron, 2.9


def test_megatron_uses_half_of_the_short_lengths_and_sesame_all() -> None:
    # the draw that selects a short sequence also sets its length
    reached = {2 + drawn % 508 for drawn in range(0, 508 * 10, 10)}
    assert len(reached) == 254
    assert all(length % 2 == 0 for length in reached)
    text = shard([[1] * 520] * 300)
    plan = SegmentPair(negatives="swapped", short_seq_prob=1.0).plan(text, 511, 0, SEGMENT.at(0, 0))
    first = plan.start_RP.min(axis=1) % 520 == 0
    target = (plan.stop_RP.astype(int) - plan.start_RP).sum(axis=1)[first]
    assert 100 < np.count_nonzero(target % 2) < 200


def test_a_document_with_a_long_sentence_is_kept_unlike_in_megatron() -> None:
    text = shard([[600, 5], [5, 5]])
    plan = SegmentPair(negatives="swapped").plan(text, 128, 0, SEGMENT.at(0, 0))
    assert plan.counts["unpaired_documents"] == 0
    assert len(plan) == 2
    packed = Contiguous(unit="sentence").plan(text, 128, 0, SEGMENT.at(0, 0))
    assert packed.counts["cuts_in_sentences"] == 4
