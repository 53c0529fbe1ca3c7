"""Characters have the same classes with every version of Python, and so do functions of texts that contain new ones.

The digests were recorded with Python 3.11, whose tables are those of Unicode 14.0. They must be equal with any other.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from pipeline.readers.gutenberg import strip_boilerplate
from pipeline.readers.python_docs import prose as python_prose
from pipeline.readers.wiki_leftovers import without_leftovers
from pipeline.readers.wiki_names import namespace
from pipeline.readers.wikitext import prose, tidy, visible
from preprocessing import characters, encodings
from preprocessing.characters import UNICODE, get_category, pin_characters
from preprocessing.text import (
    Gazetteer,
    apply_rules,
    language,
    mask_pii,
    normalize,
    repair_text,
    sentences,
)
from preprocessing.text.ngrams import find_tokens, hash_words
from preprocessing.text.urls import host_of, simplify_url
from preprocessing.tokenization.accents import _num_marks
from preprocessing.tokenization.byte_level_bpe import _short_words
from preprocessing.tokenization.folding import _bare

ROOT = Path(__file__).resolve().parents[2]
EVERY = "".join(map(chr, (*range(0x40000), *range(0xE0000, 0xE0200))))  # all other characters are unassigned
NEW = "".join(map(chr, characters._codes(f"{characters._LATER} {characters._LATER_SYMBOLS}")))


def digest(values: Any) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(values).encode())


@pin_characters
def of_each(text: str, function: Callable[[str], Any]) -> str:
    return "|".join(str(function(char)) for char in text)


def test_categories_are_those_of_one_version_of_unicode() -> None:
    assert digest("".join(map(get_category, EVERY))) == "eddc16f5399d18d9"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (str.isalpha, "78784758315d704f"),
        (str.isalnum, "2de8fd91aaf81c4c"),
        (str.isdecimal, "97c76619242d8de4"),
        (str.isdigit, "4824c045ecf2a5db"),
        (str.isspace, "7e0399f283803a9e"),
        (str.isupper, "beda94e1b9bf8062"),
        (str.lower, "f4058e4b480693fe"),
        (str.upper, "7ef7df2d96df301a"),
        (str.casefold, "10f350d654019eae"),
        (lambda char: "".join(char.splitlines()), "ec571ba8a1b67e0a"),
        (partial(unicodedata.normalize, "NFC"), "fe59f01695263745"),
        (partial(unicodedata.normalize, "NFD"), "104180096a70bd1d"),
        (partial(unicodedata.normalize, "NFKC"), "2068cf8335f3e301"),
    ],
)
def test_classes_and_case_are_those_of_one_version_of_unicode(function: Callable[[str], Any], expected: str) -> None:
    assert digest(of_each(EVERY, function)) == expected


def test_new_characters_are_those_of_the_newer_versions_of_unicode() -> None:
    """All characters that this Python assigns and Unicode 14.0 does not are in the tables."""
    assert len(set(NEW)) == len(NEW) == 10_301
    assert all(get_category(char) == "Cn" for char in NEW)
    is_assigned = [unicodedata.category(char) != "Cn" for char in NEW]
    assert any(is_assigned) == (unicodedata.unidata_version != UNICODE)


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "normalize": normalize,
    "repair": repair_text,
    "sentences": sentences,
    "pii": lambda text: mask_pii(text, ("email", "ip", "phone")),
    "filters": lambda text: apply_rules(text, ["c4", "gopher_quality", "gopher_repetition"]),
    "language": language,
    "words": lambda text: hash_words(text).astype(np.uint64).tolist(),
    "tokens": lambda text: find_tokens(text).start_T.tolist(),
    "host": lambda text: [host_of(f"http://{text[0]}\u00fc.org/"), simplify_url(f"//{text[0]}\u00dc.org/")],
    "phrases": Gazetteer(["York", "New York"]).find,
    "strange": encodings._strange,
    "marks": _num_marks,
    "bare": lambda text: _bare(text, True),
    "long": lambda text: list(_short_words(text + text[:1] * 1500)),
    "gutenberg": strip_boilerplate,
    "wikitext": lambda text: prose(text, frozenset({"file"})),
    "visible": lambda text: visible(text, frozenset({"file"})),
    "tidy": tidy,
    "leftovers": without_leftovers,
    "namespace": namespace,
    "python_docs": python_prose,
}


def texts_with(chars: Iterable[str]) -> list[str]:
    """Texts in which each character is next to a letter, a digit, a mark, white space and markup."""
    return [
        f"{one}York {one}. {one} A man{one}s word{one} e\u0323{one}\u0301 {one}{one}: jo{one}e.doe@mail.org and 8.8.8.8"
        f"{one} {one}1.\n{one}CHAPTER {one}_I{one}s_ no{one} [[File:{one}.jpg|{one}]] <{one}b> :{one}x:`y`"
        f" Caf\xc3\xa9{one}\n\nNew York is{one} New York, and the man of the hour was to be with us in {one}York."
        f" Was he? {one}He was.\nCONTENTS\n\n{one}I. One   1\nII. {one}Two   9\nIII. Three   20\n\n\n\n{one}I. One"
        "\n\nIt was.\n"
        for one in chars
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("normalize", "954d91e699effd48"),
        ("repair", "dfa74d86dd3dbbce"),
        ("sentences", "77e03aa71092aa6d"),
        ("pii", "dc864bf9180d7d32"),
        ("filters", "9033cadd3007f3e2"),
        ("language", "577af1922acb3777"),
        ("words", "63686db2dbb537a8"),
        ("tokens", "92b3bc23867cc0c0"),
        ("host", "3827497b0e963f07"),
        ("phrases", "b541f896a3686e8c"),
        ("strange", "f814cbfee03d9746"),
        ("marks", "b035b1679e7b65f6"),
        ("bare", "67f5a5dcaaa75e33"),
        ("long", "3d5a4a94cec20cfe"),
        ("gutenberg", "2c23a6a5a67529ef"),
        ("wikitext", "73594ccfe6ede10b"),
        ("visible", "c680d3e79ce21256"),
        ("tidy", "c680d3e79ce21256"),
        ("leftovers", "98c2a714878b7083"),
        ("namespace", "84f59dda488af8cf"),
        ("python_docs", "38b5dbe43f753039"),
    ],
)
def test_functions_of_texts_treat_new_characters_alike_with_every_python(name: str, expected: str) -> None:
    sample = NEW[::37] + "\u0ece\U00011f43\U00011f44\U00010efd\U0001e08f"
    assert digest([FUNCTIONS[name](text) for text in texts_with(sample)]) == expected


def test_original_characters_are_restored() -> None:
    new, other = "\U0001e030", chr(characters._FIRST_STAND_IN)
    for text in (new, f"a{new} {other}", f"{new}{chr(ord(new) + 1)} {other}{new}"):
        assert pin_characters(lambda text: [(text, 1), text.split()])(text) == [(text, 1), text.split()]
        assert pin_characters(len)(text) == len(text)


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline"])
def test_only_one_module_reads_the_tables_of_python(folder: str) -> None:
    """Other modules call `get_category` or decorate their functions with `pin_characters`."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "characters.py":
            assert not re.search(r"unicodedata\.(?!normalize)|from unicodedata", text), path
        # newer versions changed these for assigned characters, so a function that calls them cannot be pinned
        assert not re.search(r"\bstr\.(islower|isnumeric|isidentifier)|\.(islower|isnumeric|isidentifier)\(\)", text), (
            path
        )
