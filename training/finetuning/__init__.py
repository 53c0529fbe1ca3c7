"""Fine-tuning: a pretrained architecture (trunk) with task heads.

Reading order: targets.py (what is predicted, and with which head), heads.py, tuning.py (hyperparameters),
features.py (inputs of the heads), model.py (a trunk with heads), rates.py (layer-wise learning rates) and loop.py
(`train_head`, `outputs`). For generation: targets_text.py, heads_text.py, and stacked.py, which adds a decoder on
top of an encoder.
"""

from training.finetuning.loop import Example, OnStep, ignore_activity, micro_batches, never, orders, outputs, train_head
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
    "never",
    "orders",
    "outputs",
    "train_head",
    "under_decoder",
    "with_decoder",
]
