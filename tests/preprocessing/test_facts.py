"""Every part of a union in preprocessing has every fact of its Protocol, and the facts are true."""

import json
from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import pytest

from preprocessing import masking, objectives
from preprocessing.masking import (
    EntityMasking,
    Masking,
    MaskingPart,
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
    MaskedLM,
    Objective,
    ObjectivePart,
    PermutationLM,
    PrefixLM,
    SpanCorruption,
    UnifiedLM,
)
from preprocessing.packing import (
    BestFit,
    Contiguous,
    Packing,
    PackingPart,
    ParallelSentences,
    SegmentPair,
    SingleSentence,
    StreamPair,
)
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Row
from preprocessing.tokenization import (
    KINDS,
    ByteLevelBPE,
    SentencePieceBPE,
    SingleBytes,
    TokenizerPart,
    TokenizerSpec,
    Unigram,
    WordLevel,
    WordPiece,
    train,
)
from tests import facts
from tests.preprocessing.tokenization.test_vocab import TEXTS

SEGMENTS = facts.parts_of(
    Packing,
    Contiguous(unit="sentence"),
    Contiguous(unit="sentence", cross_documents=False, overlong="drop"),
    Contiguous(unit="token"),
    Contiguous(unit="token", cross_documents=False),
    BestFit(add_cls=True),
    SegmentPair(negatives="random"),
    SegmentPair(negatives="random", unit="sentence", negative_prob=0.25),
    SegmentPair(negatives="swapped"),
    SegmentPair(negatives="none"),
    SegmentPair(negatives="dialogue"),
    StreamPair(directions="forward"),
    SingleSentence(languages=("en", "fr")),
    ParallelSentences(translation_ratio=0, languages=("en", "fr")),
)
CHOICES = facts.parts_of(
    Masking,
    TokenMasking(sample_alpha=0.5),
    EntityMasking(token_level_prob=0.2),
    SpanMasking(phrase_prob=0.5),
    NgramMasking(ngram_unit="token"),
    masking.FragmentMasking(block_size=512),
)
REWRITES = facts.parts_of(
    Objective,
    MaskedLM(replace_unit="span", mask_replace_prob=1.0, random_replace_prob=0.0),
    SpanCorruption(targets="all"),
    SpanCorruption(collapse_spans=False),
    SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=0.1),
    Denoising(noise_types=("sentence_permutation", "text_infilling", "document_rotation")),
    objectives.MaskedSeq2Seq(hide_masked_from_decoder=False),
    UnifiedLM(
        bidirectional_prob=1.0,
        seq2seq_prob=0.0,
        left_to_right_prob=0.0,
        right_to_left_prob=0.0,
        mask_replace_prob=1.0,
        random_replace_prob=0.0,
    ),
)
VOCABS = facts.parts_of(
    TokenizerSpec,
    WordPiece(vocab_size=100, padded_vocab_size=128, lowercase=False),
    ByteLevelBPE(vocab_size=300, special_tokens="roberta"),
    Unigram(vocab_size=50, extra_ids=10, lowercase=True),
    SentencePieceBPE(vocab_size=60, extra_ids=10, languages=("en", "fr"), language_sampling_alpha=0.7),
)
UNIONS = [
    (Packing, PackingPart, SEGMENTS),
    (Masking, MaskingPart, CHOICES),
    (Objective, ObjectivePart, REWRITES),
    (TokenizerSpec, TokenizerPart, VOCABS),
]
PARTS = [(part, protocol) for _, protocol, parts in UNIONS for part in parts]


@pytest.mark.parametrize(("union", "protocol", "parts"), UNIONS, ids=["segment", "masking", "objective", "vocab"])
def test_the_tested_parts_cover_every_kind_and_have_distinct_descriptions(union, protocol, parts) -> None:
    facts.assert_covers(parts, union)
    facts.assert_described(parts)
    assert {"kind", "describe", "scale_overrides"} < facts.facts_of(protocol).keys()


@pytest.mark.parametrize(("part", "protocol"), PARTS, ids=str)
def test_every_part_has_every_fact_and_scale_overrides_name_its_own_keys(part, protocol) -> None:
    facts.assert_every_fact(part, protocol)
    facts.assert_shrinks_its_keys(part)


