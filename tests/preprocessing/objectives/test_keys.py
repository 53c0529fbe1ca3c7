"""Limits of the keys of every objective, on both sides, its description and the lengths of its sequences."""

from typing import Any

import pytest

from preprocessing.masking import Masking, NoMasking, RandomSpans, TokenMasking
from preprocessing.objectives import (
    CausalLM,
    Denoising,
    Deshuffling,
    GapSentenceGeneration,
    MaskedLM,
    MaskedSeq2Seq,
    Objective,
    PermutationLM,
    PrefixLM,
    SpanCorruption,
    UnifiedLM,
)

OUTSIDE: list[tuple[type[Objective], dict[str, Any], str]] = [
    (
        MaskedLM,
        {"mask_replace_prob": -0.5},
        r"invalid objective\.mask_replace_prob: got -0.5, expected a probability from 0 to 1",
    ),
    (MaskedLM, {"mask_replace_prob": 1.5}, r"objective\.mask_replace_prob: got 1.5"),
    (
        MaskedLM,
        {"random_replace_prob": -0.5},
        r"invalid objective\.random_replace_prob: got -0.5, expected a probability from 0 to 1",
    ),
    (MaskedLM, {"mask_replace_prob": 0, "random_replace_prob": 1.5}, r"objective\.random_replace_prob: got 1.5"),
    (
        MaskedLM,
        {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
        r"objective\.mask_replace_prob \+ random_replace_prob: got 1.1",
    ),
    (MaskedSeq2Seq, {"mask_replace_prob": 1.5}, r"objective\.mask_replace_prob: got 1.5"),
    (UnifiedLM, {"random_replace_prob": 1.5}, r"objective\.random_replace_prob: got 1.5"),
    (UnifiedLM, {"bidirectional_prob": -1 / 3, "seq2seq_prob": 1.0}, "expected no negative fraction"),
    (
        UnifiedLM,
        {"bidirectional_prob": 1 / 6},
        r"objective\.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob: got 0.83",
    ),
    (
        UnifiedLM,
        {"bidirectional_prob": 1 / 2},
        r"objective\.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob: got 1.16",
    ),
    (
        UnifiedLM,
        {"bidirectional_prob": 0, "seq2seq_prob": 0, "left_to_right_prob": 0, "right_to_left_prob": 0},
        r"right_to_left_prob: got 0, expected 1",
    ),
    (PermutationLM, {"perm_size": 0}, r"objective\.perm_size: got 0"),
    (
        SpanCorruption,
        {"targets": "all", "collapse_spans": False, "random_replace_prob": -0.5},
        r"invalid objective\.random_replace_prob: got -0.5, expected a probability",
    ),
    (
        SpanCorruption,
        {"targets": "all", "collapse_spans": False, "random_replace_prob": 1.5},
        r"invalid objective\.random_replace_prob: got 1.5, expected a probability",
    ),
    (
        SpanCorruption,
        {"targets": "all", "random_replace_prob": 0.5},
        "expected 0 unless targets is all and collapse_spans is false",
    ),
    (
        SpanCorruption,
        {"collapse_spans": False, "random_replace_prob": 0.5},
        "expected 0 unless targets is all and collapse_spans is false",
    ),
    (
        GapSentenceGeneration,
        {"keep_ratio": -0.5},
        r"invalid objective\.keep_ratio: got -0.5, expected a fraction from 0 to 1",
    ),
    (GapSentenceGeneration, {"keep_ratio": 1.5}, r"objective\.keep_ratio: got 1.5"),
    (Denoising, {"noise_types": ("token_masking", "token_deletion")}, "at most one of token_masking, "),
    (Denoising, {"noise_types": ("document_rotation", "document_rotation")}, "each at most once"),
    (Denoising, {"noise_types": ()}, "one or several of"),
    (Denoising, {"mask_ratio": -0.5}, r"objective\.mask_ratio: got -0.5"),
    (Denoising, {"mask_ratio": 0}, r"objective\.mask_ratio: got 0"),
    (Denoising, {"mask_ratio": 1.5}, r"objective\.mask_ratio: got 1.5"),
    (Denoising, {"poisson_lambda": 0}, r"objective\.poisson_lambda: got 0"),
    (Denoising, {"poisson_lambda": -0.5}, r"objective\.poisson_lambda: got -0.5"),
    (Denoising, {"random_replace_prob": -0.5}, r"objective\.random_replace_prob: got -0.5"),
    (Denoising, {"random_replace_prob": 1.5}, r"objective\.random_replace_prob: got 1.5"),
    (Denoising, {"permute_sentence_ratio": -0.5}, r"objective\.permute_sentence_ratio: got -0.5"),
    (Denoising, {"permute_sentence_ratio": 1.5}, r"objective\.permute_sentence_ratio: got 1.5"),
    (Denoising, {"noise_types": ("infill",)}, r"noise_types: got \('infill',\), expected sentence_permutation or"),
]
AT_THE_LIMIT: list[tuple[type[Objective], dict[str, Any]]] = [
    (MaskedLM, {"mask_replace_prob": 0.0, "random_replace_prob": 1.0}),
    (MaskedLM, {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}),
    (UnifiedLM, {"bidirectional_prob": 1.0, "seq2seq_prob": 0.0, "left_to_right_prob": 0.0, "right_to_left_prob": 0.0}),
    (PermutationLM, {"perm_size": 1}),
    (SpanCorruption, {"targets": "all", "collapse_spans": False, "random_replace_prob": 0.0}),
    (SpanCorruption, {"targets": "all", "collapse_spans": False, "random_replace_prob": 1.0}),
    (Denoising, {"mask_ratio": 1.0, "poisson_lambda": 0.5, "random_replace_prob": 0.0, "permute_sentence_ratio": 0.0}),
    (Denoising, {"random_replace_prob": 1.0, "permute_sentence_ratio": 1.0}),
    (GapSentenceGeneration, {"keep_ratio": 0.0}),
    (GapSentenceGeneration, {"keep_ratio": 1.0}),
    (Denoising, {"noise_types": ("document_rotation",)}),
    (Denoising, {"noise_types": ("sentence_permutation", "token_masking", "document_rotation")}),
]


@pytest.mark.parametrize(("part", "keys", "message"), OUTSIDE, ids=lambda case: str(case))
def test_a_value_outside_the_limits_is_refused(part: type[Objective], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(**keys)


@pytest.mark.parametrize(("part", "keys"), AT_THE_LIMIT, ids=lambda case: str(case))
def test_a_value_at_the_limit_is_accepted(part: type[Objective], keys: dict[str, Any]) -> None:
    made = part(**keys)
    assert {name: getattr(made, name) for name in keys} == keys


@pytest.mark.parametrize(
    ("objective", "line"),
    [
        (CausalLM(), "each token predicts the next one"),
        (MaskedLM(replace_unit="span"), "80% masked, 10% random, 10% kept, drawn per span"),
        (
            MaskedLM(mask_replace_prob=0.5, random_replace_prob=0.3),
            "50% masked, 30% random, 20% kept, drawn per token",
        ),
        (
            MaskedSeq2Seq(),
            "masked for the encoder (80% masked, 10% random, 10% kept), predicted by the decoder",
        ),
        (
            MaskedSeq2Seq(mask_replace_prob=1.0, random_replace_prob=0.0, hide_masked_from_decoder=False),
            "masked for the encoder (100% masked, 0% random, 0% kept), predicted by the decoder, "
            "which also attends to the masks",
        ),
        (SpanCorruption(), "each selected span replaced by one sentinel; targets: the spans"),
        (SpanCorruption(targets="all"), "each selected span replaced by one sentinel; targets: the whole text"),
        (SpanCorruption(collapse_spans=False), "selected tokens deleted; targets: these tokens"),
        (
            SpanCorruption(targets="all", collapse_spans=False),
            "each selected token replaced by a sentinel; targets: the whole text",
        ),
        (
            SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=0.1),
            "each selected token replaced by a sentinel (10%: by a random token); targets: the whole text",
        ),
        (PrefixLM(), "source: the beginning of the text; targets: the rest"),
        (Deshuffling(), "source: the tokens in random order; targets: the text"),
        (PermutationLM(), "random prediction order within each block of 256 tokens"),
        (
            Denoising(noise_types=("token_masking", "document_rotation"), mask_ratio=0.2),
            "source: 20% of the tokens masked, document rotated; targets: the original text",
        ),
        (
            Denoising(noise_types=("token_deletion",)),
            "source: 30% of the tokens deleted; targets: the original text",
        ),
        (
            UnifiedLM(),
            "33% bidirectional, 33% sequence-to-sequence, 17% left-to-right, 17% right-to-left; "
            "80% masked, 10% random, 10% kept",
        ),
    ],
)
def test_descriptions_are_one_line(objective: Objective, line: str) -> None:
    assert objective.describe() == line


@pytest.mark.parametrize(
    ("objective", "masking", "shares"),
    [
        (PermutationLM(), TokenMasking(), (0.0, 1.0)),
        (UnifiedLM(), TokenMasking(), (0.0, 1.0)),
        (SpanCorruption(targets="all"), TokenMasking(), (1.0, 1.0)),
        (GapSentenceGeneration(gap_sentences_ratio=0.25), NoMasking(), (0.75, 0.25)),
    ],
)
def test_shares_are_the_fractions_of_tokens_on_each_side(
    objective: Objective, masking: Masking, shares: tuple[float, float]
) -> None:
    assert objective.shares(masking) == shares


@pytest.mark.parametrize(
    ("objective", "masking", "length"),
    [
        (MaskedSeq2Seq(), TokenMasking(), 512),
        (SpanCorruption(), TokenMasking(), 511),
        (SpanCorruption(targets="all"), RandomSpans(), 511),
        (GapSentenceGeneration(), NoMasking(), 511),
    ],
)
def test_raw_length_is_the_text_for_512_model_tokens(objective: Objective, masking: Masking, length: int) -> None:
    assert objective.raw_length(512, masking) == length


@pytest.mark.parametrize(
    ("objective", "facts"),
    [
        (CausalLM(), (1, 1, 1, False, False, "model", 0, "")),
        (MaskedLM(), (0, 1, 1, False, False, "model", 0, "")),
        (PermutationLM(), (0, 1, 1, False, False, "queries", 256, "")),
        (UnifiedLM(), (0, 6, 2, False, False, "rows", 0, "")),
        (SpanCorruption(), (0, 1, 1, False, True, "model", 0, "masked spans")),
        (MaskedSeq2Seq(), (0, 1, 1, False, True, "model", 0, "the fragment")),
        (PrefixLM(), (0, 1, 1, True, True, "model", 0, "the rest of the text")),
        (Deshuffling(), (0, 1, 1, True, True, "model", 0, "the whole text")),
        (Denoising(), (0, 1, 1, True, True, "model", 0, "the whole text")),
        (GapSentenceGeneration(), (0, 1, 1, True, True, "model", 0, "the gap sentences")),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_facts_of_every_objective(objective: Objective, facts: tuple[Any, ...]) -> None:
    """The facts are lookahead, segments, reads_segments, selects, two_sided, attention, perm_size and target."""
    assert facts == (
        objective.lookahead,
        objective.segments,
        objective.reads_segments,
        objective.selects,
        objective.two_sided,
        objective.attention,
        objective.perm_size,
        objective.target,
    )


@pytest.mark.parametrize(
    ("objective", "values"),
    [
        (
            MaskedLM(),
            {
                "mask_replace_prob": 0.8,
                "random_replace_prob": 0.1,
                "replace_unit": "token",
                "random_token_source": "non_special",
            },
        ),
        (MaskedSeq2Seq(), {"mask_replace_prob": 0.8, "random_replace_prob": 0.1, "hide_masked_from_decoder": True}),
        (PermutationLM(), {"perm_size": 256}),
        (SpanCorruption(), {"targets": "spans", "collapse_spans": True, "random_replace_prob": 0.0}),
        (GapSentenceGeneration(), {"gap_sentences_ratio": 0.3, "selection": "principal", "keep_ratio": 0.0}),
        (
            Denoising(),
            {
                "noise_types": ("sentence_permutation", "text_infilling"),
                "mask_ratio": 0.3,
                "poisson_lambda": 3.0,
                "random_replace_prob": 0.0,
                "permute_sentence_ratio": 1.0,
            },
        ),
        (
            UnifiedLM(),
            {
                "bidirectional_prob": 1 / 3,
                "seq2seq_prob": 1 / 3,
                "left_to_right_prob": 1 / 6,
                "right_to_left_prob": 1 / 6,
                "mask_replace_prob": 0.8,
                "random_replace_prob": 0.1,
            },
        ),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_defaults_are_the_values_of_the_papers(objective: Objective, values: dict[str, Any]) -> None:
    assert {name: getattr(objective, name) for name in values} == values
