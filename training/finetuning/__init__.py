"""Fine-tuning: a pretrained trunk with a head of a task.

Read targets.py (what is predicted, and which head that makes), heads.py, tuning.py (how it is trained), features.py
(what heads read of a frozen trunk), model.py (a trunk with heads), rates.py (which layer learns how fast) and loop.py
(`tune`, `outputs`). Nets that write: targets_text.py, heads_text.py, and stacked.py, which puts a decoder on top of an
encoder.
"""

from training.finetuning.loop import Example, OnStep, ignore_activity, micro_batches, orders, outputs, train_head
from training.finetuning.model import TaskModel
from training.finetuning.rates import groups
from training.finetuning.stacked import under_decoder, with_decoder
from training.finetuning.targets import (
    AnswerSpan,
    LanguageModelTarget,
    NoAnswer,
    OptionChoice,
    RowLabel,
    RowValue,
    Target,
    TokenTag,
)
from training.finetuning.targets_text import MaskedTargetTokens, TargetTokens
from training.finetuning.tuning import Features, Form, Schedule, Tuning

__all__ = [
    "AnswerSpan",
    "Example",
    "Features",
    "Form",
    "LanguageModelTarget",
    "MaskedTargetTokens",
    "NoAnswer",
    "OnStep",
    "OptionChoice",
    "RowLabel",
    "RowValue",
    "Schedule",
    "Target",
    "TargetTokens",
    "TaskModel",
    "TokenTag",
    "Tuning",
    "groups",
    "ignore_activity",
    "micro_batches",
    "orders",
    "outputs",
    "train_head",
    "under_decoder",
    "with_decoder",
]
