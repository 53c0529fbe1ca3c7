"""sentences -> what is implausible about them: too long ones say that their ends were not found."""

import re
from collections.abc import Iterable
from typing import Final

from preprocessing.text.abbreviations import WITHOUT_MARKS

# Medians of gold sentences have 88 (German, Armenian) to 123 (Spanish) characters.
_MOST: Final = 250
_MOST_CJK: Final = 80  # Chinese and Japanese
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_SCRIPTS: Final = {name: re.compile(f"[{script}]") for name, script in WITHOUT_MARKS.values()}
_SHARE: Final = 0.1  # of the characters, from which a script counts


def describe_unmarked(sentences: Iterable[str]) -> str:
    """That the text of these sentences is in a script without sentence marks, or "".

    >>> describe_unmarked(["One.", " Two."])
    ''
    """
    text = "".join(sentences)
    names = [name for name, script in _SCRIPTS.items() if _share(script, text) >= _SHARE]
    return f"{' and '.join(names)} without sentence marks: lines and blanks are taken for ends" if names else ""


def describe_implausible(sentences: Iterable[str]) -> str:
    """That the median of these sentences is implausibly long, or "".

    >>> describe_implausible(["One.", " Two.", " " + "word " * 60])
    ''
    >>> describe_implausible(["word " * 60])
    'the median has 299 characters, and more than 250 are implausible: ends are not marked, or not known'
    """
    found = [sentence.strip() for sentence in sentences]
    median = sorted(map(len, found))[len(found) // 2] if found else 0
    most = _MOST_CJK if _share(_CJK, "".join(found)) >= 0.5 else _MOST
    if median <= most:
        return ""
    return (
        f"the median has {median} characters, and more than {most} are implausible: ends are not marked, or not known"
    )


def _share(script: re.Pattern[str], text: str) -> float:
    return len(script.findall(text)) / max(1, len(text))
