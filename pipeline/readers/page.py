"""HTML page -> main text, by resiliparse. Used for web archives and HTML files."""

import re
from collections.abc import Sequence
from typing import Final

from pipeline.readers.metadata import to_text
from preprocessing.encodings import read_declared_codec

# resiliparse is imported inside of functions, so that its library is loaded only for pages.
MOST_HTML: Final = 1 << 24  # bytes; a longer file is not regarded as a page of text
# Unclosed elements nest without limit, and parsing time grows with the square of the depth: 10,000 take 2 s.
_DEEPEST: Final = 1000
_TAG: Final = re.compile(rb"<(/?)([a-z][a-z0-9]*)\b([^<>]*?)(/?)>", re.IGNORECASE)
_CLOSE_THEMSELVES: Final = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd option tr td th tbody thead"
    b" tfoot colgroup rp rt script style".split()
)


def main_text(content: bytes, charset: str) -> str:
    """The main text of a page. The encoding of the HTTP header is used if it is valid, else it is detected."""
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    if not read_declared_codec(charset, content):
        charset = str(detect_encoding(content, from_html_meta=True))
    return text_of(bytes_to_str(content, charset))


def text_of(html: str) -> str:
    """The main text of a page."""
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(html, main_content=True, list_bullets=False, alt_texts=False))


def page_fields(html: str, keep: Sequence[str]) -> dict[str, str | None]:
    """These fields of a page: language, title, url (the canonical one); None for a missing or empty one."""
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    root = tree.document
    link = root.query_selector('link[rel="canonical"]') if root else None
    page = root.query_selector("html") if root else None
    values = {
        "language": page.getattr("lang") if page else None,
        "title": " ".join((tree.title or "").split()),
        "url": link.getattr("href") if link else None,
    }
    return {name: to_text(values[name] or None) for name in keep}


def is_too_deep(html: bytes) -> bool:
    """Whether elements nest deeper than in a real page."""
    depth = 0
    for closing, name, _, itself in _TAG.findall(html):
        if name.lower() not in _CLOSE_THEMSELVES and not itself:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > _DEEPEST:
                return True
    return False
