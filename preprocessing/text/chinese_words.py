"""Segment Chinese text into words with jieba, which has a dictionary and a model for unknown words.

The word F1 of jieba is 0.80 on UD Chinese GSD, whose words are shorter (test_chinese_words.py). Loading its dictionary
takes a second.
"""

import re
import warnings
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from preprocessing.schema import Bools, Ints

if TYPE_CHECKING:
    import jieba

# At most 1,000 characters at once, because the time of jieba is quadratic in the number of unknown characters.
_CHINESE: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]{1,1000}")


def chinese_words(text: str) -> list[int]:
    """The character positions at which a word begins, only inside runs of Chinese characters.

    >>> chinese_words("ok \u6211\u4eec\u8d70\u4e86")  # we | walk | -ed
    [3, 5, 6]
    """
    return [start for run in _CHINESE.finditer(text) for start in _starts(run)]


def chinese_word_starts(text: str, begin_S: Ints, word_starts_S: Bools) -> Bools:
    """Word starts of the tokens that begin at the characters `begin_S`; jieba determines them in Chinese runs.

    A token starts a word if a word of jieba, or the text after a Chinese run, begins at the same character. Boundaries
    inside tokens are lost. Outside of Chinese runs, `word_starts_S` does not change.
    """
    is_inside_C, is_start_C = np.zeros((2, len(text) + 1), np.bool_)
    for run in _CHINESE.finditer(text):
        is_inside_C[run.start() : run.end()] = True
        is_start_C[[*_starts(run), run.end()]] = True
    is_first_S = np.append(True, begin_S[1:] != begin_S[:-1])[: len(begin_S)]
    is_start_S = is_start_C[begin_S] & is_first_S
    return np.where(is_inside_C[begin_S], is_start_S, word_starts_S | is_start_S)


def _starts(run: re.Match[str]) -> list[int]:
    """The positions at which the words of a run begin."""
    return list(accumulate(map(len, _jieba().cut(run[0])), initial=run.start()))[:-1]


@lru_cache(maxsize=1)
def _jieba() -> "jieba.Tokenizer":
    """A new tokenizer with its dictionary. The default loading of jieba would write a cache file to /tmp."""
    with warnings.catch_warnings():  # patterns of jieba have invalid escapes, which Python reports since 3.12
        warnings.simplefilter("ignore", SyntaxWarning)
        import jieba
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer
