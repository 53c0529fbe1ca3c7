"""MLQA's metrics (arXiv:1910.07475): exact match and word F1 of answers in seven languages."""

import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Final

from training.evaluation.metrics.squad import Golds, overlap

_WORDS: Final = {  # ignored words by language
    "en": "a an the",
    "es": "un una unos unas el la los las",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "vi": "của là cái chiếc những",
}
_DROPPED: Final = {
    **{language: re.compile(rf"\b({words.replace(' ', '|')})\b") for language, words in _WORDS.items()},
    "ar": re.compile("ال"),  # also removed inside words
    "hi": None,
    "zh": None,
}
_CHARACTER: Final = re.compile("([\u4e00-\u9fa5])")  # each is a separate word in Chinese
LANGUAGES: Final = tuple(_DROPPED)


def words(answer: str, language: str) -> list[str]:
    """The words of an answer for comparison: lower case, without punctuation of any script and without articles.

    >>> words("Das „Rote“ Haus", "de"), words("3月GDP。", "zh"), words("The U.S.", "es")
    (['rote', 'haus'], ['3', '月', 'gdp'], ['the', 'us'])
    """
    text = "".join(char for char in answer.lower() if not _is_punctuation(char))
    if dropped := _DROPPED[language]:
        text = dropped.sub(" ", text)
    return (_CHARACTER.sub(r" \1 ", text) if language == "zh" else text).split()


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def mlqa(golds: Golds, predictions: Mapping[str, str], languages: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent over all questions, as in mlqa_evaluation_v1.py.

    `languages` has the language of each question's answers. A missing prediction counts as 0.
    """
    if not golds:
        raise ValueError("no question to score; give at least one")
    exacts, f1s = 0.0, 0.0
    for id in golds.keys() & predictions.keys():
        given = words(predictions[id], languages[id])
        answers = [words(gold, languages[id]) for gold in golds[id]]
        exacts += given in answers
        f1s += max((overlap(gold, given) for gold in answers), default=0.0)
    return {"exact": 100 * exacts / len(golds), "f1": 100 * f1s / len(golds)}
