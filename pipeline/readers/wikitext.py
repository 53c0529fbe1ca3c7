"""MediaWiki's markup -> the text that a reader sees, by mwparserfromhell. Lists stay as lines, headings, too.

What is no prose goes: templates, tables, references, files, categories, formulas, galleries, program code.
"""

import html
import re
from collections.abc import Iterator
from typing import Final

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

# For each opening without an end the parser reads the rest of the article again.
_MOST_READ: Final = 4_000_000  # characters, with these repetitions: a few seconds
_MOST_TAGS: Final = 100
_DEEPEST: Final = 40  # MediaWiki's own limit of nested templates
_MARKS: Final = re.compile(r"(\{\{|\[\[|\{\||\[(?=\w+:|//)|<(?=\w))|(\}\}|\]\]|\|\}|\]|</(?=\w)|/>)")
_CLOSED_BY: Final = {"}}": "{{", "]]": "[[", "|}": "{|", "]": "[", "</": "<", "/>": "<"}

_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SHORT: Final = re.compile(r"<(?:ref|references|section|templatestyles|mapframe|maplink)\b[^<>]*/>", re.IGNORECASE)
_NO_PROSE: Final = (
    "ref|references|math|chem|ce|gallery|timeline|score|hiero|imagemap|graph|mapframe|maplink|syntaxhighlight|source"
    "|code|pre|table|style|script|includeonly|inputbox"
)
_ELEMENT: Final = re.compile(rf"<({_NO_PROSE})\b[^<>]*>[^<]*+(?:<(?!/?\1\b)[^<]*+)*</\1\s*>", re.IGNORECASE)
_TABLE: Final = re.compile(  # without another inside; the parser needs seconds for a long one
    r"^[ \t:*#]*\{\|.*\n(?:(?![ \t:*#]*(?:\{\||\|\}(?!\}))).*\n)*[ \t]*\|\}(?!\})", re.MULTILINE
)
_QUOTES: Final = re.compile("'{2,}")
_SWITCH: Final = re.compile(r"__[A-Z]+__")
_LEFT_OVER: Final = re.compile(
    r"^[ :*#;]*(?:\{\||\|\}|\||!).*$|^-{4,}|\{\{+|\}\}+|\[\[+|\]\]+|</?\w[^<>\n]*>", re.MULTILINE
)
_EMPTY_BRACKETS: Final = re.compile(r" ?[(\uff08][\s,;:\u2013-]*[)\uff09]")
_GAP: Final = re.compile(r"(?<=\()[ \t]*+(?:[,;:][ \t]*+)+|(?<![ \t])[ \t]++(?=[,;.][\s)])")  # where a template was
_LIST_MARK: Final = re.compile(r"^[*#:;]+[ \t]*")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_LANGUAGE_LINK: Final = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z-]+)?:")
# Templates in the middle of a sentence: the numbers of the parameters that are part of it.
_READ: Final = {
    "lang": "2", "transl": "3", "transliteration": "3", "nowrap": "1", "nobr": "1", "small": "1", "abbr": "1",
    "ill": "1", "convert": "12", "cvt": "12", "as of": "1", "quote": "1", "blockquote": "1", "cquote": "1",
    "circa": "1", "sc": "1",
}  # fmt: skip
_SHOWN: Final = {"as of": "As of ", "circa": "c. ", "ndash": "\u2013", "mdash": "\u2014", "snd": " \u2013 ", "'": "'"}
_RANGE: Final = {"to", "and", "or", "by", "x", "-", "\u2013"}  # {{convert|10|to|20|km}}
_HEADING: Final = "\x00"  # marks a heading until it is known whether text follows
_LONE_HEADING: Final = re.compile(rf"{_HEADING}[^\n]*\n\s*+(?={_HEADING}|\Z)")


class TooDeep(ValueError):
    """Markup that the parser would need minutes for."""


