"""Readers: files of any format -> records. A record is one document, or a range of bytes that cannot be read.

To add a format, write one class in one file here and add one line to the union `Source`, the registry. Read record.py
and files.py first, then reader.py (the interface), text.py and plain.py (the simplest format). file_ranges.py and
splits.py divide large inputs into equal work; they do not depend on a format.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from pipeline.readers import splits
from pipeline.readers.csv_table import CsvReader
from pipeline.readers.files import is_text
from pipeline.readers.gutenberg import GutenbergReader
from pipeline.readers.html import HtmlReader
from pipeline.readers.in_memory import is_in_memory, save_texts
from pipeline.readers.json_array import JsonArrayReader
from pipeline.readers.jsonl import JsonlReader, MissingKey
from pipeline.readers.metadata import list_kept_fields
from pipeline.readers.parallel import ParallelReader
from pipeline.readers.python_docs import PythonDocsReader
from pipeline.readers.reader import Reader
from pipeline.readers.record import CUT_OFF, EXPECTED, SKIPPED, TORN, TRAILING, Record
from pipeline.readers.sampled import SAMPLE_BYTES, about_how_many, pieces_of, size_of, spread
from pipeline.readers.snapshot import Snapshot, make_change_error
from pipeline.readers.splits import InputSplit, causes_of, piece_records, plan_splits, portable, records
from pipeline.readers.table import TableReader
from pipeline.readers.text import TextReader
from pipeline.readers.warc import WarcReader
from pipeline.readers.wiki_dump import WikiDumpReader
from pipeline.readers.wikiextractor import WikiExtractorReader
from pipeline.readers.xml_text import XmlReader
from preprocessing.errors import BadInput

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
    "causes_of",
    "is_in_memory",
    "is_text",
    "list_kept_fields",
    "list_unread_files",
    "make_change_error",
    "piece_records",
    "pieces_of",
    "plan_splits",
    "portable",
    "recognise",
    "recognise_reference",
    "records",
    "save_texts",
    "size_of",
    "sniff",
    "spread",
]

# Readers try to recognize a file in this order: from formats with a signature in the first bytes to plain text.
Source = (
    TableReader  # PAR1, ARROW1
    | WarcReader  # WARC/
    | WikiDumpReader  # <mediawiki
    | WikiExtractorReader  # <doc, or JSON lines with its fields
    | HtmlReader  # <!doctype html, <html, ... or the file extension
    | XmlReader  # <?xml, <TEI
    | JsonArrayReader  # [{ or ["
    | JsonlReader  # {" or the file extension
    | CsvReader  # the file extension, or a header with the text column above rows of equal length
    | GutenbergReader  # *** START OF THE PROJECT GUTENBERG EBOOK
    | TextReader  # any text
    | ParallelReader  # never recognized: the user must name it
    | PythonDocsReader  # never recognized: the user must name it
)
READERS: tuple[type[Source], ...] = get_args(Source)
_proven: tuple[type[Reader], ...] = READERS  # checked by mypy: each member of the union implements Reader


def recognise(path: str) -> list[Source]:
    """The sources for a path, directory, zip archive, glob or URL: one for each recognized format.

    `KIND:PATH` (jsonl:PATH, line:PATH, ...) sets the format, `PATH#FIELD` the field of the text. Raises BadInput if the
    path does not exist or contains no text.

    >>> recognise("paragraphs:books/*.txt"), recognise("jsonl:news.jsonl#body")[0].text_key
    ([TextReader(kind='text', path='books/*.txt', document_unit='paragraphs', extensions=(), encoding='')], 'body')
    """
    return splits.recognise(path, READERS)


def recognise_reference(path: str, key: str) -> list[Source]:
    """Like `recognise`, for a path in a key of a corpus file, e.g. decontaminate.paths. Errors name the key."""
    try:
        return recognise(path)
    except MissingKey as error:
        raise BadInput(f"{key}: {error.problem}; add # and its name to the path, PATH#NAME") from None
    except BadInput as error:
        raise BadInput(f"{key}: {error}") from None


def sniff(path: str) -> Source:
    """Like `recognise`, for a path with exactly one format. Raises BadInput if it has several."""
    return splits.sniff(path, READERS)


def list_unread_files(sources: Sequence[Reader]) -> list[str]:
    """Messages about files that the sources do not read, one per directory; [] if they read all files."""
    return splits.list_unread_files(sources, READERS)


def absolute(path: str, folder: Path) -> str:
    """Resolve `PATH` or `KIND:PATH` relative to `folder`. URLs are returned unchanged.

    >>> absolute("line:a.txt", Path("/eval")), absolute("s3://bucket/b", Path("/eval"))
    ('line:/eval/a.txt', 's3://bucket/b')
    """
    return splits.absolute(path, folder, READERS)
