import re
from pathlib import Path

import pytest

from pipeline.readers import WikiDump, plan_splits, records, sniff
from pipeline.readers.wikitext import TooDeep, prose

HIDDEN = frozenset({"file", "image", "category", "datei"})


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("'''Ada''' was ''very'' '''''good'''''.", "Ada was very good."),
        ("She met [[Charles Babbage|Babbage]] in [[London]].", "She met Babbage in London."),
        ("See [[:Category:Engines]].", "See Category:Engines."),
        ("One[[Datei:A.jpg|thumb|A [[picture]] of {{it}}.]] two.[[Category:A|b]]", "One two."),
        ("An article.[[de:Ein Artikel]]", "An article."),
        ("One.<ref>A {{book}}, [[b]].</ref><ref name=a/> Two.<ref name='a'>x</ref>", "One. Two."),
        ("One{{infobox|a={{b|c}}\n|d=[[e]]}} two.", "One two."),
        ("One\n{| class=x\n|-\n! a\n|-\n| {|\n|-\n| b\n|}\n|}\ntwo.", "One\n\ntwo."),
        ("[http://a.b A site] and http://c.d <br/>here", "A site and\nhere"),
        ("* One\n** Two\n# Three\n: Four\n; Five", "One\nTwo\nThree\nFour\nFive"),
        ("A<!-- no\n--> b &amp; c&nbsp;d &lt;e", "A b & c\u00a0d <e"),
        ("<nowiki>[x]</nowiki> <math>\\frac{1}{2}</math><gallery>\na.jpg\n</gallery>y", "[x] y"),
        ("Text.\n== Part ==\nMore.\n=== See also ===\n== References ==\n<references/>", "Text.\n\nPart\n\nMore."),
        ("Ada ({{IPA|x}}; {{lang|fr|Adele}}) rode {{convert|10|km}}.", "Ada (Adele) rode 10 km."),
        ("Between {{convert|10|to|20|km|mi}} , {{nowrap|a b}}", "Between 10 to 20 km, a b"),
        ("Torn {{template|a\n[[link\n| cell\n|- row\n|}", "Torn template|a\nlink"),
        ("__NOTOC__ Text", "Text"),
    ],
)
def test_markup_becomes_what_a_reader_sees(markup: str, expected: str) -> None:
    assert prose(markup, HIDDEN) == expected


@pytest.mark.parametrize(
    "markup",
    [
        "{{" * 10_000,
        "{{a|" * 10_000 + "}}" * 10_000,
        "[[a|" * 10_000,
        "<b>x" * 10_000,
        "<ref>" * 10_000,
        "{|\n" * 10_000,
        "[http://a " * 10_000,
        "{{a|" * 30 + "x [[y]] " * 100_000,
    ],
)
@pytest.mark.timeout(120)
def test_markup_that_would_keep_the_parser_busy_is_not_parsed(markup: str) -> None:
    with pytest.raises(TooDeep):
        prose(markup, HIDDEN)


@pytest.mark.parametrize(
    "markup", ["(" + " " * 100_000, "\n:*#;" * 2_000, "''x'''y" * 10_000, "&#" * 10_000, "==" * 10_000]
)
@pytest.mark.timeout(120)
def test_other_odd_markup_takes_no_longer_than_its_length(markup: str) -> None:
    assert len(prose(markup, HIDDEN)) <= len(markup)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "articles"),
    [
        ("bgwiki-latest-pages-articles-shortened.xml.bz2", 1),
        pytest.param(
            "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2", 106, marks=pytest.mark.slow
        ),
        ("enwiki-table-markup.xml.bz2", 5),
    ],
)
def test_real_dumps_are_read_without_markup_left(shared: Path, name: str, articles: int) -> None:
    source = sniff(str(shared / "text" / "wiki_dumps" / name))
    assert isinstance(source, WikiDump)
    found = [record for split in plan_splits([source]) for record in records(split, 10_000_000)]
    texts = [record.text for record in found if not record.fault]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    assert len(texts) == articles
    assert len(lines) > 50 * articles
    assert sum(bool(re.search(r"\{\{|\[\[|\|-", line)) for line in lines) < 0.001 * len(lines)
