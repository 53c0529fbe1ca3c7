"""The quality filter of FineWeb: Penedo et al. 2024, arXiv:2406.17557, section 3.6, and its code in datatrove.

The constants and their order are those of `FineWebQualityFilter` of datatrove 0.10.1, except _MOST_DUPLICATE: the paper
has 0.1, the code 0.01. The last rule is in the code only. Punctuation marks count as words, almost as in the tokenizer
of spaCy that datatrove uses: the decisions about 10,754 documents were equal (benchmarks/peers/datatrove_filters.py).
"""

import re
from typing import Final

# the characters with the Unicode property Sentence_Terminal, as in datatrove
_END_MARKS: Final = tuple(
    "!.?\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362"
    "\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u17d6\u17d9\u17da\u1803\u1809\u1944\u1945\u1aa8\u1aa9\u1aaa\u1aab"
    "\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047\u2048\u2049\u2e2e\u2e3c\u2e53"
    "\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0"
    "\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55\U00010f56\U00010f57"
    "\U00010f58\U00010f59\U00010f86\U00010f87\U00010f88\U00010f89\U00011047\U00011048\U000110be\U000110bf\U000110c0"
    "\U000110c1\U00011141\U00011142\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239"
    "\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9\U000115ca\U000115cb\U000115cc"
    "\U000115cd\U000115ce\U000115cf\U000115d0\U000115d1\U000115d2\U000115d3\U000115d4\U000115d5\U000115d6\U000115d7"
    "\U00011641\U00011642\U0001173c\U0001173d\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c"
    "\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38"
    "\U00016b44\U00016e98\U0001bc9f\U0001da88"
)
_LEAST_WITH_END_MARK: Final = 0.12  # fraction of the lines
_SHORT: Final = 30  # characters of a short line
_MOST_SHORT: Final = 0.67  # fraction of the lines
_MOST_DUPLICATE: Final = 0.1  # fraction of the characters
_MOST_LINE_ENDS: Final = 0.3  # per word
_WORD: Final = re.compile(  # numbers, abbreviations such as U.S., words, endings such as 's, ellipses, other marks
    r"(?:\d+[.,])*\d+|(?:[A-Za-z]\.){2,}|\w+|(?<=\w)['\u2019]\w+|\.{2,}|[^\w\s]"
)


def fineweb_quality(text: str) -> tuple[str, str]:
    """The unchanged text, and the reason of the first rule of FineWeb that drops it. Blank lines do not count.

    >>> fineweb_quality("A page with one line that ends with a mark.")[1], fineweb_quality("Home\\nNews\\nContact")[1]
    ('', 'fineweb_line_ends')
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return text, "fineweb_line_ends"
    if sum(line.endswith(_END_MARKS) for line in lines) / len(lines) < _LEAST_WITH_END_MARK:
        return text, "fineweb_line_ends"
    if sum(len(line) <= _SHORT for line in lines) / len(lines) > _MOST_SHORT:
        return text, "fineweb_short_lines"
    num_line_ends = text.count("\n")
    if (unique := set(lines)) and len(unique) < len(lines):
        num_duplicate = sum(map(len, lines)) - sum(map(len, unique))
        if num_duplicate / (len(text) - num_line_ends) > _MOST_DUPLICATE:
            return text, "fineweb_duplicate_lines"
    is_list = num_line_ends / sum(1 for _ in _WORD.finditer(text)) > _MOST_LINE_ENDS
    return text, "fineweb_line_ratio" if is_list else ""
