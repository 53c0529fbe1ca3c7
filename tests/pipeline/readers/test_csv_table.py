# ruff: noqa: RUF001
"""CSV and TSV: rows are documents with any quoting of cells, and each byte is counted."""

import csv
import io
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.readers import CsvReader, TextReader, csv_table, recognise, sniff
from preprocessing.errors import BadInput
from preprocessing.text import decode
from tests.pipeline.readers.reading import counted, read, texts, write


def _written(rows: list[list[str]], **how: object) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, **how).writerows(rows)  # type: ignore[arg-type]
    return out.getvalue()


DOCS = [f'Document {number}, with "words" in it.\nAnd a second line; of it.\n\nA third.' for number in range(120)]


def test_a_row_is_a_document_with_any_cell_content(tmp_path: Path) -> None:
    content = _written([["id", "text", "label"], *([str(n), text, "x"] for n, text in enumerate(DOCS))])
    path = write(tmp_path, content, "docs.csv")
    assert recognise(path) == [CsvReader(path=path)]
    assert counted(sniff(path), len(content)) == DOCS


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["docs.csv", "docs", "docs.txt", "DOCS.CSV"])
def test_a_table_is_recognized_by_its_name_or_header(tmp_path: Path, separator: str, name: str) -> None:
    rows = [["id", "text"], *([str(number), f"A text {number}, and more."] for number in range(9))]
    path = write(tmp_path, _written(rows, delimiter=separator), name)
    assert sniff(path) == CsvReader(path=path)
    assert texts(sniff(path)) == [row[1] for row in rows[1:]]


@pytest.mark.parametrize(
    "prose",
    [
        "My text, it is prose, he said.\nAnother line, of it.\nAnd, here, more, commas.\n",
        "text\nis a word\n",
        "One, text\nTwo, three\n",
        "id,text\n",
        "id,text\rone,two\rx",
        "id,text\na,b\rc\n",
        'id,text\n"a\n',
    ],
)
def test_prose_with_commas_is_read_as_text_or_table(tmp_path: Path, prose: str) -> None:
    assert isinstance(sniff(write(tmp_path, prose, "a.txt")), TextReader | CsvReader)


def test_commas_alone_make_no_table(tmp_path: Path) -> None:
    poem = "Roses, red\nViolets, blue\nSugar, sweet\nYou, too\n" * 20
    assert isinstance(sniff(write(tmp_path, poem, "a.txt")), TextReader)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_blank_rows_and_a_byte_order_mark_are_no_documents(tmp_path: Path, end: str) -> None:
    content = "\ufeff" + end + end.join(["text,id", "One.,1", "", "Two.,2", '"Three' + end + 'lines.",3'])
    path = write(tmp_path, content, "a.csv")
    assert counted(sniff(path), len(content.encode())) == ["One.", "Two.", f"Three{end}lines."]


def test_rows_of_another_width_are_rejected(tmp_path: Path) -> None:
    content = "id,text\n1,One.\n2\n3,Three.,more\n4,Four.\n"
    assert counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content)) == [
        "One.",
        "<ragged_row>",
        "<ragged_row>",
        "Four.",
    ]


def test_an_unclosed_quotation_mark_costs_one_row(tmp_path: Path) -> None:
    content = 'id,text\n1,"One.\n2,"Two."\n3,"Three."\n4,Four.\n'
    assert counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content)) == [
        "<bad_csv>",
        "Two.",
        "Three.",
        "Four.",
    ]


def test_an_endless_row_is_rejected_within_the_memory_limit(tmp_path: Path) -> None:
    content = 'id,text\n1,"' + "word, and word\n" * 20_000
    found = counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content), max_chars=1000)
    assert found[0] == "<too_long>"
    assert set(found[1:]) <= {"word, and word", "and word", "<ragged_row>", "<bad_csv>", "<too_long>"}


