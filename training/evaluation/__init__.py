"""Downstream: fine-tuning on tasks (training/tasks), and linear probes of frozen states.

Read finetuning.py first (`finetune`: one score of one task; `compare` and `table`: pretrained weights against random
initialisation, over the seeds), then probe.py (`load`, `held_out`, `masked`, `pairs`: what a net knows as it is).
"""

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
