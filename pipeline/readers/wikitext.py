"""MediaWiki markup -> displayed text, by mwparserfromhell. List items and headings become lines.

Templates, tables, references, files, categories, formulas, galleries and program code are removed.
"""

import html
import re
from collections.abc import Iterator
from typing import Final

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from pipeline.readers.wiki_names import namespace
from preprocessing.characters import pin_characters

# For each unclosed opening mark, the parser reads the rest of the article again.
_MOST_READ: Final = 4_000_000  # characters, including repeated reads: takes a few seconds
_MOST_TAGS: Final = 100
_DEEPEST: Final = 40  # MediaWiki's limit of nested templates
_MARKS: Final = re.compile(r"(\{\{|\[\[|\{\||\[(?=\w+:|//)|<(?=\w))|(\}\}|\]\]|\|\}|\]|</(?=\w)|/>)")
_CLOSED_BY: Final = {"}}": "{{", "]]": "[[", "|}": "{|", "]": "[", "</": "<", "/>": "<"}


def element(names: str) -> re.Pattern[str]:
    """A pattern of an element with one of these names (`a|b`) that contains no element of the same name."""
    return re.compile(rf"<({names})\b[^<>]*>[^<]*+(?:<(?!/?\1\b)[^<]*+)*</\1\s*>", re.IGNORECASE)


_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SHORT: Final = re.compile(r"<(?:ref|references|section|templatestyles|mapframe|maplink)\b[^<>]*/>", re.IGNORECASE)
_NO_PROSE: Final = (
    "ref|references|math|chem|ce|gallery|timeline|score|hiero|imagemap|graph|mapframe|maplink|syntaxhighlight|source"
    "|code|pre|table|style|script|includeonly|inputbox"
)
_ELEMENT: Final = element(_NO_PROSE)
_TABLE: Final = re.compile(  # a table without nested tables; the parser takes seconds for a long one
    r"^[ \t:*#]*\{\|.*\n(?:(?![ \t:*#]*(?:\{\||\|\}(?!\}))).*\n)*[ \t]*\|\}(?!\})", re.MULTILINE
)
_QUOTES: Final = re.compile("'{2,}")
# A file, in any language. File titles have no colon, so `commons:File:A.jpg`, a page of another wiki, does not match.
_MEDIA_TITLE: Final = (
    r"[^:|\[\]\n]{1,60}:[^:|\[\]\n]+\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|og[gvam]|opus|webm|pdf|djvu|mp(?:[34g]|eg)"
    r"|wav|flac|midi?|stl)[ \t]*"
)
_MEDIA: Final = re.compile(_MEDIA_TITLE, re.IGNORECASE)
_TORN_FILE: Final = re.compile(rf"\[\[(?!:){_MEDIA_TITLE}(?:\|[^\[\]\n]*|$)", re.IGNORECASE | re.MULTILINE)
# Magic words like `__NOTOC__` in any script, except names in C, PHP and Perl.
_SWITCH: Final = re.compile(
    r"(?:__|\uff3f\uff3f)(?=\S)(?!(?:STDC|FILE|LINE|DATE|TIME|DIR|FUNCTION|CLASS|METHOD|NAMESPACE|VA_ARGS|PACKAGE)_)"
    r"(?:[^\s_a-z]|_(?!_)){1,60}(?:__|\uff3f\uff3f)"
)
_TAG: Final = re.compile(r"</?\w[^<>\n]*>")
# A line that begins with `!` is a table cell only if it has other marks of a cell; "!Kung" and "!!!" begin sentences.
_LEFT_OVER: Final = re.compile(
    r"^[ :*#;]*(?:\{\||\|).*$|^[ :*#;]*!(?!!)(?:[ \t].*|[^\n!]*(?:!!|\|).*|[^\n!.]{0,40})$"
    r"|^-{4,}|\{\{+|\}\}+|\[\[+|\]\]+",
    re.MULTILINE,
)
_LEFT_OVER_SIGNS: Final = ("|", "\n!", "----", "{{", "}}", "[[", "]]", " !", ":!", "*!", "#!", ";!")
_EMPTY: Final = re.compile(r"[(\uff08][\s,;:\u2013-]*[)\uff09]")
_EMPTY_BRACKETS: Final = re.compile(rf" ?{_EMPTY.pattern}")
# Gaps that removed templates leave: punctuation after an opening bracket, and blanks before punctuation, except in the
# ellipsis ` . . .`.
_OPENED: Final = re.compile(r"([(\uff08])[ \t]*+(?:[,;:\uff0c\uff1b\u3001][ \t]*+)+")
_GAP: Final = re.compile(r"(?<![ \t.])[ \t]++(?=[,.;](?:[\s)](?![ \t]*\.)|\Z))")
_GAP_BUT_SEMICOLON: Final = re.compile(r"(?<![ \t.])[ \t]++(?=[,.](?:[\s)](?![ \t]*\.)|\Z))")
_GAP_SIGNS: Final = (" ,", " .", " ;", "\t,", "\t.", "\t;")
_LIST_MARK: Final = re.compile(r"^[*#:;]+[ \t]*")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_ENTITY: Final = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_LANGUAGE_LINK: Final = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z-]+)?:")
# Templates inside of sentences, with the numbers of the parameters that are displayed.
_READ: Final = {
    "lang": "2", "transl": "3", "transliteration": "3", "nowrap": "1", "nobr": "1", "small": "1", "abbr": "1",
    "ill": "1", "convert": "12", "cvt": "12", "as of": "1", "quote": "1", "blockquote": "1", "cquote": "1",
    "circa": "1", "sc": "1",
}  # fmt: skip
_SHOWN: Final = {"as of": "As of ", "circa": "c. ", "ndash": "\u2013", "mdash": "\u2014", "snd": " \u2013 ", "'": "'"}
_RANGE: Final = {"to", "and", "or", "by", "x", "-", "\u2013"}  # {{convert|10|to|20|km}}
_HEADING: Final = "\x00"  # a placeholder before a heading until it is known whether text follows
_LONE_HEADING: Final = re.compile(rf"{_HEADING}[^\n]*\n\s*+(?={_HEADING}|\Z)")


