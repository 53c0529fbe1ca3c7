"""A task of a user's own table, without any YAML: `my.csv:text,label`."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Final

from orchestration.config.library import refuse_name
from preprocessing.errors import BadInput
from training.files import (
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
from training.tasks import Classification, Kinds, Regression, SplitRecords, TaskFile

FORMATS: Final[Mapping[str, TableFormat | JsonlFormat]] = {
    ".csv": TableFormat(),
    ".tsv": TableFormat(delimiter="\t"),
    ".jsonl": JsonlFormat(),
}
_AS_WELL: Final = {".tab": ".tsv"}
MOST_LABELS: Final = 50  # more than these, and not numbers: the column is hardly one of labels
TENTHS: Final = {"train": (0, 1, 2, 3, 4, 5, 6, 7), "dev": (8,), "test": (9,)}
_DECIMAL: Final = re.compile(r"[+-]?\d+(?:,(\d+))?")
_THOUSANDS: Final = 3  # digits
_FEW_ODD: Final = 0.1  # of labels, that are no numbers while all others are
_FORM: Final = "FILE:TEXT,LABEL or FILE:TEXT,SECOND_TEXT,LABEL"


def task_of_csv(given: str) -> tuple[TaskFile, str]:
    """The task of a table and its columns, as `--csv` has them, and what is said of it.

    Labels are those in the file, by name and without blanks around them; rows that have none are left out. A column
    with numbers that are not all whole is a score to predict. Eight tenths of the rows, picked by their texts so that
    equal ones stay together, are for training, one for dev, one for test.

    BadInput where the file or a column is not there, the file has the name of one of Sesame's tasks, or the labels are
    fewer than two or too many.
    """
    path, columns = _parts(given)
    ending = plain_ending(path)
    format = FORMATS.get(_AS_WELL.get(ending, ending))
    if format is None:
        raise BadInput(f"--csv {given}: {path.name} is none of {', '.join(FORMATS)}")
    if not path.is_file():
        raise BadInput(f"--csv {given}: {path} is not there")
    *texts, label = columns
    read_as = ""
    if isinstance(format, TableFormat):
        encoding, read_as = guess_encoding(next(contents(path.parent, path.name))[1])
        format = replace(format, column=texts[0], encoding=encoding)
    name = re.sub(r"[^\w.-]+", "_", path.stem).strip("_.-")[: TaskFile.most_letters] or "table"
    refuse_name(name, f"--csv {given}: name is {name!r}", "rename the file")
    records = _whole(read(path.parent, path.name, format), columns)
    labels = _labels(records, columns, given)
    if has_commas := _has_decimal_commas([name for _, name in labels], label, given):
        labels = [(raw, name.replace(",", ".")) for raw, name in labels]
    if not isinstance(format, JsonlFormat) and label.lstrip("-").isdigit():
        cell = str((first(path.parent, path.name, replace(format, header=False)) or {}).get(label, "")).strip()
        if cell and cell in (found for _, found in labels):
            said = f"line 1 has the label {cell!r} in column {label}, and is read as a header"
            raise BadInput(f"--csv {given}: {path}: {said}: write a line with the names of the columns above it")
    task, said = _task(texts, label, labels, given)
    nothing = {raw: None for raw, name in labels if not name}
    renamed = {raw: name for raw, name in labels if name and raw != name}
    splits = {
        name: SplitRecords(
            paths=(str(path.absolute()),),
            format=format,
            folds=tenths,
            fold_by=texts[0],
            exclude={label: tuple(nothing)} if nothing else {},
            value_map={label: renamed} if renamed else {},
        )
        for name, tenths in TENTHS.items()
    }
    titled = f"{label} of {' and '.join(texts)} in {path.name}"
    made = TaskFile(name=name, description=titled, citation=str(path), license="your own", files=splits, task=task)
    counts = {name: len(split.records(path.parent)) for name, split in splits.items()}
    sizes = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    _refuse_empty(counts, texts[0], records, sizes, f"--csv {given}: {path}")
    lacking = sum(not name for _, name in labels)
    more = ", read with decimal commas" if has_commas else ""
    more += f"; rows without a label, which are left out: {lacking:,}" if lacking else ""
    more += f"; {read_as}" if read_as else ""
    if records.malformed:
        more += f"; {len(records.malformed)} malformed rows, the first: {describe_faults(records.malformed)}"
    return made, f"{path}: {len(records) - lacking:,} rows ({sizes}), {said}{more}"


def _whole(records: Records, columns: list[str]) -> Records:
    """The records but for those that lack a column which others have: they are malformed, as the task has them too."""
    lacking = [next((column for column in columns if column not in row), "") for row in records.rows]
    if all(lacking):
        return records
    found = replace(records, rows=[], places=[], malformed=[*records.malformed])
    for row, place, column in zip(records.rows, records.places, lacking, strict=True):
        found.add(RecordFault(f"has no column {column}; its columns are {', '.join(row)}") if column else row, place)
    return found


def _has_decimal_commas(names: list[str], label: str, given: str) -> bool:
    """Whether labels are numbers as 0,5, as tables with semicolons have them. BadInput where 1,000 might be one.

    >>> _has_decimal_commas(["0,5", "1", ""], "y", "my.csv:t,y"), _has_decimal_commas(["0.5", "1"], "y", "my.csv:t,y")
    (True, False)
    """
    found = [one for name in names if name and (one := _DECIMAL.fullmatch(name))]
    commas = [one for one in found if one[1]]
    if not commas or len(found) < sum(map(bool, names)):
        return False
    if all(len(one[1]) == _THOUSANDS for one in commas):
        said = f"{label} is {commas[0][0]!r}, which may be a fraction or thousands"
        raise BadInput(f"--csv {given}: {said}; write numbers with a decimal point and without commas")
    return True


def _refuse_empty(counts: Mapping[str, int], text: str, records: Records, sizes: str, where: str) -> None:
    """BadInput where there is nothing to learn from, or nothing to score, as rows with the same text stay together."""
    rows, texts = len(records), len({str(row[text]) for row in records.rows})
    if texts == rows or (counts["train"] and counts["dev"] + counts["test"]):
        return
    remedy = f"give more texts in {text}, or of a pair name the other column first"
    said = f"its {rows:,} rows have {texts:,} different texts in {text}, and rows with the same one stay in one split"
    raise BadInput(f"{where}: {said} ({sizes}), so that there is nothing to learn from or nothing to score; {remedy}")


def _parts(given: str) -> tuple[Path, list[str]]:
    """File and columns; the file may have a colon in it."""
    file, colon, after = given.rpartition(":")
    columns = [column.strip() for column in after.split(",")]
    if not colon or not file or len(columns) not in (2, 3) or not all(columns):
        raise BadInput(f"--csv {given}: allowed is {_FORM}, as my.csv:text,label")
    return Path(file), columns


def _labels(records: Records, columns: list[str], given: str) -> list[tuple[str, str]]:
    """What the last column has, row by row: as it stands there, and the label, "" where there is none."""
    if not records.rows:
        raise BadInput(f"--csv {given}: no row in it" + "".join(f"; {one}" for one in records.malformed[:1]))
    names = [name for name in records.rows[0] if not name.lstrip("-").isdigit()]
    for column in columns:
        if column not in records.rows[0]:
            raise BadInput(f"--csv {given}: has no column {column}; its columns are {', '.join(names)}")
    found, places = list[tuple[str, str]](), dict[tuple[str, str], str]()
    for row, place in zip(records.rows, records.places, strict=True):
        if lacking := [column for column in columns if column not in row]:
            raise BadInput(f"--csv {given}: {place}: has no column {lacking[0]}; its columns are {', '.join(row)}")
        value = row[columns[-1]]
        one = str(value), "" if value is None else str(value).strip()
        if isinstance(value, list | dict) or one[1].lower() == "nan":
            allowed = "a word or number, or nothing where a row has no label"
            raise BadInput(f"--csv {given}: {place}: the label {columns[-1]} is {value!r}, allowed is {allowed}")
        found.append(one)
        places.setdefault(one, place)
    null, word = (str(None), ""), (str(None), str(None))
    if null in places and word in places:
        said = f"{places[word]}: the label {columns[-1]} is {word[1]!r}, and {places[null]} has null"
        raise BadInput(f"--csv {given}: {said}; give another name to the one that is a label")
    return found


def _task(texts: list[str], label: str, labels: list[tuple[str, str]], given: str) -> tuple[Kinds, str]:
    text, pair = texts[0], texts[1] if len(texts) == 2 else ""
    counted = Counter(name for _, name in labels if name)
    numbers = _numbers(counted)
    if numbers and not all(number.is_integer() for number in numbers):
        least, most = min(numbers), max(numbers)
        if least == most:
            raise BadInput(
                f"--csv {given}: {label} is {least:g} in all rows, which is nothing to predict; give another"
            )
        score = Regression(text=text, text_pair=pair, label=label, min_value=least, max_value=most)
        return score, f"{label} is a number from {least:g} to {most:g}"
    odd = [name for name in counted if not _numbers(Counter([name]))]
    fractions = [number for name in counted for number in _numbers(Counter([name])) if not number.is_integer()]
    if fractions and 0 < len(odd) <= max(1, _FEW_ODD * len(counted)):
        remedy = "correct it, or empty the cells of rows that have no label"
        raise BadInput(f"--csv {given}: {label} has {odd[0]!r}, which is no number, as the others are; {remedy}")
    if not 2 <= len(counted) <= MOST_LABELS:
        remedy = ""
        if len(numbers) > MOST_LABELS:
            example = f"text: {text}, label: {label}, min_value: {min(numbers):g}, max_value: {max(numbers):g}"
            remedy = f"; for scores write a task file (README, Scores) with task: {{kind: regression, {example}}}"
        raise BadInput(f"--csv {given}: {label} has {len(counted)} labels, allowed are 2 to {MOST_LABELS}{remedy}")
    ordered = tuple(sorted(counted, key=float) if numbers else sorted(counted))
    named = ", ".join(f"{name} ({counted[name]:,})" for name in ordered)
    metrics = ("accuracy", "macro_f1", "matthews")
    return Classification(
        text=text, text_pair=pair, label=label, labels=ordered, metrics=metrics
    ), f"{len(ordered)} labels: {named}"


def _numbers(values: Counter[str]) -> list[float]:
    """The values as numbers; none where one of them is not."""
    try:
        found = [float(value) for value in values]
    except ValueError:
        return []
    return found if all(map(isfinite, found)) else []
