"""str -> str: text that software broke on its way here, mended by ftfy (Speer 2019, doi:10.5281/zenodo.2591652)."""

import re
from typing import Final

import ftfy
from ftfy.badness import is_bad

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
# What ftfy takes for mojibake holds one of these: next to each other two characters outside of ASCII, not both of them
# Greek, Cyrillic or Chinese letters; or one of A with circumflex, A with tilde, OE. Its own pattern is 20 times slower,
# so it only gets the surroundings of these (no alternative of it is longer); a test proves that nothing is missed.
_ODD: Final = re.compile(
    r"[\xa0-\u0390\u03ca-\u040f\u0450-\u2fff\ue000-\uffff]"
    r"(?:(?=[^\x00-\x7f])|(?<=[^\x00-\x7f].)|(?<=[\xc2\xc3\u0152\u0153]))",
    re.DOTALL,
)
_AROUND: Final = 6


def repaired(text: str) -> str:
    """The text without mojibake, HTML entities, terminal escapes, C1 controls, Latin ligatures and surrogates.

    Lines are mended one by one; one without damage stays as it is. Entities stay in a line with a "<": it is markup.

    >>> repaired("The caf\\u00c3\\u00a9&rsquo;s \\ufb01le"), repaired('AT&T\\u2019s')
    ('The caf\xe9\u2019s file', 'AT&T\u2019s')
    """
    if not is_damaged(text):
        return text
    return "\n".join(_mended(line) if is_damaged(line) else line for line in text.split("\n"))


def is_damaged(text: str) -> bool:
    """Whether ftfy might change the text; False is certain."""
    if _DAMAGE.search(text):
        return True
    odd = () if text.isascii() else _ODD.finditer(text)
    return any(is_bad(text[max(match.start() - _AROUND, 0) : match.end() + _AROUND]) for match in odd)


def _mended(line: str) -> str:
    return "".join(ftfy.fix_text_segment(part, _FIXES) for part in _PART.findall(line))
