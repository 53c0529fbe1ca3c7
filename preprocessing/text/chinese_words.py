"""Where the words of Chinese text begin, which has no spaces: jieba's dictionary, and its model for unknown words.

jieba scores 0.80 in word F1 on UD Chinese GSD, which cuts finer (test_chinese_words.py). Its dictionary takes a
second to load.
"""

import re
from functools import lru_cache
from itertools import accumulate
from typing import Final

import jieba
import numpy as np

from preprocessing.schema import Bools, Ints

# Of a run without any mark 1,000 characters at once: jieba takes quadratic time for characters that it does not know.
_CHINESE: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]{1,1000}")


def chinese_words(text: str) -> list[int]:
    """The positions of characters at which a word begins, inside runs of Chinese characters only.

    >>> chinese_words("ok \u6211\u4eec\u8d70\u4e86")  # we | walk | -ed
    [3, 5, 6]
    """
    return [start for run in _CHINESE.finditer(text) for start in _starts(run)]


def chinese_word_starts(text: str, begin_S: Ints, word_starts_S: Bools) -> Bools:
    """Starts of words for the tokens of a text that begin at the characters `begin_S`: in Chinese runs those of jieba.

    A word begins at the first token that begins where the word does, and where a run ends; a boundary inside a token is
    lost. Elsewhere `word_starts_S` stays as it is.
    """
    is_inside_C, is_start_C = np.zeros((2, len(text) + 1), np.bool_)
    for run in _CHINESE.finditer(text):
        is_inside_C[run.start() : run.end()] = True
        is_start_C[[*_starts(run), run.end()]] = True
    is_first_S = np.append(True, begin_S[1:] != begin_S[:-1])[: len(begin_S)]
    is_start_S = is_start_C[begin_S] & is_first_S
    return np.where(is_inside_C[begin_S], is_start_S, word_starts_S | is_start_S)


def _starts(run: re.Match[str]) -> list[int]:
    """Positions at which the words of a run begin."""
    return list(accumulate(map(len, _jieba().cut(run[0])), initial=run.start()))[:-1]


@lru_cache(maxsize=1)
def _jieba() -> jieba.Tokenizer:
    """A tokenizer of our own, its dictionary read at first use: jieba itself would write it to a file in /tmp."""
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer
