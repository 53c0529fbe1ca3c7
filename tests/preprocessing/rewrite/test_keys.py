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
    (Cloze, {"mask": -0.5}, r"rewrite\.mask is -0.5, allowed is a share from 0 to 1"),
    (Cloze, {"mask": 1.5}, r"rewrite\.mask is 1.5"),
    (Cloze, {"swap": -0.5}, r"rewrite\.swap is -0.5, allowed is a share from 0 to 1"),
    (Cloze, {"mask": 0, "swap": 1.5}, r"rewrite\.swap is 1.5"),
    (Cloze, {"mask": 0.8, "swap": 0.3}, r"rewrite\.mask \+ swap is 1.1"),
    (Fragment, {"mask": 1.5}, r"rewrite\.mask is 1.5"),
    (Unified, {"swap": 1.5}, r"rewrite\.swap is 1.5"),
    (Unified, {"full": -1 / 3, "sequence": 1.0}, "allowed is no negative share"),
    (Unified, {"full": 1 / 6}, r"rewrite\.full \+ sequence \+ left \+ right is 0.83"),
    (Unified, {"full": 1 / 2}, r"rewrite\.full \+ sequence \+ left \+ right is 1.16"),
    (Unified, {"full": 0, "sequence": 0, "left": 0, "right": 0}, r"left \+ right is 0, allowed is 1"),
    (Permute, {"block": 0}, r"rewrite\.block is 0"),
    (Sentinel, {"answer": "all", "collapse": False, "swap": -0.5}, r"rewrite\.swap is -0.5, allowed is a share"),
    (Sentinel, {"answer": "all", "collapse": False, "swap": 1.5}, r"rewrite\.swap is 1.5, allowed is a share"),
    (Sentinel, {"answer": "all", "swap": 0.5}, "allowed is 0 but with answer all and collapse no"),
    (Sentinel, {"collapse": False, "swap": 0.5}, "allowed is 0 but with answer all and collapse no"),
    (GapSentences, {"keep": -0.5}, r"rewrite\.keep is -0.5, allowed is a share of the gap sentences from 0 to 1"),
    (GapSentences, {"keep": 1.5}, r"rewrite\.keep is 1.5"),
    (Noise, {"edits": ("mask", "delete")}, "one of mask, delete and infill at most"),
    (Noise, {"edits": ("rotate", "rotate")}, "each once"),
    (Noise, {"edits": ()}, "one or several of"),
    (Noise, {"rate": -0.5}, r"rewrite\.rate is -0.5"),
    (Noise, {"rate": 0}, r"rewrite\.rate is 0"),
    (Noise, {"rate": 1.5}, r"rewrite\.rate is 1.5"),
    (Noise, {"mean": 0}, r"rewrite\.mean is 0"),
    (Noise, {"mean": -0.5}, r"rewrite\.mean is -0.5"),
    (Noise, {"mask_random": -0.5}, r"rewrite\.mask_random is -0.5"),
    (Noise, {"mask_random": 1.5}, r"rewrite\.mask_random is 1.5"),
    (Noise, {"permuted": -0.5}, r"rewrite\.permuted is -0.5"),
    (Noise, {"permuted": 1.5}, r"rewrite\.permuted is 1.5"),
]
AT_THE_LIMIT: list[tuple[type[Rewrite], dict[str, Any]]] = [
    (Cloze, {"mask": 0.0, "swap": 1.0}),
    (Cloze, {"mask": 1.0, "swap": 0.0}),
    (Unified, {"full": 1.0, "sequence": 0.0, "left": 0.0, "right": 0.0}),
    (Permute, {"block": 1}),
    (Sentinel, {"answer": "all", "collapse": False, "swap": 0.0}),
    (Sentinel, {"answer": "all", "collapse": False, "swap": 1.0}),
    (Noise, {"rate": 1.0, "mean": 0.5, "mask_random": 0.0, "permuted": 0.0}),
    (Noise, {"mask_random": 1.0, "permuted": 1.0}),
    (GapSentences, {"keep": 0.0}),
    (GapSentences, {"keep": 1.0}),
    (Noise, {"edits": ("rotate",)}),
    (Noise, {"edits": ("permute", "mask", "rotate")}),
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
        (Cloze(unit="span"), "80% masked, 10% swapped, 10% kept, drawn per span"),
        (Cloze(mask=0.5, swap=0.3), "50% masked, 30% swapped, 20% kept, drawn per token"),
        (
            Fragment(),
            "masked for the encoder (80% masked, 10% swapped, 10% kept), predicted by the decoder",
        ),
        (
            Fragment(mask=1.0, swap=0.0, hide=False),
            "masked for the encoder (100% masked, 0% swapped, 0% kept), predicted by the decoder, "
            "which reads the masks as well",
        ),
        (Sentinel(), "each masked span is one sentinel, predicted behind it"),
        (Sentinel(answer="all"), "each masked span is one sentinel, and the text is predicted"),
        (Sentinel(collapse=False), "masked tokens are left out, and predicted"),
        (
            Sentinel(answer="all", collapse=False),
            "each masked token is a sentinel, and the text is predicted",
        ),
        (
            Sentinel(answer="all", collapse=False, swap=0.1),
            "each masked token is a sentinel, 10% of them another token, and the text is predicted",
        ),
        (Prefix(), "the beginning is read, the rest is predicted"),
        (Deshuffle(), "tokens in random order are read, the text is predicted"),
        (Permute(), "attention mask of a random order of prediction in each 256 tokens"),
        (
            Noise(edits=("mask", "rotate"), rate=0.2),
            "text with 20% of the tokens masked, tokens rotated is read, the text is predicted",
        ),
        (
            Noise(edits=("delete",)),
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
        (Sentinel(answer="all"), Tokens(), (1.0, 1.0)),
        (GapSentences(rate=0.25), Nothing(), (0.75, 0.25)),
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
        (Sentinel(answer="all"), NoiseSpans(), 511),
        (GapSentences(), Nothing(), 511),
    ],
)
def test_a_row_of_which_512_tokens_are_read(rewrite: Rewrite, choose: Choose, length: int) -> None:
    assert rewrite.raw_length(512, choose) == length