def test_an_endless_line_is_rejected_once(tmp_path: Path) -> None:
    content = "id,text\n1," + "x" * 300_000 + "\n2,Two.\n"
    found = counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content), max_chars=1000)
    assert found == ["<too_long>", "Two."]


class TestTabs:
    def test_a_quotation_mark_is_an_ordinary_character(self, tmp_path: Path) -> None:
        content = 'id\ttext\n1\t"Well, he said.\n2\tShe "said" so.\n3\t12" long\n'
        path = write(tmp_path, content, "a.tsv")
        assert counted(sniff(path), len(content)) == ['"Well, he said.', 'She "said" so.', '12" long']

    def test_quoted_cells_may_contain_line_ends(self, tmp_path: Path) -> None:
        rows = [["id", "text"], *([str(number), text] for number, text in enumerate(DOCS))]
        content = _written(rows, delimiter="\t")
        assert counted(sniff(write(tmp_path, content, "a.tsv")), len(content)) == DOCS

    def test_with_a_quoted_header_cells_may_be_quoted(self, tmp_path: Path) -> None:
        content = _written([["id", "text"], ["1", "One."], ["2", "Two."]], delimiter="\t", quoting=csv.QUOTE_ALL)
        assert counted(sniff(write(tmp_path, content, "a.tsv")), len(content)) == ["One.", "Two."]

    def test_a_kind_before_the_path_selects_the_format(self, tmp_path: Path) -> None:
        path = write(tmp_path, "text\tn\nA, b; c.\t1\n", "a.dat")
        assert texts(sniff(f"tsv:{path}")) == texts(sniff(f"csv:{path}")) == ["A, b; c."]


class TestTextKeys:
    def test_a_column_can_be_named(self, tmp_path: Path) -> None:
        path = write(tmp_path, "id,body\n1,One.\n", "a.csv")
        assert sniff(f"{path}#body") == CsvReader(path=path, text_key="body")
        assert texts(sniff(f"csv:{path}#body")) == ["One."]

    def test_without_a_header_the_delimiter_is_the_one_in_all_rows(self, tmp_path: Path) -> None:
        content = "1;One, two, three.\n2;Four, five.\n3;Six.\n"
        found = counted(sniff(f"csv:{write(tmp_path, content, 'a.csv')}#2"), len(content))
        assert found == ["One, two, three.", "Four, five.", "Six."]

    def test_a_number_selects_a_column_without_a_header(self, tmp_path: Path) -> None:
        content = "1,One.\n2,Two.\n"
        path = write(tmp_path, content, "docs.csv")
        assert counted(sniff(f"csv:{path}#2"), len(content)) == ["One.", "Two."]
        assert counted(sniff(f"{path}#2"), len(content)) == ["One.", "Two."]
        with pytest.raises(
            BadInput, match=r"^[^\n]+docs\.csv: invalid column number: got 3, expected 1 to 2; select[^\n]+$"
        ):
            read(sniff(f"csv:{path}#3"))

    def test_a_missing_column_is_an_error_with_the_existing_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path, "id;body\n1;One.\n", "a.csv")
        with pytest.raises(
            BadInput,
            match=r"^[^\n]+a\.csv: missing key 'text', expected one of 'body', 'id'; select a key with [^\n]+$",
        ):
            sniff(path)
        with pytest.raises(
            BadInput, match=r"^[^\n]+a\.csv: missing column 'text', expected one of 'id', 'body'; select[^\n]+$"
        ):
            read(sniff(f"csv:{path}"))

    def test_a_duplicate_column_name_is_an_error(self, tmp_path: Path) -> None:
        path = write(tmp_path, "text,text\n1,One.\n", "a.csv")
        with pytest.raises(
            BadInput,
            match=r"^[^\n]+a\.csv: ambiguous column: 2 columns are named 'text'; rename the others$",
        ):
            read(sniff(f"csv:{path}"))

    def test_a_later_file_without_the_column_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, "id,text\n1,One.\n", "a.csv")
        write(tmp_path, "id,body\n1,One.\n", "b.csv")
        with pytest.raises(BadInput, match=r"^[^\n]+b\.csv: missing column 'text'[^\n]+$"):
            read(sniff(str(tmp_path)))


