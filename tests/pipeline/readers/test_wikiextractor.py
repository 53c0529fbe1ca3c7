import json
from pathlib import Path

import pytest

from pipeline.readers import WikiExtractorReader, plan_splits, records, sniff
from pipeline.readers.wikiextractor import prepend_title


def _texts(folder: Path, content: str) -> list[str]:
    (folder / "wiki_00").write_text(content, encoding="utf-8")
    source = sniff(str(folder / "wiki_00"))
    assert isinstance(source, WikiExtractorReader)
    found = [record for split in plan_splits([source]) for record in records(split, 10_000)]
    assert sum(record.size for record in found) == len(content.encode())
    return [record.text for record in found if not record.fault]


def _tagged(title: str, text: str, more: str = "") -> str:
    return f'<doc id="1" url="https://a.b/wiki?title=x" title="{title}"{more}>\n{text}\n</doc>\n'


def _json(title: object, text: str) -> str:
    return json.dumps({"id": "1", "revid": "2", "url": "u", "title": title, "text": text}) + "\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (_tagged("Ada", "Ada\n\nShe wrote.\nA lot.\n\n"), "Ada\n\nShe wrote.\nA lot."),
        (_tagged("Ada", "She wrote."), "Ada\n\nShe wrote."),
        (_tagged("Ada", "Ada\n\nAda\nis a name."), "Ada\n\nAda\nis a name."),
        (_tagged("Q&amp;A", "Q&amp;A\n\nA form."), "Q&A\n\nA form."),
        (_tagged("Like a Surgeon (&quot;Weird Al&quot;)", 'Like a Surgeon ("Weird Al")\n\nA song.'),
         'Like a Surgeon ("Weird Al")\n\nA song.'),
        (_tagged('The "Ninth"', 'The "Ninth"\n\nA symphony.', ' nonfiltered="1"'), 'The "Ninth"\n\nA symphony.'),
        (_tagged("Ada", "Ada\n\n\n"), ""),
        (_tagged("Ada", "Ada\n\nAda\n"), ""),
        (_json("Ada", "She wrote.\nA lot."), "Ada\n\nShe wrote.\nA lot."),
        (_json("Ada", "Ada\n\nShe wrote."), "Ada\n\nShe wrote."),
        (_json("Q&amp;A", "A form."), "Q&A\n\nA form."),
        (_json(7, "She wrote."), "She wrote."),
        (_json("Ada", ""), ""),
    ],
)  # fmt: skip
def test_an_article_is_its_title_once_and_its_text(tmp_path: Path, content: str, expected: str) -> None:
    assert _texts(tmp_path, content) == [expected]


def test_a_single_surrogate_in_a_title_is_replaced(tmp_path: Path) -> None:
    assert _texts(tmp_path, _json("A\ud83d", "b")) == ["A\ufffd\n\nb"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One (; two), three .\nBuilt at , it is.", "One (two), three.\nBuilt at, it is."),
        ("印度关系\uff08\uff0c\uff09是指", "印度关系是指"),
        ("He won.<ref name='1/2'>A book</ref><br>He lost.\n</dl>\nEnd.", "He won.\nHe lost.\nEnd."),
        ("&lt;small&gt;A &amp; B&lt;/small&gt;, x &lt; y", "A & B, x < y"),
        ("As of 2011[ [update]], it is.", "As of 2011, it is."),
        ("A [[lake]] and [[Berlin|the city]].", "A lake and the city."),
        ("Text.\n[[画像:A.jpg|right|thumb|200px|Ein [[Bild]]]]\n[[Category:渥太华旅游景点]]\nMore.", "Text.\n\nMore."),
        ("Text.\n[[File:A.png|400px|thumb|\n[[Category:Legislatures| ]]", "Text."),
        ("__NOEDITSECTION__\nText.__无目录__", "Text."),
        ("Text {{a|b}} here.\n!Total||59||4\n| valign=top |", "Text  here."),
    ],
)
def test_remaining_markup_is_removed(tmp_path: Path, text: str, expected: str) -> None:
    assert _texts(tmp_path, _tagged("T", f"T\n\n{text}")) == [f"T\n\n{expected}"]
    assert _texts(tmp_path, _json("T", text)) == [f"T\n\n{expected}"]


@pytest.mark.parametrize(
    "text",
    [
        "Plain text, in two sentences. Nothing (or: little) goes; see [1] and a[i] too.",
        "!!! is a band. They made \"Me and Giuliani\".\n!Kung people live there, in the north of the country.",
        "A line ends with \"<br>\", support for <audio> and <canvas>, a <b and c> d, 3 < 4.",
        "He said . . . nothing ... and left at 5:30 .5 later.",
        "Il vint ; elle partit ; tous : oui !",
        "#define __FILE__ and __STDC_VERSION__ and __init__, fill in ____ or snake_case.",
        "AT&T, R&B; ?a=1&copy=2 & so on <x>",
        "# * at the begin of a line\n* One\n: Two\n; Three\n# Four",
    ],
)  # fmt: skip
def test_text_without_markup_stays_unchanged(text: str) -> None:
    assert prepend_title("T", f"T\n\n{text}") == f"T\n\n{text}"


@pytest.mark.parametrize(
    "text",
    ["[[" * 50_000, "{{a|" * 50_000, "<br" * 50_000, "<ref>" * 30_000, " ," * 50_000, "__A" * 50_000, "!\n" * 50_000],
)
@pytest.mark.timeout(60)
def test_malformed_text_takes_linear_time(text: str) -> None:
    assert len(prepend_title("", text)) <= len(text)
