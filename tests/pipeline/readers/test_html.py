# ruff: noqa: RUF001
"""HTML files: the main text of a page, in any encoding."""

from pathlib import Path

import pytest

from pipeline.readers import HtmlReader, TextReader, recognise, sniff
from pipeline.readers.page import is_too_deep
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import counted, read, texts, write

WORDS = "Старый город стоит на берегу реки, и летом туда приезжают люди из многих далёких мест страны. "


def _page(body: str = "<p>One paragraph of the text, long enough to be read.</p>", head: str = "") -> str:
    menu = '<nav class="menu"><a href="/">Home</a> <a href="/about">About</a></nav>'
    footer = "<footer>Imprint and privacy</footer>"
    return (
        f"<!DOCTYPE html>\n<html><head><title>T</title>{head}<script>var x = 1;</script></head>"
        f"<body>{menu}<main>{body}</main>{footer}</body></html>"
    )


def test_a_page_is_its_main_text(tmp_path: Path) -> None:
    content = _page()
    path = write(tmp_path, content, "page.html")
    assert recognise(path) == [HtmlReader(path=path)]
    assert counted(sniff(path), len(content)) == ["One paragraph of the text, long enough to be read."]


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a.txt", ""),
        ("a", "\ufeff"),
        ("a.HTM", "  \n"),
        ("a.txt", "<!-- saved -->\n<!-- twice -->"),
        ("a.txt", '<?xml version="1.0" encoding="utf-8"?>\n'),
    ],
)
def test_a_page_is_recognized_by_its_first_element_or_its_name(tmp_path: Path, name: str, begin: str) -> None:
    assert isinstance(sniff(write(tmp_path, begin + _page(), name)), HtmlReader)
    assert isinstance(sniff(write(tmp_path, begin + "<HTML><BODY>One.</BODY></HTML>", name)), HtmlReader)


def test_a_file_name_is_sufficient_and_a_word_like_html_is_not(tmp_path: Path) -> None:
    assert isinstance(sniff(write(tmp_path, "<p>A part of a page.</p>", "part.html")), HtmlReader)
    assert isinstance(sniff(write(tmp_path, "<htmlish> is no element.\n", "a.txt")), TextReader)


def test_pages_in_a_directory_are_documents(tmp_path: Path) -> None:
    for name in ("a.html", "b.htm", "more/c.xhtml"):
        write(tmp_path, _page(f"<p>This is the page {name} with its text.</p>"), name)
    assert [HtmlReader] == [type(source) for source in recognise(str(tmp_path))]
    assert len(texts(sniff(str(tmp_path)))) == 3


