"""str -> str: text that software broke on its way here, mended by ftfy (Speer 2019, doi:10.5281/zenodo.2591652)."""

import re
from typing import Final

import ftfy
from ftfy.badness import MOJIBAKE_CATEGORIES, is_bad

# What ftfy may do. Not: straighten quotes, change the width of characters or drop controls (tidy.py does that last);
# these are choices of an author, or of normalisation, not damage.
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
# ftfy gets so much of a line at once, up to a space if there is one: some of its patterns take more than linear time.
_PART: Final = re.compile(r".{1,100000}(?:(?<=\ )|\Z)|.{1,100000}", re.DOTALL)

# HTML entities, terminal escapes, C1 controls, Latin ligatures and digraphs, surrogates.
_DAMAGE: Final = re.compile(
    r"[&\x1b\x80-\x9f\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3\ufb00-\ufb06\ud800-\udfff]"
    r"(?:(?<!&)|(?=\#?[a-zA-Z0-9]{1,24};))"
)
# What ftfy takes for mojibake holds one of these: a character of its categories that is no letter of Greek, Cyrillic or
# a small one of Latin, beside another of its categories; or A with circumflex, A with tilde, OE. Its own pattern is 20
# times slower, so it only gets the surroundings of these (no alternative of it is longer); a test proves that nothing
# is missed. Characters of other scripts are in no category.
_LETTERS: Final = ("lower_common", "upper_common", "lower_accented", "kaomoji", "common")
_RARE: Final = "".join(chars for name, chars in MOJIBAKE_CATEGORIES.items() if name not in _LETTERS) + "\xb0\xd9\u0402"
_ANY: Final = "".join(MOJIBAKE_CATEGORIES.values())
_ODD: Final = re.compile(rf"[{_RARE}](?:(?=[{_ANY}])|(?<=[{_ANY}].)|(?<=[\xc2\xc3\u0152]))|\u0153", re.DOTALL)
_AROUND: Final = 6
_LINE_BEGINS: Final = ("\n\xc2 ", "\n\xc3 ")  # are bad at the start of a line, and ftfy gets one at a time
_FEW: Final = 100  # characters for each such place, at least


def repair_text(text: str) -> str:
    """The text without mojibake, HTML entities, terminal escapes, C1 controls, Latin ligatures and surrogates.

    Lines are mended one by one; one without damage stays as it is. Entities stay in a line with a "<": it is markup.

    >>> repair_text("The caf\\u00c3\\u00a9&rsquo;s \\ufb01le"), repair_text('AT&T\\u2019s')
    ('The caf\xe9\u2019s file', 'AT&T\u2019s')
    """
    if not is_damaged(text):
        return text
    return "\n".join(_mended(line) if is_damaged(line) else line for line in text.split("\n"))


def is_damaged(text: str) -> bool:
    """Whether ftfy might change the text; False is certain."""
    if _DAMAGE.search(text):
        return True
    if text.isascii():
        return False
    left = len(text) // _FEW + 1
    for match in _ODD.finditer(text):
        if is_bad(text[max(match.start() - _AROUND, 0) : match.end() + _AROUND]):
            return True
        left -= 1
        if not left:  # of more places than these the whole is faster
            rest = text[max(match.start() - _AROUND, 0) :]
            return is_bad(rest) or any(begin in rest for begin in _LINE_BEGINS)
    return False


def _mended(line: str) -> str:
    return "".join(ftfy.fix_text_segment(part, _FIXES) for part in _PART.findall(line))
