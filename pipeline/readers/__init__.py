"""Readers: files of any format -> records, one for each document, or for bytes that cannot become one.

A format is one file here, with all that is true of it in one class, and one line in the union `Source` below, which is
the registry. Read record.py and files.py first, then reader.py (what a reader has to say), text.py and plain.py (the
simplest one), cut.py and splits.py, which cut large inputs into even work and know no format.
"""

from pathlib import Path
from typing import get_args

from pipeline.readers import splits
from pipeline.readers.books import Books
from pipeline.readers.installed import Installed
from pipeline.readers.jsonl import Jsonl
from pipeline.readers.parallel import Parallel
from pipeline.readers.reader import Reader
from pipeline.readers.record import EXPECTED, Record
from pipeline.readers.splits import Split, left_out, plan_splits, portable, records
from pipeline.readers.table import Table
from pipeline.readers.text import Text
from pipeline.readers.warc import Warc
from pipeline.readers.wiki_dump import WikiDump
from pipeline.readers.wikiextractor import WikiExtractor

__all__ = [
    "EXPECTED",
    "READERS",
    "Books",
    "Installed",
    "Jsonl",
    "Parallel",
    "Reader",
    "Record",
    "Source",
    "Split",
    "Table",
    "Text",
    "Warc",
    "WikiDump",
    "WikiExtractor",
    "absolute",
    "left_out",
    "plan_splits",
    "portable",
    "records",
    "sniff",
]

# In the order in which they are asked whether they recognise a file: from a mark in its first bytes to any text.
Source = (
    Table  # PAR1, ARROW1
    | Warc  # WARC/
    | WikiDump  # <mediawiki
    | WikiExtractor  # <doc, or JSON lines with its fields
    | Jsonl  # {" or the ending of the name
    | Books  # *** START OF THE PROJECT GUTENBERG EBOOK
    | Text  # any text
    | Parallel  # never: it is always named
    | Installed  # never: it is always named
)
READERS: tuple[type[Source], ...] = get_args(Source)
_proven: tuple[type[Reader], ...] = READERS  # by mypy: each member has every fact


def sniff(path: str) -> Source:
    """The source that a path, folder, glob or URL looks like; `KIND:PATH` (jsonl:PATH, line:PATH, ...) says it instead.

    BadInput where there is no such path, or no file of it is text.

    >>> sniff("paragraphs:books/*.txt")
    Text(kind='text', path='books/*.txt', unit='paragraphs')
    """
    return splits.sniff(path, READERS)


def absolute(given: str, folder: Path) -> str:
    """A path as `sniff` takes it, with or without a kind, seen from `folder`; a URL stays as it is.

    >>> absolute("line:a.txt", Path("/eval")), absolute("s3://bucket/b", Path("/eval"))
    ('line:/eval/a.txt', 's3://bucket/b')
    """
    return splits.absolute(given, folder, READERS)
