"""Removal of markup that WikiExtractor leaves in its texts: tags, links, magic words and gaps, as in dumps.

Most texts contain none and stay unchanged, byte for byte.
"""

import re
from typing import Final

from pipeline.readers.wiki_names import HIDDEN
from pipeline.readers.wikitext import TooDeep, element, tidy, unescape, visible
from preprocessing.characters import pin_characters

_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_NO_PROSE: Final = element("ref|references|math|chem|ce|gallery|timeline|score|hiero|imagemap|graph|mapframe|inputbox")
_LONGEST: Final = 2000  # characters; a longer match is not one element: its end tag belongs to another one
# Without `code`, `table` and `html`, which articles discuss. An attribute has `=`, unlike `a <b and c> d`.
_NAMES: Final = (
    "br|hr|p|div|li|poem|center|blockquote|section|ref|references|onlyinclude|includeonly|noinclude|inputbox|gallery"
    "|ol|ul|dl|dd|dt|dfn|small|big|sub|sup|u|s|b|i|tt|em|strong|del|ins|font|span|mark|nobr|time|score|math|chem|ce"
    "|timeline|mapframe|maplink|templatestyles"
)
_TAG: Final = re.compile(rf"</?({_NAMES})(?:\s[^<>\n]*=[^<>\n]*|[\s/]*)>([ \t]*\n)?", re.IGNORECASE)
_LINE_OF_TAGS: Final = re.compile(
    rf"^(?:</?(?:{_NAMES})(?:\s[^<>\n]*=[^<>\n]*|[ \t/]*)>[ \t]*)+\n", re.IGNORECASE | re.MULTILINE
)
_BREAKS: Final = frozenset({"br", "hr", "p", "div", "li", "poem"})
_QUOTED: Final = frozenset("\"'`\u201c\u201d\u2018\u2019\u00ab\u00bb\u300c\u300d")
_FUNCTION: Final = re.compile(r"^[ \t{}|]*#(?:if|ifeq|iferror|ifexist|ifexpr|switch|expr|tag|invoke):.*$", re.MULTILINE)
_AS_OF: Final = re.compile(r"\[ ?\[update\]\]|\[update\]")  # the superscript that {{as of}} shows
_BRACKET: Final = re.compile(r"\[[^\[\]\n]*\]|(?<=[(,; ])\]+(?=[ ,;)])")  # the end of a link without its start
_BLANK_LINES: Final = re.compile(r"\n{3,}")


@pin_characters
def without_leftovers(text: str) -> str:
    """Remove markup from a text of WikiExtractor.

    >>> without_leftovers("Ada (, ; born 1815) &lt;br&gt; was here.__NOTOC__\\n[[Datei:A.jpg|mini|Ada]]")
    'Ada (born 1815) \\n was here.\\n'
    >>> without_leftovers('A line ends with "<br>", and a <b and c> d.')
    'A line ends with "<br>", and a <b and c> d.'
    """
    seen = unescape(text) if _is_escaped(text) else text
    if "<" in seen:
        seen = _NO_PROSE.sub(lambda match: "" if len(match[0]) <= _LONGEST else match[0], _COMMENT.sub("", seen))
        seen = _TAG.sub(_in_place_of, _LINE_OF_TAGS.sub("", seen))
    seen = _FUNCTION.sub("", seen) if "#" in seen else seen
    if seen.count("[") != seen.count("]") or "[update]" in seen:
        seen = _BRACKET.sub(lambda match: match[0] if match[0][0] == "[" else "", _AS_OF.sub("", seen))
    if "[[" in seen or "{{" in seen:
        seen = "\n".join(_line(line) if "[[" in line or "{{" in line else line for line in seen.split("\n"))
    seen = tidy(seen)
    return text if seen == text else _BLANK_LINES.sub("\n\n", seen)


def _is_escaped(text: str) -> bool:
    """Whether `<`, `>` and `&` are escaped as entities, as by recent versions of WikiExtractor."""
    return "&" in text and "<" not in text and ">" not in text


def _in_place_of(tag: re.Match[str]) -> str:
    """The replacement of a tag: a line end or nothing. A tag in quotation marks is kept: the text is about it."""
    before, after = tag.string[tag.start() - 1 : tag.start()], tag.string[tag.end() : tag.end() + 1]
    if before in _QUOTED and after in _QUOTED:
        return tag[0]
    return "\n" if tag[1].lower() in _BREAKS else tag[2] or ""


def _line(line: str) -> str:
    """The displayed text of a line with links or templates."""
    try:
        return visible(line, HIDDEN)
    except TooDeep:
        return line
