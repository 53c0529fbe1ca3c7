"""Makes a task from a user's own table, without YAML: `my.csv:text,label`."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Final

from orchestration.config.error_messages import invalid
from orchestration.config.library import refuse_name
from preprocessing.errors import BadInput
from training.evaluation.files import (
    JsonlFormat,
    RecordFault,
    Records,
    TableFormat,
    contents,
    describe_faults,
    first,
    guess_encoding,
    plain_ending,
    read,
)
from training.evaluation.tasks import Classification, Kinds, Regression, SplitRecords, TaskFile

FORMATS: Final[Mapping[str, TableFormat | JsonlFormat]] = {
    ".csv": TableFormat(),
    ".tsv": TableFormat(delimiter="\t"),
    ".jsonl": JsonlFormat(),
}
_SYNONYMS: Final = {".tab": ".tsv"}
MAX_LABELS: Final = 50  # a column with more distinct values is probably not a label column
TENTHS: Final = {"train": (0, 1, 2, 3, 4, 5, 6, 7), "dev": (8,), "test": (9,)}
_DECIMAL: Final = re.compile(r"[+-]?\d+(?:,(\d+))?")
_THOUSANDS: Final = 3  # digits
_MAX_NON_NUMBERS: Final = 0.1  # maximum fraction of non-numbers to report as mistakes in a numeric column
_FORM: Final = "FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL"


def task_of_csv(given: str) -> tuple[TaskFile, str]:
    """The task for a value of `--csv` (a table and its columns), and one line that describes the task.

    Labels are the values of the last column, without blanks around them; rows without a label are left out. If the
    labels are numbers that are not all whole, the task is regression. Training has eight tenths of the rows, dev and
    test have one tenth each. The text of a row selects its split, so that rows with equal texts stay together.

    BadInput if the file or a column does not exist, if the file has the name of a task of Sesame, or if there are fewer
    than two or too many labels.
    """
    path, columns = _parts(given)
    ending = plain_ending(path)
    format = FORMATS.get(_SYNONYMS.get(ending, ending))
    if format is None:
        raise _error(given, "file", path.name, f"a file with one of the endings {', '.join(FORMATS)}", "convert it")
    if not path.is_file():
        raise _error(given, "file", str(path), "a file that exists", "check the path")
    *texts, label = columns
    read_as = ""
    if isinstance(format, TableFormat):
        encoding, read_as = guess_encoding(next(contents(path.parent, path.name))[1])
        format = replace(format, column=texts[0], encoding=encoding)
    name = re.sub(r"[^\w.-]+", "_", path.stem).strip("_.-")[: TaskFile.most_letters] or "table"
    refuse_name(name, f"--csv {given}", "rename the file")
    records = _whole(read(path.parent, path.name, format), columns)
    labels = _labels(records, columns, given)
    if has_commas := _has_decimal_commas([name for _, name in labels], label, given):
        labels = [(raw, name.replace(",", ".")) for raw, name in labels]
    if not isinstance(format, JsonlFormat) and label.lstrip("-").isdigit():
        cell = str((first(path.parent, path.name, replace(format, header=False)) or {}).get(label, "")).strip()
        if cell and cell in (found for _, found in labels):
            got = f"the label {cell!r} in column {label} of line 1"
            raise _error(given, "header", got, "names of columns", "add a line with the names of the columns")
    task, description = _task(texts, label, labels, given)
    missing = {raw: None for raw, name in labels if not name}
    renamed = {raw: name for raw, name in labels if name and raw != name}
    splits = {
        name: SplitRecords(
            paths=(str(path.absolute()),),
            format=format,
            folds=tenths,
            fold_by=texts[0],
            exclude={label: tuple(missing)} if missing else {},
            value_map={label: renamed} if renamed else {},
        )
        for name, tenths in TENTHS.items()
    }
    title = f"{label} of {' and '.join(texts)} in {path.name}"
    file = TaskFile(name=name, description=title, citation=str(path), license="your own", files=splits, task=task)
    counts = {name: len(split.records(path.parent)) for name, split in splits.items()}
    sizes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    _refuse_empty(counts, texts[0], records, sizes, given)
    num_unlabeled = sum(not name for _, name in labels)
    more = ", read with decimal commas" if has_commas else ""
    more += f"; left out {num_unlabeled:,} rows without a label" if num_unlabeled else ""
    more += f"; {read_as}" if read_as else ""
    if records.malformed:
        more += f"; {len(records.malformed)} malformed rows, the first: {describe_faults(records.malformed)}"
    return file, f"{path}: {len(records) - num_unlabeled:,} rows ({sizes}), {description}{more}"


def _error(given: str, key: str, got: str, expected: str, remedy: str) -> BadInput:
    """The error for something invalid in a value of `--csv`."""
    return BadInput(f"--csv {given}: {invalid(key, got, expected, remedy)}")


def _whole(records: Records, columns: list[str]) -> Records:
    """The records; those that lack a column are moved to the malformed records, as when the task reads the file."""
    lacking = [next((column for column in columns if column not in row), "") for row in records.rows]
    if all(lacking):
        return records
    whole = replace(records, rows=[], places=[], malformed=[*records.malformed])
    for row, place, column in zip(records.rows, records.places, lacking, strict=True):
        whole.add(RecordFault(f"has no column {column}; its columns are {', '.join(row)}") if column else row, place)
    return whole


def _has_decimal_commas(names: list[str], label: str, given: str) -> bool:
    """Whether labels are numbers with a decimal comma, such as 0,5. BadInput for 1,000, which is ambiguous.

    >>> _has_decimal_commas(["0,5", "1", ""], "y", "my.csv:t,y"), _has_decimal_commas(["0.5", "1"], "y", "my.csv:t,y")
    (True, False)
    """
    found = [one for name in names if name and (one := _DECIMAL.fullmatch(name))]
    commas = [one for one in found if one[1]]
    if not commas or len(found) < sum(map(bool, names)):
        return False
    if all(len(one[1]) == _THOUSANDS for one in commas):
        raise _error(
            given,
            label,
            f"{commas[0][0]!r}, which may be a fraction or thousands",
            "numbers with a decimal point and without commas",
            "rewrite the numbers",
        )
    return True


def _refuse_empty(counts: Mapping[str, int], text: str, records: Records, sizes: str, given: str) -> None:
    """BadInput if no row is left for training or for evaluation, because rows with equal texts stay in one split."""
    rows, texts = len(records), len({str(row[text]) for row in records.rows})
    if texts == rows or (counts["train"] and counts["dev"] + counts["test"]):
        return
    raise _error(
        given,
        "table",
        f"{texts:,} different texts in {text} in {rows:,} rows ({sizes})",
        "rows for training and rows for evaluation (rows with equal texts stay in one split)",
        f"add more texts to {text}, or name the other column of a pair first",
    )


def _parts(given: str) -> tuple[Path, list[str]]:
    """The file and the columns; the path of the file may contain colons."""
    file, colon, after = given.rpartition(":")
    columns = [column.strip() for column in after.split(",")]
    if not colon or not file or len(columns) not in (2, 3) or not all(columns):
        raise BadInput(invalid("--csv", given, _FORM, "write it like my.csv:text,label"))
    return Path(file), columns


def _labels(records: Records, columns: list[str], given: str) -> list[tuple[str, str]]:
    """The last column of each row: the value in the file, and the label, which is "" if it is missing."""
    if not records.rows:
        faults = "".join(f" ({fault})" for fault in records.malformed[:1])
        raise _error(given, "table", f"no valid row{faults}", "rows with text and label", "use another file")
    names = [name for name in records.rows[0] if not name.lstrip("-").isdigit()]
    for column in columns:
        if column not in records.rows[0]:
            raise _error(given, "column", column, f"one of {', '.join(names)}", "use one of these columns")
    found, places = list[tuple[str, str]](), dict[tuple[str, str], str]()
    for row, place in zip(records.rows, records.places, strict=True):
        if lacking := [column for column in columns if column not in row]:
            raise _error(given, "column", f"{lacking[0]} ({place})", f"one of {', '.join(row)}", "use one of these")
        value = row[columns[-1]]
        one = str(value), "" if value is None else str(value).strip()
        if isinstance(value, list | dict) or one[1].lower() == "nan":
            expected = "text or a number, or nothing if the row has no label"
            raise _error(given, columns[-1], f"{value!r} ({place})", expected, "correct this row")
        found.append(one)
        places.setdefault(one, place)
    null, word = (str(None), ""), (str(None), str(None))
    if null in places and word in places:
        got = f"{word[1]!r} ({places[word]}) and null ({places[null]})"
        raise _error(given, columns[-1], got, "only one of them", f"rename the label {word[1]!r}")
    return found


def _task(texts: list[str], label: str, labels: list[tuple[str, str]], given: str) -> tuple[Kinds, str]:
    """The task for these columns: regression or classification; and a description of its labels."""
    text, pair = texts[0], texts[1] if len(texts) == 2 else ""
    counted = Counter(name for _, name in labels if name)
    numbers = _numbers(counted)
    if numbers and not all(number.is_integer() for number in numbers):
        least, most = min(numbers), max(numbers)
        if least == most:
            raise _error(given, label, f"{least:g} in all rows", "different values", "use another column")
        score = Regression(text=text, text_pair=pair, label=label, min_value=least, max_value=most)
        return score, f"{label} is a number from {least:g} to {most:g}"
    odd = [name for name in counted if not _numbers(Counter([name]))]
    fractions = [number for name in counted for number in _numbers(Counter([name])) if not number.is_integer()]
    if fractions and 0 < len(odd) <= max(1, _MAX_NON_NUMBERS * len(counted)):
        raise _error(
            given, label, repr(odd[0]), "a number, as in the other rows", "correct it, or leave the cell empty"
        )
    if not 2 <= len(counted) <= MAX_LABELS:
        remedy = "use another column"
        if len(numbers) > MAX_LABELS:
            example = f"text: {text}, label: {label}, min_value: {min(numbers):g}, max_value: {max(numbers):g}"
            remedy = f"for scores, write a task file with task: {{kind: regression, {example}}}"
        raise _error(given, label, f"{len(counted)} different labels", f"2 to {MAX_LABELS}", remedy)
    ordered = tuple(sorted(counted, key=float) if numbers else sorted(counted))
    named = ", ".join(f"{name} ({counted[name]:,})" for name in ordered)
    metrics = ("accuracy", "macro_f1", "matthews")
    return Classification(
        text=text, text_pair=pair, label=label, labels=ordered, metrics=metrics
    ), f"{len(ordered)} labels: {named}"


def _numbers(values: Counter[str]) -> list[float]:
    """The values as numbers; [] if one of them is no number."""
    try:
        found = [float(value) for value in values]
    except ValueError:
        return []
    return found if all(map(isfinite, found)) else []
