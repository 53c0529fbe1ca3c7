"""ERNIE (Baidu, arXiv:1904.09223): ErnieForMaskedLM, ErnieForPreTraining.

These classes compute the same as the classes of BERT. Such a model is loaded from ERNIE's classes and exported as
BERT.
"""

from dataclasses import replace
from typing import Final

from training.formats.bert import BERT, classes_of
from training.formats.names import add_prefix
from training.formats.task_classes import make_pooled_heads

POOLER: Final = "ernie.pooler.dense"
ERNIE: Final = replace(
    BERT,
    model_type="ernie",
    classes=classes_of("Ernie"),
    names=add_prefix(BERT.names, "bert.", "ernie."),
    built_in={**BERT.built_in, "use_task_id": False},
    pooler=POOLER,
    task_heads=make_pooled_heads("Ernie", POOLER),
)
