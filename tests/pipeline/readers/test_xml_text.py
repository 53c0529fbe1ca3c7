# ruff: noqa: RUF001
"""XML and TEI: the text of an element, without headers, notes and tags."""

import lzma
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.readers import TextReader, XmlReader, recognise, sniff
from preprocessing.errors import BadInput
from tests.pipeline.readers.reading import counted, read, texts, write

TEI = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0">
 <teiHeader><fileDesc><titleStmt><title>A header</title></titleStmt><p>Of the file.</p></fileDesc></teiHeader>
 <facsimile><p>No text.</p></facsimile>
 <text><front><docTitle><titlePart>Front</titlePart></docTitle></front><body>
  <pb n="3"/><fw type="header">PAGE HEADER</fw>
  <head>A &amp; heading</head>
  <p>The first <hi>para</hi>graph<note place="foot"><p>A note.</p></note>, over
     two lines,<lb/>and a bro<lb break="no"/>ken one.</p>
  <p>It <choice><sic>hass</sic><corr>has</corr></choice> <choice><abbr>Mr</abbr><expan>Mister</expan></choice>
     <app><lem>this</lem><rdg>that</rdg></app> <del>gone</del>.</p>
  <lg><l>A line of verse,</l><l>and another.</l></lg>
  <p><s>One sentence.</s> <s>Two.</s></p>
 </body></text>
