"""Detect implausible sentences: sentences that are too long show that their ends were not found."""

import re
from collections.abc import Iterable
from typing import Final

from preprocessing.text.abbreviations import WITHOUT_MARKS

# The median of correct sentences is 88 (German, Armenian) to 123 (Spanish) characters.
_MOST: Final = 250
_MOST_CJK: Final = 80  # Chinese and Japanese
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_SCRIPTS: Final = {name: re.compile(f"[{script}]") for name, script in WITHOUT_MARKS.values()}
_SHARE: Final = 0.1  # smallest fraction of characters for which a script is reported


def describe_unmarked(sentences: Iterable[str]) -> str:
    """A message if the text of these sentences is in a script without sentence marks, or "".

    >>> describe_unmarked(["One.", " Two."])
    ''
    """
    text = "".join(sentences)
    names = [name for name, script in _SCRIPTS.items() if _share(script, text) >= _SHARE]
    return f"{' and '.join(names)} without sentence marks: sentences end at line ends and spaces" if names else ""


def describe_implausible(sentences: Iterable[str]) -> str:
    """A message if the median length of these sentences is implausible, or "".

    >>> describe_implausible(["One.", " Two.", " " + "word " * 60])
    ''
    >>> describe_implausible(["word " * 60])
    'the median length is 299 characters, but more than 250 are implausible: sentence ends were probably not found'
    """
    stripped = [sentence.strip() for sentence in sentences]
    median = sorted(map(len, stripped))[len(stripped) // 2] if stripped else 0
    most = _MOST_CJK if _share(_CJK, "".join(stripped)) >= 0.5 else _MOST
    if median <= most:
        return ""
    return (
        f"the median length is {median} characters, but more than {most} are implausible: "
        "sentence ends were probably not found"
    )


def _share(script: re.Pattern[str], text: str) -> float:
    return len(script.findall(text)) / max(1, len(text))
