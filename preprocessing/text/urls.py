"""Lists of domains, addresses and words that drop web pages by their URL, as in the URL filter of FineWeb.

Penedo et al. 2024, arXiv:2406.17557, section 3.3; `URLFilter` of datatrove. Sesame contains no list.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import xxhash

from preprocessing.characters import pin_characters
from preprocessing.errors import BadInput

_NO_WORD: Final = re.compile(r"[^a-z0-9]+")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://|//")
_HOST: Final = re.compile(r"(?:[^/\\?#]*@)?(\[[^\]/\\?#]*\]|[^/\\?#:]*)")  # browsers read \ as /
_LONGEST_HOST: Final = 253  # characters of a name in DNS


def host_of(url: str) -> str:
    """The host of a URL in lower case, in ASCII (IDNA), without port, user and final dot; "" if it is too long.

    >>> host_of("HTTPS://me@News.Example.com:8080/a?b"), host_of("b\\u00fccher.example/a"), host_of("//[::1]/")
    ('news.example.com', 'xn--bcher-kva.example', '[::1]')
    """
    host = _find_host(url)
    if len(host) > _LONGEST_HOST:
        return ""
    if not host.isascii():  # IDNA has the characters of Unicode 3.2 in every Python, and its result hides them
        with suppress(UnicodeError):  # an invalid label
            host = host.encode("idna").decode()
    return host.rstrip(".")  # IDNA has more full stops


@pin_characters
def _find_host(url: str) -> str:
    """The host of a URL in lower case, as it is written."""
    match = _HOST.match(_without_scheme(url.strip().lower()))
    return match[1].rstrip(".") if match else ""


def domains_of(host: str) -> Iterator[str]:
    """The host and the domains that contain it.

    >>> list(domains_of("a.news.example.com"))
    ['a.news.example.com', 'news.example.com', 'example.com', 'com']
    """
    yield host
    while "." in host:
        host = host.partition(".")[2]
        yield host


@pin_characters
def simplify_url(url: str) -> str:
    """The URL without scheme, fragment and final slash, its host in lower case.

    >>> simplify_url("https://Example.com/A/#top"), simplify_url("example.com/A")
    ('example.com/A', 'example.com/A')
    """
    rest = url.strip().partition("#")[0]
    rest = rest[match.end() :] if (match := _SCHEME.match(rest.lower())) else rest
    end = match.end() if (match := _HOST.match(rest)) else 0
    return (rest[:end].lower() + rest[end:]).rstrip("/")


def _without_scheme(url: str) -> str:
    return url[match.end() :] if (match := _SCHEME.match(url)) else url


@dataclass(frozen=True)
class UrlBlocklist:
    """Lists that drop documents by their URL. Domains and addresses are hashes, uint64, sorted: 8 bytes per entry."""

    domains_D: npt.NDArray[np.uint64]
    urls_U: npt.NDArray[np.uint64]
    words: frozenset[str]
    soft_words: frozenset[str]
    subwords: re.Pattern[str] | None
    soft_word_threshold: int

    @classmethod
    def of_lines(
        cls,
        domains: Iterable[str] = (),
        urls: Iterable[str] = (),
        words: Iterable[str] = (),
        soft_words: Iterable[str] = (),
        subwords: Iterable[str] = (),
        soft_word_threshold: int = 2,
    ) -> Self:
        """The lists from lines with one entry each. Empty lines and lines that begin with # are ignored.

        A domain may begin with a dot or with "*.". Raises BadInput for a line of `domains` with several words.
        """
        parts = sorted(filter(None, map(_as_word, _entries(subwords))), key=lambda word: (-len(word), word))
        return cls(
            _hashes(filter(None, map(_as_host, _entries(domains)))),
            _hashes(simplify_url(entry) for entry in _entries(urls)),
            frozenset(map(_as_word, _entries(words))) - {""},
            frozenset(map(_as_word, _entries(soft_words))) - {""},
            re.compile("|".join(parts)) if parts else None,
            soft_word_threshold,
        )

    def find_reason(self, url: str) -> str:
        """Why a document with this URL is dropped; "" if it is not, or if it has no URL. Case does not matter.

        A domain of the list also drops its subdomains. A word of the list is a whole word of the URL; a part is any
        part of the URL without its punctuation.

        >>> lists = UrlBlocklist.of_lines(domains=["bad.example"], words=["casino"], soft_words=["free", "win"])
        >>> [lists.find_reason(url) for url in ("http://www.bad.example/", "a.example/Casino-1", "a.example/free/win")]
        ['url_domain', 'url_word', 'url_soft_words']
        >>> lists.find_reason("https://notbad.example/casinos?free")
        ''
        """
        if not url:
            return ""
        if any(_has(self.domains_D, domain) for domain in domains_of(host_of(url))):
            return "url_domain"
        if _has(self.urls_U, simplify_url(url)):
            return "url_address"
        words = set(_NO_WORD.split(url.lower()))
        if not words.isdisjoint(self.words):
            return "url_word"
        if len(words & self.soft_words) >= self.soft_word_threshold:
            return "url_soft_words"
        return "url_subword" if self.subwords and self.subwords.search(_as_word(url)) else ""


def _entries(lines: Iterable[str]) -> Iterator[str]:
    return (entry for line in lines if (entry := line.strip()) and not entry.startswith("#"))


def _as_host(entry: str) -> str:
    if len(entry.split()) > 1:  # e.g. a hosts file
        raise BadInput(
            f"clean.urls: invalid domain: got {entry!r:.100}, expected one domain per line; remove the other words"
        )
    return host_of(entry.removeprefix("*").lstrip("."))


def _as_word(text: str) -> str:
    return _NO_WORD.sub("", text.lower())


def _hashes(entries: Iterable[str]) -> npt.NDArray[np.uint64]:
    return np.unique(np.fromiter((xxhash.xxh3_64_intdigest(entry.encode()) for entry in entries), np.uint64))


def _has(sorted_N: npt.NDArray[np.uint64], entry: str) -> bool:
    if not len(sorted_N):
        return False
    wanted = np.uint64(xxhash.xxh3_64_intdigest(entry.encode()))
    at = int(sorted_N.searchsorted(wanted))
    return at < len(sorted_N) and bool(sorted_N[at] == wanted)
