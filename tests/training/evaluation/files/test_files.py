"""Task files in their original formats: their records, malformed records, and the messages about them."""

import bz2
import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.evaluation import files
from training.evaluation.files import (
    FORMATS,
    CbtFormat,
    ConllFormat,
    CoqaFormat,
    CsvFormat,
    JsonFormat,
    JsonlFormat,
    LineBlockFormat,
    LinesFormat,
    Records,
    SquadFormat,
    TableFormat,
    TsvFormat,
    WholeFileFormat,
)


def found(tmp_path: Path, content: str, format: files.RecordFormat) -> Records:
    (tmp_path / "in.txt").write_bytes(content.encode())
    return files.read(tmp_path, "in.txt", format)


def test_the_union_equals_the_registry() -> None:
    assert {kind_of(format) for format in FORMATS.values()} == FORMATS.keys()


# Tables.


def test_a_quotation_mark_in_a_tsv_is_text(tmp_path: Path) -> None:
    """With the rules of CSV, the two rows would become one: QNLI's dev set would lose 65 rows."""
    records = found(tmp_path, 'index\tquestion\tlabel\n0\tWho said "no\tyes\n1\tAnd "why\tno\n', TsvFormat())
    assert [record["question"] for record in records.rows] == ['Who said "no', 'And "why']
    assert records.places == ["in.txt:2", "in.txt:3"]


def test_carriage_returns_and_a_byte_order_mark_are_removed(tmp_path: Path) -> None:
    records = found(tmp_path, "\ufeffsentence\tlabel\r\ngood .\t1\r\n", TsvFormat())
    assert (records.rows[0]["sentence"], records.rows[0]["label"]) == ("good .", "1")


def test_columns_are_numbered_from_both_ends(tmp_path: Path) -> None:
    records = found(tmp_path, "gj04\t1\t\tThe sailors rode.\n", TsvFormat(header=False))
    assert (records.rows[0]["3"], records.rows[0]["-1"], records.rows[0]["1"]) == (*["The sailors rode."] * 2, "1")


def test_a_row_with_too_few_cells_is_malformed(tmp_path: Path) -> None:
    records = found(tmp_path, "id\tq1\tq2\tlabel\n1\ta\tb\t0\n2\ta\n3\ta\tb\t1\n", TsvFormat())
    assert len(records) == 2
    assert records.malformed == ["in.txt:3: got 2 columns, expected 4 as in the first line"]


@pytest.mark.parametrize(("format", "mark"), [(TsvFormat(), "\t"), (CsvFormat(), ",")])
def test_a_row_with_too_many_cells_is_malformed(format: files.RecordFormat, mark: str, tmp_path: Path) -> None:
    """The text contains a tab or comma, so that the label would be read from another column."""
    content = "id,text,label\n1,a,0\n2,a,b,1\n3,c,1\n".replace(",", mark)
    records = found(tmp_path, content, format)
    assert [record["label"] for record in records.rows] == ["0", "1"]
    assert records.malformed == ["in.txt:3: got 4 columns, expected 3 as in the first line"]


def test_csv_cells_may_contain_commas_and_line_ends(tmp_path: Path) -> None:
    records = found(tmp_path, 'id,article\n1,"One, two\nand ""three"""\n2,x\n', CsvFormat())
    assert [record["article"] for record in records.rows] == ['One, two\nand "three"', "x"]
    assert records.places == ["in.txt:2", "in.txt:4"]


def test_a_csv_cell_may_be_longer_than_131072_characters(tmp_path: Path) -> None:
    records = found(tmp_path, f'id,article\n1,"{"a" * 200_000}"\n2,x\n', CsvFormat())
    assert [len(record["article"]) for record in records.rows] == [200_000, 1]