@pytest.mark.parametrize(
    ("rewrite", "facts"),
    [
        (Shift(), (1, 1, 1, False, False, "trunk", 0, "")),
        (Cloze(), (0, 1, 1, False, False, "trunk", 0, "")),
        (Permute(), (0, 1, 1, False, False, "queries", 256, "")),
        (Unified(), (0, 6, 2, False, False, "rows", 0, "")),
        (Sentinel(), (0, 1, 1, False, True, "trunk", 0, "masked spans")),
        (Fragment(), (0, 1, 1, False, True, "trunk", 0, "the fragment")),
        (Prefix(), (0, 1, 1, True, True, "trunk", 0, "the rest of the text")),
        (Deshuffle(), (0, 1, 1, True, True, "trunk", 0, "the whole text")),
        (Noise(), (0, 1, 1, True, True, "trunk", 0, "the whole text")),
        (GapSentences(), (0, 1, 1, True, True, "trunk", 0, "the gap sentences")),
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
        rewrite.block,
        rewrite.target,
    )


@pytest.mark.parametrize(
    ("rewrite", "values"),
    [
        (Cloze(), {"mask": 0.8, "swap": 0.1, "unit": "token", "swap_from": "ordinary"}),
        (Fragment(), {"mask": 0.8, "swap": 0.1, "hide": True}),
        (Permute(), {"block": 256}),
        (Sentinel(), {"answer": "spans", "collapse": True, "swap": 0.0}),
        (GapSentences(), {"rate": 0.3, "select": "principal", "keep": 0.0}),
        (Noise(), {"edits": ("permute", "infill"), "rate": 0.3, "mean": 3.0, "mask_random": 0.0, "permuted": 1.0}),
        (Unified(), {"full": 1 / 3, "sequence": 1 / 3, "left": 1 / 6, "right": 1 / 6, "mask": 0.8, "swap": 0.1}),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_keys_that_a_recipe_does_not_name_have_the_values_of_the_paper(
    rewrite: Rewrite, values: dict[str, Any]
) -> None:
    assert {name: getattr(rewrite, name) for name in values} == values
