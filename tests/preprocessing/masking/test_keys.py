"""Limits of the keys of every masking part, on both sides, and the description of each part."""

from typing import Any

import pytest

from preprocessing.masking import (
    EntityMasking,
    FragmentMasking,
    Masking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)

OUTSIDE: list[tuple[type[Masking], str, list[Any]]] = [
    (TokenMasking, "rate", [-0.5, 0, 1.5]),
    (TokenMasking, "max_predictions_per_seq", [-1]),
    (TokenMasking, "sample_alpha", [-0.5, 1.5]),
    (WholeWordMasking, "rate", [0]),
    (WholeWordMasking, "max_predictions_per_seq", [-1]),
    (EntityMasking, "rate", [0]),
    (EntityMasking, "max_predictions_per_seq", [-1]),
    (EntityMasking, "token_level_prob", [-0.5, 1.5]),
    (SpanMasking, "rate", [0]),
    (SpanMasking, "geometric_p", [-0.5, 0, 1, 1.5]),
    (SpanMasking, "max_span_length", [0]),
    (SpanMasking, "phrase_prob", [-0.5, 1.5]),
    (NgramMasking, "rate", [0]),
    (NgramMasking, "max_predictions_per_seq", [-1]),
    (NgramMasking, "max_ngram", [0]),
    (NgramMasking, "ngram_weights", [(0.5, 0.5), (-0.1, 0.6, 0.5), (0.5, 0.3, 0.1), (0.5, 0.5, 0.1)]),
    (RandomSpans, "rate", [-0.5, 0, 1, 1.5]),
    (RandomSpans, "mean_noise_span_length", [0.5]),
    (FragmentMasking, "rate", [-0.5, 0, 1.5]),
    (FragmentMasking, "block_size", [-1]),
    (PartialPrediction, "group_size", [1]),
    (PartialPrediction, "max_ngram", [0]),
]
AT_THE_LIMIT: list[tuple[type[Masking], str, list[Any]]] = [
    (TokenMasking, "rate", [1]),
    (TokenMasking, "sample_alpha", [0, 1]),
    (EntityMasking, "token_level_prob", [0, 1]),
    (SpanMasking, "max_span_length", [1]),
    (SpanMasking, "phrase_prob", [0, 1]),
    (NgramMasking, "max_ngram", [1]),
    (NgramMasking, "ngram_weights", [(), (0.5, 0.5, 0), (0.1, 0.2, 0.7)]),
    (RandomSpans, "mean_noise_span_length", [1]),
    (FragmentMasking, "rate", [1]),
    (PartialPrediction, "group_size", [2]),
    (PartialPrediction, "max_ngram", [1]),
]


def cases(table: list[tuple[type[Masking], str, list[Any]]]) -> Any:
    each = [(part, key, value) for part, key, values in table for value in values]
    return pytest.mark.parametrize(
        ("part", "key", "value"), each, ids=[f"{part.__name__}-{key}-{value}" for part, key, value in each]
    )


@cases(OUTSIDE)
def test_a_value_outside_the_limits_is_refused(part: type[Masking], key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"invalid masking\.{key}: got .*, expected "):
        part(**{key: value})


@cases(AT_THE_LIMIT)
def test_a_value_at_the_limit_is_accepted(part: type[Masking], key: str, value: Any) -> None:
    assert getattr(part(**{key: value}), key) == value


def test_mask_special_tokens_is_allowed_without_sample_alpha() -> None:
    assert TokenMasking(mask_special_tokens=True).mask_special_tokens


@pytest.mark.parametrize(
    ("masking", "line"),
    [
        (NoMasking(), "nothing"),
        (TokenMasking(), "15% of the tokens"),
        (TokenMasking(sample_alpha=0.5), "15% of the tokens, rare tokens more often"),
        (WholeWordMasking(), "15% of the tokens, in whole words"),
        (EntityMasking(), "15% of the tokens, in whole phrases and words"),
        (
            EntityMasking(token_level_prob=0.2),
            "15% of the tokens, in whole phrases and words; single tokens in 20% of the sequences",
        ),
        (SpanMasking(), "15% of the tokens, in spans of up to 10 words"),
        (NgramMasking(), "15% of the tokens, in n-grams of up to 3 words"),
        (NgramMasking(ngram_unit="token"), "15% of the tokens, in n-grams of up to 3 tokens"),
        (RandomSpans(), "15% of the tokens, in spans of 3 on average"),
        (FragmentMasking(), "50% of the tokens, in one run"),
        (FragmentMasking(block_size=1024), "50% of the tokens, in one run per block of 1,024 tokens"),
        (PartialPrediction(), "one token in 6, in n-grams of up to 5 words"),
    ],
)
def test_descriptions_are_one_line(masking: Masking, line: str) -> None:
    assert masking.describe() == line


@pytest.mark.parametrize(
    ("masking", "share"),
    [
        (NoMasking(), 1.0),
        (TokenMasking(rate=0.2), 0.2),
        (WholeWordMasking(rate=0.2), 0.2),
        (EntityMasking(rate=0.2), 0.2),
        (SpanMasking(rate=0.2), 0.2),
        (NgramMasking(rate=0.2), 0.2),
        (RandomSpans(rate=0.2), 0.2),
        (FragmentMasking(rate=0.2), 0.2),
        (PartialPrediction(group_size=4), 0.25),
    ],
)
def test_predicted_is_the_fraction_of_predicted_tokens(masking: Masking, share: float) -> None:
    assert masking.predicted == share


def test_only_random_spans_have_a_mean_span_length() -> None:
    assert RandomSpans(mean_noise_span_length=5).span_mean == 5
    assert not any(
        part.span_mean
        for part in (
            NoMasking,
            TokenMasking,
            WholeWordMasking,
            EntityMasking,
            SpanMasking,
            NgramMasking,
            FragmentMasking,
            PartialPrediction,
        )
    )


@pytest.mark.parametrize(
    ("masking", "values"),
    [
        (
            TokenMasking(),
            {
                "rate": 0.15,
                "rounding": "nearest",
                "max_predictions_per_seq": 0,
                "mask_special_tokens": False,
                "sample_alpha": 0.0,
            },
        ),
        (WholeWordMasking(), {"rate": 0.15, "rounding": "nearest", "max_predictions_per_seq": 0}),
        (EntityMasking(), {"rate": 0.15, "rounding": "nearest", "max_predictions_per_seq": 0, "token_level_prob": 0.0}),
        (
            SpanMasking(),
            {"rate": 0.15, "geometric_p": 0.2, "max_span_length": 10, "rounding": "up", "phrase_prob": 0.0},
        ),
        (
            NgramMasking(),
            {
                "rate": 0.15,
                "max_ngram": 3,
                "rounding": "nearest",
                "max_predictions_per_seq": 0,
                "ngram_weights": (),
                "ngram_unit": "word",
            },
        ),
        (RandomSpans(), {"rate": 0.15, "mean_noise_span_length": 3.0}),
        (FragmentMasking(), {"rate": 0.5, "block_size": 0}),
        (PartialPrediction(), {"group_size": 6, "max_ngram": 5}),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_defaults_are_the_values_of_the_papers(masking: Masking, values: dict[str, Any]) -> None:
    assert {name: getattr(masking, name) for name in values} == values
