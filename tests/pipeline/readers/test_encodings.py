# ruff: noqa: RUF001
"""Text in many encodings is detected, named and decoded, independently of how a file is split."""

import bz2
import gzip
from pathlib import Path

import pytest

from pipeline.readers import EXPECTED, ParallelReader, Source, TextReader, plan_splits, recognise, records
from pipeline.readers import splits as sources
from preprocessing.encodings import of_content, of_lines, wide
from preprocessing.text import decode
from tests.pipeline.readers.reading import read, write

TEXTS = {
    "de": "Die Brücke über den Fluss wurde im Frühjahr gebaut, und später fuhren größere Züge darüber.",
    "fr": "L'été dernier, le garçon était déjà très âgé pour son école, où l'on étudiait même le français.",
    "cs": "Staré město leží na břehu řeky a v létě sem přijíždějí lidé z celé země, aby si prohlédli zdejší domy.",
    "pl": "Zażółć gęślą jaźń, powiedział starszy człowiek, który mieszkał przy ulicy Długiej we Wrocławiu.",
    "ru": "Старый город стоит на берегу реки, и летом туда приезжают люди из многих далёких мест страны.",
    "el": "Η παλιά πόλη βρίσκεται στην όχθη του ποταμού και το καλοκαίρι έρχονται άνθρωποι από όλη τη χώρα.",
    "tr": "Eski şehir nehrin kıyısında bulunur ve yazın ülkenin her yerinden insanlar gelir, çünkü güzeldir.",
    "he": "העיר העתיקה נמצאת על גדות הנהר ובקיץ מגיעים אליה אנשים מכל רחבי הארץ כדי לראות את הבתים.",
    "ar": "تقع المدينة القديمة على ضفة النهر وفي الصيف يأتي إليها الناس من جميع أنحاء البلاد لرؤية البيوت.",
    "th": "เมืองเก่าตั้งอยู่ริมฝั่งแม่น้ำและในฤดูร้อนผู้คนจากทั่วประเทศจะมาที่นี่เพื่อชมบ้านเรือน",
    "ja": "古い町は川のほとりにあり、夏になると全国から多くの人々が家々を見るために訪れます。それは美しいです。",
    "zh": "这座古老的城市位于河边，夏天有来自全国各地的人们前来参观这里的房屋，因为它们非常美丽。",
    "tw": "這座古老的城市位於河邊，夏天有來自全國各地的人們前來參觀這裡的房屋，因為它們非常美麗。",
    "ko": "오래된 도시는 강가에 있으며 여름이면 전국 각지에서 많은 사람들이 집을 보러 이곳을 찾아옵니다.",
    "vi": "Thành phố cổ nằm bên bờ sông và vào mùa hè, người dân từ khắp nơi trong nước đến đây.",
}
ENCODINGS = [
    *(
        ("de", name)
        for name in ("cp1252", "latin-1", "iso8859-15", "cp850", "utf-16", "utf-16-le", "utf-32", "utf-32-be")
    ),
    *(("fr", name) for name in ("cp1252", "iso8859-15", "utf-16-be")),
    *(("cs", name) for name in ("cp1250", "iso8859-2")),
    *(("pl", name) for name in ("cp1250", "iso8859-2")),
    *(("ru", name) for name in ("cp1251", "koi8-r", "iso8859-5", "cp866")),
    *(("el", name) for name in ("cp1253", "iso8859-7")),
    *(("tr", name) for name in ("cp1254", "iso8859-9")),
    *(("he", name) for name in ("cp1255", "iso8859-8")),
    *(("ar", name) for name in ("cp1256", "iso8859-6")),
    *(("ja", name) for name in ("shift_jis", "euc_jp", "iso2022_jp")),
    *(("zh", name) for name in ("gb18030", "gbk", "gb2312", "utf-16-le")),
    *(("th", name) for name in ("tis-620", "cp874")),
    ("tw", "big5"),
    ("zh", "hz"),
    ("ko", "euc_kr"),
]


def _text(language: str, lines: int = 40) -> str:
    """Return varied lines, some of them in ASCII."""
    words = TEXTS[language].split(" ")
    made = (" ".join(words[at % len(words) :] + words[: at % len(words)]) for at in range(lines))
    return "".join(
        f"{number}. {line}\n" if number % 5 else "ASCII only, in this line.\n" for number, line in enumerate(made)
    )


