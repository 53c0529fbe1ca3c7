"""Longformer (arXiv:2004.05150): LongformerForMaskedLM, RoBERTa with a window and global attention on the first
token.

transformers takes the tokens with global attention as an argument, `global_attention_mask`: set it to 1 at the first
token.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats import bert, roberta
from training.formats.format import (
    Config,
    Names,
    TaskHeadClass,
    TaskHeads,
    Tensors,
    Weights,
    add_prefix,
    explain_missing_heads,
    gather,
    make_masked_lm_pipeline,
    our_keys,
    rename,
    their_keys,
)
from training.losses import MaskedTokens
from training.model_spec import ModelSpec
from training.specs import Encoder, FullAttention, SlidingWindow

pooler = "longformer.pooler.dense"
model_type = "longformer"
by_layer = True
ROW = "LongformerForSequenceClassification"
NOT_FIRST = "transformers gives other tokens than the first global attention for this kind of task"
task_heads: TaskHeads = {
    "row_label": TaskHeadClass(ROW, roberta.POOL | {"classify": ["classifier.out_proj"]}),
    "row_value": TaskHeadClass(ROW, roberta.POOL | {"regress": ["classifier.out_proj"]}),
    **explain_missing_heads(NOT_FIRST, "token_tag", "answer_span", "option_choice"),
}

SELF = "longformer.encoder.layer.*.attention.self"
NAMES: Names = {
    **add_prefix(roberta.NAMES, "roberta.", "longformer."),
    "trunk.blocks.*.attention.global_query": [f"{SELF}.query_global"],
    "trunk.blocks.*.attention.global_key_value": [f"{SELF}.key_global", f"{SELF}.value_global"],
}

pipeline = partial(make_masked_lm_pipeline, NAMES)
BUILT_IN = {"tie_word_embeddings": True}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    if not (isinstance(trunk, Encoder) and trunk.attention_window.global_first):
        return None
    without = replace(spec, model=replace(trunk, attention_window=FullAttention()))
    return "LongformerForMaskedLM" if roberta.architecture(without, pad) else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.model
    assert isinstance(trunk.attention_window, SlidingWindow)
    return their_keys(trunk, bert.KEYS) | {"attention_window": [trunk.attention_window.size] * trunk.num_hidden_layers}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    keys = our_keys(config, bert.KEYS, BUILT_IN)
    value = config.get("attention_window", 512)
    windows = {value} if isinstance(value, int) else set(value)
    if len(windows) > 1:
        raise ValueError(f"invalid attention_window: got {value}, expected the same window in all layers")
    offset = config.get("pad_token_id", 1) + 1
    trunk = bert.encoder(keys, offset, attention_window=SlidingWindow(size=windows.pop(), global_tokens="first"))
    return ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather(tensors, NAMES, wanted)
