"""How sentencepiece normalises text: by a rule of its own, or by a table that also takes accents away."""

import sys
import unicodedata
from functools import cache
from typing import Any, Final

from sentencepiece import SentencePieceNormalizer, set_min_log_level

_NO_TEXT: Final = {"Cn", "Co", "Cs"}  # categories of code points that no text has: unassigned, private, surrogates
_PLAIN: Final[dict[str, Any]] = dict.fromkeys(
    ("add_dummy_prefix", "escape_whitespaces", "remove_extra_whitespaces"), False
)
_ERRORS_ONLY: Final = 2


def rule(*, lowercase: bool) -> str:
    """The name of sentencepiece's own rule, which leaves accents where they are."""
    return "nmt_nfkc_cf" if lowercase else "nmt_nfkc"


@cache
def build_normalizer(*, lowercase: bool, strip_accents: bool) -> bytes:
    """The normaliser alone, as a sentencepiece model has it."""
    if not strip_accents:
        return SentencePieceNormalizer(rule_name=rule(lowercase=lowercase)).serialized_model_proto()
    set_min_log_level(_ERRORS_ONLY)  # or it says in three lines what it has read
    return SentencePieceNormalizer(norm_map=_without_accents(lowercase)).serialized_model_proto()


@cache
def plain(*, lowercase: bool, strip_accents: bool) -> SentencePieceNormalizer:
    """The same, which leaves spaces as they are."""
    return SentencePieceNormalizer(
        model_proto=build_normalizer(lowercase=lowercase, strip_accents=strip_accents), **_PLAIN
    )


def _without_accents(lowercase: bool) -> list[tuple[str, str]]:
    """sentencepiece's default rule for each character, in lower case if so wanted, without what stands above or below.

    That is every mark of Unicode's class Mn, in each script, as XLM's authors have it (lowercase_and_remove_accent.py):
    of Thai and Hindi some vowels too. Hangul is put together again, which they leave in pieces.
    """
    default = SentencePieceNormalizer(rule_name=rule(lowercase=False), **_PLAIN)
    chars = [char for char in map(chr, range(1, sys.maxunicode + 1)) if unicodedata.category(char) not in _NO_TEXT]
    bare = [_bare(char, lowercase) for char in chars]
    made = [
        _bare(found, lowercase) if _bare(found, False) == unicodedata.normalize("NFC", found) else once
        for once, found in zip(
            bare, default.normalize(bare), strict=True
        )  # a mark that only the rule makes is a letter
    ]
    return [(char, after) for char, after in zip(chars, made, strict=True) if char != after]


def _bare(text: str, lowercase: bool) -> str:
    """A text without nonspacing marks, in lower case if so wanted.

    >>> _bare("\u00c9t\u00e9", True), _bare("\u00c9t\u00e9", False)
    ('ete', 'Ete')
    """
    parts = unicodedata.normalize("NFD", text.lower() if lowercase else text)
    bare = "".join(char for char in parts if unicodedata.category(char) != "Mn")
    return unicodedata.normalize("NFC", bare)
