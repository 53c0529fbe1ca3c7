import pytest

from pipeline.readers.books import book, stripped
from pipeline.readers.lines import Line

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
def test_a_book_stands_between_the_marks_of_its_time(form: str, line_end: str) -> None:
    content = form.format(book=BOOK).replace("\n", line_end).encode()
    record = book("a", Line(0, len(content), content))
    assert record.text.strip() == BOOK.strip()
    assert record.size == len(content)


def test_a_book_that_quotes_the_licence_of_another_ends_at_the_first_end() -> None:
    assert (
        stripped("*** START OF THE PROJECT GUTENBERG EBOOK X ***\nA\n*** END OF THE PROJECT GUTENBERG EBOOK X\nB\n")
        == "A\n"
    )
