"""Text normalization by sentencepiece, with its own rule or with a table that also removes accents."""

import sys
import unicodedata
from functools import cache
from typing import Any, Final

from sentencepiece import SentencePieceNormalizer, set_min_log_level

from preprocessing.characters import get_category, pin_characters

_NO_TEXT: Final = {"Cn", "Co", "Cs"}  # categories of code points outside text: unassigned, private use, surrogates
_PLAIN: Final[dict[str, Any]] = dict.fromkeys(
    ("add_dummy_prefix", "escape_whitespaces", "remove_extra_whitespaces"), False
)
_ERRORS_ONLY: Final = 2


def rule(*, lowercase: bool) -> str:
    """Return the name of sentencepiece's own rule, which keeps accents."""
    return "nmt_nfkc_cf" if lowercase else "nmt_nfkc"


@cache
def build_normalizer(*, lowercase: bool, strip_accents: bool) -> bytes:
    """Return a sentencepiece model that contains only the normalizer."""
    if not strip_accents:
        return SentencePieceNormalizer(rule_name=rule(lowercase=lowercase)).serialized_model_proto()
    set_min_log_level(_ERRORS_ONLY)  # suppress three log lines about the table
    return SentencePieceNormalizer(norm_map=_without_accents(lowercase)).serialized_model_proto()


@cache
def plain(*, lowercase: bool, strip_accents: bool) -> SentencePieceNormalizer:
    """Return the same normalizer, without any change of spaces."""
    return SentencePieceNormalizer(
        model_proto=build_normalizer(lowercase=lowercase, strip_accents=strip_accents), **_PLAIN
    )


def _without_accents(lowercase: bool) -> list[tuple[str, str]]:
    """Return sentencepiece's default rule without nonspacing marks, as (character, replacement); optionally lower-case.

    All marks of Unicode's category Mn are removed, in every script, as by XLM's authors
    (lowercase_and_remove_accent.py). In Thai and Hindi these include some vowels. Hangul is composed again; the
    reference leaves it decomposed.
    """
    default = SentencePieceNormalizer(rule_name=rule(lowercase=False), **_PLAIN)
    chars = [char for char in map(chr, range(1, sys.maxunicode + 1)) if get_category(char) not in _NO_TEXT]
    bare = [_bare(char, lowercase) for char in chars]
    replacements = [
        _bare(folded, lowercase) if _bare(folded, False) == unicodedata.normalize("NFC", folded) else once
        for once, folded in zip(
            bare, default.normalize(bare), strict=True
        )  # skip the rule if its result has a nonspacing mark
    ]
    return [(char, after) for char, after in zip(chars, replacements, strict=True) if char != after]


@pin_characters
def _bare(text: str, lowercase: bool) -> str:
    """Remove nonspacing marks from a text, and optionally convert it to lower case.

    >>> _bare("\u00c9t\u00e9", True), _bare("\u00c9t\u00e9", False)
    ('ete', 'Ete')
    """
    parts = unicodedata.normalize("NFD", text.lower() if lowercase else text)
    bare = "".join(char for char in parts if get_category(char) != "Mn")
    return unicodedata.normalize("NFC", bare)