def test_an_unclosed_quotation_mark_makes_its_lines_malformed(tmp_path: Path) -> None:
    records = found(tmp_path, 'id,article\n1,a\n2,"b\n3,"c"\n4,d\n', CsvFormat())
    assert [record["article"] for record in records.rows] == ["a", "d"]
    assert records.malformed == ["in.txt:3: lines 3 to 4 are not a valid row: ',' expected after '\"'"]
    records = found(tmp_path, 'id,article\n1,a\n2,"b\n3,c\n', CsvFormat())
    assert [record["article"] for record in records.rows] == ["a"]
    assert records.malformed == [
        "in.txt:3: lines 3 to 4 are not a valid row: the quotation mark of line 3 is not closed, so 2 lines are lost"
    ]
    records = found(tmp_path, 'id,article\n1,a\n"2\n",b "so" ""\n4,"b ""so""\n' + "3,c\n" * 110, CsvFormat())
    assert [record["article"] for record in records.rows] == ["a", 'b "so" ""']
    assert records.malformed == [
        "in.txt:5: lines 5 to 115 are not a valid row: "
        "the quotation mark of line 5 is not closed, so 111 lines are lost"
    ]
    records = found(tmp_path, 'id,article\n"2\n3","b\n', CsvFormat())
    assert "lines 2 to 3 are not a valid row: the quotation mark of line 3 is" in records.malformed[0]


@pytest.mark.parametrize(("format", "mark"), [(TsvFormat(), "\t"), (CsvFormat(), ",")])
def test_a_duplicate_column_name_is_not_used(format: files.RecordFormat, mark: str, tmp_path: Path) -> None:
    """The last of these columns was used silently."""
    row = found(tmp_path, "text,label,label\na,b,c\n".replace(",", mark), format).rows[0]
    assert "label" not in row
    assert (row["text"], row["1"], row["2"]) == ("a", "b", "c")
    assert "label (named twice on line 1)" in row


@pytest.mark.parametrize(("format", "mark"), [(TsvFormat(), "\t"), (CsvFormat(), ",")])
def test_a_column_name_that_is_the_number_of_another_column_is_refused(
    format: files.RecordFormat, mark: str, tmp_path: Path
) -> None:
    """It was used in place of the column with that number."""
    for line, message in (
        ("good,0", "has a column named 0, which is the number of another column (from 0, or from the end)"),
        ("-1,text", "has a column named -1, which is the number of another column (from 0, or from the end)"),
    ):
        with pytest.raises(BadInput) as caught:
            found(tmp_path, f"{line}\n1,2,3\n".replace(",", mark), format)
        remedy = "rename it, or set header: false if the line is a row"
        assert str(caught.value) == f"{tmp_path / 'in.txt'}: line 1 {message}; {remedy}"
    for line in ("text,label,,", "0,1,2,3", "2019,2020,2018,a", "a,b,-2,-1"):
        assert len(found(tmp_path, f"{line}\nx,y,z,1\n".replace(",", mark), format)) == 1


@pytest.mark.parametrize(("format", "mark"), [(TsvFormat(), "\t"), (CsvFormat(), ",")])
def test_lines_may_end_in_a_carriage_return_alone(format: files.RecordFormat, mark: str, tmp_path: Path) -> None:
    records = found(tmp_path, "text,label\ra,0\rb,1\r".replace(",", mark), format)
    assert [record["label"] for record in records.rows] == ["0", "1"]


def test_a_table_with_typical_irregularities_is_read(tmp_path: Path) -> None:
    """A line with an unclosed quotation mark is malformed; a row of empty cells is ignored."""
    content = 'id;text\n1;"One; two\nand ""three"""\n\n;\n2;"x\n3;y\n4;a;b\n'
    records = found(tmp_path, content, TableFormat())
    assert [record["text"] for record in records.rows] == ['One; two\nand "three"', "y"]
    assert records.places == ["in.txt:2", "in.txt:7"]
    assert records.malformed == [
        "in.txt:6: invalid row: a quotation mark is not closed, or is closed before the end of its cell",
        "in.txt:8: got 3 columns, expected 2 as in the first line",
    ]
    assert [row["0"] for row in found(tmp_path, "a|b\rc|d\r", TableFormat(header=False)).rows] == ["a", "c"]
    assert [row["t"] for row in found(tmp_path, "t,x;y\na,b\n", TableFormat(column="t")).rows] == ["a"]


