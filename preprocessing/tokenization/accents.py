"""Check whether a tokenizer loses parts of a text: accents and vowel signs, or the white space of source code.

BERT's lower-casing also removes each combining mark (google-research/bert, tokenization.py, `_run_strip_accents`). Its
authors advise against this for languages in other scripts (multilingual.md there), where such marks may be vowels.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from preprocessing.characters import get_category, pin_characters
from preprocessing.tokenization.specs import KINDS
from preprocessing.tokenization.vocab import Vocab

_WORD: Final = re.compile(r"\S{1,20}")  # some scripts have no spaces between words
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_LAYOUTS: Final = ("a b", "a  b", "a\tb", "a\nb", "a\n\nb", "a\n\n\nb", "a\n  b")
# maximum fraction of lost characters; English text loses a tenth of this, because of foreign names
_MAX_LOST: Final = 0.005


def keeps_whitespace(vocab: Vocab) -> bool:
    """Return whether token IDs preserve the white space of a text: indentation, tabs, repeated spaces and newlines."""
    return vocab.is_of_bytes or len({tuple(vocab.encode(text)) for text in _LAYOUTS}) == len(_LAYOUTS)


def without_whitespace(kind: str) -> str:
    """Return the error message for a corpus with white space and a tokenizer that loses it."""
    kinds = " or ".join(name for name, each in KINDS.items() if each.is_of_bytes)
    return (
        f"data.tokenizer.kind: invalid value {kind}, expected {kinds} with clean.whitespace: keep, because {kind} "
        "does not preserve white space; change the kind, or remove clean.whitespace from the corpus file"
    )


def describe_stripped_marks(texts: Iterable[str], vocab: Vocab) -> str:
    """Return a warning with an example if `vocab` removes many combining marks from these texts; otherwise ""."""
    example, lost, characters = "", 0, 0
    for text in texts:
        missing = _num_lost(text, vocab)
        lost, characters = lost + missing, characters + len(text)
        if missing and not example:
            word = next((word for word in _WORD.findall(text) if _num_lost(word, vocab)), text[:20])
            example = f"{word} as {vocab.normalize(word).strip()}"
    if lost <= _MAX_LOST * characters:
        return ""
    key = KINDS[vocab.kind].strips_marks
    return (
        f"the tokenizer removes accents or vowel signs from {lost / characters:.1%} of the characters, e.g. it encodes "
        f"{example}; to keep them, {f'set data.tokenizer.{key}=false' if key else 'use another tokenizer'}"
    )


def _num_lost(text: str, vocab: Vocab) -> int:
    num_marks = _num_marks(text)
    return max(0, num_marks - _num_marks(vocab.normalize(text))) if num_marks else 0


@pin_characters
def _num_marks(text: str) -> int:
    """Return the number of combining marks, including those in composed characters.

    >>> _num_marks("é ё が"), _num_marks("e")
    (3, 0)
    """
    if text.isascii():
        return 0
    decomposed = unicodedata.normalize("NFD", text)
    return sum(get_category(char) == "Mn" for char in _BEYOND_ASCII.findall(decomposed))
