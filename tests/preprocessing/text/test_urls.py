"""Lists of domains, addresses and words that drop documents by their URL."""

import pytest

from preprocessing.errors import BadInput
from preprocessing.text import UrlBlocklist

LISTS = UrlBlocklist.of_lines(
    domains=[
        *("# a comment", "bad.example\n", "http://Other.Example/path", "b\u00fccher.example", "", "10.0.0.1"),
        *(" # another comment", ".dot.example", "*.star.example", ".", "http:///", "[2001:db8::1]"),
    ],
    urls=["https://fine.example/bad/page/\n", "fine.example/Case?x=1"],
    words=["casino", "slot-machine"],
    soft_words=["free", "win", "bonus"],
    subwords=["xxx", "best-price"],
)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", ""),
        ("http://fine.example/", ""),
        ("http://bad.example/", "url_domain"),
        ("https://WWW.Bad.Example:8080/a?b#c", "url_domain"),
        ("bad.example", "url_domain"),
        ("//user@deep.sub.bad.example./x", "url_domain"),
        ("http://notbad.example/bad.example", ""),
        ("http://other.example/", "url_domain"),
        ("http://xn--bcher-kva.example/", "url_domain"),
        ("http://10.0.0.1/", "url_domain"),
        ("http://[::1/", ""),
        ("http://[2001:DB8::1]:80/", "url_domain"),
        ("http://user:a@b@bad.example/", "url_domain"),  # the last @ ends the name of the user
        ("http://bad.example\\@fine.example/", "url_domain"),
        ("http://b\u00fccher.example\u3002/", "url_domain"),
        ("http://www.dot.example/", "url_domain"),
        ("http://star.example/", "url_domain"),
        ("/a/relative/path", ""),
        ("file:///home/a", ""),
        ("http://" + "a." * 300_000 + "bad.example/", ""),  # no host is as long
        ("http://fine.example/bad/page", "url_address"),
        ("https://fine.example/bad/page/#top", "url_address"),
        ("https://fine.example/bad/page/2", ""),
        ("http://FINE.example/Case?x=1", "url_address"),
        ("http://fine.example/case?x=1", ""),  # paths have a case
        ("http://fine.example/the-Casino-royale", "url_word"),
        ("http://fine.example/casinos", ""),
        ("http://fine.example/slotmachine", "url_word"),
        ("http://fine.example/win/a/win", ""),
        ("http://free.example/win", "url_soft_words"),
        ("http://fine.example/foo-x-x-x", "url_subword"),
        ("http://fine.example/thebestprices", "url_subword"),
    ],
)
def test_a_url_is_dropped_for_the_first_list_that_has_it(url: str, reason: str) -> None:
    assert LISTS.find_reason(url) == reason


def test_the_threshold_of_soft_words_and_empty_lists() -> None:
    assert UrlBlocklist.of_lines(soft_words=["free"], soft_word_threshold=1).find_reason("free.example") == (
        "url_soft_words"
    )
    assert UrlBlocklist.of_lines().find_reason("http://bad.example/casino") == ""


def test_a_hosts_file_is_no_list_of_domains() -> None:
    with pytest.raises(BadInput, match=r"^clean\.urls: invalid domain: got '0\.0\.0\.0 bad\.example', expected one"):
        UrlBlocklist.of_lines(domains=["# hosts", "0.0.0.0 bad.example"])


def test_many_domains_take_eight_bytes_each() -> None:
    lists = UrlBlocklist.of_lines(domains=(f"site{number}.example" for number in range(10_000)))
    assert lists.domains_D.nbytes == 80_000
    assert lists.find_reason("http://www.site9999.example/") == "url_domain"
    assert lists.find_reason("http://site10000.example/") == ""