def prose(markup: str, hidden: frozenset[str]) -> str:
    """The text of an article; links into the namespaces `hidden` (lower case) go. Raises TooDeep.

    >>> prose("'''Ada''' ({{IPA|x}}) met [[Charles Babbage|Babbage]].<ref>A book</ref>\\n"
    ...       "[[File:A.jpg|thumb|A [[picture]]]]\\n{|\\n|-\\n| a table\\n|}\\n* One\\n* Two", frozenset({"file"}))
    'Ada met Babbage.\\n\\nOne\\nTwo'
    """
    text = _SHORT.sub("", _COMMENT.sub("", markup.replace("\x00", "")))
    for _ in range(_DEEPEST):  # one round for each level of nesting
        before, text = text, _TABLE.sub("", _ELEMENT.sub("", text))
        if before == text:
            break
    text = _QUOTES.sub("", text)
    _check_bounds(text)
    seen = "".join(_seen(mwparserfromhell.parse(text, skip_style_tags=True), hidden))
    seen = _LEFT_OVER.sub("", _SWITCH.sub("", seen))
    seen = _EMPTY_BRACKETS.sub("", _GAP.sub("", seen))
    seen = "\n".join(_LIST_MARK.sub("", line.strip()) for line in seen.split("\n"))
    while seen != (fewer := _LONE_HEADING.sub("", seen)):
        seen = fewer
    return _BLANK_LINES.sub("\n\n", html.unescape(seen.replace(_HEADING, ""))).strip()


def _check_bounds(text: str) -> None:
    """Raise TooDeep for markup with more nesting, or more openings without an end, than articles have."""
    open_now = dict.fromkeys(_CLOSED_BY.values(), 0)
    for match in _MARKS.finditer(text):
        opening, closing = match.groups()
        mark = opening or _CLOSED_BY[closing]
        open_now[mark] = open_now[mark] + 1 if opening else max(0, open_now[mark] - 1)
        if open_now[mark] > (_MOST_TAGS if mark == "<" else _DEEPEST):
            raise TooDeep
    if (1 + sum(open_now.values())) * len(text) > _MOST_READ:
        raise TooDeep


def _seen(code: Wikicode, hidden: frozenset[str]) -> Iterator[str]:
    """What a reader sees of each node, in order."""
    for node in code.nodes:
        yield from _of_node(node, hidden)


def _of_node(node: Node, hidden: frozenset[str]) -> Iterator[str]:
    match node:
        case Text():
            yield node.value
        case Wikilink():
            title = str(node.title).strip()
            space, colon, _ = title.lstrip(":").partition(":")
            if title.startswith(":") or not colon or not _is_hidden(space.strip().lower(), title, node, hidden):
                yield from _seen(node.text, hidden) if node.text is not None else [title.lstrip(":")]
        case ExternalLink() if node.title is not None:
            yield from _seen(node.title, hidden)
        case Heading():
            title = " ".join("".join(_seen(node.title, hidden)).split())
            yield f"\n{_HEADING}{title}\n"
        case Template():
            yield from _of_template(node, hidden)
        case HTMLEntity():
            yield str(node)
        case Tag():
            name = str(node.tag).strip().lower()
            if name in ("br", "hr", "p", "div"):
                yield "\n"
            if node.contents is not None and name != "table":
                yield from _seen(node.contents, hidden)
        case _:  # comments, and arguments that a template was not given: nothing of them is seen
            pass


def _of_template(node: Template, hidden: frozenset[str]) -> Iterator[str]:
    name = str(node.name).strip().lower().replace("_", " ")
    numbers = "1" if name.startswith("lang-") else _READ.get(name, "")
    if numbers == "12" and node.has("2") and str(node.get("2").value).strip() in _RANGE:
        numbers = "1234"
    yield _SHOWN.get(name, "")
    for number in numbers:
        if node.has(number):
            yield " " if number != numbers[0] else ""
            yield "".join(_seen(node.get(number).value, hidden)).strip()


def _is_hidden(space: str, title: str, link: Wikilink, hidden: frozenset[str]) -> bool:
    """Whether a link shows no text: to a file, into a category, or to the article in another language."""
    return space in hidden or (link.text is None and _LANGUAGE_LINK.match(title) is not None)