RUSSIAN = ["Старый город стоит на берегу реки.", "Летом туда приезжают люди, их много.", "Зимой там тихо."] * 5


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "utf-8", "utf-8-sig"])
    @pytest.mark.parametrize("field", ["text", "текст"])
    def test_tables_in_any_encoding_are_read(self, tmp_path: Path, encoding: str, field: str) -> None:
        content = _written([["id", field], *([str(n), text] for n, text in enumerate(RUSSIAN))]).encode(encoding)
        path = write(tmp_path, content, "a.csv")
        source = sniff(f"{path}#{field}")
        assert counted(source, len(content)) == RUSSIAN
        assert {record.encoding for record in read(source)} - {""} <= {encoding}

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    def test_utf16_and_utf32_tables_are_read(self, tmp_path: Path, encoding: str) -> None:
        content = _written([["id", "text"], *([str(n), text] for n, text in enumerate(RUSSIAN))]).encode(encoding)
        source = sniff(write(tmp_path, content, "a.csv"))
        assert isinstance(source, CsvReader)
        assert texts(source) == RUSSIAN

    def test_a_given_encoding_is_used(self, tmp_path: Path) -> None:
        path = write(tmp_path, "text,n\nпривет,1\n".encode("koi8-r"), "a.csv")
        assert texts(CsvReader(path=path, encoding="koi8-r")) == ["привет"]
        with pytest.raises(
            ValueError, match=r"^invalid csv\.encoding: got 'no such', expected a Python encoding[^\n]+$"
        ):
            CsvReader(path=path, encoding="no such")


def test_bytes_that_are_not_text_are_rejected_once(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    assert counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content)) == ["<not_text>"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        b",,,\n,,,\n",
        b"text",
        b'"text',
        b"text\n\x00\n",
        b'te"xt,"a"b\nx,y\n',
        b"text,id\n\xff\xfe\xff,1\n",
        b"text\r1\r2\r",
        b'text,id\n"a""b,1\n"""",2\n',
    ],
)
def test_malformed_tables_lose_no_byte_and_raise_only_one_line_errors(tmp_path: Path, content: bytes) -> None:
    source = CsvReader(path=write(tmp_path, content, "a.csv"), text_key="1")
    counted(source, len(content))
    with suppress(BadInput):
        counted(replace(source, text_key="text"), len(content))


def test_a_truncated_compressed_table_is_reported(tmp_path: Path) -> None:
    import gzip

    whole = gzip.compress("".join(["id,text\n", *(f"{n},A text {n * n}.\n" for n in range(2000))]).encode())
    path = write(tmp_path, whole[: len(whole) // 2], "a.csv.gz")
    found = read(sniff(path))
    assert found[-1].fault == "truncated"
    assert len(found) > 100


def test_an_unclosed_quotation_mark_costs_only_its_own_row(tmp_path: Path) -> None:
    rows = [f"Row {number}." for number in range(1000)]
    content = "text,n\n" + "".join(f"{row},1\n" for row in rows[:500])
    content += '"Never closed,1\n' + "".join(f"{row},1\n" for row in rows[500:])
    found = counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content))
    assert found == [*rows[:500], "<bad_csv>", *rows[500:]]


def test_repeated_unclosed_quotation_marks_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[bytes]()
    monkeypatch.setattr(csv_table, "decode", lambda line: calls.append(line) or decode(line))
    content = "text,n\n" + 'x",""" \n' * 2_000  # in every line a quoted cell starts and never ends
    assert set(counted(CsvReader(path=write(tmp_path, content, "a.csv")), len(content))) == {"<bad_csv>"}
    assert len(calls) < 20 * 2_000