def test_the_encoding_of_a_table_is_detected_or_an_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes("t,y\nschön,1\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"in.txt: unknown encoding, perhaps .*; convert the file to UTF-8, or set"):
        files.read(tmp_path, "in.txt", TableFormat())
    assert files.read(tmp_path, "in.txt", TableFormat(encoding="latin-1")).rows[0]["t"] == "schön"
    path.write_bytes("t,y\nschön,1\n".encode("utf-16"))
    assert files.read(tmp_path, "in.txt", TableFormat()).rows[0]["t"] == "schön"
    path.write_bytes(b"t,y\nsch\xf6n,1\nso,2\n")
    assert files.read(tmp_path, "in.txt", TableFormat(encoding="utf-8")).malformed == [
        "in.txt:2: 1 characters are invalid in utf-8"
    ]
    for keys, message in (
        ({"encoding": "no such"}, "invalid encoding: got 'no such', expected an enc"),
        ({"delimiter": ";;"}, "one"),
    ):
        with pytest.raises(ValueError, match=message):
            TableFormat(**keys)


# JSON.


def test_json_lines_are_records_and_other_lines_malformed(tmp_path: Path) -> None:
    records = found(tmp_path, '{"a": 1}\n\n{broken\n[1]\n', JsonlFormat())
    assert records.rows == [{"a": 1}]
    assert [each.split(" (")[0] for each in records.malformed] == [
        "in.txt:3: not JSON",
        "in.txt:4: got list, expected an object",
    ]


def test_records_path_selects_a_list_in_a_document(tmp_path: Path) -> None:
    records = found(tmp_path, '{"data": {"rows": [{"a": 1}, {"a": 2}]}}', JsonFormat(records_path="data.rows"))
    assert [record["a"] for record in records.rows] == [1, 2]
    assert (
        found(tmp_path, '{"a": 1}', JsonFormat(records_path="data.rows"))
        .malformed[0]
        .startswith("in.txt:1: not JSON with data.rows")
    )


def test_columns_are_transposed_to_records(tmp_path: Path) -> None:
    assert found(tmp_path, '{"a": [1, 2], "b": [3, 4]}', JsonFormat(columns=True)).rows == [
        {"a": 1, "b": 3},
        {"a": 2, "b": 4},
    ]


@pytest.mark.parametrize("content", ['{"a": [1, 2], "b": [3]}', "[1]", '{"a": 1}'])
def test_columns_of_different_lengths_are_malformed(content: str, tmp_path: Path) -> None:
    assert found(tmp_path, content, JsonFormat(columns=True)).malformed == [
        "in.txt:1: the columns are not lists of equal length"
    ]


def test_each_question_of_an_article_is_a_record(tmp_path: Path) -> None:
    race = {"article": "It rains.", "questions": ["What?", "Why?"], "answers": ["A", "B"], "options": [["x"], ["y"]]}
    records = found(tmp_path, json.dumps(race), JsonFormat(each=("questions", "answers", "options")))
    assert [(one["article"], one["questions"], one["answers"]) for one in records.rows] == [
        ("It rains.", "What?", "A"),
        ("It rains.", "Why?", "B"),
    ]
    records = found(tmp_path, json.dumps(race | {"answers": ["A"]}), JsonFormat(each=("questions", "answers")))
    assert records.malformed == ["in.txt:1: questions, answers are not lists of equal length"]


# CoNLL.


def test_conll_sentences_have_words_and_tags(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nGerman JJ B-MISC\n\n-DOCSTART- O\n\nIt PRP O\n"
    assert found(tmp_path, text, ConllFormat()).rows == [
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"], "document": 1},
        {"words": ["German"], "tags": ["B-MISC"], "document": 1},
        {"words": ["It"], "tags": ["O"], "document": 2},
    ]


def test_words_with_spaces_are_separated_by_tabs(tmp_path: Path) -> None:
    text = "# newdoc\n1\tNew York\tB-LOC\tO\n"
    assert found(tmp_path, text, ConllFormat(word=1, tag=2, comment="#")).rows == [
        {"words": ["New York"], "tags": ["B-LOC"], "document": 0}
    ]


def test_a_sentence_with_an_untagged_word_is_malformed(tmp_path: Path) -> None:
    records = found(tmp_path, "EU B-ORG\nrejects\n\nBlackburn B-PER\n", ConllFormat())
    assert [record["words"] for record in records.rows] == [["Blackburn"]]
    assert records.malformed == ["in.txt:1: line 2 has 1 columns, expected a word and a tag"]


@pytest.mark.parametrize(
    "format", [ConllFormat(word=0, tag=2), ConllFormat(word=-3, tag=1), ConllFormat(word=2, tag=0)]
)
def test_a_sentence_with_several_short_lines_is_malformed_once(format: ConllFormat, tmp_path: Path) -> None:
    records = found(tmp_path, "EU x\nrejects y\n\nBlackburn z B-PER\n", format)
    assert len(records) == 1
    assert records.malformed == ["in.txt:1: line 1 has 2 columns, expected a word and a tag"]


# SQuAD.


def squad(answers: list[dict[str, object]], **keys: object) -> str:
    question = {"id": "q", "question": "Who?", "answers": answers} | keys
    return json.dumps({"data": [{"title": "T", "paragraphs": [{"context": "Ada won.", "qas": [question]}]}]})


def test_squad_question_with_answers(tmp_path: Path) -> None:
    (record,) = found(tmp_path, squad([{"text": "Ada", "answer_start": 0}]), SquadFormat()).rows
    assert (record["context"], record["answers"], record["starts"], record["title"]) == ("Ada won.", ["Ada"], [0], "T")


def test_an_answer_at_the_wrong_position_has_no_start(tmp_path: Path) -> None:
    for start in (1, -1, 99):
        (record,) = found(tmp_path, squad([{"text": "Ada", "answer_start": start}]), SquadFormat()).rows
        assert (record["answers"], record["starts"]) == (["Ada"], [-1])


def test_an_impossible_question_has_no_answers(tmp_path: Path) -> None:
    content = squad([{"text": "Ada", "answer_start": 0}], is_impossible=True)
    assert found(tmp_path, content, SquadFormat()).rows[0]["answers"] == []


def test_a_question_without_answers_is_unlabeled(tmp_path: Path) -> None:
    without = json.loads(squad([]))
    del without["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    for content, wanted in (
        (squad([]), None),
        (json.dumps(without), None),
        (squad([], is_impossible=False), None),
        (squad([], is_impossible=True), []),
    ):
        (record,) = found(tmp_path, content, SquadFormat()).rows
        assert (record["answers"], record["starts"]) == (wanted, wanted)


def test_other_json_is_not_valid_squad(tmp_path: Path) -> None:
    assert found(tmp_path, '{"version": 1}', SquadFormat()).malformed == ["in.txt:1: invalid SQuAD format: 'data'"]
    assert found(tmp_path, squad([{"text": "Ada"}]), SquadFormat()).malformed == [
        "in.txt:1: invalid SQuAD format: 'answer_start'"
    ]


@pytest.mark.parametrize("paragraph", [{"context": "x"}, {"context": "x", "qas": None}, "x", None])
def test_a_paragraph_without_questions_is_malformed_and_others_are_used(paragraph: object, tmp_path: Path) -> None:
    content = json.loads(squad([{"text": "Ada", "answer_start": 0}]))
    content["data"][0]["paragraphs"].insert(0, paragraph)
    records = found(tmp_path, json.dumps(content), SquadFormat())
    assert [record["id"] for record in records.rows] == ["q"]
    assert records.malformed == ["in.txt:1: invalid SQuAD format: a paragraph without 'qas'"]


def test_questions_and_contexts_that_are_not_texts_are_malformed(tmp_path: Path) -> None:
    content = json.loads(squad([{"text": "Ada", "answer_start": 0}]))
    (paragraph,) = content["data"][0]["paragraphs"]
    content["data"][0]["paragraphs"] = [paragraph | {"context": 1}, paragraph | {"qas": ["Who?"]}, paragraph]
    records = found(tmp_path, json.dumps(content), SquadFormat())
    assert (len(records), len(records.malformed)) == (1, 2)


@pytest.mark.parametrize("content", ['{"data": 1}', '{"data": null}', "[]", '{"data": ["x"]}'])
@pytest.mark.parametrize("format", [SquadFormat(), CoqaFormat()])
def test_content_of_another_format_is_malformed_once(content: str, format: files.RecordFormat, tmp_path: Path) -> None:
    records = found(tmp_path, content, format)
    assert (len(records), len(records.malformed)) == (0, 1)


# Lines.


def test_label_first_splits_the_label_from_its_text(tmp_path: Path) -> None:
    records = found(tmp_path, "4 a stirring film\n\nword\n", LinesFormat(label_first=True))
    assert records.rows == [{"label": "4", "text": "a stirring film"}]
    assert records.malformed == ["in.txt:3: no blank after the label"]


def test_line_blocks_are_records(tmp_path: Path) -> None:
    names = ("text", "pronoun", "candidates", "answer")
    records = found(tmp_path, "It [MASK] .\n[MASK]\na,b\na\n\nIt\n[MASK]\n", LineBlockFormat(names=names))
    assert records.rows == [dict(zip(names, ["It [MASK] .", "[MASK]", "a,b", "a"], strict=True))]
    assert records.malformed == ["in.txt:6: got 2 lines, expected 4: text, pronoun, candidates, answer"]


CBT = """1 Once there was a king .
2 He was old .
3 The XXXXX had a crown .\tking\t\tcastle|king|door

1 It rained .
2 XXXXX it was cold .\tAnd\t\tBut|And
"""


def test_childrens_book_test_records(tmp_path: Path) -> None:
    records = found(tmp_path, CBT, CbtFormat())
    assert records.rows == [
        {
            "context": "Once there was a king . He was old . The",
            "words": ["castle", "king", "door"],
            "endings": ["castle had a crown .", "king had a crown .", "door had a crown ."],
            "answer": 1,
        },
        {
            "context": "It rained .",
            "words": ["But", "And"],
            "endings": ["But it was cold .", "And it was cold ."],
            "answer": 1,
        },
    ]
    assert records.places == ["in.txt:1", "in.txt:5"]


@pytest.mark.parametrize(
    "last", ["2 no blank .\tking\t\tking|door", "2 The XXXXX .\tking", "2 The XXXXX .\tking\t\tdoor|sea"]
)
def test_a_record_without_a_blank_or_its_answer_is_malformed(last: str, tmp_path: Path) -> None:
    records = found(tmp_path, f"1 A line .\n{last}\n", CbtFormat())
    assert (len(records), [line[:27] for line in records.malformed]) == (0, ["in.txt:1: the last line lac"])


# Files and archives.


def test_files_of_a_pattern_are_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"of": name}))
    records = files.read(tmp_path, "*.jsonl", JsonlFormat())
    assert [(record["of"], place) for record, place in zip(records.rows, records.places, strict=True)] == [
        ("a", "a.jsonl:1"),
        ("b", "b.jsonl:1"),
    ]


