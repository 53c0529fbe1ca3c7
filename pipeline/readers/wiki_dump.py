"""MediaWiki XML dumps -> articles. A dump is read by lines: `<page>` begins one, in any range of any version.

https://www.mediawiki.org/wiki/Help:Export; a page is parsed alone, so that a damaged one costs no other.
"""

import re
from typing import Final
from xml.etree import ElementTree

from pipeline.readers.lines import Line, dropped
from pipeline.readers.record import BETWEEN, Record
from pipeline.readers.wikitext import MOST_MARKUP, TooDeep, prose
from preprocessing.text import decode

_NAMESPACE: Final = re.compile(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)<')
MOST_BYTES: Final = 2 * MOST_MARKUP  # of a page: `<` is `&lt;` in there
_HIDDEN: Final = {b"-2", b"6", b"14"}  # media, files, categories
_ENGLISH: Final = ("media", "file", "image", "category")  # these work in any language


def begins(line: Line) -> bool:
    """Whether a page begins here."""
    return line.content.lstrip().startswith(b"<page>")


def hidden_namespaces(start: bytes) -> frozenset[str]:
    """The namespaces, in lower case, whose links show no text, by the head of a dump.

    >>> sorted(hidden_namespaces(b'<namespace key="6" case="first-letter">Datei</namespace>'))
    ['category', 'datei', 'file', 'image', 'media']
    """
    local = [decode(name)[0].lower() for key, name in _NAMESPACE.findall(start) if key in _HIDDEN]
    return frozenset((*_ENGLISH, *local))


def article(label: str, block: Line, hidden: frozenset[str]) -> Record:
    """The article in the lines of a page; its title is the first line."""
    start, end = block.content.find(b"<page>"), block.content.rfind(b"</page>")
    if start < 0:
        return dropped(label, block, BETWEEN)
    text, repaired = decode(block.content[start : end + len(b"</page>")])
    try:
        page = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return dropped(label, block, "bad_xml")
    if page.findtext("ns", "0") != "0" or page.findtext("revision/model", "wikitext") != "wikitext":
        return dropped(label, block, "not_article")
    if page.find("redirect") is not None:
        return dropped(label, block, "redirect")
    title, markup = page.findtext("title", ""), (page.findall("revision/text") or [page])[-1].text or ""
    if len(markup.encode()) > MOST_MARKUP:
        return dropped(label, block, "too_long")
    try:
        body = prose(markup, hidden)
    except TooDeep:
        return dropped(label, block, "timeout")
    return Record(label, block.size, f"{title}\n\n{body}" if body else "", repaired, start=block.start)
