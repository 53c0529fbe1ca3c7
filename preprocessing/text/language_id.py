"""Identify the language of a text with py3langid: byte n-grams and naive Bayes (Lui, Baldwin, ACL 2012, P12-3005).

The model is part of the package; nothing is downloaded.
"""

from functools import cache
from typing import Final

from py3langid.langid import MODEL_FILE, LanguageIdentifier

_CHARS: Final = (
    1000  # only the first ones are used; more take time and do not change the result for text in one language
)
UNKNOWN: Final = "und"  # ISO 639-2: undetermined


def language(text: str) -> tuple[str, float]:
    """The language code of a text and its probability from 0 to 1; ("und", 0.0) for a text without a letter.

    The code has two letters (ISO 639-1), or three (ISO 639-3), such as "yue", for languages without such a code.

    Only the first 1,000 characters are used. For a text in several languages, the result is the main language there.

    >>> language("Der Vertrag wurde gestern in aller Stille unterschrieben.")[0]
    'de'
    """
    head = text[:_CHARS]
    if not any(map(str.isalpha, head)):
        return UNKNOWN, 0.0
    code, probability = _identifier().classify(head)
    return code, round(probability, 4)  # the last digits of a sum in float32 depend on the machine


@cache
def _identifier() -> LanguageIdentifier:
    """The model, which is loaded on first use in half a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
