import re
from pathlib import Path

import pytest

from pipeline.readers import WikiDumpReader, plan_splits, records, sniff
from pipeline.readers.wiki_names import HIDDEN as ALL
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
def test_markup_becomes_the_visible_text(markup: str, expected: str) -> None:
    assert prose(markup, HIDDEN) == expected


@pytest.mark.parametrize(
    ("file", "category", "switch"),
    [
        ("画像:京都.jpg|right|thumb|200px|", "カテゴリ:日本", "\uff3f\uff3f目次\uff3f\uff3f"),
        ("Εικόνα:Αθήνα.JPG|μικρογραφία|δεξιά|", "Κατηγορία:Ελλάδα", "__ΕΥΡΕΤΗΡΙΟ__"),  # noqa: RUF001
        ("Hình:Hà Nội.png|nhỏ|phải|200px|", "Thể_loại:Việt Nam", "__KHÔNGMỤCLỤC__"),
        ("Изображение:Москва.svg|мини|справа|", "категория:Россия", "__БЕЗ_ОГЛАВЛЕНИЯ__"),
        ("صورة:القاهرة.jpg|تصغير|يسار|", "تصنيف:مصر", "__لافهرس__"),
        ("चित्र:दिल्ली.jpg|अंगूठाकार|", "श्रेणी:भारत", "__विषय_सूची_हीन__"),
        ("תמונה:ירושלים.jpg|ממוזער|שמאל|", "קטגוריה:ישראל", "__ללא_תוכן_עניינים__"),
        ("그림:서울.jpg|섬네일|오른쪽|", "분류:한국", "__목차숨김__"),
        ("圖像:台北.jpg|縮圖|右|", "分類:台灣", "__無目錄__"),
        ("Պատկեր:Երևան.jpg|մինի|աջից|", "Կատեգորիա:Հայաստան", "__ԱՌԱՆՑ_ԲՈՎԱՆԴԱԿՈՒԹՅԱՆ__"),
        ("ภาพ:กรุงเทพ.jpg|thumb|right|", "หมวดหมู่:ไทย", "__ไม่มีสารบัญ__"),
        ("Kép:Budapest.jpg|bélyegkép|jobbra|", "Kategória:Magyarország", "__NINCSTARTALOMJEGYZÉK__"),
        ("Resim:Ankara.jpg|küçükresim|sağ|", "Kategori:Türkiye", "__İÇİNDEKİLERYOK__"),
        ("Afbeelding:Den Haag.gif|miniatuur|", "Categorie:Nederland", "__GEENINHOUD__"),
        ("চিত্র:ঢাকা.jpg|থাম্ব|ডান|", "বিষয়শ্রেণী:বাংলাদেশ", "__কোনবিষয়বস্তুসূচীনয়__"),
        ("bild:Köln.jpg |mini|hochkant|", "KATEGORIE:Köln", "__KEIN_INHALTSVERZEICHNIS__"),
    ],
)
def test_files_categories_and_switches_are_removed_in_every_language(file: str, category: str, switch: str) -> None:
    markup = f"{switch}\n[[{file}A [[caption|picture]] of it.]]One [[two|three]].[[{category}|*]]\n{switch}"
    assert prose(markup, ALL) == "One three."


def test_a_file_link_is_recognized_by_its_extension() -> None:
    assert prose("One[[Name unknown:A b.OGG|thumb|C]] two.[[Xy:A.tiff]]", frozenset()) == "One two."
    text = "A file: [[:File:A.jpg]], [[:Datei:B.png|B]], [[commons:File:A.jpg|C]], [[A.jpg]], [[Star: Trek|D]]."
    assert prose(text, ALL) == "A file: File:A.jpg, B, C, A.jpg, D."


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("Text.\n[[Ficheiro:A.jpg|thumb|200px|torn\nMore.", "Text.\n\nMore."),
        (
            "'''!!!''' is a band.\n!Xóõ is a language with more sounds than any other, as is said.",
            "!!! is a band.\n!Xóõ is a language with more sounds than any other, as is said.",
        ),
        ("! scope=col | Cell\nText.\n!a!!b\n!Total||3", "Text."),
        ("Il vint ; elle partit ; non , oui .", "Il vint ; elle partit ; non, oui."),
        ("He had {{convert}} ; it was; so . . . it is.", "He had; it was; so . . . it is."),
        ("x?a=1&copy=2 &copy; AT&T", "x?a=1&copy=2 © AT&T"),
        ("A __FILE__ b __NOTOC__c __init__ d ____ e", "A __FILE__ b c __init__ d ____ e"),
    ],
)
def test_text_similar_to_markup_is_distinguished_from_it(markup: str, expected: str) -> None:
    assert prose(markup, ALL) == expected


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
def test_markup_that_would_block_the_parser_is_not_parsed(markup: str) -> None:
    with pytest.raises(TooDeep):
        prose(markup, HIDDEN)


@pytest.mark.parametrize(
    "markup",
    [
        "(" + " " * 100_000,
        "\n:*#;" * 2_000,
        "''x'''y" * 10_000,
        "&#" * 10_000,
        "==" * 10_000,
        "[[a:" * 30,
        "a.jpg" * 9_999,
    ],
)
@pytest.mark.timeout(120)
def test_other_malformed_markup_takes_linear_time(markup: str) -> None:
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
def test_real_dumps_have_no_markup_left(shared: Path, name: str, articles: int) -> None:
    source = sniff(str(shared / "text" / "wiki_dumps" / name))
    assert isinstance(source, WikiDumpReader)
    found = [record for split in plan_splits([source]) for record in records(split, 10_000_000)]
    texts = [record.text for record in found if not record.fault]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    assert len(texts) == articles
    assert len(lines) > 50 * articles
    assert sum(bool(re.search(r"\{\{|\[\[|\|-", line)) for line in lines) < 0.001 * len(lines)