def test_members_of_archives_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("data/b.jsonl", "data/a.jsonl", "data/readme.txt"):
            archive.writestr(name, json.dumps({"of": name}))
    with tarfile.open(tmp_path / "x.tar.bz2", "w:bz2") as tar:
        for name in ("data/b.jsonl", "data/a.jsonl", "data/readme.txt"):
            content = json.dumps({"of": name}).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for name in ("x.zip", "x.tar.bz2"):
        records = files.read(tmp_path, name, JsonlFormat(), "data/*.jsonl")
        assert [record["of"] for record in records.rows] == ["data/a.jsonl", "data/b.jsonl"]
        assert records.places[0] == f"{name}/data/a.jsonl:1"


def test_compressed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.bz2").write_bytes(bz2.compress(b"text\tlabel\nyes\t1\n"))
    assert files.read(tmp_path, "a.tsv.bz2", TsvFormat()).rows[0]["text"] == "yes"


@pytest.mark.parametrize(
    ("pattern", "member", "message"),
    [
        ("none.tsv", "", "none.tsv: no such file"),
        ("*.nope", "", r"\*.nope: no such file"),
        ("torn.zip", "*", "torn.zip: cannot be read"),
        ("torn.bz2", "", "torn.bz2: cannot be read"),
        ("good.zip", "*.csv", r"good.zip: no member \*.csv"),
        ("locked.zip", "*", "locked.zip: cannot be read"),
        ("flipped.gz", "", "flipped.gz: cannot be read"),
        ("latin.tsv", "", "latin.tsv: not UTF-8"),
    ],
)
def test_unreadable_files_are_named(pattern: str, member: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "torn.zip").write_bytes(b"PK\x03\x04torn")
    (tmp_path / "torn.bz2").write_bytes(bz2.compress(b"x" * 99)[:-9])
    packed = bytearray(gzip.compress(bytes(range(256)) * 9))
    packed[12] ^= 255
    (tmp_path / "flipped.gz").write_bytes(packed)
    (tmp_path / "latin.tsv").write_bytes("text\ncafé\n".encode("latin-1"))
    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    locked = bytearray((tmp_path / "good.zip").read_bytes())
    locked[6] |= 1  # the encryption flag, before the file and in the central directory at the end
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    with pytest.raises(BadInput, match=message):
        files.read(tmp_path, pattern, TsvFormat(), member)