def _read(path: Path, **keys: str) -> tuple[str, str]:
    """Return the text of a file, read as lines, and the encoding named in its records."""
    found = [
        record
        for split in plan_splits([TextReader(path=str(path), document_unit="line", **keys)])
        for record in records(split, 10_000)
    ]
    assert sum(record.size for record in found) > 0
    return "".join(record.text for record in found).lstrip("\ufeff"), "".join(
        sorted({record.encoding for record in found})
    )


@pytest.mark.parametrize(("language", "encoding"), ENCODINGS)
def test_text_in_each_encoding_is_read_correctly(tmp_path: Path, language: str, encoding: str) -> None:
    text = _text(language)
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    found, actual = _read(tmp_path / "a.txt")
    assert found == text
    assert actual


def test_utf8_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(_text("zh"), encoding="utf-8")
    assert _read(tmp_path / "a.txt") == (_text("zh"), "")


def test_one_bad_byte_in_utf8_is_one_lost_character_and_no_other_encoding(tmp_path: Path) -> None:
    good = _text("ru").encode()
    (tmp_path / "a.txt").write_bytes(good[:200] + b"\xff" + good[200:])
    found, actual = _read(tmp_path / "a.txt")
    assert actual == ""
    assert found.count("\ufffd") in (1, 2, 3)  # 0xFF may be inside a character
    assert len(found) - len(_text("ru")) <= 3


def test_an_encoding_is_detected_after_much_ascii(tmp_path: Path) -> None:
    text = "A line of nothing but ASCII, as there are many.\n" * 8000 + _text("fr")
    (tmp_path / "a.txt").write_bytes(text.encode("cp1252"))
    assert _read(tmp_path / "a.txt") == (text, "cp1252")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_the_encoding_of_compressed_files_is_detected(tmp_path: Path, compress: object) -> None:
    name = "a.txt.gz" if compress is gzip.compress else "a.txt.bz2"
    (tmp_path / name).write_bytes(compress(_text("ru").encode("koi8-r")))  # type: ignore[operator]
    assert _read(tmp_path / name) == (_text("ru"), "koi8-r")


def test_lines_in_two_encodings_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(_text("de").encode() + _text("fr").encode("cp1252"))
    assert _read(tmp_path / "a.txt") == (_text("de") + _text("fr"), "utf-8 and cp1252")


def test_iso2022_lines_beside_utf8_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(_text("fr").encode() + _text("ja", 9).encode("iso2022_jp"))
    assert _read(tmp_path / "a.txt") == (_text("fr") + _text("ja", 9), "utf-8 and iso2022_jp")


def test_iso2022_lines_after_much_utf8_are_detected(tmp_path: Path) -> None:
    text = _text("ru") * 60 + _text("ja", 9)
    (tmp_path / "a.txt").write_bytes((_text("ru") * 60).encode() + _text("ja", 9).encode("iso2022_jp"))
    assert _read(tmp_path / "a.txt") == (text, "utf-8 and iso2022_jp")
    assert str(of_content((tmp_path / "a.txt").read_bytes())) == "utf-8 and iso2022_jp"


@pytest.mark.parametrize("line", ["as Knuth~{abc} says\n", '(format t "~{abcd~}")\n', "a terminal\x1b(B has escapes\n"])
def test_text_similar_to_escape_sequences_stays_utf8(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text(_text("fr") + line, encoding="utf-8")
    assert _read(tmp_path / "a.txt") == (_text("fr") + line, "")


def test_text_is_independent_of_the_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "A line of nothing but ASCII.\n" * 500 + _text("zh", 400) + "Again ASCII.\n" * 500
    (tmp_path / "a.txt").write_bytes(text.encode("gb18030"))
    monkeypatch.setattr(sources, "SPLIT_BYTES", 3000)
    assert len(plan_splits([TextReader(path=str(tmp_path / "a.txt"), document_unit="line")])) > 5
    assert _read(tmp_path / "a.txt")[0] == text


def test_lines_outside_the_samples_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.readers.transcode._WHOLE", 1000)
    monkeypatch.setattr("pipeline.readers.transcode._BLOCK", 64)
    monkeypatch.setattr("pipeline.readers.transcode._BLOCKS", 2)
    text = "ASCII and no more.\n" * 400 + _text("ru", 10) + "ASCII and no more.\n" * 400
    (tmp_path / "a.txt").write_bytes(text.encode("cp1251"))
    assert _read(tmp_path / "a.txt") == (text, "cp1251")


def test_a_given_encoding_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(_text("ru").encode("cp1251"))
    assert _read(tmp_path / "a.txt", encoding="cp1251") == (_text("ru"), "cp1251")
    assert _read(tmp_path / "a.txt", encoding="koi8-r")[0] != _text("ru")
    (tmp_path / "b.txt").write_bytes("wide".encode("utf-16-le"))
    assert _read(tmp_path / "b.txt", encoding="utf-16-le")[0] == "wide"


def test_latin_1_is_read_as_its_superset_cp1252(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("“Quotes” – of Windows, said to be Latin-1.\n".encode("cp1252"))
    assert _read(tmp_path / "a.txt", encoding="latin-1")[0] == "“Quotes” – of Windows, said to be Latin-1.\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextReader(path="a", encoding="utf-9"),
        lambda: ParallelReader(paths=("a", "b"), encoding="x"),
        *(
            lambda name=name: TextReader(path="a", encoding=name)
            for name in ("idna", "punycode", "undefined", "a\0b", "\udcff")
        ),
    ],
)
def test_an_invalid_encoding_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"invalid [a-z]+\.encoding: got '.*', expected a Python encoding"):
        make()  # type: ignore[operator]


