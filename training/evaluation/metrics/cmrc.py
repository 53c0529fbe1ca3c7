"""CMRC 2018's metrics (arXiv:1810.07366): exact match and F1 of Chinese answers, in characters."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from training.evaluation.metrics.squad import Golds

_DROPPED: Final = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # noqa: RUF001  # as in its script
_RULES: Final = tuple(  # rules of nltk 3.10's NLTKWordTokenizer, in order, except those for dropped punctuation
    (re.compile(pattern), written)
    for pattern, written in (
        ("([«\u2018„])", r" \1 "),
        (r'^"', "``"),
        ("(``)", r" \1 "),
        (r"""([ \(\[{<])("|'{2})""", r"\1 `` "),
        (r"(?<!\w)(')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
        (r"""([^\.])(\.)([\]\)}>"'»\u201d\u2019 ]*+)\s*$""", r"\1 \2 \3 "),
        (r"(,)([^\d])", r" \1 \2"),
        ("(,)$", r" \1 "),
        (r"(\.{2,})", r" \1 "),
        ("([;@#$%&])", r" \1 "),
        ("([\u2012-\u2015])", r" \1 "),
        (r"""([^\.])(\.)([\]\)}>"']*)\s*$""", r"\1 \2\3 "),
        ("([?!])", r" \1 "),
        ("([^'])' ", r"\1 ' "),
        (r"([\]\[\(\)\{\}\<\>])", r" \1 "),
        (r"\A|\Z", " "),
        ("([»\u201d\u2019])", r" \1 "),
        ("''", " '' "),
        ('"', " '' "),
        (r"\s+", " "),
        ("([^' ])('s|'m|'d|') ", r"\1 \2 "),
        ("([^' ])('ll|'re|'ve|n't) ", r"\1 \2 "),
        (r"\b(can)(not)\b", r" \1 \2 "),
        (r"\b(d)('ye)\b", r" \1 \2 "),
        (r"\b(gim)(me)\b", r" \1 \2 "),
        (r"\b(gon)(na)\b", r" \1 \2 "),
        (r"\b(got)(ta)\b", r" \1 \2 "),
        (r"\b(lem)(me)\b", r" \1 \2 "),
        (r"\b(more)('n)\b", r" \1 \2 "),
        (r"\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r" ('t)(is)\b", r" \1 \2 "),
        (r" ('t)(was)\b", r" \1 \2 "),
    )
)


def strip_punctuation(answer: str) -> str:
    """Normalize an answer for exact match: lower case, without the script's punctuation.

    >>> strip_punctuation("《红楼梦》 A")
    '红楼梦 a'
    """
    return answer.lower().strip().translate(_DROPPED)


def units(answer: str) -> list[str]:
    """Split an answer into Chinese characters and, between them, the words of nltk's tokenizer, as in the script.

    Punctuation unknown to nltk stays with the adjacent word.

    >>> units("约1,000名GPT-2用户"), units("约翰‧史密斯 5°"), units("it's 5% (a.b.)")
    (['约', '1,000', '名', 'gpt2', '用', '户'], ['约', '翰', '‧', '史', '密', '斯', '5°'],
     ['it', "'s", '5', '%', '(', 'a.b', '.', ')'])
    """
    return [unit for part in _parts(strip_punctuation(answer)) for unit in _words(part)]


def _words(part: str) -> list[str]:
    """Split a part without Chinese characters into words and punctuation, as one sentence."""
    if len(part) == 1 and "\u4e00" <= part <= "\u9fa5":
        return [part]
    for pattern, written in _RULES:
        part = pattern.sub(written, part)
    return part.split()


def _parts(text: str) -> list[str]:
    """Split the text at Chinese characters, so that letters and digits between two of them are separate words."""
    return re.findall(r"[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+", text)


def f1(gold: str, predicted: str) -> float:
    """F1 over the longest common substring, counted in `units`.

    >>> round(f1("北京大学", "在北京的大学"), 3)
    0.4
    """
    one, other = units(gold), units(predicted)
    longest = _longest(one, other)
    return 2 * longest / (len(one) + len(other)) if longest else 0.0


def _longest(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common substring."""
    best, before = 0, [0] * (len(other) + 1)
    for unit in one:
        after = [0] * (len(other) + 1)
        for place, same in enumerate(other):
            if unit == same:
                after[place + 1] = before[place] + 1
        best, before = max(best, *after), after
    return best


def cmrc(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent over all questions; a missing prediction counts as 0 (cmrc2018_evaluate.py)."""
    if not golds:
        raise ValueError("no question to score; give at least one")
    found = [(golds[id], predictions[id]) for id in golds if id in predictions]
    exacts = [
        max(float(strip_punctuation(gold) == strip_punctuation(given)) for gold in answers) for answers, given in found
    ]
    f1s = [max(f1(gold, given) for gold in answers) for answers, given in found]
    return {"exact": 100 * sum(exacts) / len(golds), "f1": 100 * sum(f1s) / len(golds)}
