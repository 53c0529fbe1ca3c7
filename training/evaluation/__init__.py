"""Downstream: what a net scores on tasks (training/tasks), and linear probes of frozen states.

Read outcome.py (`Net`, `Evaluated`), then the ways to evaluate: tuned.py (a head is fine-tuned on labelled files) and
finetuning.py (on held-out documents of the corpus), cloze.py (nothing is trained). probe.py (`load`, `held_out`,
`masked`, `pairs`) asks what a net knows as it is.
"""

from training.evaluation.cloze import fill_in
from training.evaluation.finetuning import Budget, Outcome, finetune
from training.evaluation.outcome import Evaluated, Net
from training.evaluation.probe import held_out, load, masked, pairs
from training.evaluation.tuned import finetuned

__all__ = [
    "Budget",
    "Evaluated",
    "Net",
    "Outcome",
    "fill_in",
    "finetune",
    "finetuned",
    "held_out",
    "load",
    "masked",
    "pairs",
]
