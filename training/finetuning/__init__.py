"""Fine-tuning: a pretrained architecture (trunk) with task heads.

Reading order: targets.py (what is predicted, and with which head), heads.py, tuning.py (hyperparameters),
features.py (inputs of the heads), model.py (a trunk with heads), rates.py (layer-wise learning rates) and loop.py
(`train_head`, `outputs`). For generation: targets_text.py, and stacked.py, which adds a decoder on
top of an encoder.
"""

from typing import TYPE_CHECKING, Final

from preprocessing.imports import import_on_use
from training.finetuning.tuning import Features, Form, Schedule, Tuning

if TYPE_CHECKING:  # these import torch, which commands that only describe a fine-tuning do not need
    from training.finetuning.loop import (
        Example,
        OnStep,
        ignore_activity,
        micro_batches,
        never,
        orders,
        outputs,
        train_head,
    )
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

_LAZY: Final = {
    "loop": (
        "Example",
        "OnStep",
        "ignore_activity",
        "micro_batches",
        "never",
        "orders",
        "outputs",
        "train_head",
    ),
    "model": ("TaskModel",),
    "rates": ("groups",),
    "stacked": (
        "under_decoder",
        "with_decoder",
    ),
    "targets": (
        "AnswerSpan",
        "LanguageModelTarget",
        "NoAnswer",
        "OptionChoice",
        "RowLabel",
        "RowValue",
        "Target",
        "TokenTag",
    ),
    "targets_text": (
        "MaskedTargetTokens",
        "TargetTokens",
    ),
}

__getattr__: Final = import_on_use(__name__, _LAZY)