# Texts.


def test_a_whole_file_is_one_text(tmp_path: Path) -> None:
    content = " = Title = \n\n It rains . \n"
    assert found(tmp_path, content, WholeFileFormat()).rows == [{"text": content}]
    assert found(tmp_path, " \n", WholeFileFormat()).malformed == ["in.txt:1: no text"]


def test_a_byte_range_leaves_out_incomplete_characters(tmp_path: Path) -> None:
    content = "ab\N{LATIN SMALL LETTER E WITH ACUTE}cdef"  # eight bytes
    for keys, wanted in (
        ({"start": 2, "stop": 6}, "\N{LATIN SMALL LETTER E WITH ACUTE}cd"),
        ({"start": 3}, "cdef"),
        ({"stop": 3}, "ab"),
        ({"start": -2}, "ef"),
    ):
        assert found(tmp_path, content, WholeFileFormat(**keys)).rows == [{"text": wanted}]


def test_a_byte_range_of_a_short_or_binary_file_is_refused(tmp_path: Path) -> None:
    for keys, least in (({"start": 2, "stop": 6}, 6), ({"start": 6, "stop": 9}, 9), ({"start": -7}, 7)):
        with pytest.raises(
            BadInput, match=rf"in\.txt: too short: got 5 bytes, expected at least {least}; give the whole file"
        ):
            found(tmp_path, "abcde", WholeFileFormat(**keys))
    (tmp_path / "other.txt").write_bytes(b"abcd\xffef")
    with pytest.raises(BadInput, match=r"other\.txt: not UTF-8 \(byte 4\)"):
        files.read(tmp_path, "other.txt", WholeFileFormat(start=2, stop=7))


@pytest.mark.parametrize("half", ["\\ud800", "\\uDE00", "a\\ud83d b"])
def test_an_unpaired_surrogate_makes_its_record_malformed_in_every_format(half: str, tmp_path: Path) -> None:
    """A tokenizer raised an exception for the first such text, and the whole task had no score."""
    whole = "\\ud83d\\ude00"
    texts = [f'{{"t": "{text}"}}' for text in (whole, half, "so")]
    contents: list[tuple[files.RecordFormat, str]] = [
        (JsonlFormat(), "\n".join(texts)),
        (JsonFormat(), f"[{','.join(texts)}]"),
        (
            SquadFormat(),
            json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [{"id": n, "question": n} for n in "abc"]}]}]})
            .replace('"question": "b"', f'"question": "{half}"')
            .replace('"question": "a"', f'"question": "{whole}"'),
        ),
    ]
    for format, content in contents:
        records = found(tmp_path, content, format)
        assert len(records) == 2
        (actual,) = records.malformed
        assert actual.startswith("in.txt:2: unpaired surrogate \\u")
        assert "\U0001f600" in records.rows[0].values()