class TooDeep(ValueError):
    """Raised for markup that would take the parser minutes."""


@pin_characters
def prose(markup: str, hidden: frozenset[str]) -> str:
    """The text of an article, without links to files and to the namespaces `hidden` (wiki_names.py).

    Raises TooDeep.

    >>> prose("'''Ada''' ({{IPA|x}}) met [[Charles Babbage|Babbage]].<ref>A book</ref>\\n"
    ...       "[[File:A.jpg|thumb|A [[picture]]]]\\n{|\\n|-\\n| a table\\n|}\\n* One\\n* Two", frozenset({"file"}))
    'Ada met Babbage.\\n\\nOne\\nTwo'
    """
    text = _SHORT.sub("", _COMMENT.sub("", markup.replace("\x00", "")))
    for _ in range(_DEEPEST):  # one iteration per level of nesting
        before, text = text, _TABLE.sub("", _ELEMENT.sub("", text))
        if before == text:
            break
    seen = tidy(_TAG.sub("", "".join(_visible(_QUOTES.sub("", text), hidden))))
    seen = "\n".join(_LIST_MARK.sub("", line.strip()) for line in seen.split("\n"))
    while seen != (fewer := _LONE_HEADING.sub("", seen)):
        seen = fewer
    return _BLANK_LINES.sub("\n\n", unescape(seen.replace(_HEADING, ""))).strip()


@pin_characters
def visible(markup: str, hidden: frozenset[str]) -> str:
    """The displayed text of the links and templates in a fragment of markup. Raises TooDeep.

    >>> visible("[[Charles Babbage|He]] had {{convert|2|m}}.[[\u753b\u50cf:A.jpg|thumb|A]]", frozenset())
    'He had 2 m.'
    """
    return "".join(_visible(markup, hidden)).replace(_HEADING, "")


def _visible(markup: str, hidden: frozenset[str]) -> Iterator[str]:
    _check_bounds(markup)
    yield from _iterate_displayed(mwparserfromhell.parse(markup, skip_style_tags=True), hidden)


@pin_characters
def tidy(seen: str) -> str:
    """Remove markup that the parser does not: magic words, incomplete brackets and table cells, gaps of templates."""
    if "__" in seen or "\uff3f\uff3f" in seen:  # most texts contain none; testing first is faster
        seen = _SWITCH.sub("", seen)
    if "[[" in seen:
        seen = _TORN_FILE.sub("", seen)
    if any(mark in seen for mark in _LEFT_OVER_SIGNS) or seen.startswith("!"):
        seen = _LEFT_OVER.sub("", seen)
    seen = _OPENED.sub(r"\1", seen)
    if any(mark in seen for mark in _GAP_SIGNS):
        is_spaced = 2 * seen.count(" ; ") > seen.count("; ")  # as in French
        seen = (_GAP_BUT_SEMICOLON if is_spaced else _GAP).sub("", seen)
    return _EMPTY_BRACKETS.sub("", seen) if _EMPTY.search(seen) else seen


def unescape(text: str) -> str:
    """Decode the character entities that end in `;`. `?a=1&copy=2` stays unchanged.

    >>> unescape("Q&amp;A &#233; x?a=1&copy=2")
    'Q&A é x?a=1&copy=2'
    """
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)


def _check_bounds(text: str) -> None:
    """Raise TooDeep for markup with too much nesting or too many unclosed opening marks."""
    open_now = dict.fromkeys(_CLOSED_BY.values(), 0)
    for match in _MARKS.finditer(text):
        opening, closing = match.groups()
        mark = opening or _CLOSED_BY[closing]
        open_now[mark] = open_now[mark] + 1 if opening else max(0, open_now[mark] - 1)
        if open_now[mark] > (_MOST_TAGS if mark == "<" else _DEEPEST):
            raise TooDeep
    if (1 + sum(open_now.values())) * len(text) > _MOST_READ:
        raise TooDeep


def _iterate_displayed(code: Wikicode, hidden: frozenset[str]) -> Iterator[str]:
    """The displayed text of each node, in order."""
    for node in code.nodes:
        yield from _of_node(node, hidden)


def _of_node(node: Node, hidden: frozenset[str]) -> Iterator[str]:
    match node:
        case Text():
            yield node.value
        case Wikilink():
            title = str(node.title).strip()
            if title.startswith(":") or ":" not in title or not _is_hidden(title, node, hidden):
                yield from _iterate_displayed(node.text, hidden) if node.text is not None else [title.lstrip(":")]
        case ExternalLink() if node.title is not None:
            yield from _iterate_displayed(node.title, hidden)
        case Heading():
            title = " ".join("".join(_iterate_displayed(node.title, hidden)).split())
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
                yield from _iterate_displayed(node.contents, hidden)
        case _:  # comments and undefined template arguments are not displayed
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
            yield "".join(_iterate_displayed(node.get(number).value, hidden)).strip()


def _is_hidden(title: str, link: Wikilink, hidden: frozenset[str]) -> bool:
    """Whether a link shows no text: to a file, a category, or the same article in another language."""
    return (
        namespace(title.partition(":")[0]) in hidden
        or _MEDIA.fullmatch(title) is not None
        or (link.text is None and _LANGUAGE_LINK.match(title) is not None)
    )
