"""CMRC 2018's metrics (arXiv:1810.07366): exact match and F1 of Chinese answers, in characters."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from training.metrics.squad import Golds

_DROPPED: Final = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # noqa: RUF001  # of its script
_UNIT: Final = re.compile(r"[\u4e00-\u9fa5]|(?:[^\W\u4e00-\u9fa5]|(?<=\w)\.(?=\w)|(?<=\w),(?=\d))+|[^\w\s]")


def stripped(answer: str) -> str:
    """The answer as exact match compares it: lower case, without the script's marks.

    >>> stripped("《红楼梦》 A")
    '红楼梦 a'
    """
    return answer.lower().strip().translate(_DROPPED)


def units(answer: str) -> list[str]:
    """Chinese characters one by one, words and marks of other scripts; the script cuts these with nltk, which agrees on
    words, numbers, and what is of both.

    >>> units("约1,000名GPT-2用户")
    ['约', '1,000', '名', 'gpt2', '用', '户']
    """
    return [unit for part in _parts(stripped(answer)) for unit in _UNIT.findall(part)]


def _parts(text: str) -> list[str]:
    """The text cut at Chinese characters, so that letters and digits between two of them are words of their own."""
    return re.findall(r"[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+", text)


def f1(gold: str, predicted: str) -> float:
    """F1 over the longest stretch of units that both have.

    >>> round(f1("北京大学", "在北京的大学"), 3)
    0.4
    """
    one, other = units(gold), units(predicted)
    longest = _longest(one, other)
    return 2 * longest / (len(one) + len(other)) if longest else 0.0


def _longest(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest stretch of both."""
    best, before = 0, [0] * (len(other) + 1)
    for unit in one:
        after = [0] * (len(other) + 1)
        for place, same in enumerate(other):
            if unit == same:
                after[place + 1] = before[place] + 1
        best, before = max(best, *after), after
    return best


def cmrc(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent over all questions; one without a prediction counts 0 (cmrc2018_evaluate.py)."""
    if not golds:
        raise ValueError("there is no question to score")
    found = [(golds[id], predictions[id]) for id in golds if id in predictions]
    exacts = [max(float(stripped(gold) == stripped(given)) for gold in answers) for answers, given in found]
    f1s = [max(f1(gold, given) for gold in answers) for answers, given in found]
    return {"exact": 100 * sum(exacts) / len(golds), "f1": 100 * sum(f1s) / len(golds)}
