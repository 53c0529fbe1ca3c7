"""NAME_text: the text-to-text form of a labelled task that has no file of this form."""

from dataclasses import replace
from typing import Final

from preprocessing.errors import BadInput
from training.tasks.classification import Classification
from training.tasks.extractive_qa import ExtractiveQA
from training.tasks.grid import Grid
from training.tasks.multiple_choice import MultipleChoice
from training.tasks.regression import Regression
from training.tasks.task_file import TaskFile
from training.tasks.text_to_text import as_text

TEXT: Final = "_text"  # behind the name of a task
NO_FORM: Final = (
    "has no form as text to text; those of classification, regression, multiple_choice and extractive_qa have one"
)
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
    """NAME_text of a labelled task: the same files and scores, its name and the names of its texts before them.

    The paper has the form for each task of its own, which have files (sst2_text); this is what follows from it for
    others. BadInput, in one line, where a kind has none: tags of words, and rows that compete, are no text of their
    own in the paper; other kinds are written or scored as they are.
    """
    if not isinstance(task.task, Classification | Regression | MultipleChoice | ExtractiveQA):
        written = f"is text to text without it: give {task.name}" if task.task.way == "written" else NO_FORM
        raise BadInput(f"task {task.name}{TEXT}: a task of kind {task.task.kind} {written}")
    name = task.name.removesuffix("_tuned")
    general = "the form is that of T5's own tasks: in its paper this one is not, or is asked otherwise; greedy"
    return replace(
        task,
        name=f"{name}{TEXT}",
        description=f"{task.description}, in words that are written",
        citation=f"{task.citation}; as text to text after T5, arXiv:1910.10683, appendix D",
        group="text_to_text",
        max_seq_length=T5.max_seq_length,
        task=as_text(task.task, name),
        grids={"t5": T5},
        reported_keys=(),
        note=f"{general}; {task.note}" if task.note else general,
    )