</TEI>
"""
PROSE = (
    "A & heading\nThe first paragraph, over two lines, and a broken one.\nIt has Mister this .\n"
    "A line of verse,\nand another.\nOne sentence. Two."
)


def test_tei_is_its_prose_and_verse_without_header_and_notes(tmp_path: Path) -> None:
    path = write(tmp_path, TEI, "book.xml")
    assert recognise(path) == [XmlReader(path=path)]
    assert counted(sniff(path), len(TEI)) == [PROSE]


@pytest.mark.parametrize("begin", ["", "\ufeff", "  \n", "<!-- a -->" * 50, "<!DOCTYPE TEI SYSTEM 'tei.dtd'>\n"])
@pytest.mark.parametrize("name", ["a.xml", "a.tei", "a.txt", "a.XML"])
def test_tei_is_recognized_with_and_without_a_declaration(tmp_path: Path, begin: str, name: str) -> None:
    content = begin + TEI.partition("\n")[2]
    source = sniff(write(tmp_path, content, name))
    assert isinstance(source, XmlReader)
    assert counted(source, len(content.lstrip("\ufeff").encode()) + 3 * content.startswith("\ufeff")) == [PROSE]


def test_each_tei_element_of_a_corpus_is_a_document(tmp_path: Path) -> None:
    one = "<TEI><teiHeader><p>No.</p></teiHeader><text><body><p>Book {}.</p></body></text></TEI>"
    content = f'<teiCorpus xmlns="x"><teiHeader><p>No.</p></teiHeader>{one.format(1)}\n{one.format(2)}</teiCorpus>'
    assert counted(sniff(write(tmp_path, content, "a.xml")), len(content)) == ["Book 1.", "Book 2."]


def test_each_text_element_of_other_xml_is_a_document(tmp_path: Path) -> None:
    content = (
        '<?xml version="1.0"?>\n<corpus><doc><title>No.</title><text>One &lt;b&gt; <i>two</i>.\n\nThree.</text></doc>'
        "<doc><text><p>A.</p><p>B.</p></text></doc><doc><text/></doc></corpus>\n"
    )
    source = sniff(write(tmp_path, content, "a.xml"))
    assert counted(source, len(content)) == ["One <b> two.\n\nThree.", "A.\nB.", ""]


@pytest.mark.parametrize("name", ["a.xml", "a.txt", "a"])
def test_xml_without_a_declaration_is_recognized(tmp_path: Path, name: str) -> None:
    content = "<corpus>\n" + "<text>Some words.</text>\n" * 5 + "</corpus>"
    assert counted(sniff(write(tmp_path, content, name)), len(content)) == ["Some words."] * 5


@pytest.mark.parametrize(
    "prose", ["<unk> is a word\n<unk> another\n", "<3 you\n", "<s> a </s>\n<s> b </s>\n", "< a </b>\n", "<b>x</c>\n"]
)
def test_prose_with_angle_brackets_is_prose(tmp_path: Path, prose: str) -> None:
    assert isinstance(sniff(write(tmp_path, prose, "a.txt")), TextReader)


class TestElements:
    CONTENT = "<?xml version='1.0'?><r xmlns:x='u'><x:paragraph>One.</x:paragraph><paragraph>Two.</paragraph></r>"

    def test_an_element_can_be_named(self, tmp_path: Path) -> None:
        path = write(tmp_path, self.CONTENT, "a.xml")
        assert sniff(f"{path}#paragraph") == XmlReader(path=path, element="paragraph")
        assert counted(sniff(f"xml:{path}#paragraph"), len(self.CONTENT)) == ["One.", "Two."]

    def test_a_missing_element_is_an_error_with_the_existing_elements(self, tmp_path: Path) -> None:
        path = write(tmp_path, self.CONTENT, "a.xml")
        with pytest.raises(
            BadInput,
            match=r"^[^\n]+a\.xml: missing element 'text'[^\n]+ r, paragraph; "
            r"select the element[^\n]+--data xml:PATH#ELEMENT",
        ):
            sniff(path)

    def test_a_named_tei_element_is_read_with_all_its_content(self, tmp_path: Path) -> None:
        path = write(tmp_path, "<TEI><text><body><l>One.</l><l>Two.</l></body></text></TEI>", "a.xml")
        assert texts(sniff(f"{path}#l")) == ["One.", "Two."]


class TestEncodings:
    WORDS: ClassVar = {
        "gb18030": "这座古老的城市位于河边，夏天有来自全国各地的人们前来参观这里的房屋。",
        "cp1251": "Старый город стоит на берегу реки.",
    }

    @pytest.mark.parametrize("encoding", WORDS)
    def test_the_declared_encoding_is_used(self, tmp_path: Path, encoding: str) -> None:
        words = self.WORDS[encoding]
        content = f'<?xml version="1.0" encoding="{encoding}"?><r><text>{words}</text></r>'.encode(encoding)
        source = sniff(write(tmp_path, content, "a.xml"))
        assert texts(source) == [words]
        assert {record.encoding for record in read(source)} == {encoding}

    def test_a_wrong_declaration_of_utf8_text_is_ignored(self, tmp_path: Path) -> None:
        words = self.WORDS["cp1251"]
        content = f'<?xml version="1.0" encoding="ISO-8859-1"?><r><text>{words}</text></r>'.encode()
        source = sniff(write(tmp_path, content, "a.xml"))
        assert counted(source, len(content)) == [words]

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    @pytest.mark.parametrize("declared", ["UTF-16", "UTF-8"])
    def test_wide_characters_are_read_with_any_declaration(self, tmp_path: Path, encoding: str, declared: str) -> None:
        words = self.WORDS["cp1251"]
        content = f'<?xml version="1.0" encoding="{declared}"?><r><text>{words}</text></r>'.encode(encoding)
        source = sniff(write(tmp_path, content, "a.xml"))
        assert texts(source) == [words]
        assert all(record.encoding.startswith(encoding[:6]) for record in read(source))

    def test_the_encoding_is_detected_without_a_declaration(self, tmp_path: Path) -> None:
        words = self.WORDS["cp1251"] * 9
        content = f"<?xml version='1.0'?>\n<r><text>{words}</text></r>".encode("cp1251")
        assert texts(sniff(write(tmp_path, content, "a.xml"))) == [words]

    def test_a_given_encoding_is_used(self, tmp_path: Path) -> None:
        path = write(tmp_path, '<?xml version="1.0" encoding="koi8-r"?><text>да</text>'.encode("cp866"), "a.xml")
        assert texts(XmlReader(path=path, encoding="cp866")) == ["да"]

    def test_bytes_invalid_in_xml_are_single_lost_characters(self, tmp_path: Path) -> None:
        content = "<r><text>Brücke</text>".encode() * 9 + b"<text>caf\xe9 a\x0bb \x00</text></r>"
        content = b"<r>" + content.replace(b"<r>", b"")
        path = write(tmp_path, content, "a.xml")
        assert counted(XmlReader(path=path), len(content))[-1] == "caf\ufffd a\ufffdb \ufffd"
        assert [record.repaired for record in read(XmlReader(path=path)) if record.text][-1] == 3


def _bomb() -> str:
    """10**9 times `lol`."""
    names = [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)]
    return (
        f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a0 "lol">{"".join(names)}]><r><text>x</text><text>&a9;</text></r>'
    )


class TestMalformed:
    def test_an_entity_bomb_is_rejected(self, tmp_path: Path) -> None:
        content = _bomb()
        assert counted(sniff(write(tmp_path, content, "a.xml")), len(content)) == ["x", "<bad_xml>"]
        (bad,) = [record for record in read(XmlReader(path=str(tmp_path))) if record.fault == "bad_xml"]
        assert b"amplification" in bad.snippet

    def test_external_entities_open_no_file(self, tmp_path: Path) -> None:
        secret = write(tmp_path, "secret", "secret.txt")
        content = f'<!DOCTYPE r [<!ENTITY x SYSTEM "file://{secret}">]><r><text>a &x; b</text></r>'
        assert counted(XmlReader(path=write(tmp_path, content, "a.xml")), len(content)) == ["a \ufffd b"]

    def test_html_entities_are_decoded_and_unknown_ones_are_lost_characters(self, tmp_path: Path) -> None:
        for begin in ("", '<!DOCTYPE r SYSTEM "r.dtd">'):
            content = begin + "<r><text>caf&eacute;&mdash;&unheard;</text></r>"
            assert counted(XmlReader(path=write(tmp_path, content, "a.xml")), len(content)) == ["café—\ufffd"]

    @pytest.mark.parametrize("content", ["<a>" * 300_000, "<r><text>" + "<a>" * 300_000])
    def test_endless_nesting_is_rejected(self, tmp_path: Path, content: str) -> None:
        assert counted(XmlReader(path=write(tmp_path, content, "a.xml")), len(content)) == ["<bad_xml>"]

    @pytest.mark.parametrize("inside", ["x" * 100_000, "<p/>" * 100_000, "&#120;" * 100_000])
    def test_a_too_long_document_costs_no_others(self, tmp_path: Path, inside: str) -> None:
        content = f"<r><text>One.</text><text>{inside}</text><text>Two.</text></r>"
        path = write(tmp_path, content, "a.xml")
        assert counted(XmlReader(path=path), len(content), max_chars=1000) == ["One.", "<too_long>", "Two."]

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("<r><text>One.</text><text>Tw", ["One.", "<bad_xml>"]),
            ("<r><text>One.</text><b></r>", ["One.", "<bad_xml>"]),
            ("<r><text>One.</text></r><more/>", ["One.", "<bad_xml>"]),
            ("<r><text>One.</text>", ["One.", "<bad_xml>"]),
            ("no xml", ["<bad_xml>"]),
            ("\n", ["<bad_xml>"]),
            ("<r><text>a<text>b</text>c</text></r>", ["abc"]),
            ("<r><text><![CDATA[<b> & ]]></text></r>", ["<b> &"]),
            ("<r/>", ["<no_element>"]),
            ("<r><text>a & b</text><text>c</text></r>", ["<bad_xml>"]),
        ],
    )
    def test_only_the_damaged_part_is_rejected(self, tmp_path: Path, content: str, expected: list[str]) -> None:
        assert counted(XmlReader(path=write(tmp_path, content, "a.xml")), len(content)) == expected

    def test_the_parser_error_is_reported(self, tmp_path: Path) -> None:
        found = read(XmlReader(path=write(tmp_path, "<r>\n<text>One.</text>\n<b></r>", "a.xml")))
        assert found[-1].snippet == b"mismatched tag, line 3"

    def test_text_is_independent_of_the_read_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(tmp_path, TEI.replace("heading", "héading"), "a.xml")
        expected = read(XmlReader(path=path))
        for size in (1, 3, 7, 64):
            monkeypatch.setattr("pipeline.readers.xml_text._READ", size)
            assert read(XmlReader(path=path)) == expected

    def test_a_truncated_compressed_file_is_reported(self, tmp_path: Path) -> None:
        whole = lzma.compress(("<r>" + "".join(f"<text>{n} {n * n}</text>" for n in range(9000)) + "</r>").encode())
        found = read(XmlReader(path=write(tmp_path, whole[: len(whole) // 2], "a.xml.xz")))
        assert [record.fault for record in found[-2:]] == ["bad_xml", "truncated"]
        assert len(found) > 1000


def test_a_file_without_the_element_is_rejected_beside_others(tmp_path: Path) -> None:
    write(tmp_path, "<r><text>Words.</text></r>", "a.xml")
    content = "<r><body>Words that nobody reads.</body></r>"
    write(tmp_path, content, "b.xml")
    first, *_, last = read(*recognise(str(tmp_path)))
    assert (last.source, last.size, last.fault) == ("b.xml", len(content), "no_element")
    assert first.source == "a.xml"


def test_a_control_character_needed_to_repair_mojibake_stays(tmp_path: Path) -> None:
    """The control character used to be decoded as half a character, so `Água` became `Ãgua` permanently."""
    path = write(tmp_path, "<a><text>\u00c3\u0081gua \N{GRINNING FACE}</text></a>", "a.xml")
    assert texts(*recognise(path)) == ["\u00c3\u0081gua \N{GRINNING FACE}"]
