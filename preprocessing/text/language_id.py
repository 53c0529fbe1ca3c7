"""Identify the language of a text with py3langid: byte n-grams and naive Bayes (Lui, Baldwin, ACL 2012, P12-3005).

The model is part of the package; nothing is downloaded.
"""

from functools import cache
from typing import Final

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from preprocessing.characters import pin_characters

_CHARS: Final = (
    1000  # only the first ones are used; more take time and do not change the result for text in one language
)
UNKNOWN: Final = "und"  # ISO 639-2: undetermined
_LABELS: Final = """
    ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr
    fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko
    ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl ps pt qu ro ru
    rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo yue
    zh zu zxx
"""  # of the model; loading it takes half a second
LANGUAGES: Final = frozenset({*_LABELS.split(), UNKNOWN})
"""All codes that `language` can return. "zxx" stands for text that is not in a language."""
# Our code -> other codes (ISO 639-2 and -3) and names of the language; only for languages that are often requested.
_OTHER_NAMES: Final = {
    "ar": ("ara", "arabic"),
    "cs": ("ces", "cze", "czech"),
    "da": ("dan", "danish"),
    "de": ("deu", "ger", "german", "deutsch"),
    "el": ("ell", "gre", "greek"),
    "en": ("eng", "english"),
    "es": ("spa", "spanish"),
    "fa": ("fas", "per", "persian", "farsi"),
    "fi": ("fin", "finnish"),
    "fr": ("fra", "fre", "french"),
    "he": ("heb", "hebrew", "iw"),
    "hi": ("hin", "hindi"),
    "id": ("ind", "indonesian"),
    "it": ("ita", "italian"),
    "ja": ("jpn", "japanese"),
    "ko": ("kor", "korean"),
    "nl": ("nld", "dut", "dutch"),
    "no": ("nor", "nob", "nb", "norwegian"),
    "pl": ("pol", "polish"),
    "pt": ("por", "portuguese"),
    "ru": ("rus", "russian"),
    "sv": ("swe", "swedish"),
    "tr": ("tur", "turkish"),
    "uk": ("ukr", "ukrainian"),
    "vi": ("vie", "vietnamese"),
    "zh": ("zho", "chi", "cmn", "chinese"),
}
_CODE_OF: Final = {name: code for code, names in _OTHER_NAMES.items() for name in names}


def language(text: str) -> tuple[str, float]:
    """The language code of a text and its probability from 0 to 1; ("und", 0.0) for a text without a letter.

    The code has two letters (ISO 639-1), or three (ISO 639-3), such as "yue", for languages without such a code.

    Only the first 1,000 characters are used. For a text in several languages, the result is the main language there.

    >>> language("Der Vertrag wurde gestern in aller Stille unterschrieben.")[0]
    'de'
    """
    head = text[:_CHARS]
    if not _has_letter(head):
        return UNKNOWN, 0.0
    code, probability = _identifier().classify(head)
    return code, round(probability, 4)  # the last digits of a sum in float32 depend on the machine


@pin_characters
def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def nearest_code(name: str) -> str:
    """The code in LANGUAGES that a name or another code of a language means; "" if it is not known.

    >>> nearest_code("EN"), nearest_code("eng"), nearest_code("English"), nearest_code("en-US"), nearest_code("xx")
    ('en', 'en', 'en', 'en', '')
    """
    word = name.strip().lower().replace("_", "-").partition("-")[0]
    return word if word in LANGUAGES else _CODE_OF.get(word, "")


@cache
def _identifier() -> LanguageIdentifier:
    """The model, which is loaded on first use in half a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
