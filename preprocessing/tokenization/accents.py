"""text, vocabulary -> what it does not keep: accents, which in other scripts are vowels; white space of source code.

BERT's lower-casing also removes each combining mark (google-research/bert, tokenization.py, `_run_strip_accents`); its
authors advise against that for languages of other scripts (multilingual.md there).
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from preprocessing.tokenization.specs import KINDS
from preprocessing.tokenization.vocab import Vocab

_WORD: Final = re.compile(r"\S{1,20}")  # words of some scripts have no blanks between them
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_LAYOUTS: Final = ("a b", "a  b", "a\tb", "a\nb", "a\n\nb", "a\n\n\nb", "a\n  b")
_SHARE: Final = 0.005  # of the characters; English text has a tenth of that in foreign names


def keeps_whitespace(vocab: Vocab) -> bool:
    """Whether the ids of a text have its white space: indentation, tabs, runs of blanks and of lines."""
    return vocab.is_of_bytes or len({tuple(vocab.encode(text)) for text in _LAYOUTS}) == len(_LAYOUTS)


def without_whitespace(kind: str) -> str:
    """The error for a text whose white space is kept, and a vocabulary that does not keep it."""
    kinds = " or ".join(name for name, each in KINDS.items() if each.is_of_bytes)
    return (
        f"clean.whitespace is 'keep', and a vocabulary of kind {kind} reads runs of white space as one blank; take one "
        f"of kind {kinds} (data.tokenizer.kind), or leave clean.whitespace out"
    )


def describe_stripped_marks(texts: Iterable[str], vocab: Vocab) -> str:
    """That `vocab` reads these texts without a good part of their marks, and a word where that is so, or ""."""
    example, lost, characters = "", 0, 0
    for text in texts:
        missing = _lost(text, vocab)
        lost, characters = lost + missing, characters + len(text)
        if missing and not example:
            word = next((word for word in _WORD.findall(text) if _lost(word, vocab)), text[:20])
            example = f"{word} as {vocab.normalised(word).strip()}"
    if lost <= _SHARE * characters:
        return ""
    key = KINDS[vocab.kind].strips_marks
    return (
        f"the vocabulary takes off the accents and vowel signs of {lost / characters:.1%} of the characters, and reads "
        f"{example}; {f'data.tokenizer.{key}=false' if key else 'another vocabulary'} keeps them"
    )


def _lost(text: str, vocab: Vocab) -> int:
    return max(0, _marks(text) - _marks(vocab.normalised(text)))


def _marks(text: str) -> int:
    """Combining marks, those inside of composed characters too.

    >>> _marks("é ё が"), _marks("e")
    (3, 0)
    """
    decomposed = unicodedata.normalize("NFD", text)
    return sum(unicodedata.category(char) == "Mn" for char in _BEYOND_ASCII.findall(decomposed))
