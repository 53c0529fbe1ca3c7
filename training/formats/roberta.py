"""RoBERTa (arXiv:1907.11692): RobertaForMaskedLM. Its positions start after the padding ID.

XLM-R (arXiv:1911.02116) is the same with other names. Such a model is loaded from its classes and exported as RoBERTa.
"""

from dataclasses import replace
from typing import Final

from training.formats.bert import BERT, with_mask_argument
from training.formats.format import PAD, Format, ModelClass
from training.formats.keys import Config, shift
from training.formats.names import add_prefix, without_heads_in
from training.formats.task_classes import TaskHeadClass, TaskHeads, make_pooled_heads
from training.losses import MaskedTokens

POOL: Final = {"summary.pooler": ["classifier.dense"]}  # the classifier has its own pooler
GELU: Final[Config] = {"activation": "gelu"}  # of the head, whatever the activation of the model


def classes_of(name: str) -> tuple[ModelClass, ...]:
    """The class with the head of RoBERTa."""
    return (ModelClass(f"{name}ForMaskedLM", (MaskedTokens(),), GELU),)


def task_heads_of(name: str, pooler: str) -> TaskHeads:
    """The classes with task heads."""
    row = f"{name}ForSequenceClassification"
    return make_pooled_heads(name, pooler) | {
        "row_label": TaskHeadClass(row, POOL | {"classify": ["classifier.out_proj"]}),
        "row_value": TaskHeadClass(row, POOL | {"regress": ["classifier.out_proj"]}),
    }


POOLER: Final = "roberta.pooler.dense"
ROBERTA: Final[Format] = replace(
    BERT,
    model_type="roberta",
    classes=classes_of("Roberta"),
    names={
        **without_heads_in(add_prefix(BERT.names, "bert.", "roberta.")),
        "heads.masked_tokens": ["lm_head"],
        "heads.masked_tokens.transform": ["lm_head.dense"],
        "heads.masked_tokens.norm": ["lm_head.layer_norm"],
    },
    keys={**BERT.keys, "position_embedding.offset": shift(PAD, by=1)},
    defaults={**BERT.defaults, PAD: 1},
    pooler=POOLER,
    task_heads=task_heads_of("Roberta", POOLER),
    as_class=with_mask_argument,
)
XLM_ROBERTA: Final[Format] = replace(
    ROBERTA, model_type="xlm-roberta", classes=classes_of("XLMRoberta"), task_heads=task_heads_of("XLMRoberta", POOLER)
)
