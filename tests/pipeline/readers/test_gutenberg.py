import tarfile
from pathlib import Path

import pytest

from pipeline.readers import GutenbergReader, sniff
from pipeline.readers.gutenberg import book, strip_boilerplate
from pipeline.readers.lines import TextLine

TODAY = """The Project Gutenberg eBook of A Book

Title: A Book

*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***

{book}
*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***

Updated editions will replace the previous one.
"""
OF_2005 = """The Project Gutenberg EBook of A Book, by Someone

*** START OF THIS PROJECT GUTENBERG EBOOK A BOOK ***

Produced by One Person and
the Distributed Proofreaders

{book}
End of Project Gutenberg's A Book, by Someone

*** END OF THIS PROJECT GUTENBERG EBOOK A BOOK ***

***** This file should be named 1.txt *****
"""
OF_1995 = """**Welcome To The World of Free Plain Vanilla Electronic Texts**

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here?
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

{book}
End of The Project Gutenberg Etext of A Book
"""
BOOK = "CHAPTER I\n\nCall me Somebody. I produced nothing in\nall my life.\n\nThe end of project and book.\n"


@pytest.mark.parametrize("form", [TODAY, OF_2005, OF_1995, "{book}"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_the_boilerplate_of_each_era_is_removed(form: str, line_end: str) -> None:
    content = form.format(book=BOOK).replace("\n", line_end).encode()
    record = book("a", TextLine(0, len(content), content))
    assert record.text.strip() == BOOK.strip()
    assert record.size == len(content)


WRAPPED = """The Project Gutenberg eBook of A Book

***START OF THE PROJECT GUTENBERG EBOOK A BOOK WITH A TITLE OF
SUCH A LENGTH THAT IT
IS WRAPPED***


E-text prepared by One Person and
the Distributed Proofreaders

Note: Project Gutenberg also has an HTML version of this
      file, which includes the illustrations.

{book}

***END OF THE PROJECT
GUTENBERG EBOOK A BOOK***
"""
OF_2003 = """*** START OF THE PROJECT GUTENBERG EBOOK, A BOOK ***

{book}
*** END OF THE PROJECT GUTENBERG EBOOK, A BOOK ***

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN EBOOKS**START***
*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*
"""
CONTENTS = """CONTENTS

CHAPTER                                     PAGE

PREFACE                                       iv
PART ONE
   I. HER TWELFTH BIRTHDAY, AND THE           11
        STORY OF A BALL
  II. THE BALL                                25

 III. LLOYD MEETS HERO                        41




"""


@pytest.mark.parametrize("form", [WRAPPED, OF_2003])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_wrapped_marks_and_later_small_print_are_removed(form: str, line_end: str) -> None:
    content = form.format(book=BOOK).replace("\n", line_end).encode()
    assert book("a", TextLine(0, len(content), content)).text.strip() == BOOK.strip()


def test_a_wrapped_start_mark_is_recognized(tmp_path: Path) -> None:
    content = WRAPPED.replace("START OF THE PROJECT GUTENBERG", "START OF THE PROJECT\nGUTENBERG").format(book=BOOK)
    (tmp_path / "a.txt").write_text(content)
    assert sniff(str(tmp_path)) == GutenbergReader(path=str(tmp_path))
    assert strip_boilerplate(content).strip() == BOOK.strip()


@pytest.mark.parametrize(
    ("note", "rest"),
    [
        ("Transcriber's Note: No word was changed.\nNot one.\n", ""),
        ("TRANSCRIBER\u2019S NOTES\n\n  No word was changed.\n\n  Not one.\n\n", ""),
        ("Transcribers Note: Words were\nchanged.\n\nIn this text, all.\n\n---------\n", ""),
        ("+------------+\n| Transcriber's note: |\n|   None.    |\n+------------+\n", ""),
        ("  [Transcriber's Note:\n\n  No [word] was\n\n\nchanged.]\n", ""),
        ("[Transcriber's Note: from Galaxy, 1956.]", ""),
        ("Anmerkungen zur Transkription:\n\nKein Wort.\n", ""),
        ("Transcriber's notes were all that he had left of the\nyears in the office.", None),
        ("The transcriber's note was lost.\n\nSo it was.", None),
    ],
)
def test_transcriber_notes_are_removed_anywhere(note: str, rest: str | None) -> None:
    kept = note if rest is None else rest
    assert strip_boilerplate(f"A BOOK\n\n\n{note}\n\n\n{BOOK}").split() == f"A BOOK {kept} {BOOK}".split()
    middle = f"{BOOK * 500}\n\n{note}\n\nIt went on [1] so.\n\nFor long.\n\n\n{BOOK * 500}"
    expected = f"{BOOK * 500} {kept} It went on [1] so. For long. {BOOK * 500}"
    if "\n\n  " not in note and "---" not in note:
        assert strip_boilerplate(middle).split() == expected.split()


def test_a_note_in_a_sentence_is_removed_and_an_unclosed_bracket_stays() -> None:
    assert strip_boilerplate("a time [Transcriber's note: of?] war") == "a time war"
    assert strip_boilerplate("a time [Transcriber's note of war") == "a time [Transcriber's note of war"


def test_corrections_after_the_book_are_removed() -> None:
    text = BOOK * 100
    behind = "\n\n\n\nTranscriber's Notes\n\n\n- Page 4: changed.\n\nCHAPTER II, page 9: not.\n\n\n\n\nPage 10.\n"
    assert strip_boilerplate(text + behind).strip() == text.strip()
    assert strip_boilerplate(f"{text}\n\nTranscriber's Note: x\n\n\nCHAPTER II\n\nOn.").endswith(
        "\n\nCHAPTER II\n\nOn."
    )


@pytest.mark.parametrize(
    "contents",
    [
        CONTENTS,
        CONTENTS.replace("\n", "\n\n", 3).replace("25\n", "25\n\n"),
        "Table of Contents\nI\nII\nIII\nIV\n",
        "CONTENTS.\n\nCHAPTER I\n\nCHAPTER II\n\nCHAPTER III\n",
        "INHALT.\n\nErstes Kapitel. . . . 3\nZweites Kapitel . . . . 9\nDrittes Kapitel . . . 30\n",
        "INHOUD.\n\nOP ZEE.\n\n        Bladz.\nDE HAVEN          3.\nAFSCHEID         17.\nSTORM            20.\n",
        "CONTENTS\n\nTHE FIRST DAY\n\nTHE WHITE BOAT\n\nTHE SECOND DAY\n\nNO BOAT\n",
        "_CONTENTS_\nI TREATS OF THE PLACE WHERE HE WAS BORN AND OF HIS\nCIRCUMSTANCES\nII A BOAT\nIII THE SEA\n",
    ],
)
def test_contents_are_removed_and_the_following_headings_stay(contents: str) -> None:
    first = "THE FIRST DAY" if "DAY" in contents else "CHAPTER I"
    body = "".join(
        f"{heading}\n\n{'It was the day on which they all went down to the boats in the harbour, early. ' * 9}\n\n"
        for heading in (first, "THE WHITE BOAT", "CHAPTER II", "THE SECOND DAY", "NO BOAT")
    )
    assert strip_boilerplate(f"A BOOK\n\nby Nobody\n\n{contents}{body}").split() == f"A BOOK by Nobody {body}".split()


@pytest.mark.parametrize(
    "text",
    [
        'Contents\nChapter 2\n\nARRIVALS\n\nSound and lights of a big car, as heard.\n\n"Walked," said he.\n\n"No."\n',
        'Contents\n\n"Yes," he said.\n\n"No."\n\n"Why?"\n\nI thought.\n\nShe went.\n',
        "The contents\nof the box were three.\nI saw them.\n",
    ],
)
def test_text_similar_to_contents_stays(text: str) -> None:
    body = "".join(f"Chapter {number}\n\n{number} came and went, and it was late.\n\n" for number in range(3, 40))
    assert strip_boilerplate(text + body) == text + body


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"_What_?" he said, _I can\'t_!', '"What?" he said, I can\'t!'),
        ("It is 2_s._ 6_d._ a day", "It is 2s. 6d. a day"),
        ("_Over the\nline_ and sure_ly_ a _news_paper", "Over the\nline and surely a newspaper"),
        ("Mr. ____ and a_b_c, snake_case, _ alone _", "Mr. ____ and a_b_c, snake_case, _ alone _"),
        ("_open\n\nnext_ one", "_open\n\nnext_ one"),
    ],
)
def test_italics_marks_are_removed_and_other_underscores_stay(text: str, expected: str) -> None:
    assert strip_boilerplate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        " " * 100_000 + "transcriber",
        "Contents\n" * 20_000,
        "Transcriber's note:\n\n" * 5_000,
        "_a " * 50_000,
        "*** START OF THE PROJECT GUTENBERG EBOOK\n" * 5_000,
        "CONTENTS\n" + "I. " + "a  " * 30_000,
        "CONTENTS\n" + "I. One  1\n" * 20_000,
    ],
)
@pytest.mark.timeout(60)
def test_malformed_books_take_linear_time(text: str) -> None:
    assert len(strip_boilerplate(text)) <= len(text)


@pytest.mark.shared
@pytest.mark.slow
def test_novels_lose_only_their_contents_and_italics_marks(shared: Path) -> None:
    names = {"Burnett_Lord_1886": 16, "Haggard_Mines_1885": 86, "Dickens_Bleak_1853": 0}
    with tarfile.open(shared / "text" / "novels100.tar.bz2") as archive:
        for member in archive:
            if (name := Path(member.name).stem) in names and (file := archive.extractfile(member)):
                text = file.read().decode().replace("\r\n", "\n")
                assert len(text.split()) - len(strip_boilerplate(text).split()) == names.pop(name)
                if not names:
                    break
    assert not names


def test_a_book_ends_at_the_first_end_mark() -> None:
    assert (
        strip_boilerplate(
            "*** START OF THE PROJECT GUTENBERG EBOOK X ***\nA\n*** END OF THE PROJECT GUTENBERG EBOOK X\nB\n"
        )
        == "A\n"
    )
