"""Fine-tuning: a pretrained trunk with a head of a task.

Read targets.py (what is predicted, and which head that makes), heads.py, model.py (a trunk with heads), tuning.py (how
it is trained) and loop.py (`tune`, `outputs`). Nets that write: targets_text.py, heads_text.py, and stacked.py, which
puts a decoder on top of an encoder.
"""

from training.finetuning.loop import Example, OnStep, micro_batches, nobody, orders, outputs, tune
from training.finetuning.model import TaskModel
from training.finetuning.stacked import under_decoder, with_decoder
from training.finetuning.targets import AnswerSpan, OptionChoice, RowLabel, RowValue, Target, TokenTag
from training.finetuning.targets_text import MaskedTargetTokens, TargetTokens
from training.finetuning.tuning import Tuning

__all__ = [
    "AnswerSpan",
    "Example",
    "MaskedTargetTokens",
    "OnStep",
    "OptionChoice",
    "RowLabel",
    "RowValue",
    "Target",
    "TargetTokens",
    "TaskModel",
    "TokenTag",
    "Tuning",
    "micro_batches",
    "nobody",
    "orders",
    "outputs",
    "tune",
    "under_decoder",
    "with_decoder",
]
