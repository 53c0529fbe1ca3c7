"""The limits of the keys of every choice, from both sides, and the line that describes it."""

from typing import Any

import pytest

from preprocessing.choose import Choose, Entities, Fragment, Ngrams, NoiseSpans, Nothing, Partial, Spans, Tokens, Words

OUTSIDE: list[tuple[type[Choose], str, list[Any]]] = [
    (Tokens, "rate", [-0.5, 0, 1.5]),
    (Tokens, "max_predictions_per_seq", [-1]),
    (Tokens, "sample_alpha", [-0.5, 1.5]),
    (Words, "rate", [0]),
    (Words, "max_predictions_per_seq", [-1]),
    (Entities, "rate", [0]),
    (Entities, "max_predictions_per_seq", [-1]),
    (Entities, "token_level_prob", [-0.5, 1.5]),
    (Spans, "rate", [0]),
    (Spans, "geometric_p", [-0.5, 0, 1, 1.5]),
    (Spans, "max_span_length", [0]),
    (Spans, "phrase_prob", [-0.5, 1.5]),
    (Ngrams, "rate", [0]),
    (Ngrams, "max_predictions_per_seq", [-1]),
    (Ngrams, "max_ngram", [0]),
    (Ngrams, "ngram_weights", [(0.5, 0.5), (-0.1, 0.6, 0.5), (0.5, 0.3, 0.1), (0.5, 0.5, 0.1)]),
    (NoiseSpans, "rate", [-0.5, 0, 1, 1.5]),
    (NoiseSpans, "mean_noise_span_length", [0.5]),
    (Fragment, "rate", [-0.5, 0, 1.5]),
    (Fragment, "block_size", [-1]),
    (Partial, "group_size", [1]),
    (Partial, "max_ngram", [0]),
]
AT_THE_LIMIT: list[tuple[type[Choose], str, list[Any]]] = [
    (Tokens, "rate", [1]),
    (Tokens, "sample_alpha", [0, 1]),
    (Entities, "token_level_prob", [0, 1]),
    (Spans, "max_span_length", [1]),
    (Spans, "phrase_prob", [0, 1]),
    (Ngrams, "max_ngram", [1]),
    (Ngrams, "ngram_weights", [(), (0.5, 0.5, 0), (0.1, 0.2, 0.7)]),
    (NoiseSpans, "mean_noise_span_length", [1]),
    (Fragment, "rate", [1]),
    (Partial, "group_size", [2]),
    (Partial, "max_ngram", [1]),
]


def cases(table: list[tuple[type[Choose], str, list[Any]]]) -> Any:
    each = [(part, key, value) for part, key, values in table for value in values]
    return pytest.mark.parametrize(
        ("part", "key", "value"), each, ids=[f"{part.__name__}-{key}-{value}" for part, key, value in each]
    )


@cases(OUTSIDE)
def test_a_value_outside_of_the_limits_is_refused(part: type[Choose], key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"masking\.{key} is .*, allowed is "):
        part(**{key: value})


@cases(AT_THE_LIMIT)
def test_a_value_at_the_limit_is_accepted(part: type[Choose], key: str, value: Any) -> None:
    assert getattr(part(**{key: value}), key) == value


def test_special_tokens_may_be_masked_where_rare_ones_do_not_come_first() -> None:
    assert Tokens(mask_special_tokens=True).mask_special_tokens


@pytest.mark.parametrize(
    ("choose", "line"),
    [
        (Nothing(), "nothing"),
        (Tokens(), "15% of the tokens"),
        (Tokens(sample_alpha=0.5), "15% of the tokens, rare ones more often"),
        (Words(), "15% of the tokens, in whole words"),
        (Entities(), "15% of the tokens, in whole phrases and words"),
        (
            Entities(token_level_prob=0.2),
            "15% of the tokens, in whole phrases and words, or (20% of the rows) one by one",
        ),
        (Spans(), "15% of the tokens, in spans of up to 10 words"),
        (Ngrams(), "15% of the tokens, in n-grams of up to 3 words"),
        (Ngrams(ngram_unit="token"), "15% of the tokens, in n-grams of up to 3 tokens"),
        (NoiseSpans(), "15% of the tokens, in spans of 3 on average"),
        (Fragment(), "50% of the tokens, in one run"),
        (Fragment(block_size=1024), "50% of the tokens, in one run of each 1,024"),
        (Partial(), "one token in 6, in n-grams of up to 5"),
    ],
)
def test_a_choice_is_described_in_a_line(choose: Choose, line: str) -> None:
    assert choose.describe() == line


@pytest.mark.parametrize(
    ("choose", "share"),
    [
        (Nothing(), 1.0),
        (Tokens(rate=0.2), 0.2),
        (Words(rate=0.2), 0.2),
        (Entities(rate=0.2), 0.2),
        (Spans(rate=0.2), 0.2),
        (Ngrams(rate=0.2), 0.2),
        (NoiseSpans(rate=0.2), 0.2),
        (Fragment(rate=0.2), 0.2),
        (Partial(group_size=4), 0.25),
    ],
)
def test_a_choice_has_the_share_of_the_tokens_that_is_predicted(choose: Choose, share: float) -> None:
    assert choose.predicted == share


def test_only_noise_spans_have_a_mean_length_that_a_row_is_planned_by() -> None:
    assert NoiseSpans(mean_noise_span_length=5).span_mean == 5
    assert not any(part.span_mean for part in (Nothing, Tokens, Words, Entities, Spans, Ngrams, Fragment, Partial))


@pytest.mark.parametrize(
    ("choose", "values"),
    [
        (
            Tokens(),
            {
                "rate": 0.15,
                "rounding": "nearest",
                "max_predictions_per_seq": 0,
                "mask_special_tokens": False,
                "sample_alpha": 0.0,
            },
        ),
        (Words(), {"rate": 0.15, "rounding": "nearest", "max_predictions_per_seq": 0}),
        (Entities(), {"rate": 0.15, "rounding": "nearest", "max_predictions_per_seq": 0, "token_level_prob": 0.0}),
        (Spans(), {"rate": 0.15, "geometric_p": 0.2, "max_span_length": 10, "rounding": "up", "phrase_prob": 0.0}),
        (
            Ngrams(),
            {
                "rate": 0.15,
                "max_ngram": 3,
                "rounding": "nearest",
                "max_predictions_per_seq": 0,
                "ngram_weights": (),
                "ngram_unit": "word",
            },
        ),
        (NoiseSpans(), {"rate": 0.15, "mean_noise_span_length": 3.0}),
        (Fragment(), {"rate": 0.5, "block_size": 0}),
        (Partial(), {"group_size": 6, "max_ngram": 5}),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_keys_that_a_recipe_does_not_name_have_the_values_of_the_paper(choose: Choose, values: dict[str, Any]) -> None:
    assert {name: getattr(choose, name) for name in values} == values
