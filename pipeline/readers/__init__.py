"""Readers: files of any format -> records, one for each document, or for bytes that cannot become one.

A format is one file here, with all that is true of it in one class, and one line in the union `Source` below, which is
the registry. Read record.py and files.py first, then reader.py (what a reader has to say), text.py and plain.py (the
simplest one), file_ranges.py and splits.py, which cut large inputs into even work and know no format.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from pipeline.readers import splits
from pipeline.readers.csv_table import CsvReader
from pipeline.readers.gutenberg import GutenbergReader
from pipeline.readers.html import HtmlReader
from pipeline.readers.json_array import JsonArrayReader
from pipeline.readers.jsonl import JsonlReader
from pipeline.readers.parallel import ParallelReader
from pipeline.readers.python_docs import PythonDocsReader
from pipeline.readers.reader import Reader
from pipeline.readers.record import CUT_OFF, EXPECTED, SKIPPED, TORN, TRAILING, Record
from pipeline.readers.sampled import SAMPLE_BYTES, about_how_many, pieces_of, size_of, spread
from pipeline.readers.snapshot import Snapshot, changed_error
from pipeline.readers.splits import InputSplit, piece_records, plan_splits, portable, records
from pipeline.readers.table import TableReader
from pipeline.readers.text import TextReader
from pipeline.readers.warc import WarcReader
from pipeline.readers.wiki_dump import WikiDumpReader
from pipeline.readers.wikiextractor import WikiExtractorReader
from pipeline.readers.xml_text import XmlReader

__all__ = [
    "CUT_OFF",
    "EXPECTED",
    "READERS",
    "SAMPLE_BYTES",
    "SKIPPED",
    "TORN",
    "TRAILING",
    "CsvReader",
    "GutenbergReader",
    "HtmlReader",
    "InputSplit",
    "JsonArrayReader",
    "JsonlReader",
    "ParallelReader",
    "PythonDocsReader",
    "Reader",
    "Record",
    "Snapshot",
    "Source",
    "TableReader",
    "TextReader",
    "WarcReader",
    "WikiDumpReader",
    "WikiExtractorReader",
    "XmlReader",
    "about_how_many",
    "absolute",
    "changed_error",
    "left_out",
    "piece_records",
    "pieces_of",
    "plan_splits",
    "portable",
    "recognise",
    "records",
    "size_of",
    "sniff",
    "spread",
]

# In the order in which they are asked whether they recognise a file: from a mark in its first bytes to any text.
Source = (
    TableReader  # PAR1, ARROW1
    | WarcReader  # WARC/
    | WikiDumpReader  # <mediawiki
    | WikiExtractorReader  # <doc, or JSON lines with its fields
    | HtmlReader  # <!doctype html, <html, ... or the ending of the name
    | XmlReader  # <?xml, <TEI
    | JsonArrayReader  # [{ or ["
    | JsonlReader  # {" or the ending of the name
    | CsvReader  # the ending of the name, or a header with the field over rows that are as long
    | GutenbergReader  # *** START OF THE PROJECT GUTENBERG EBOOK
    | TextReader  # any text
    | ParallelReader  # never: it is always named
    | PythonDocsReader  # never: it is always named
)
READERS: tuple[type[Source], ...] = get_args(Source)
_proven: tuple[type[Reader], ...] = READERS  # by mypy: each member has every fact


def recognise(given: str) -> list[Source]:
    """The sources that a path, folder, zip archive, glob or URL looks like, one for each format of its files.

    `KIND:PATH` (jsonl:PATH, line:PATH, ...) says the format instead, and `PATH#FIELD` where in it the text is. BadInput
    where there is no such path, or no file of it is text.

    >>> recognise("paragraphs:books/*.txt"), recognise("jsonl:news.jsonl#body")[0].text_key
    ([TextReader(kind='text', path='books/*.txt', document_unit='paragraphs', extensions=(), encoding='')], 'body')
    """
    return splits.recognise(given, READERS)


def sniff(given: str) -> Source:
    """As `recognise`, for what has one format; BadInput for what has several."""
    return splits.sniff(given, READERS)


def left_out(sources: Sequence[Reader]) -> list[str]:
    """Which files of their folders sources do not read, a line for each folder; none where they read all of them."""
    return splits.left_out(sources, READERS)


def absolute(given: str, folder: Path) -> str:
    """A path as `sniff` takes it, with or without a kind, seen from `folder`; a URL stays as it is.

    >>> absolute("line:a.txt", Path("/eval")), absolute("s3://bucket/b", Path("/eval"))
    ('line:/eval/a.txt', 's3://bucket/b')
    """
    return splits.absolute(given, folder, READERS)
