"""Downstream tasks: tasks on labeled files, and tasks made from a corpus's held-out documents. No torch in here.

Files: start with labeled_task.py (the interface of a kind of task), classification.py (one kind, with texts.py), and
split.py (the files). regression.py, token_classification.py, multiple_choice.py, ranking.py and extractive_qa.py are
the other fine-tuned kinds. loglikelihood_choice.py, perplexity.py and context_length.py are scored without
fine-tuning. generation_settings.py is the interface of tasks with generated answers; generation.py and
text_to_text.py are such kinds (verbalizer.py: labels as words; templates.py: texts with columns in braces). All
kinds form the union `Kinds`. task_file.py describes a file of orchestration/tasks, and grid.py the hyperparameters
of papers in it. text_tasks.py derives text-to-text forms of other tasks. lm_eval.py builds the texts of
lm-eval tasks. task_score.py combines trials into the score of a task. stored_answers.py stores questions and answers,
and restores them. dependent_items.py groups questions.

Held-out documents: start with part.py (the interface of a task), then held_out.py and source_classification.py. A
task is one file here and one line in the union `Tasks` below; `eval_tasks:` of a recipe and `--tasks` use its kind.
"""

from collections.abc import Mapping
from typing import Final, get_args

from preprocessing.spec import kind_of
from training.evaluation.tasks.classification import Classification
from training.evaluation.tasks.cloze import Cloze, ClozeItem, ClozeItems
from training.evaluation.tasks.context_length import ContextLength
from training.evaluation.tasks.dependent_items import group_dependent
from training.evaluation.tasks.extractive_qa import ExtractiveQA
from training.evaluation.tasks.generation import Generation
from training.evaluation.tasks.generation_settings import (
    GenerationSettings,
    GenerationTask,
    TaskPrompt,
    build_prompts,
    ids_of,
    select_askable,
)
from training.evaluation.tasks.grid import Grid
from training.evaluation.tasks.held_out import FEWEST_ROWS
from training.evaluation.tasks.labeled_task import (
    EncodedItems,
    FittedTask,
    LabeledTask,
    ScoredTask,
    TaskItem,
    TaskKind,
    Way,
    describe_unlabeled,
    never_in_train,
    never_learned,
    one_answer,
    select_answered,
)
from training.evaluation.tasks.lm_eval import LmEvalGeneration, LmEvalRecords, check_template
from training.evaluation.tasks.loglikelihood_choice import COUNTS, SMOOTH_METRICS, LoglikelihoodChoice
from training.evaluation.tasks.multiple_choice import MultipleChoice
from training.evaluation.tasks.next_sentence import NextSentence
from training.evaluation.tasks.part import LABELS, LENGTH, MORE, HeldOutTask, LabeledExamples, Task, TaskPart
from training.evaluation.tasks.perplexity import PerplexityTask
from training.evaluation.tasks.ranking import Ranking
from training.evaluation.tasks.regression import Regression
from training.evaluation.tasks.source_classification import SourceClassification
from training.evaluation.tasks.split import SplitRecords
from training.evaluation.tasks.stored_answers import (
    ShownAnswer,
    question_of,
    restore_answer,
    restore_item,
    restore_kind,
    show_answer,
)
from training.evaluation.tasks.task_file import (
    EACH,
    Kinds,
    Scored,
    SplitAvailability,
    TaskFile,
    Tuned,
    Written,
    split_availability,
)
from training.evaluation.tasks.task_score import (
    STARTS,
    SelectedTrials,
    Start,
    TaskScore,
    TrialScore,
    measure_spread,
    select_trials,
    sign_of_metric,
)
from training.evaluation.tasks.text_tasks import T5, TEXT, to_text_task
from training.evaluation.tasks.text_to_text import TextToText, as_text
from training.evaluation.tasks.token_classification import TokenClassification

__all__ = [
    "COUNTS",
    "EACH",
    "FEWEST_ROWS",
    "LABELS",
    "LENGTH",
    "MORE",
    "SMOOTH_METRICS",
    "STARTS",
    "T5",
    "TASKS",
    "TEXT",
    "Classification",
    "Cloze",
    "ClozeItem",
    "ClozeItems",
    "ContextLength",
    "EncodedItems",
    "ExtractiveQA",
    "FittedTask",
    "Generation",
    "GenerationSettings",
    "GenerationTask",
    "Grid",
    "HeldOutTask",
    "Kinds",
    "LabeledExamples",
    "LabeledTask",
    "LmEvalGeneration",
    "LmEvalRecords",
    "LoglikelihoodChoice",
    "MultipleChoice",
    "NextSentence",
    "PerplexityTask",
    "Ranking",
    "Regression",
    "Scored",
    "ScoredTask",
    "SelectedTrials",
    "ShownAnswer",
    "SourceClassification",
    "SplitAvailability",
    "SplitRecords",
    "Start",
    "Task",
    "TaskFile",
    "TaskItem",
    "TaskKind",
    "TaskPart",
    "TaskPrompt",
    "TaskScore",
    "Tasks",
    "TextToText",
    "TokenClassification",
    "TrialScore",
    "Tuned",
    "Way",
    "Written",
    "as_text",
    "build_prompts",
    "check_template",
    "describe_unlabeled",
    "group_dependent",
    "ids_of",
    "measure_spread",
    "never_in_train",
    "never_learned",
    "one_answer",
    "question_of",
    "restore_answer",
    "restore_item",
    "restore_kind",
    "select_answered",
    "select_askable",
    "select_trials",
    "show_answer",
    "sign_of_metric",
    "split_availability",
    "to_text_task",
]

Tasks = SourceClassification | NextSentence | Cloze
TASKS: Final[Mapping[str, TaskPart]] = {kind_of(member): member() for member in get_args(Tasks)}


def _has_every_fact(task: Tasks) -> TaskPart:
    return task  # a type error here means that a member lacks an attribute of TaskPart
