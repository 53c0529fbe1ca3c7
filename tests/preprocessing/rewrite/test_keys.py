"""The limits of the keys of every rewrite, from both sides, the line that describes it, and how long its rows are."""

from typing import Any

import pytest

from preprocessing.choose import Choose, NoiseSpans, Nothing, Tokens
from preprocessing.rewrite import (
    Cloze,
    Deshuffle,
    Fragment,
    GapSentences,
    Noise,
    Permute,
    Prefix,
    Rewrite,
    Sentinel,
    Shift,
    Unified,
)

OUTSIDE: list[tuple[type[Rewrite], dict[str, Any], str]] = [
    (Cloze, {"mask_replace_prob": -0.5}, r"objective\.mask_replace_prob is -0.5, allowed is a share from 0 to 1"),
    (Cloze, {"mask_replace_prob": 1.5}, r"objective\.mask_replace_prob is 1.5"),
    (Cloze, {"random_replace_prob": -0.5}, r"objective\.random_replace_prob is -0.5, allowed is a share from 0 to 1"),
    (Cloze, {"mask_replace_prob": 0, "random_replace_prob": 1.5}, r"objective\.random_replace_prob is 1.5"),
    (
        Cloze,
        {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
        r"objective\.mask_replace_prob \+ random_replace_prob is 1.1",
    ),
    (Fragment, {"mask_replace_prob": 1.5}, r"objective\.mask_replace_prob is 1.5"),
    (Unified, {"random_replace_prob": 1.5}, r"objective\.random_replace_prob is 1.5"),
    (Unified, {"bidirectional_prob": -1 / 3, "seq2seq_prob": 1.0}, "allowed is no negative share"),
    (
        Unified,
        {"bidirectional_prob": 1 / 6},
        r"objective\.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob is 0.83",
    ),
    (
        Unified,
        {"bidirectional_prob": 1 / 2},
        r"objective\.bidirectional_prob \+ seq2seq_prob \+ left_to_right_prob \+ right_to_left_prob is 1.16",
    ),
    (
        Unified,
        {"bidirectional_prob": 0, "seq2seq_prob": 0, "left_to_right_prob": 0, "right_to_left_prob": 0},
        r"right_to_left_prob is 0, allowed is 1",
    ),
    (Permute, {"perm_size": 0}, r"objective\.perm_size is 0"),
    (
        Sentinel,
        {"targets": "all", "collapse_spans": False, "random_replace_prob": -0.5},
        r"objective\.random_replace_prob is -0.5, allowed is a share",
    ),
    (
        Sentinel,
        {"targets": "all", "collapse_spans": False, "random_replace_prob": 1.5},
        r"objective\.random_replace_prob is 1.5, allowed is a share",
    ),
    (
        Sentinel,
        {"targets": "all", "random_replace_prob": 0.5},
        "allowed is 0 unless targets is all and collapse_spans is false",
    ),
    (
        Sentinel,
        {"collapse_spans": False, "random_replace_prob": 0.5},
        "allowed is 0 unless targets is all and collapse_spans is false",
    ),
    (
        GapSentences,
        {"keep_ratio": -0.5},
        r"objective\.keep_ratio is -0.5, allowed is a share of the gap sentences from 0 to 1",
    ),
    (GapSentences, {"keep_ratio": 1.5}, r"objective\.keep_ratio is 1.5"),
    (Noise, {"noise_types": ("token_masking", "token_deletion")}, "at most one of token_masking, "),
    (Noise, {"noise_types": ("document_rotation", "document_rotation")}, "each once"),
    (Noise, {"noise_types": ()}, "one or several of"),
    (Noise, {"mask_ratio": -0.5}, r"objective\.mask_ratio is -0.5"),
    (Noise, {"mask_ratio": 0}, r"objective\.mask_ratio is 0"),
    (Noise, {"mask_ratio": 1.5}, r"objective\.mask_ratio is 1.5"),
    (Noise, {"poisson_lambda": 0}, r"objective\.poisson_lambda is 0"),
    (Noise, {"poisson_lambda": -0.5}, r"objective\.poisson_lambda is -0.5"),
    (Noise, {"random_replace_prob": -0.5}, r"objective\.random_replace_prob is -0.5"),
    (Noise, {"random_replace_prob": 1.5}, r"objective\.random_replace_prob is 1.5"),
    (Noise, {"permute_sentence_ratio": -0.5}, r"objective\.permute_sentence_ratio is -0.5"),
    (Noise, {"permute_sentence_ratio": 1.5}, r"objective\.permute_sentence_ratio is 1.5"),
]
AT_THE_LIMIT: list[tuple[type[Rewrite], dict[str, Any]]] = [
    (Cloze, {"mask_replace_prob": 0.0, "random_replace_prob": 1.0}),
    (Cloze, {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}),
    (Unified, {"bidirectional_prob": 1.0, "seq2seq_prob": 0.0, "left_to_right_prob": 0.0, "right_to_left_prob": 0.0}),
    (Permute, {"perm_size": 1}),
    (Sentinel, {"targets": "all", "collapse_spans": False, "random_replace_prob": 0.0}),
    (Sentinel, {"targets": "all", "collapse_spans": False, "random_replace_prob": 1.0}),
    (Noise, {"mask_ratio": 1.0, "poisson_lambda": 0.5, "random_replace_prob": 0.0, "permute_sentence_ratio": 0.0}),
    (Noise, {"random_replace_prob": 1.0, "permute_sentence_ratio": 1.0}),
    (GapSentences, {"keep_ratio": 0.0}),
    (GapSentences, {"keep_ratio": 1.0}),
    (Noise, {"noise_types": ("rotate",)}),
    (Noise, {"noise_types": ("permute", "mask", "rotate")}),
]


@pytest.mark.parametrize(("part", "keys", "message"), OUTSIDE, ids=lambda case: str(case))
def test_a_value_outside_of_the_limits_is_refused(part: type[Rewrite], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(**keys)


@pytest.mark.parametrize(("part", "keys"), AT_THE_LIMIT, ids=lambda case: str(case))
def test_a_value_at_the_limit_is_accepted(part: type[Rewrite], keys: dict[str, Any]) -> None:
    made = part(**keys)
    assert {name: getattr(made, name) for name in keys} == keys


@pytest.mark.parametrize(
    ("rewrite", "line"),
    [
        (Shift(), "each token predicts the next"),
        (Cloze(replace_unit="span"), "80% masked, 10% swapped, 10% kept, drawn per span"),
        (Cloze(mask_replace_prob=0.5, random_replace_prob=0.3), "50% masked, 30% swapped, 20% kept, drawn per token"),
        (
            Fragment(),
            "masked for the encoder (80% masked, 10% swapped, 10% kept), predicted by the decoder",
        ),
        (
            Fragment(mask_replace_prob=1.0, random_replace_prob=0.0, hide_masked_from_decoder=False),
            "masked for the encoder (100% masked, 0% swapped, 0% kept), predicted by the decoder, "
            "which reads the masks as well",
        ),
        (Sentinel(), "each masked span is one sentinel, predicted behind it"),
        (Sentinel(targets="all"), "each masked span is one sentinel, and the text is predicted"),
        (Sentinel(collapse_spans=False), "masked tokens are left out, and predicted"),
        (
            Sentinel(targets="all", collapse_spans=False),
            "each masked token is a sentinel, and the text is predicted",
        ),
        (
            Sentinel(targets="all", collapse_spans=False, random_replace_prob=0.1),
            "each masked token is a sentinel, 10% of them another token, and the text is predicted",
        ),
        (Prefix(), "the beginning is read, the rest is predicted"),
        (Deshuffle(), "tokens in random order are read, the text is predicted"),
        (Permute(), "attention mask of a random order of prediction in each 256 tokens"),
        (
            Noise(noise_types=("token_masking", "document_rotation"), mask_ratio=0.2),
            "text with 20% of the tokens masked, tokens rotated is read, the text is predicted",
        ),
        (
            Noise(noise_types=("token_deletion",)),
            "text with 30% of the tokens deleted is read, the text is predicted",
        ),
        (
            Unified(),
            "33% bidirectional, 33% sequence-to-sequence, 17% left-to-right, 17% right-to-left; "
            "80% masked, 10% swapped, 10% kept",
        ),
    ],
)
def test_a_rewrite_is_described_in_a_line(rewrite: Rewrite, line: str) -> None:
    assert rewrite.describe() == line


@pytest.mark.parametrize(
    ("rewrite", "choose", "shares"),
    [
        (Permute(), Tokens(), (0.0, 1.0)),
        (Unified(), Tokens(), (0.0, 1.0)),
        (Sentinel(targets="all"), Tokens(), (1.0, 1.0)),
        (GapSentences(gap_sentences_ratio=0.25), Nothing(), (0.75, 0.25)),
    ],
)
def test_the_shares_of_a_row_that_both_sides_read(
    rewrite: Rewrite, choose: Choose, shares: tuple[float, float]
) -> None:
    assert rewrite.shares(choose) == shares


@pytest.mark.parametrize(
    ("rewrite", "choose", "length"),
    [
        (Fragment(), Tokens(), 512),
        (Sentinel(), Tokens(), 511),
        (Sentinel(targets="all"), NoiseSpans(), 511),
        (GapSentences(), Nothing(), 511),
    ],
)
def test_a_row_of_which_512_tokens_are_read(rewrite: Rewrite, choose: Choose, length: int) -> None:
    assert rewrite.raw_length(512, choose) == length


@pytest.mark.parametrize(
    ("rewrite", "facts"),
    [
        (Shift(), (1, 1, 1, False, False, "model", 0, "")),
        (Cloze(), (0, 1, 1, False, False, "model", 0, "")),
        (Permute(), (0, 1, 1, False, False, "queries", 256, "")),
        (Unified(), (0, 6, 2, False, False, "rows", 0, "")),
        (Sentinel(), (0, 1, 1, False, True, "model", 0, "masked spans")),
        (Fragment(), (0, 1, 1, False, True, "model", 0, "the fragment")),
        (Prefix(), (0, 1, 1, True, True, "model", 0, "the rest of the text")),
        (Deshuffle(), (0, 1, 1, True, True, "model", 0, "the whole text")),
        (Noise(), (0, 1, 1, True, True, "model", 0, "the whole text")),
        (GapSentences(), (0, 1, 1, True, True, "model", 0, "the gap sentences")),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_what_a_rewrite_says_of_itself(rewrite: Rewrite, facts: tuple[Any, ...]) -> None:
    """Tokens behind a row, segments made and read, whether it selects and has a source, mask, block and target."""
    assert facts == (
        rewrite.lookahead,
        rewrite.segments,
        rewrite.reads_segments,
        rewrite.selects,
        rewrite.two_sided,
        rewrite.attention,
        rewrite.perm_size,
        rewrite.target,
    )


@pytest.mark.parametrize(
    ("rewrite", "values"),
    [
        (
            Cloze(),
            {
                "mask_replace_prob": 0.8,
                "random_replace_prob": 0.1,
                "replace_unit": "token",
                "random_token_source": "non_special",
            },
        ),
        (Fragment(), {"mask_replace_prob": 0.8, "random_replace_prob": 0.1, "hide_masked_from_decoder": True}),
        (Permute(), {"perm_size": 256}),
        (Sentinel(), {"targets": "spans", "collapse_spans": True, "random_replace_prob": 0.0}),
        (GapSentences(), {"gap_sentences_ratio": 0.3, "selection": "principal", "keep_ratio": 0.0}),
        (
            Noise(),
            {
                "noise_types": ("sentence_permutation", "text_infilling"),
                "mask_ratio": 0.3,
                "poisson_lambda": 3.0,
                "random_replace_prob": 0.0,
                "permute_sentence_ratio": 1.0,
            },
        ),
        (
            Unified(),
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
def test_keys_that_a_recipe_does_not_name_have_the_values_of_the_paper(
    rewrite: Rewrite, values: dict[str, Any]
) -> None:
    assert {name: getattr(rewrite, name) for name in values} == values