def test_sides_of_a_translation_may_have_different_encodings(tmp_path: Path) -> None:
    (tmp_path / "de").write_bytes(_text("de").encode("cp1252"))
    (tmp_path / "ru").write_bytes(_text("ru").encode("koi8-r"))
    source: Source = ParallelReader(paths=(str(tmp_path / "de"), str(tmp_path / "ru")))
    found = [record for split in plan_splits([source]) for record in records(split, 10_000)]
    assert found[1].text == "\n\n".join(_text(language).splitlines()[1] for language in ("de", "ru"))
    assert found[1].encoding == "cp1252 and koi8-r"


def test_an_unknown_encoding_is_reported_as_unknown() -> None:
    found = of_lines(b"\x80\x81\x82 \xfe\xff\xfd\n\x90\x91\n")
    assert found.name == ""
    assert str(found).startswith("unknown")


@pytest.mark.parametrize("start", [b"NUL and\x00NUL again\x00\n", b"\x7fELF\x01\x02" + bytes(90), b"\x00" * 100, b""])
def test_nuls_alone_are_not_utf16(start: bytes) -> None:
    assert wide(start) == ""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-32-be"])
@pytest.mark.parametrize("marked", [True, False])
def test_given_wide_encodings_need_no_byte_order_mark(tmp_path: Path, encoding: str, marked: bool) -> None:
    order = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(encoding, encoding)
    content = ("\ufeff" * marked + _text("de")).encode(order)
    (tmp_path / "a.txt").write_bytes(content)
    assert _read(tmp_path / "a.txt", encoding=encoding)[0].strip("\ufeff") == _text("de")


def test_lines_are_never_read_as_wide_characters() -> None:
    lines = b'"x0",\n\xff\xfea"x", \n "x1\xe9",\n'  # a byte order mark in the middle
    assert not of_lines(lines).name.startswith(("utf-16", "utf-32"))


def cesu8(text: str) -> bytes:
    """Encode characters beyond U+FFFF as Java and Oracle do: as two surrogates of three bytes each."""
    units = text.encode("utf-16-le")
    halves = (int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2))
    return b"".join(chr(half).encode("utf-8", "surrogatepass") for half in halves)


MIXED = "在山的那边海的那边有一群蓝精灵，他们活泼又聪明。😀 Words beside it. 🎉"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("a.txt", "%s\n"),
        ("a.jsonl", '{"text": "%s"}\n'),
        ("a.csv", "text;id\n%s;1\n"),
        ("a.json", '[{"text": "%s"}]'),
        ("a.html", "<html><body><p>%s</p></body></html>"),
        ("a.xml", "<a><text>%s</text></a>"),
    ],
)
def test_surrogate_pairs_in_utf8_beside_chinese_are_read(tmp_path: Path, name: str, pattern: str) -> None:
    """Such text used to be rejected as damaged, or read in another encoding."""
    content = cesu8(pattern % MIXED)
    assert b"\xed\xa0\xbd\xed\xb8\x80" in content
    (source,) = recognise(write(tmp_path, content, name))
    found = [record for record in read(source) if record.fault not in EXPECTED]
    assert [(record.text.strip(), record.repaired) for record in found] == [(MIXED, 0)]
    assert sum(record.size for record in read(source)) == len(content)


def test_the_nul_of_java_is_decoded_and_an_overlong_character_is_lost() -> None:
    assert decode(b"a\xc0\x80b") == ("a\0b", 0)
    assert decode(b"a\xc0\xafb")[1] == 2
