"""Repair text that software has damaged, with ftfy (Speer 2019, doi:10.5281/zenodo.2591652)."""

import re
from collections.abc import Iterator
from typing import Final

import ftfy
from ftfy.badness import MOJIBAKE_CATEGORIES, is_bad

# The repairs of ftfy. It does not straighten quotes or change the width of characters, which are choices of an author.
# It does not remove control characters, because tidy.py does.
_FIXES: Final = ftfy.TextFixerConfig(
    unescape_html="auto",
    fix_encoding=True,
    fix_c1_controls=True,
    fix_latin_ligatures=True,
    fix_surrogates=True,
    remove_terminal_escapes=True,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    remove_control_chars=False,
    normalization=None,
    explain=False,
)
# Parts of a line for ftfy, which end at a space if possible: some patterns of ftfy take more than linear time.
_PART: Final = re.compile(r".{1,100000}(?:(?<=\ )|\Z)|.{1,100000}", re.DOTALL)

# HTML entities, terminal escapes, C1 controls, Latin ligatures and digraphs, surrogates.
_DAMAGE: Final = re.compile(
    r"[&\x1b\x80-\x9f\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3\ufb00-\ufb06\ud800-\udfff]"
    r"(?:(?<!&)|(?=\#?[a-zA-Z0-9]{1,24};))"
)
# All text that ftfy regards as mojibake matches the pattern _ODD, as a test verifies. It matches a character of ftfy's
# categories that is not a Greek, Cyrillic or small Latin letter, next to another character of these categories. It also
# matches A with circumflex, A with tilde, OE and oe. Characters of other scripts are in no category. The pattern of
# ftfy is 20 times slower, so it is only applied to the text around these matches.
_LETTERS: Final = ("lower_common", "upper_common", "lower_accented", "kaomoji", "common")
_RARE: Final = "".join(chars for name, chars in MOJIBAKE_CATEGORIES.items() if name not in _LETTERS) + "\xb0\xd9\u0402"
_ANY: Final = "".join(MOJIBAKE_CATEGORIES.values())
_ODD: Final = re.compile(rf"[{_RARE}](?:(?=[{_ANY}])|(?<=[{_ANY}].)|(?<=[\xc2\xc3\u0152]))|\u0153", re.DOTALL)
_AROUND: Final = 6  # characters before and after a match; no alternative of ftfy's pattern is longer
_LINE_BEGINS: Final = ("\n\xc2 ", "\n\xc3 ")  # ftfy finds these only at the start of its input, which is one line
_FEW: Final = 100  # with fewer characters per match than this, the rest of the text is checked at once


def repair_text(text: str) -> str:
    """Repair mojibake, HTML entities, terminal escapes, C1 controls, Latin ligatures and surrogates.

    Lines are repaired separately, and lines without damage do not change. Entities stay in lines with a "<", which are
    markup.

    >>> repair_text("The caf\\u00c3\\u00a9&rsquo;s \\ufb01le"), repair_text('AT&T\\u2019s')
    ('The caf\xe9\u2019s file', 'AT&T\u2019s')
    """
    if not is_damaged(text):
        return text
    return "\n".join(_repair_line(line) if is_damaged(line) else line for line in text.split("\n"))


def is_damaged(text: str) -> bool:
    """Whether ftfy might change the text; if False, it certainly does not."""
    if text.isascii():
        return ("&" in text or "\x1b" in text) and _DAMAGE.search(text) is not None
    if _DAMAGE.search(text):
        return True
    left = len(text) // _FEW + 1
    for match in _find_odd(text):
        if is_bad(text[max(match.start() - _AROUND, 0) : match.end() + _AROUND]):
            return True
        left -= 1
        if not left:  # for more matches, checking the rest at once is faster
            rest = text[max(match.start() - _AROUND, 0) :]
            return is_bad(rest) or any(begin in rest for begin in _LINE_BEGINS)
    return False


def _find_odd(text: str) -> Iterator[re.Match[str]]:
    """The matches of _ODD, each of one character beyond ASCII, without a search of the lines that are ASCII."""
    start = 0
    for line in text.split("\n"):
        stop = start + len(line) + 1
        if not line.isascii():
            yield from _ODD.finditer(text, start, stop)
        start = stop


def _repair_line(line: str) -> str:
    return "".join(ftfy.fix_text_segment(part, _FIXES) for part in _PART.findall(line))
