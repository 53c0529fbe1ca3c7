"""RoBERTa (arXiv:1907.11692): RobertaForMaskedLM. Its positions start after the padding ID."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats import bert
from training.formats.format import (
    Config,
    Names,
    TaskHeadClass,
    TaskHeads,
    Tensors,
    Weights,
    add_prefix,
    gather,
    heads_of,
    make_masked_lm_pipeline,
    make_pooled_heads,
    our_keys,
    rename,
    their_keys,
)
from training.losses import MaskedTokens
from training.model_spec import ModelSpec

pooler = "roberta.pooler.dense"
model_type = "roberta"
by_layer = True
POOL = {"summary.pooler": ["classifier.dense"]}  # the classifier has its own pooler
ROW_HEADS: dict[str, TaskHeadClass | str] = {
    "row_label": TaskHeadClass("RobertaForSequenceClassification", POOL | {"classify": ["classifier.out_proj"]}),
    "row_value": TaskHeadClass("RobertaForSequenceClassification", POOL | {"regress": ["classifier.out_proj"]}),
}
task_heads: TaskHeads = make_pooled_heads("Roberta", pooler) | ROW_HEADS

NAMES: Names = {
    **{
        ours: theirs
        for ours, theirs in add_prefix(bert.NAMES, "bert.", "roberta.").items()
        if ours.startswith("trunk.")
    },
    "heads.masked_tokens": ["lm_head"],
    "heads.masked_tokens.transform": ["lm_head.dense"],
    "heads.masked_tokens.norm": ["lm_head.layer_norm"],
}

pipeline = partial(make_masked_lm_pipeline, NAMES)


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    from_pad = pad is not None and trunk.position_embedding.offset == pad + 1
    own = (
        bert.is_plain(spec) and trunk.norm_position == "post" and trunk.activation == "gelu"
    )  # their head always uses gelu
    return "RobertaForMaskedLM" if own and from_pad and heads_of(spec) == {"masked_tokens"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return their_keys(spec.model, bert.KEYS)


def spec(config: Config, tensors: Weights) -> ModelSpec:
    offset = config.get("pad_token_id", 1) + 1
    trunk = bert.encoder(our_keys(config, bert.KEYS, bert.BUILT_IN), offset)
    return ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({bert.modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)
