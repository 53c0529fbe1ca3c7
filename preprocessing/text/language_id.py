"""str -> the language it is written in, by py3langid: byte n-grams and naive Bayes (Lui, Baldwin, ACL 2012, P12-3005).

The model comes with the package; nothing is downloaded.
"""

from functools import cache
from typing import Final

from py3langid.langid import MODEL_FILE, LanguageIdentifier

_CHARS: Final = 1000  # looked at, from the start; more cost time and change nothing for text in one language
UNKNOWN: Final = "und"  # ISO 639-2: undetermined


def language(text: str) -> tuple[str, float]:
    """ISO 639-1 code and probability from 0 to 1; ("und", 0.0) for a text without a letter.

    A language without a code of two letters has one of three (ISO 639-3), such as "yue".

    Only the first 1,000 characters count: of a text in several languages, the one that leads there.

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
    """Read once in a process, on first use, in half a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