def test_a_part_without_a_fact_is_detected() -> None:
    class Bare:
        kind = "bare"

        def describe(self) -> str:
            return "bare"

    with pytest.raises(AssertionError, match="Bare has no"):
        facts.assert_every_fact(Bare(), MaskingPart)


def test_a_fact_of_the_wrong_type_is_detected() -> None:
    class Odd(NoMasking):
        predicted = "all of them"  # type: ignore[assignment]

    with pytest.raises(ValueError, match="valid number"):
        facts.assert_every_fact(Odd(), MaskingPart)


@pytest.mark.parametrize("part", [*SEGMENTS, *CHOICES, *REWRITES], ids=str)
def test_produced_columns_are_among_the_possible_columns(part: Any) -> None:
    assert part.produced_columns <= part.possible_columns


@pytest.mark.parametrize("part", REWRITES, ids=str)
def test_an_objective_is_two_sided_if_it_produces_a_source(part: Objective) -> None:
    assert part.two_sided == ("source_input_ids" in part.produced_columns) == bool(part.target)
    assert (part.attention != "model") == ({"rank", "reach"} <= part.produced_columns)
    assert not (part.selects and "hits" in part.required_columns)


@pytest.mark.parametrize("part", SEGMENTS, ids=str)
def test_packing_describes_its_label_if_it_has_one(part: Packing) -> None:
    assert bool(part.label_says) == ("next_sentence_label" in part.produced_columns) == all(part.label_means)
    assert not part.languages or "languages" in part.produced_columns


@pytest.mark.parametrize("part", CHOICES, ids=str)
def test_masking_requires_phrases_if_it_reads_unit_starts(part: Masking) -> None:
    assert (part.required_annotations == {"phrases"}) == ("unit_starts" in part.required_columns)


SMALL = [
    WordPiece(vocab_size=100),
    ByteLevelBPE(vocab_size=300),
    ByteLevelBPE(vocab_size=300, special_tokens="roberta"),
    Unigram(vocab_size=60),
    Unigram(vocab_size=50, extra_ids=10, lowercase=True),
    SentencePieceBPE(vocab_size=60),
    SentencePieceBPE(vocab_size=60, extra_ids=10),
    WordLevel(vocab_size=40),
    SingleBytes(vocab_size=50),
]


@pytest.mark.parametrize("part", SMALL, ids=lambda part: f"{part.kind} {sorted(part.special_roles)}")
def test_a_trained_vocabulary_has_the_special_tokens_of_its_spec(part: TokenizerSpec) -> None:
    assert train(part, TEXTS).specials.keys() == part.special_roles
    assert part.special_roles <= part.roles.keys()


@pytest.mark.parametrize("part", VOCABS, ids=lambda part: f"{part.kind} {sorted(part.special_roles)}")
def test_roles_without_a_key_exist_by_default(part: TokenizerSpec) -> None:
    assert {role for role, key in part.roles.items() if not key} <= KINDS[part.kind]().special_roles  # type: ignore[operator]


SHARES = [
    (CausalLM(), NoMasking(), (0.0, 1.0)),
    (MaskedLM(), TokenMasking(), (0.0, 1.0)),
    (SpanCorruption(), RandomSpans(), (1.0, (0.15 + 0.05) / (1 - 0.15 + 0.05))),
    (SpanCorruption(), TokenMasking(rate=0.3), (1.0, 0.3)),
    (SpanCorruption(targets="all"), RandomSpans(), (1.0, 1.0)),
    (PrefixLM(), NoMasking(), (0.5, 0.5)),
    (Deshuffling(), NoMasking(), (1.0, 1.0)),
    (Denoising(), NoMasking(), (1.0, 1.0)),
    (objectives.MaskedSeq2Seq(), masking.FragmentMasking(), (1.0, 0.5)),
    (objectives.MaskedSeq2Seq(), PartialPrediction(group_size=4), (1.0, 0.25)),
]


@pytest.mark.parametrize(("part", "choice", "expected"), SHARES, ids=str)
def test_fractions_of_a_sequence_that_encoder_and_decoder_read(part: Objective, choice: Masking, expected) -> None:
    assert part.shares(choice) == pytest.approx(expected, rel=1e-12)


