"""Downstream tasks: those of labelled files, and those that are made from a corpus' own held-out documents. No torch
in here.

Files: read labelled.py (what a kind of task is), classify.py, which is one (texts.py), and split.py (which files);
regress.py, tag.py, choose.py, rank.py and span.py are its siblings, in the union `Kinds`. For likelihood.py,
perplexity.py and context_length.py, of the same union, nothing is fine-tuned; writing.py is what tasks are whose answer
a net writes, generate.py and text_to_text.py are these (in_words.py: labels as words; templates.py: texts with columns
in braces). task_file.py is what a file of orchestration/tasks says, grid.py the hyper-parameters of papers in it;
text_tasks.py is the form as text of tasks that have no file of it, task_score.py makes one score of the cells.

Held-out documents: read part.py (what a task is), then documents.py and source.py. A task is one file here and one line
in the union `Tasks` below; `eval_tasks:` of a recipe and `--tasks` name its kind.
"""

from collections.abc import Mapping
from typing import Final, get_args

from preprocessing.spec import kind_of
from training.tasks.choose import Choose
from training.tasks.classify import Classify
from training.tasks.cloze import Blank, Blanks, Cloze
from training.tasks.context_length import ContextLength
from training.tasks.documents import FEWEST_ROWS
from training.tasks.follows import Follows
from training.tasks.generate import Generate
from training.tasks.grid import Grid
from training.tasks.labelled import (
    Encoded,
    FittedTask,
    Item,
    LabelledTask,
    ScoredTask,
    TaskKind,
    Way,
    answered,
    never_in_train,
    never_learned,
    one_answer,
    unlabelled,
)
from training.tasks.likelihood import COUNTS, Likelihood
from training.tasks.part import LABELS, LENGTH, MORE, Examples, HeldOutTask, Task, TaskPart
from training.tasks.perplexity import LanguageModelling
from training.tasks.rank import Rank
from training.tasks.regress import Regress
from training.tasks.source import Source
from training.tasks.span import Span
from training.tasks.split import Split
from training.tasks.tag import Tag
from training.tasks.task_file import EACH, AtHand, Kinds, Scored, TaskFile, Tuned, Written, at_hand
from training.tasks.task_score import STARTS, CellScore, Chosen, Start, TaskScore, better, chosen, spread_of
from training.tasks.text_tasks import T5, TEXT, text_form
from training.tasks.text_to_text import TextToText, as_text
from training.tasks.writing import Question, Writing, WrittenTask, askable, asked, ids_of

__all__ = [
    "COUNTS",
    "EACH",
    "FEWEST_ROWS",
    "LABELS",
    "LENGTH",
    "MORE",
    "STARTS",
    "T5",
    "TASKS",
    "TEXT",
    "AtHand",
    "Blank",
    "Blanks",
    "CellScore",
    "Choose",
    "Chosen",
    "Classify",
    "Cloze",
    "ContextLength",
    "Encoded",
    "Examples",
    "FittedTask",
    "Follows",
    "Generate",
    "Grid",
    "HeldOutTask",
    "Item",
    "Kinds",
    "LabelledTask",
    "LanguageModelling",
    "Likelihood",
    "Question",
    "Rank",
    "Regress",
    "Scored",
    "ScoredTask",
    "Source",
    "Span",
    "Split",
    "Start",
    "Tag",
    "Task",
    "TaskFile",
    "TaskKind",
    "TaskPart",
    "TaskScore",
    "Tasks",
    "TextToText",
    "Tuned",
    "Way",
    "Writing",
    "Written",
    "WrittenTask",
    "answered",
    "as_text",
    "askable",
    "asked",
    "at_hand",
    "better",
    "chosen",
    "ids_of",
    "never_in_train",
    "never_learned",
    "one_answer",
    "spread_of",
    "text_form",
    "unlabelled",
]

Tasks = Source | Follows | Cloze
TASKS: Final[Mapping[str, TaskPart]] = {kind_of(member): member() for member in get_args(Tasks)}


def _has_every_fact(task: Tasks) -> TaskPart:
    return task  # a member without a fact is a type error here
