import pickle

import numpy as np
import pytest

from preprocessing.text import (
    Gazetteer,
    move_spans,
    normalize,
    num_without_token,
    phrase_starts,
    relocate_spans,
    repair_text,
)


def found(phrases: list[str], text: str) -> list[str]:
    return [text[start:stop] for start, stop in Gazetteer(phrases).find(text)]


@pytest.mark.parametrize(
    ("phrases", "text", "expected"),
    [
        (["New York", "York City Hall", "New York City"], "New York City Hall", ["New York City"]),
        (["b c", "a b", "a b c d"], "a b c", ["a b"]),
        (["New York", "New Yorker"], "a New Yorker", ["New Yorker"]),
        (["art"], "part art artist", ["art"]),
        (["Art"], "art Art ART", ["Art"]),
        (["C++", ".NET"], "C++ and .NET", ["C++", ".NET"]),
        (["\u5317\u4eac"], "\u6211\u5728\u5317\u4eac\u4f4f", ["\u5317\u4eac"]),
        (["\uc11c\uc6b8"], "\uc11c\uc6b8\uc5d0\uc11c", ["\uc11c\uc6b8"]),
        (["caf\u00e9"], "the caf\u00e9s caf\u00e9", ["caf\u00e9"]),
        (["  New \t York "], "New York", ["New York"]),
        (["cafe\u0301"], "caf\u00e9", ["caf\u00e9"]),
        (["New York"], "New\nYork, New\n\nYork", ["New\nYork"]),
        ([], "anything", []),
        (["", " "], "any thing", []),
    ],
)
def test_phrases_match_leftmost_longest_and_whole_words(phrases: list[str], text: str, expected: list[str]) -> None:
    assert found(phrases, text) == expected


def test_a_gazetteer_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(Gazetteer(["New York"])))
    assert again.find("in New York") == [(3, 11)]


def test_spans_are_relocated_after_cleaning() -> None:
    raw = "\x00  Paris  is big.\r\n\r\n\r\n\r\nHe likes   Paris ."
    spans = [(raw.rindex("Paris"), raw.rindex("Paris") + 5)]
    text = normalize(raw)
    assert relocate_spans(raw, spans, text) == ((text.rindex("Paris"), text.rindex("Paris") + 5),)


def test_removed_spans_are_dropped_and_others_relocated() -> None:
    raw = "one two three"
    assert relocate_spans(raw, [(0, 3), (4, 7), (8, 13)], "one three") == ((0, 3), (4, 9))
    assert relocate_spans(raw, [(3, 4), (5, 5)], raw) == ()


def test_the_nearest_match_is_used_after_removed_text() -> None:
    raw = "Rome. " + "<b>" * 20 + " Rome. Rome!"
    third = (raw.rindex("Rome"), raw.rindex("Rome") + 4)
    assert relocate_spans(raw, [(0, 4), third], "Rome. Rome. Rome!") == ((0, 4), (12, 16))


@pytest.mark.parametrize("span", [(-3, 2), (2, 1), (0, 99), (99, 100)])
def test_a_span_outside_its_text_is_dropped(span: tuple[int, int]) -> None:
    assert relocate_spans("one two", [span, (4, 7)], "one two") == ((4, 7),)


@pytest.mark.timeout(120)
def test_many_lost_spans_take_little_time() -> None:
    raw = "gone " * 10_000
    assert relocate_spans(raw, [(at, at + 4) for at in range(0, len(raw), 5)], "left " * 10_000) == ()


def test_unordered_spans_are_sorted_and_do_not_overlap() -> None:
    assert relocate_spans("a b c", [(2, 5), (0, 3)], "a b c") == ((0, 3),)
    assert relocate_spans("a b c", [(4, 5), (0, 1)], "a b c") == ((0, 1), (4, 5))


@pytest.mark.parametrize(
    ("spans", "units"),
    [
        ([], [0, 1, 3, 4]),
        ([(0, 5)], [0, 2, 3, 4]),  # a unit starts after a phrase, even inside a word
        ([(3, 9)], [0, 1, 4]),
        ([(0, 6), (6, 12)], [0, 2]),
        ([(8, 30)], [0, 1, 3]),
        ([(20, 30)], [0, 1, 3, 4]),
        ([(4, 6), (7, 8)], [0, 1, 3, 4]),  # no token starts inside these spans
    ],
)
def test_units_start_at_phrases_and_at_words_outside_them(spans: list[tuple[int, int]], units: list[int]) -> None:
    begin_S = np.array([0, 3, 6, 8, 11])
    words_S = np.array([True, True, False, True, True])
    assert np.flatnonzero(phrase_starts(begin_S, words_S, spans)).tolist() == units


DAMAGED = (
    "The \ufb01ne  caf\xe9 AT&amp;T wrote. caf\xc3\xa9 Noir is\x00 here.\r\n\r\n\r\n  New\tYork City! e\u0301cole  Z"
)


@pytest.mark.parametrize(
    ("phrase", "becomes"),
    [
        ("\ufb01ne", "fine"),
        ("AT&amp;T", "AT&T"),
        ("caf\xc3\xa9 Noir", "caf\xe9 Noir"),
        ("New\tYork City", "New York City"),
        ("e\u0301cole", "\xe9cole"),
        ("is\x00 here", "is here"),
        ("Z", "Z"),
    ],
)
def test_spans_follow_the_cleaned_text(phrase: str, becomes: str) -> None:
    """A ligature, an entity, mojibake, combining marks and whitespace: the characters change, the phrase does not."""
    text = normalize(repair_text(DAMAGED))
    start = DAMAGED.index(phrase)
    ((first, stop),) = relocate_spans(
        DAMAGED, [(start, start + len(phrase))], text, lambda raw: normalize(repair_text(raw))
    )
    assert text[first:stop] == becomes


def test_a_span_is_searched_if_its_line_is_repaired_as_a_whole() -> None:
    """Entities stay in a line with a tag, so a part of the line alone is repaired differently."""
    raw = "<b>A &amp; B</b> or AT&amp;T"
    start = raw.index("AT&")
    text = normalize(repair_text(raw))
    ((first, stop),) = relocate_spans(raw, [(start, len(raw))], text, lambda part: normalize(repair_text(part)))
    assert text[first:stop] == "AT&amp;T"


@pytest.mark.parametrize(
    ("spans", "moved"),
    [
        ([(0, 3)], ((0, 3),)),
        ([(3, 6)], ((3, 13),)),  # exactly the replaced range
        ([(4, 5)], ((3, 13),)),  # inside the replaced range
        ([(2, 4)], ((2, 13),)),
        ([(5, 9)], ((3, 16),)),
        ([(6, 9)], ((13, 16),)),
        ([(3, 5), (5, 6), (7, 8)], ((3, 13), (14, 15))),
        ([(9, 12), (13, 14)], ((16, 17), (18, 19))),  # two of three characters are removed
        ([(10, 12)], ()),
    ],
)
def test_spans_move_with_replaced_ranges(spans: list[tuple[int, int]], moved: tuple[tuple[int, int], ...]) -> None:
    assert move_spans(spans, [(3, 6, 10), (10, 12, 0)]) == moved


def test_phrases_are_repaired_like_the_text() -> None:
    assert found(["The \ufb01le", "AT&amp;T"], "The file of AT&T") == ["The file", "AT&T"]


def test_phrases_without_a_token_are_counted() -> None:
    assert num_without_token(np.array([0, 4, 8, 13]), [(0, 4), (1, 3), (5, 8), (8, 20)]) == 2
