"""A downstream task as a file says it: what is asked, of which files, how it is scored, and how papers tune for it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Final

from preprocessing.errors import BadInput
from preprocessing.spec import BY_KIND, key, require, spec
from training.files import CsvFormat, JsonFormat, JsonlFormat, Records, TableFormat, TsvFormat, exists, first
from training.tasks.classification import Classification
from training.tasks.context_length import ContextLength
from training.tasks.extractive_qa import ExtractiveQA
from training.tasks.generation import Generation
from training.tasks.generation_settings import GenerationTask
from training.tasks.grid import Grid
from training.tasks.labeled_task import LabeledTask, ScoredTask, TaskItem, TaskKind
from training.tasks.loglikelihood_choice import LoglikelihoodChoice
from training.tasks.multiple_choice import MultipleChoice
from training.tasks.perplexity import PerplexityTask
from training.tasks.ranking import Ranking
from training.tasks.regression import Regression
from training.tasks.split import NoColumn, SplitRecords, of_whole_rows
from training.tasks.templates import fields_of
from training.tasks.text_to_text import TextToText
from training.tasks.token_classification import TokenClassification

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

    most_letters: ClassVar[int] = 60  # of a name: with a hash behind it still one of a file

    def __post_init__(self) -> None:
        require(self.max_seq_length >= 8, "max_seq_length", self.max_seq_length, "a number of tokens from 8 up")
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
                "a split of all rows: no include, exclude, folds (a leaderboard counts rows)",
            )
        for name in self.score_splits:
            others = [split for split in self.files if split != "train"]
            require(name in others, "score_splits", name, " or ".join(others))
        for name in self.files:
            _check_name("files", name.replace(EACH, ""))
            first = name.partition("_")[0]
            require(first in ("train", "dev", "test"), "files", name, "train, dev, test, or these with _ and more")
            require(
                EACH not in name or bool(self.variants), "variants", [], f"the words that {EACH} stands for in {name}"
            )

    @property
    def metric(self) -> str:
        """What cells of a grid are compared by."""
        return self.task.metrics[0]

    def items(self, split: str, data: Path) -> tuple[list[TaskItem], Records]:
        """The questions of a split below the data folder, and its records.

        BadInput, in one line that names the task, where there is no such split, no such file, or a row is wrong.
        """
        if split not in self.files:
            raise BadInput(f"task {self.name}: has no split {split}; its splits are {', '.join(self.files)}")
        try:
            chosen = self.files[split].chosen(data)
            files = files_of(chosen, data)
            if (label := _label_of_header(self.task, chosen, data)) is not None:
                raise BadInput(
                    f"{files[0]}: line 1 is read as a header, and has {label}: give header: false in its format"
                )
            found, records = self._items(split, chosen, data)
            if records.malformed and not len(records):
                raise BadInput(f"no row can be read; {records.malformed[0]}")
            is_one_of_many = split.partition("_")[2] in self.variants  # of the languages of a file, some may be lacking
            if not len(records) and (why := _why_none(chosen, records, data, is_one_of_many=is_one_of_many)):
                raise BadInput(why)
            if len(files) > 1 and any(Path(path).is_absolute() for path in chosen.paths):  # of a user's own task
                records.remarks.append(f"{files[0]} is read, {files[1]} is there too")
            return found, records
        except BadInput as error:
            raise BadInput(f"task {self.name}, {split}: {error}") from None

    def _items(self, split: str, chosen: SplitRecords, data: Path) -> tuple[list[TaskItem], Records]:
        """The questions of the records. Where no object of JSON in a split to score has the answer, it is kept back."""
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
            found, records = of_whole_rows(lambda records: self.task.items(records, without), records)
            return found, records


def files_of(split: SplitRecords, data: Path) -> list[Path]:
    """The files that a split could be read from, or patterns of some; the first one is."""
    found = dict[Path, Path]()
    for path in split.paths:
        if exists(data, path):
            found.setdefault((data / path).resolve(), (data / path).absolute())
    return list(found.values())


def _label_of_header(task: Kinds, split: SplitRecords, data: Path) -> str | None:
    """The label that stands in what is read as the header of a table, where its column is given by number: "the label
    'pos' in column 1". Such a line is a row, which would be lost."""
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
        return None  # which the reader of all rows says
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


def _why_none(split: SplitRecords, found: Records, data: Path, *, is_one_of_many: bool) -> str:
    """Why a split has no records though its file is there; "" where that may be: a tenth of a few rows."""
    (file, *_), count = files_of(split, data), found.others + found.left_out
    if found.others and not is_one_of_many:
        return f"none of the {count:,} rows of {file} has the values of `include`"
    if found.left_out and not found.others:
        return f"`exclude` leaves out all {count:,} rows of {file}"
    whole = replace(split, folds=(), include={}, exclude={}).records(data)
    return "" if whole.rows else f"{file} has no rows"


def _check_name(key: str, given: str) -> None:
    """Whether it can be the name of a file, of a run and of a metric, in whatever folder."""
    most = TaskFile.most_letters
    is_name = len(given) <= most and re.fullmatch(r"\w[\w.-]*", given) is not None
    require(is_name, key, given, f"letters, digits, _, - and ., {most} at most, the first one a letter or digit")


@dataclass(frozen=True)
class SplitAvailability:
    """What there is of a split: its items and what was wrong with its rows."""

    rows: int = 0
    labelled: int = 0  # rows with an answer
    malformed: tuple[str, ...] = ()
    left_out: int = 0
    wrong: str = ""  # why it cannot be read, in one line
    is_there: bool = True
    file: str = ""  # that is read, or a pattern of some


def split_availability(task: TaskFile, data: Path) -> dict[str, SplitAvailability]:
    """Each split of a task below a data folder."""
    return {name: _at_hand(task, name, data) for name in task.files}


def _at_hand(task: TaskFile, split: str, data: Path) -> SplitAvailability:
    if not task.files[split].is_there(data):
        return SplitAvailability(is_there=False)
    file = str(files_of(task.files[split].chosen(data), data)[0])
    try:
        items, records = task.items(split, data)
    except BadInput as error:
        return SplitAvailability(wrong=str(error), file=file)
    labelled = sum(item.gold is not None for item in items)
    return SplitAvailability(len(items), labelled, tuple(records.malformed), records.left_out, file=file)


def _is_a_kind(task: Kinds) -> TaskKind:
    return task  # a member without a fact is a type error here


def _is_tuned(task: Tuned) -> LabeledTask:
    return task


def _is_scored(task: Scored) -> ScoredTask:
    return task


def _is_written(task: Written) -> GenerationTask:
    return task
