"""Fine-tuning: a pretrained trunk with a head of a task.

Read targets.py (what is predicted, and which head that makes), heads.py, model.py (a trunk with heads), tuning.py (how
it is trained) and loop.py (`tune`, `outputs`).
"""

from training.finetuning.loop import Example, OnStep, micro_batches, nobody, orders, outputs, tune
from training.finetuning.model import TaskModel
from training.finetuning.targets import AnswerSpan, OptionChoice, RowLabel, RowValue, Target, TokenTag
from training.finetuning.tuning import Tuning

__all__ = [
    "AnswerSpan",
    "Example",
    "OnStep",
    "OptionChoice",
    "RowLabel",
    "RowValue",
    "Target",
    "TaskModel",
    "TokenTag",
    "Tuning",
    "micro_batches",
    "nobody",
    "orders",
    "outputs",
    "tune",
]