class TestEncodings:
    @pytest.mark.parametrize("charset", ["windows-1251", "koi8-r", "iso-8859-5"])
    def test_the_declared_charset_is_used(self, tmp_path: Path, charset: str) -> None:
        head = f'<meta http-equiv="Content-Type" content="text/html; charset={charset}">'
        content = _page(f"<p>{WORDS}</p>", head).encode(charset)
        source = sniff(write(tmp_path, content, "a.html"))
        assert counted(source, len(content)) == [WORDS.strip()]
        assert read(source)[0].encoding != ""

    def test_a_wrong_charset_of_utf8_text_is_ignored(self, tmp_path: Path) -> None:
        content = _page(f"<p>{WORDS}</p>", '<meta charset="windows-1251">').encode()
        source = sniff(write(tmp_path, content, "a.html"))
        assert counted(source, len(content)) == [WORDS.strip()]
        assert read(source)[0].encoding == ""

    @pytest.mark.parametrize("charset", ["cp1251", "koi8-r"])
    @pytest.mark.parametrize("declared", ["", '<meta charset="unheard-of">'])
    def test_the_encoding_is_detected_without_a_declaration(self, tmp_path: Path, charset: str, declared: str) -> None:
        content = _page(f"<p>{WORDS * 3}</p>", declared).encode(charset)
        assert texts(sniff(write(tmp_path, content, "a.html"))) == [(WORDS * 3).strip()]

    @pytest.mark.parametrize("charset", ["utf-16", "utf-32", "idna", "undefined", "punycode"])
    def test_an_impossible_declared_encoding_is_ignored(self, tmp_path: Path, charset: str) -> None:
        content = _page(f"<p>{WORDS * 3}</p>", f'<meta charset="{charset}">').encode("cp1251")
        assert texts(sniff(write(tmp_path, content, "a.html"))) == [(WORDS * 3).strip()]

    @pytest.mark.parametrize("declared", ["", '<meta charset="iso-2022-jp">'])
    def test_iso2022_pages_are_read(self, tmp_path: Path, declared: str) -> None:
        words = "古い町は川のほとりにあり、夏になると全国から多くの人々が訪れます。"
        source = sniff(write(tmp_path, _page(f"<p>{words}</p>", declared).encode("iso2022_jp"), "a.html"))
        assert [(record.text.strip(), record.encoding) for record in read(source)] == [(words, "iso2022_jp")]

    @pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_wide_characters_are_read_with_any_declaration(self, tmp_path: Path, charset: str) -> None:
        content = _page(f"<p>{WORDS}</p>", '<meta charset="utf-8">').encode(charset)
        source = sniff(write(tmp_path, content, "a.html"))
        assert texts(source) == [WORDS.strip()]
        assert read(source)[0].encoding.startswith(charset[:6])

    def test_lines_in_two_encodings_are_each_decoded_correctly(self, tmp_path: Path) -> None:
        lines = [_page().encode().partition(b"</main>")[0], *[f"<p>{WORDS}{n}</p>".encode() for n in range(9)]]
        lines += [f"<p>{WORDS}{n}</p>".encode("cp1251") for n in range(9, 19)]
        source = sniff(write(tmp_path, b"\n".join([*lines, b"</main></body></html>"]), "a.html"))
        (text,) = texts(source)
        assert all(f"{WORDS}{number}" in text for number in range(19))
        assert [record.encoding for record in read(source)] == ["utf-8 and cp1251"]

    def test_a_given_encoding_is_used(self, tmp_path: Path) -> None:
        path = write(tmp_path, _page(f"<p>{WORDS}</p>", '<meta charset="koi8-r">').encode("cp1251"), "a.html")
        assert texts(HtmlReader(path=path, encoding="cp1251")) == [WORDS.strip()]
        with pytest.raises(
            ValueError, match=r"^invalid html\.encoding: got 'no such', expected a Python encoding[^\n]+$"
        ):
            HtmlReader(path=path, encoding="no such")


class TestMalformed:
    @pytest.mark.parametrize(
        "content",
        [
            b"<",
            b"<html",
            b"<html><body><p>No end",
            b"<html>" + b"\x00" * 100,
            b"<html><body>&#99999999;&#xD800;&bogus;</body>",
            b"<html><!-- no end",
            b"<html><body><p>caf\xe9 \xff\xfe</p>",
            b"<html><script>" + b"<" * 10_000,
            b'<html><body><p x="' + b"a" * 10_000,
        ],
    )
    def test_no_byte_is_lost_and_no_exception_raised(self, tmp_path: Path, content: bytes) -> None:
        counted(HtmlReader(path=write(tmp_path, content, "a.html")), len(content))

    def test_a_text_key_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path, _page(), "a.html")
        with pytest.raises(BadInput, match=r"^[^\n]+ invalid #body: the format html has no fields; remove it$"):
            sniff(f"{path}#body")

    def test_endless_nesting_is_rejected_quickly(self, tmp_path: Path) -> None:
        content = b"<html><body>" + b"<div>" * 100_000
        assert counted(HtmlReader(path=write(tmp_path, content, "a.html")), len(content)) == ["<timeout>"]

    def test_a_too_long_page_is_rejected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.readers.html.MOST_HTML", 1000)
        content = _page("<p>words</p>" * 1000)
        assert counted(HtmlReader(path=write(tmp_path, content, "a.html")), len(content)) == ["<too_long>"]

    @pytest.mark.parametrize("begin", [b"<!-- a -->" * 3000 + b"text", b"<!---->" * 4000, b"<!--" * 9000])
    def test_comments_are_scanned_in_linear_time(self, tmp_path: Path, begin: bytes) -> None:
        # a pattern with backtracking would take days for 40 comments
        assert sniff(write(tmp_path, begin + b"\n", "a.txt")).kind == "text"

    def test_an_unclosed_tag_is_scanned_in_linear_time(self) -> None:
        assert not is_too_deep(b"<" + b"a" * 1_000_000)
        assert not is_too_deep(b"<a " + b"b" * 1_000_000)
        assert not is_too_deep(b"<a " * 300_000)
