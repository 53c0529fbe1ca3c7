"""Files of downstream tasks in their original distributions -> records, with what is malformed counted and named.

Read record.py (what a record is), then tables.py (TSV, CSV), which is one format; json_files.py, conll.py, squad.py,
coqa.py, cbt.py, lines.py and whole.py are its siblings. opened.py opens a file, or a member of an archive. A new format
is a file here and one line in the union. No torch in here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.files.cbt import Cbt
from training.files.conll import Conll
from training.files.coqa import Coqa
from training.files.json_files import Json, Jsonl
from training.files.lines import Blocks, Lines
from training.files.opened import contents, is_there, plain_ending
from training.files.record import Fault, Format, Record, Records, named
from training.files.squad import Squad
from training.files.tables import Csv, Table, Tsv, guessed_encoding
from training.files.whole import Whole

__all__ = [
    "FORMATS",
    "Blocks",
    "Cbt",
    "Conll",
    "Coqa",
    "Csv",
    "Fault",
    "Format",
    "Formats",
    "Json",
    "Jsonl",
    "Lines",
    "Record",
    "Records",
    "Squad",
    "Table",
    "Tsv",
    "Whole",
    "contents",
    "first",
    "guessed_encoding",
    "is_there",
    "named",
    "plain_ending",
    "read",
]

Formats = Tsv | Csv | Jsonl | Json | Conll | Squad | Coqa | Cbt | Lines | Blocks | Whole | Table
FORMATS: Final[Mapping[str, type[Format]]] = {kind_of(member): member for member in get_args(Formats)}


def read(folder: Path, pattern: str, format: Format, member: str = "") -> Records:
    """The records of the files of a pattern below a folder; those of an archive that `member` names.

    BadInput where there is no such file, it is not UTF-8, or shorter than a stretch of it that is asked for.
    """
    records = Records()
    for name, content in contents(folder, pattern, member):
        try:
            for number, found in format.records(content):
                records.add(found, f"{name}:{number}")
        except UnicodeDecodeError as error:
            raise BadInput(f"{folder / name}: is not UTF-8 (byte {error.start}); convert it") from None
        except BadInput as error:
            raise BadInput(f"{folder / name}: {error}") from None
    return records


def first(folder: Path, pattern: str, format: Format, member: str = "") -> Record | None:
    """The first record of the files of a pattern, as `read` has it; None where the first one is malformed, or none is
    there. BadInput where there is no such file, UnicodeDecodeError where it is not UTF-8."""
    for _, content in contents(folder, pattern, member):
        for _, found in format.records(content):
            return None if isinstance(found, Fault) else found
    return None
