"""Downstream: tasks made from held-out text, fine-tuning, probes of frozen states."""

from training.evaluation.finetuning import Budget, Comparison, Outcome, Start, compare, finetune, table
from training.evaluation.probe import held_out, load, masked, pairs
from training.evaluation.tasks import LENGTH, TASKS, Task

__all__ = [
    "LENGTH",
    "TASKS",
    "Budget",
    "Comparison",
    "Outcome",
    "Start",
    "Task",
    "compare",
    "finetune",
    "held_out",
    "load",
    "masked",
    "pairs",
    "table",
]
