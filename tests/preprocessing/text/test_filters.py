"""C4 and Gopher rules at their limits, and the fast repetition rules against literal definitions."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from preprocessing.text import apply_rules
from preprocessing.text import filters as quality

LINE = "The cat sat on the mat and looked at the dog. "
SHORT_LINE = "the morning and the evening of every single day"
PROSE = (
    "It was late in the year when the two of them set out for the coast. Nobody had told them that the road would be "
    "closed, and so they walked for hours through fields, past barns, along a river whose name neither could recall. "
    "Towards evening a farmer with a cart gave them bread and asked what they hoped to find beyond those hills."
)


def words(num: int, length: int = 5) -> str:
    """Return `num` different words of about the same length; two of them are stop words."""
    return " ".join(["the", "and", *(f"{chr(97 + i % 26)}{i:0{length - 1}d}" for i in range(num - 2))])


# --- C4 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("One two three four five.", True),
        ('"One two three four five"', True),
        ("One two three four five!", True),
        ("One two three four five?", True),
        ("One two three four.", False),
        ("One two three four five", False),
        ("One two three four five;", False),
        ("One two three four five...", False),
        ("One two three four five\u2026", False),
        (f"One two three four {'x' * 999}.", True),
        (f"One two three four {'x' * 1000}.", False),
        ("Please enable JavaScript to see this page.", False),
        ("Here we tell you about our Privacy Policy.", False),
        ("By staying here you accept our Terms of Use.", False),
        ("This site uses cookies, as do most.", False),
        ("Here one may use cookies, made of flour.", False),
    ],
)
def test_c4_keeps_prose_lines_only(line: str, kept: bool) -> None:
    page = "\n".join([LINE.strip()] * 3)
    after, reason = apply_rules(f"{page}\n{line}", ["c4"])
    assert reason == ""
    assert after == (f"{page}\n{line}" if kept else page)


def test_a_curly_quotation_mark_ends_a_sentence_unlike_in_c4() -> None:
    assert quality.c4_line("\u201cOne two three four five.\u201d") != ""


def test_c4_removes_citation_marks_before_it_checks_the_end() -> None:
    assert quality.c4_line(" One two[12] three four five.[citation needed][] ") == "One two three four five."
    assert quality.c4_line("One two [see] three four five.") == "One two [see] three four five."


@pytest.mark.parametrize("num_sentences", [2, 3])
def test_c4_requires_three_sentences_on_any_number_of_lines(num_sentences: int) -> None:
    expected = "" if num_sentences == 3 else "c4_few_sentences"
    assert apply_rules(LINE * num_sentences, ["c4"])[1] == expected
    assert apply_rules(f"{LINE}\n\n" * num_sentences, ["c4"])[1] == expected


@pytest.mark.parametrize(
    ("inside", "reason"),
    [("if (a) {", "c4_curly_bracket"), ("}", ""), ("Lorem Ipsum dolor", "c4_lorem_ipsum")],
)
def test_c4_drops_the_page_even_if_the_line_is_dropped(inside: str, reason: str) -> None:
    """The C4 code searches only the kept lines; Sesame searches the whole page, as the paper says."""
    assert apply_rules(f"{LINE * 3}\n{inside}", ["c4"])[1] == reason


def test_c4_has_no_bad_word_list() -> None:
    assert apply_rules(f"Damn {LINE * 3}", ["c4"]) == (f"Damn {LINE * 3}".strip(), "")


# --- Gopher: quality --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "gopher_word_count"),
        (words(49), "gopher_word_count"),
        (words(50), ""),
        (words(100_000, 7), ""),
        (words(100_001, 7), "gopher_word_count"),
        ("the and " + "ab " * 98, "gopher_mean_word_length"),
        ("the and " + "abc " * 98, ""),
        ("the and " + "abcdefghij " * 98, ""),
        ("the and " + "abcdefghijk " * 98, "gopher_mean_word_length"),
        (words(90) + " #tag" * 9, ""),
        (words(90) + " #tag" * 10 + "#", "gopher_hash_signs"),
        (words(100) + "..." * 10 + " end", ""),
        (words(100) + "..." * 5 + "\u2026" * 6 + " end", "gopher_ellipses"),
        ("\n".join(["- item and thing that sat"] * 9 + ["the end of it"]), ""),
        ("\n".join(["- item and thing that sat"] * 10), "gopher_bullet_lines"),
        ("\n".join(["\u2022 item of the thing"] * 10 + ["* item that sat"] * 4), "gopher_bullet_lines"),
        ("\n\n".join([SHORT_LINE] * 7 + [f"{SHORT_LINE}..."] * 3), ""),
        ("\n\n".join([SHORT_LINE] * 6 + [f"{SHORT_LINE}\u2026"] * 3), "gopher_ellipsis_lines"),
        (words(80) + " 12345" * 20, ""),
        (words(80) + " 12345" * 21, "gopher_words_without_letters"),
        (words(80) + " (a)" * 21, ""),
        ("The AND " + "abcde " * 60, ""),
        ("the the " + "abcde " * 60, "gopher_stop_words"),
        (PROSE, ""),
    ],
)
def test_gopher_quality_at_its_limits(text: str, reason: str) -> None:
    assert apply_rules(text, ["gopher_quality"]) == (text, reason)


# --- Gopher: repetition -----------------------------------------------------------------------------------------------


def reference_duplicates(text: str, separator: str) -> list[float]:
    """Return the fraction of repeated pieces, and of the characters in them."""
    pieces = [piece for piece in text.split(separator) if piece.strip()]
    again = [piece for nth, piece in enumerate(pieces) if piece in pieces[:nth]]
    num_chars = sum(map(len, pieces))
    return [len(again) / max(len(pieces), 1), sum(map(len, again)) / max(num_chars, 1)]


def reference_ngrams(text: str) -> dict[str, float]:
    """Return the fraction of characters in the most frequent n-gram, and in repeated n-grams."""
    page = text.split()
    total = sum(map(len, page))
    shares = {}
    for n in range(2, 11):
        ngrams = [tuple(page[i : i + n]) for i in range(len(page) - n + 1)]
        counts = Counter(ngrams)
        most = max(counts.values(), default=0)
        if n <= 4:
            longest = max((len("".join(ngram)) for ngram, count in counts.items() if count == most), default=0)
            shares[f"gopher_top_{n}gram"] = most * longest / total if most > 1 else 0.0
        else:
            covered = {i + k for i, ngram in enumerate(ngrams) if ngram in ngrams[:i] for k in range(n)}
            shares[f"gopher_duplicate_{n}grams"] = sum(len(page[i]) for i in covered) / total
    return shares


LIMITS = {
    "gopher_top_2gram": 0.2,
    "gopher_top_3gram": 0.18,
    "gopher_top_4gram": 0.16,
    "gopher_duplicate_5grams": 0.15,
    "gopher_duplicate_6grams": 0.14,
    "gopher_duplicate_7grams": 0.13,
    "gopher_duplicate_8grams": 0.12,
    "gopher_duplicate_9grams": 0.11,
    "gopher_duplicate_10grams": 0.10,
}


def repetitive_text(draw: random.Random) -> str:
    """Return words from a small or large vocabulary, with up to three ranges copied to other places."""
    vocabulary = ["".join(draw.choices("abcde", k=draw.randint(1, 6))) for _ in range(draw.choice([3, 20, 400]))]
    page = draw.choices(vocabulary, k=draw.randint(1, 120))
    for _ in range(draw.randint(0, 3)):
        start, to = draw.randrange(len(page)), draw.randrange(len(page))
        page[to:to] = page[start : start + draw.randint(2, 14)]
    return " ".join(page)


def test_repeated_ngrams_equal_their_definition() -> None:
    draw = random.Random(3)
    seen = Counter[str]()
    for _ in range(500):
        text = repetitive_text(draw)
        shares = reference_ngrams(text)
        expected = next((reason for reason, share in shares.items() if share > LIMITS[reason]), "")
        assert quality.repeated_ngrams(text) == expected, text
        seen[expected] += 1
    assert seen[""] > 50
    assert len(seen) >= 9, seen


def test_each_ngram_fraction_equals_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit just below the defined fraction triggers the rule, and one just above does not."""
    draw = random.Random(4)
    num_checked = 0
    for _ in range(60):
        text = repetitive_text(draw)
        for reason, share in reference_ngrams(text).items():
            n = int("".join(filter(str.isdigit, reason)))
            for limit, expected in ((share * 0.999, reason if share else ""), (share * 1.001, "")):
                top = dict.fromkeys(quality._MOST_IN_TOP, 1e9) | ({n: limit} if n <= 4 else {})
                others = dict.fromkeys(quality._MOST_IN_DUPLICATES, 1e9) | ({n: limit} if n > 4 else {})
                monkeypatch.setattr(quality, "_MOST_IN_TOP", top)
                monkeypatch.setattr(quality, "_MOST_IN_DUPLICATES", others)
                assert quality.repeated_ngrams(text) == expected, (text, reason, share)
                num_checked += share > 0
    assert num_checked > 200


