"""Longformer (arXiv:2004.05150): LongformerForMaskedLM, RoBERTa with a window and global attention on the first
token.

transformers takes the tokens with global attention as an argument, `global_attention_mask`: set it to 1 at the first
token.
"""

from dataclasses import replace
from typing import Any, Final

from training.formats.format import Format
from training.formats.keys import Key
from training.formats.names import add_prefix
from training.formats.roberta import ROBERTA, classes_of, task_heads_of
from training.formats.task_classes import explain_missing_heads

POOLER: Final = "longformer.pooler.dense"
NOT_FIRST: Final = "transformers gives other tokens than the first global attention for this kind of task"
SELF: Final = "longformer.encoder.layer.*.attention.self"


def _read_window(value: Any) -> int:
    """The window of all layers."""
    windows = {value} if isinstance(value, int) else set(value)
    if len(windows) > 1:
        raise ValueError(f"invalid attention_window: got {value}, expected the same window in all layers")
    return int(windows.pop())


LONGFORMER: Final[Format] = replace(
    ROBERTA,
    model_type="longformer",
    classes=classes_of("Longformer"),
    names={
        **add_prefix(ROBERTA.names, "roberta.", "longformer."),
        "trunk.blocks.*.attention.global_query": [f"{SELF}.query_global"],
        "trunk.blocks.*.attention.global_key_value": [f"{SELF}.key_global", f"{SELF}.value_global"],
    },
    keys={**ROBERTA.keys, "attention_window.size": Key(("attention_window",), int, _read_window)},
    fixed={**ROBERTA.fixed, "attention_window.kind": "sliding", "attention_window.global_tokens": "first"},
    built_in={"tie_word_embeddings": True},
    defaults={**ROBERTA.defaults, "attention_window": 512},
    pooler=POOLER,
    task_heads={
        **task_heads_of("Longformer", POOLER),
        **explain_missing_heads(NOT_FIRST, "token_tag", "answer_span", "option_choice"),
    },
)
