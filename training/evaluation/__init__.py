"""Downstream: fine-tuning on tasks (training/tasks), and linear probes of frozen states."""

from training.evaluation.finetuning import Budget, Comparison, Outcome, Start, compare, finetune, table
from training.evaluation.probe import held_out, load, masked, pairs

__all__ = [
    "Budget",
    "Comparison",
    "Outcome",
    "Start",
    "compare",
    "finetune",
    "held_out",
    "load",
    "masked",
    "pairs",
    "table",
]