@pytest.mark.parametrize(("separator", "name"), [("\n", "line"), ("\n\n", "paragraph")])
def test_duplicate_lines_and_paragraphs_equal_their_definition(separator: str, name: str) -> None:
    draw = random.Random(5)
    seen = Counter[str]()
    for _ in range(500):
        stock = ["".join(draw.choices("abc", k=draw.choice([1, 4, 30]))) for _ in range(draw.choice([3, 12, 60]))]
        text = separator.join(draw.choices(stock, k=draw.randint(1, 20)))
        by_count, by_chars = reference_duplicates(text, separator)
        expected = f"gopher_duplicate_{name}_characters" if by_chars > 0.2 else ""
        expected = f"gopher_duplicate_{name}s" if by_count > 0.3 else expected
        assert quality.duplicate_pieces(text, separator, name) == expected, text
        seen[expected] += 1
    assert min(seen[reason] for reason in ("", f"gopher_duplicate_{name}s", f"gopher_duplicate_{name}_characters")) > 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n".join([PROSE, *["menu"] * 5]), "gopher_duplicate_lines"),
        ("\n".join([*"abcdefg", PROSE, PROSE]), "gopher_duplicate_line_characters"),
        ("\n\n".join(f"{i} {chr(97 + i)}x{i}\n{i * 7}y" for i in [*range(6), *range(4)]), "gopher_duplicate_lines"),
        (f"{PROSE} {'buy now ' * 20}", "gopher_top_2gram"),
        (f"{PROSE} {PROSE}", "gopher_duplicate_5grams"),
        (PROSE, ""),
        ("", ""),
        ("word", ""),
    ],
)
def test_gopher_repetition_examples(text: str, reason: str) -> None:
    assert apply_rules(text, ["gopher_repetition"]) == (text, reason)


