"""A downstream task as defined in a file: the question, the data files, the metrics, and the grids of papers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Final

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, key, require, spec
from training.evaluation.files import (
    CsvFormat,
    DatasetsFormat,
    JsonFormat,
    JsonlFormat,
    ParquetFormat,
    Records,
    TableFormat,
    TsvFormat,
    exists,
    first,
)
from training.evaluation.tasks.classification import Classification
from training.evaluation.tasks.context_length import ContextLength
from training.evaluation.tasks.extractive_qa import ExtractiveQA
from training.evaluation.tasks.generation import Generation
from training.evaluation.tasks.generation_settings import GenerationTask
from training.evaluation.tasks.grid import Grid
from training.evaluation.tasks.labeled_task import LabeledTask, ScoredTask, TaskItem, TaskKind
from training.evaluation.tasks.loglikelihood_choice import LoglikelihoodChoice
from training.evaluation.tasks.multiple_choice import MultipleChoice
from training.evaluation.tasks.perplexity import PerplexityTask
from training.evaluation.tasks.ranking import Ranking
from training.evaluation.tasks.regression import Regression
from training.evaluation.tasks.split import BadRows, NoColumn, SplitRecords, of_whole_rows
from training.evaluation.tasks.templates import fields_of
from training.evaluation.tasks.text_to_text import TextToText
from training.evaluation.tasks.token_classification import TokenClassification

Tuned = Classification | Regression | TokenClassification | MultipleChoice | Ranking | ExtractiveQA
Scored = LoglikelihoodChoice | PerplexityTask | ContextLength
Written = Generation | TextToText
Kinds = Tuned | Scored | Written
EACH: Final = "{variant}"


@spec
class TaskFile:
    """Downstream task: its files, its type and its fine-tuning grids.

    A split is `train` (training), `dev` (comparison of trials) or `test`, or one of these with a suffix
    (`dev_mismatched`). If `variants` lists words, such as the languages of XNLI, a split with {variant} in its name
    stands for one split of each.
    """

    name: str = key(doc="Name of the task and its file.")
    description: str = key(doc="Description in one line.")
    citation: str = key(doc="Paper, and origin of the files.")
    license: str = key(default="not known", doc="License of the data.")
    group: str = key(default="", doc="Group of tasks, such as glue; empty: none.")
    max_seq_length: int = key(default=128, doc="Maximum sequence length in tokens; at least 8.")
    variants: tuple[str, ...] = key(
        default=(), doc="Words that {variant} stands for in names of splits, paths and include."
    )
    files: Mapping[str, SplitRecords] = key(doc="Splits by name: train, dev, test, or these with a suffix.")
    task: Annotated[Kinds, BY_KIND] = key(doc="Task type and its keys.")
    grids: Mapping[str, Grid] = key(default_factory=dict, doc="Hyperparameter grids by the name of a paper.")
    reported_keys: tuple[str, ...] = key(default=(), doc="Names of the task's scores in reported_results of recipes.")
    note: str = key(default="", doc="Further remarks on the scores.")
    leaderboard_files: Mapping[str, str] = key(default_factory=dict, doc="Leaderboard files by split.")
    score_splits: tuple[str, ...] = key(
        default=(), doc="Splits of the score, averaged if several; []: test, or dev if there is no test."
    )

    most_letters: ClassVar[int] = 60  # maximum length of a name; leaves room for a hash in file names

    def __post_init__(self) -> None:
        require(self.max_seq_length >= 8, "max_seq_length", self.max_seq_length, "at least 8 tokens")
        require(len(self.files) > 0, "files", {}, "one split or more")
        _check_name("name", self.name)
        for word in self.variants:
            _check_name("variants", word)
        for name, file in self.leaderboard_files.items():
            _check_name(f"leaderboard_files.{name}", file)
            require(name in self.files, "leaderboard_files", name, " or ".join(self.files))
            one = self.files[name]
            is_whole = not any(of.include or of.exclude or of.folds for of in (one, *one.fallbacks))
            require(
                is_whole,
                "leaderboard_files",
                name,
                "a split without include, exclude and folds, since a leaderboard expects all rows",
            )
        for name in self.score_splits:
            others = [split for split in self.files if split != "train"]
            require(name in others, "score_splits", name, " or ".join(others))
        for name in self.files:
            _check_name("files", name.replace(EACH, ""))
            first = name.partition("_")[0]
            require(
                first in ("train", "dev", "test"), "files", name, "train, dev, test, or one of them with _ and a suffix"
            )
            require(
                EACH not in name or bool(self.variants), "variants", [], f"the words that {EACH} stands for in {name}"
            )

    @property
    def metric(self) -> str:
        """The metric that selects hyperparameters."""
        return self.task.metrics[0]

    def items(self, split: str, data: Path) -> tuple[list[TaskItem], Records]:
        """Return the questions of a split below the data directory, and its records.

        Raises BadInput, with the name of the task, if the split or file does not exist, or rows are malformed.
        """
        if split not in self.files:
            raise BadInput(f"task {self.name}: invalid split: got {split}, expected one of {', '.join(self.files)}")
        try:
            chosen = self.files[split].select_files(data)
            files = files_of(chosen, data)
            if (label := _label_of_header(self.task, chosen, data)) is not None:
                raise BadInput(
                    f"{files[0]}: line 1 is read as a header, but has {label}; set header: false in the format"
                )
            questions, records = self._items(split, chosen, data)
            if records.malformed and not len(records):
                raise BadInput(f"all rows are malformed; correct the file: {records.malformed[0]}")
            is_one_of_many = split.partition("_")[2] in self.variants  # a file need not have all languages
            if not len(records) and (
                why := _reason_for_no_records(chosen, records, data, is_one_of_many=is_one_of_many)
            ):
                raise BadInput(why)
            if len(files) > 1 and any(Path(path).is_absolute() for path in chosen.paths):  # a user's own task
                records.remarks.append(f"reads {files[0]}, although {files[1]} also exists")
            return questions, records
        except BadInput as error:
            raise BadInput(f"task {self.name}, {split}: {error}") from None

    def _items(self, split: str, chosen: SplitRecords, data: Path) -> tuple[list[TaskItem], Records]:
        """Return the questions of the records. If no JSON record of a scored split has the answer column, answers
        are missing."""
        records, key = chosen.records(data), self.task.answer_key
        try:
            return of_whole_rows(lambda records: self.task.items(records, chosen.columns), records)
        except NoColumn as error:
            column = chosen.columns.get(key, getattr(getattr(self.task, "task", self.task), key, "")) if key else ""
            if (
                split == "train"
                or not isinstance(chosen.format, JsonFormat | JsonlFormat)
                or not (error.column == column or error.column in fields_of(column))
            ):
                raise
            without = {**chosen.columns, key: ""}
            questions, records = of_whole_rows(lambda records: self.task.items(records, without), records)
            return questions, records
        except BadRows as error:
            raise BadInput(f"{error}{self._explain_numbers(chosen, records)}") from None

    def _explain_numbers(self, split: SplitRecords, records: Records) -> str:
        """A remedy if the labels of a Parquet file are numbers and the labels of the task are words; "" if not."""
        of = getattr(self.task, "task", self.task)
        if not isinstance(split.format, ParquetFormat | DatasetsFormat) or not isinstance(of, Classification):
            return ""
        label = split.columns.get("label", of.label)
        if not any(type(row.get(label)) is int for row in records.rows):
            return ""
        names = f"column {label} has numbers without names (no ClassLabel in the metadata of the file)"
        return f"; {names}: map them to labels with `value_map` of the split"


def files_of(split: SplitRecords, data: Path) -> list[Path]:
    """The existing files (or patterns) of a split; the first one is read."""
    existing = dict[Path, Path]()
    for path in split.patterns:
        if exists(data, path):
            existing.setdefault((data / path).resolve(), (data / path).absolute())
    return list(existing.values())


def _label_of_header(task: Kinds, split: SplitRecords, data: Path) -> str | None:
    """Describe a label in the header line of a table, if the label column is given by number: "the label 'pos' in
    column 1".

    Such a line is a row, and would be lost. Returns None if there is no label.
    """
    of, format = getattr(task, "task", task), split.format
    if (
        not isinstance(of, Classification | Regression)
        or not isinstance(format, TsvFormat | CsvFormat | TableFormat)
        or not format.header
    ):
        return None
    column = split.columns.get("label", of.label)
    if not column.lstrip("-").isdigit():
        return None
    path = next(path for path in split.paths if exists(data, path))
    try:
        cell = (first(data, path, replace(format, header=False), split.archive_member) or {}).get(column)
    except UnicodeDecodeError:
        return None  # reported when all rows are read
    known = cell in split.value_map.get(column, {})
    is_label = known or (
        cell in of.labels if isinstance(of, Classification) else _is_between(cell, of.min_value, of.max_value)
    )
    return f"the label {cell!r} in column {column}" if is_label else None


def _is_between(cell: str | None, least: float, most: float) -> bool:
    try:
        return least <= float(cell or "nan") <= most
    except ValueError:
        return False


def _reason_for_no_records(split: SplitRecords, found: Records, data: Path, *, is_one_of_many: bool) -> str:
    """The reason why a split with a file has no records; "" if that is possible, as for a fold of few rows."""
    (file, *_), count = files_of(split, data), found.others + found.left_out
    if found.others and not is_one_of_many:
        return f"none of the {count:,} rows of {file} has the values of `include`; correct them in the task file"
    if found.left_out and not found.others:
        return f"`exclude` leaves out all {count:,} rows of {file}; correct it in the task file"
    whole = replace(split, folds=(), include={}, exclude={}).records(data)
    return "" if whole.rows else f"{file} has no rows; give a file with data"


def _check_name(key: str, name: str) -> None:
    """Raise ValueError unless the name is valid for files, runs and metrics."""
    most = TaskFile.most_letters
    is_name = len(name) <= most and re.fullmatch(r"\w[\w.-]*", name) is not None
    require(is_name, key, name, f"at most {most} letters, digits, _, - and ., starting with a letter or digit")


@dataclass(frozen=True)
class SplitAvailability:
    """The availability of a split: the number of its rows, and problems."""

    rows: int = 0
    labelled: int = 0  # rows with an answer
    malformed: tuple[str, ...] = ()
    left_out: int = 0
    wrong: str = ""  # error if it cannot be read, in one line
    is_there: bool = True
    file: str = ""  # file that is read, or a pattern


def split_availability(task: TaskFile, data: Path) -> dict[str, SplitAvailability]:
    """The availability of each split of a task below a data directory."""
    return {name: _availability(task, name, data) for name in task.files}


def _availability(task: TaskFile, split: str, data: Path) -> SplitAvailability:
    if not task.files[split].is_there(data):
        return SplitAvailability(is_there=False)
    file = str(files_of(task.files[split].select_files(data), data)[0])
    try:
        items, records = task.items(split, data)
    except BadInput as error:
        return SplitAvailability(wrong=str(error), file=file)
    labelled = sum(item.gold is not None for item in items)
    return SplitAvailability(len(items), labelled, tuple(records.malformed), records.left_out, file=file)


def _is_a_kind(task: Kinds) -> TaskKind:
    return task  # a type error here means that a member of the union is incomplete


def _is_tuned(task: Tuned) -> LabeledTask:
    return task


def _is_scored(task: Scored) -> ScoredTask:
    return task


def _is_written(task: Written) -> GenerationTask:
    return task
