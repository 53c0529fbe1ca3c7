"""Read the original files of downstream tasks as records; malformed rows are counted and reported.

Start with record.py (records and the interface of a format), then tables.py (TSV, CSV), one of the formats. Other
formats are json_files.py, columnar.py (Parquet, datasets), conll.py, squad.py, coqa.py, cbt.py, lines.py and
whole_file.py. archives.py opens a file or a member of an archive. To add a format, add one file here and one member to
the union `Formats`. This package does not import torch.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.evaluation.files.archives import contents, exists, plain_ending
from training.evaluation.files.cbt import CbtFormat
from training.evaluation.files.columnar import DatasetsFormat, ParquetFormat
from training.evaluation.files.conll import ConllFormat
from training.evaluation.files.coqa import CoqaFormat
from training.evaluation.files.json_files import JsonFormat, JsonlFormat
from training.evaluation.files.lines import LineBlockFormat, LinesFormat
from training.evaluation.files.record import (
    FolderFormat,
    Record,
    RecordFault,
    RecordFormat,
    Records,
    describe_faults,
    describe_path,
    patterns_of,
)
from training.evaluation.files.squad import SquadFormat
from training.evaluation.files.tables import CsvFormat, TableFormat, TsvFormat, guess_encoding
from training.evaluation.files.whole_file import WholeFileFormat

__all__ = [
    "FORMATS",
    "CbtFormat",
    "ConllFormat",
    "CoqaFormat",
    "CsvFormat",
    "DatasetsFormat",
    "FolderFormat",
    "Formats",
    "JsonFormat",
    "JsonlFormat",
    "LineBlockFormat",
    "LinesFormat",
    "ParquetFormat",
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
    "describe_path",
    "exists",
    "first",
    "guess_encoding",
    "patterns_of",
    "plain_ending",
    "read",
]

Formats = (
    TsvFormat
    | CsvFormat
    | JsonlFormat
    | JsonFormat
    | ParquetFormat
    | DatasetsFormat
    | ConllFormat
    | SquadFormat
    | CoqaFormat
    | CbtFormat
    | LinesFormat
    | LineBlockFormat
    | WholeFileFormat
    | TableFormat
)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # an escaped UTF-16 surrogate in JSON
FORMATS: Final[Mapping[str, type[RecordFormat]]] = {kind_of(member): member for member in get_args(Formats)}


def read(folder: Path, pattern: str, format: RecordFormat, member: str = "") -> Records:
    """Read the records of the files that match a pattern below a directory; `member` selects members of an archive.

    Raises BadInput if there is no such file, it is not UTF-8, or it is shorter than the requested byte range.
    """
    records = Records()
    for name, content in contents(folder, pattern, member):
        has_halves = _SURROGATE.search(content) is not None
        try:
            for number, found in format.records(content):
                surrogate = _find_surrogate(found) if has_halves and not isinstance(found, RecordFault) else ""
                records.add(
                    RecordFault(f"unpaired surrogate {surrogate}, half of a character") if surrogate else found,
                    f"{name}:{number}",
                )
        except UnicodeDecodeError as error:
            raise BadInput(f"{folder / name}: not UTF-8 (byte {error.start}); convert it to UTF-8") from None
        except BadInput as error:
            raise BadInput(f"{folder / name}: {error}") from None
    return records


def _find_surrogate(record: Record) -> str:
    r"""Return the first unpaired UTF-16 surrogate, which JSON can contain but valid text cannot; "" if there is
    none.

    >>> pair = "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")
    >>> _find_surrogate({"t": "a\ud800"}), _find_surrogate({"t": pair})
    ('\\ud800', '')
    """
    try:
        json.dumps(record, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(error.object[error.start]):04x}"
    return ""


def first(folder: Path, pattern: str, format: RecordFormat, member: str = "") -> Record | None:
    """Return the first record, as `read` returns it; None if it is malformed or missing.

    Raises BadInput if there is no such file, and UnicodeDecodeError if it is not UTF-8.
    """
    for _, content in contents(folder, pattern, member):
        for _, found in format.records(content):
            return None if isinstance(found, RecordFault) else found
    return None
