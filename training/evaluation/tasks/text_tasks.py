"""NAME_text: the text-to-text form of a labeled task that has no task file of this form."""

from dataclasses import replace
from typing import Final

from preprocessing.errors import BadInput
from training.evaluation.tasks.classification import Classification
from training.evaluation.tasks.extractive_qa import ExtractiveQA
from training.evaluation.tasks.grid import Grid
from training.evaluation.tasks.multiple_choice import MultipleChoice
from training.evaluation.tasks.regression import Regression
from training.evaluation.tasks.task_file import TaskFile
from training.evaluation.tasks.text_to_text import as_text

TEXT: Final = "_text"  # suffix of the task name
NO_FORM: Final = "has no text-to-text form; use a task of classification, regression, multiple_choice or extractive_qa"
T5: Final = Grid(
    learning_rates=(1e-3,),
    batch_sizes=(128,),
    max_steps=2**18,
    num_evaluations=52,  # checkpoints every 5,000 steps
    warmup_steps=0,
    lr_schedule="constant",
    optimizer="adafactor",
    weight_decay=0,
    max_grad_norm=0,
    max_seq_length=512,
    citation="section 3.1.3, arXiv:1910.10683",
    unverified=True,
)


def to_text_task(task: TaskFile) -> TaskFile:
    """Return NAME_text of a labeled task: the same files and scores, with text-to-text inputs and outputs.

    Inputs start with the task name; each text follows its own name. The tasks of the paper have their own files
    (sst2_text); this function applies the same form to other tasks. Raises BadInput for other kinds: token
    classification and ranking have no text form in the paper, and other kinds need none.
    """
    if not isinstance(task.task, Classification | Regression | MultipleChoice | ExtractiveQA):
        written = f"already generates text; use {task.name}" if task.task.way == "written" else NO_FORM
        raise BadInput(f"task {task.name}{TEXT}: a task of kind {task.task.kind} {written}")
    name = task.name.removesuffix("_tuned")
    general = (
        "has the form of T5's tasks, although the T5 paper lacks this task or formats it differently; greedy decoding"
    )
    return replace(
        task,
        name=f"{name}{TEXT}",
        description=f"{task.description}, with generated answers",
        citation=f"{task.citation}; text-to-text form of T5, arXiv:1910.10683, appendix D",
        group="text_to_text",
        max_seq_length=T5.max_seq_length,
        task=as_text(task.task, name),
        grids={"t5": T5},
        reported_keys=(),
        note=f"{general}; {task.note}" if task.note else general,
    )