def test_the_number_of_noise_spans_follows_from_sequence_length_and_mean_span_length() -> None:
    spans, rng = RandomSpans(rate=0.15, mean_noise_span_length=3.0), np.random.default_rng(0)
    numbers = {int(spans({"input_ids": np.zeros(512)}, rng).max()) for _ in range(5)}
    assert numbers == {round(512 * spans.predicted / spans.span_mean)}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (SegmentPair(negatives="random"), "pairs of segments, 50% with a random second segment (NSP)"),
        (SegmentPair(negatives="swapped"), "pairs of segments, 50% swapped (SOP)"),
        (SpanMasking(phrase_prob=0.5), "15% of the tokens, in spans of up to 10 words; 50% of the spans are phrases"),
        (CausalLM(), "each token predicts the next one"),
        (MaskedLM(), "80% masked, 10% random, 10% kept, drawn per token"),
        (
            Denoising(),
            "source: sentences shuffled, 30% of the words masked in runs of 3; targets: the original text",
        ),
        (SpanCorruption(), "each selected span replaced by one sentinel; targets: the spans"),
        (Unigram(vocab_size=32_100, padded_vocab_size=32_128), "32,100 unigram tokens, in a table of 32,128 rows"),
    ],
)
def test_descriptions_use_the_terms_of_the_papers(part: Any, line: str) -> None:
    assert part.describe() == line


def test_scale_overrides_have_the_measured_sizes() -> None:
    assert WordLevel.scale_overrides["tiny"] == {"vocab_size": 16_384, "padded_vocab_size": 0}
    assert WordPiece.scale_overrides == {
        "tiny": {"vocab_size": 4_096, "padded_vocab_size": 0},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0},
    }
    assert StreamPair.scale_overrides == {"tiny": {"reuse_len": 32}, "small": {"reuse_len": 64}}
    assert PermutationLM.scale_overrides == {"tiny": {"perm_size": 32}, "small": {"perm_size": 64}}
    assert SentencePieceBPE.scale_overrides["small"] == {"vocab_size": 16_384, "padded_vocab_size": 0, "languages": []}
    assert not any(member.scale_overrides for member in get_args(Masking))


@pytest.mark.parametrize("segment", SEGMENTS, ids=str)
def test_an_example_spec_survives_a_json_round_trip(segment: Packing) -> None:
    for choice, made in zip(CHOICES, REWRITES, strict=False):
        sampling = ExampleSpec(packing=segment, masking=choice, objective=made, seed=3, static_masks=10)
        assert ExampleSpec.of(json.loads(json.dumps(asdict(sampling)))) == sampling


def row_of(needs: frozenset[str]) -> Row:
    """Return a sequence of 130 tokens with only input_ids and the columns in `needs`."""
    rng = np.random.default_rng(0)
    word_starts_S = rng.random(130) < 0.7
    special_S = np.zeros(130, dtype=bool)
    special_S[[0, -1]] = word_starts_S[[0, 1, -1]] = True
    columns = {
        "special_tokens_mask": special_S,
        "word_starts": word_starts_S,
        "unit_starts": word_starts_S & ((rng.random(130) < 0.8) | np.isin(np.arange(130), [0, 1, 129])),
        "counts": rng.integers(1, 1000, size=130),
    }
    return {"input_ids": rng.integers(5, 99, size=130).astype(np.int32)} | {
        name: column for name, column in columns.items() if name in needs
    }


@pytest.mark.parametrize("part", [part for part in CHOICES if part.produced_columns], ids=str)
def test_masking_reads_only_required_columns_and_selects_the_predicted_fraction(part: MaskingPart) -> None:
    row, rng = row_of(part.required_columns), np.random.default_rng(1)
    hits = [part(row, rng) for _ in range(300)]
    assert {hit_S.dtype for hit_S in hits} == {np.dtype(np.int32)}
    assert {hit_S.shape for hit_S in hits} == {row["input_ids"].shape}
    for hit_S in hits:
        assert sorted(set(hit_S.tolist()) - {0}) == list(range(1, hit_S.max(initial=0) + 1))
    if "special_tokens_mask" in part.required_columns and not getattr(part, "mask_specials", False):
        assert not any(hit_S[row["special_tokens_mask"]].any() for hit_S in hits)
    assert np.mean([hit_S > 0 for hit_S in hits]) == pytest.approx(part.predicted, rel=0.15)
