"""Files of downstream tasks in their original distributions -> records, with what is malformed counted and named.

Read record.py (what a record is), then tables.py (TSV, CSV), which is one format; json_files.py, conll.py, squad.py,
coqa.py, cbt.py, lines.py and whole.py are its siblings. opened.py opens a file, or a member of an archive. A new format
is a file here and one line in the union. No torch in here.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.files.archives import contents, exists, plain_ending
from training.files.cbt import CbtFormat
from training.files.conll import ConllFormat
from training.files.coqa import CoqaFormat
from training.files.json_files import JsonFormat, JsonlFormat
from training.files.lines import LineBlockFormat, LinesFormat
from training.files.record import Record, RecordFault, RecordFormat, Records, describe_faults
from training.files.squad import SquadFormat
from training.files.tables import CsvFormat, TableFormat, TsvFormat, guess_encoding
from training.files.whole_file import WholeFileFormat

__all__ = [
    "FORMATS",
    "CbtFormat",
    "ConllFormat",
    "CoqaFormat",
    "CsvFormat",
    "Formats",
    "JsonFormat",
    "JsonlFormat",
    "LineBlockFormat",
    "LinesFormat",
    "Record",
    "RecordFault",
    "RecordFormat",
    "Records",
    "SquadFormat",
    "TableFormat",
    "TsvFormat",
    "WholeFileFormat",
    "contents",
    "describe_faults",
    "exists",
    "first",
    "guess_encoding",
    "plain_ending",
    "read",
]

Formats = (
    TsvFormat
    | CsvFormat
    | JsonlFormat
    | JsonFormat
    | ConllFormat
    | SquadFormat
    | CoqaFormat
    | CbtFormat
    | LinesFormat
    | LineBlockFormat
    | WholeFileFormat
    | TableFormat
)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # as JSON may write half of a character outside of the first plane
FORMATS: Final[Mapping[str, type[RecordFormat]]] = {kind_of(member): member for member in get_args(Formats)}


def read(folder: Path, pattern: str, format: RecordFormat, member: str = "") -> Records:
    """The records of the files of a pattern below a folder; those of an archive that `member` names.

    BadInput where there is no such file, it is not UTF-8, or shorter than a stretch of it that is asked for.
    """
    records = Records()
    for name, content in contents(folder, pattern, member):
        has_halves = _HALF.search(content) is not None
        try:
            for number, found in format.records(content):
                half = _half_of(found) if has_halves and not isinstance(found, RecordFault) else ""
                records.add(RecordFault(f"has half of a character, {half}") if half else found, f"{name}:{number}")
        except UnicodeDecodeError as error:
            raise BadInput(f"{folder / name}: is not UTF-8 (byte {error.start}); convert it") from None
        except BadInput as error:
            raise BadInput(f"{folder / name}: {error}") from None
    return records


def _half_of(record: Record) -> str:
    r"""The first half of a pair of UTF-16 without the other one, which no text can have and JSON can; "" where none is.

    >>> _half_of({"t": "a\ud800"}), _half_of({"t": "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")})
    ('\\ud800', '')
    """
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(error.object[error.start]):04x}"
    return ""


def first(folder: Path, pattern: str, format: RecordFormat, member: str = "") -> Record | None:
    """The first record of the files of a pattern, as `read` has it; None where the first one is malformed, or none is
    there. BadInput where there is no such file, UnicodeDecodeError where it is not UTF-8."""
    for _, content in contents(folder, pattern, member):
        for _, found in format.records(content):
            return None if isinstance(found, RecordFault) else found
    return None