def test_paragraphs_are_checked_after_lines() -> None:
    text = "\n\n".join([f"{PROSE}\na\nb\nc\nd\ne\nf", "x", "x", "x", "y", "y"])  # 3 of 12 lines, 3 of 6 paragraphs
    assert apply_rules(text, ["gopher_repetition"])[1] == "gopher_duplicate_paragraphs"


# --- together ---------------------------------------------------------------------------------------------------------


def test_rules_are_applied_in_order_to_the_remaining_text() -> None:
    menu = "\n".join(["- menu"] * 200)
    text = f"{menu}\n{PROSE}"
    assert apply_rules(text, ["gopher_repetition", "c4"])[1] == "gopher_duplicate_lines"
    assert apply_rules(text, ["c4", "gopher_repetition", "gopher_quality"]) == (PROSE, "")


def test_without_rules_every_text_is_kept() -> None:
    assert apply_rules("{", []) == ("{", "")


@pytest.mark.parametrize("piece", ["a ", "a", "\n", "[", " ."])
def test_hostile_text_is_rejected(piece: str) -> None:
    assert apply_rules(piece * 300_000, ["gopher_repetition", "gopher_quality", "c4"])[1]


def test_removed_citation_marks_leave_no_double_blanks() -> None:
    page = "It had rained all day. [3] Then the sun came out again. [12] Nobody had seen that coming."
    assert apply_rules(page, ["c4"]) == (
        "It had rained all day. Then the sun came out again. Nobody had seen that coming.",
        "",
    )


def test_the_page_lists_each_reason_with_its_threshold() -> None:
    page = (Path(__file__).parents[3] / "docs/guides/corpora.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `((?:c4|gopher)_\w+)` \| (.*) \|$", page, re.MULTILINE))
    source = Path(quality.__file__).read_text(encoding="utf-8")
    named = set(re.findall(r'"((?:c4|gopher)_\w*[a-z])"', source))
    reasons = named - {"gopher_quality", "gopher_repetition"}
    for name in ("line", "paragraph"):
        share = f"{quality._MOST_DUPLICATE:.0%}", f"{quality._MOST_DUPLICATE_CHARACTERS:.0%}"
        assert share[0] in rows[f"gopher_duplicate_{name}s"]
        assert share[1] in rows[f"gopher_duplicate_{name}_characters"]
        reasons |= {f"gopher_duplicate_{name}s", f"gopher_duplicate_{name}_characters"}
    for n, most in quality._MOST_IN_TOP.items():
        reasons.add(f"gopher_top_{n}gram")
        assert f"{most:.0%}" in rows[f"gopher_top_{n}gram"]
    for n, most in quality._MOST_IN_DUPLICATES.items():
        reasons.add(f"gopher_duplicate_{n}grams")
        assert f"{most:.0%}" in rows[f"gopher_duplicate_{n}grams"]
    assert rows.keys() == reasons
