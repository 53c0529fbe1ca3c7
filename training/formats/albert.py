"""ALBERT (arXiv:1909.11942): AlbertForMaskedLM, AlbertForPreTraining.

The classes of transformers share whole layers, and always project the embeddings. A model that shares only attention
or only feed-forward layers is exported without sharing, as copies. If embedding_size equals hidden_size, the
projection is an identity matrix.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats import bert
from training.formats.format import (
    Config,
    Names,
    Tensors,
    Weights,
    gather,
    heads_of,
    losses_in,
    make_masked_lm_pipeline,
    make_pooled_heads,
    our_keys,
    rename,
    their_keys,
)
from training.losses import MaskedTokens, SentencePair
from training.model_spec import ModelSpec
from training.specs import Architecture, Encoder

pooler = "albert.pooler"
model_type = "albert"
by_layer = False
task_heads = make_pooled_heads("Albert", pooler)

LAYER = "albert.encoder.albert_layer_groups.*.albert_layers.0"
NAMES: Names = {
    "trunk.tokens": ["albert.embeddings.word_embeddings"],
    "trunk.positions": ["albert.embeddings.position_embeddings"],
    "trunk.segments": ["albert.embeddings.token_type_embeddings"],
    "trunk.embedding_norm": ["albert.embeddings.LayerNorm"],
    "trunk.widen": ["albert.encoder.embedding_hidden_mapping_in"],
    "trunk.blocks.*.attention.qkv": [f"{LAYER}.attention.{x}" for x in ("query", "key", "value")],
    "trunk.blocks.*.attention.out": [f"{LAYER}.attention.dense"],
    "trunk.blocks.*.attention_norm": [f"{LAYER}.attention.LayerNorm"],
    "trunk.blocks.*.feed_forward.up": [f"{LAYER}.ffn"],
    "trunk.blocks.*.feed_forward.down": [f"{LAYER}.ffn_output"],
    "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.full_layer_layer_norm"],
    "heads.masked_tokens": ["predictions"],
    "heads.masked_tokens.transform": ["predictions.dense"],
    "heads.masked_tokens.norm": ["predictions.LayerNorm"],
    "heads.pair_label.pooler": ["albert.pooler"],
    "heads.pair_label.classify": ["sop_classifier.classifier"],
}

pipeline = partial(make_masked_lm_pipeline, NAMES)
KEYS = bert.KEYS | {"embedding_size": "embedding_size", "num_hidden_groups": "num_hidden_groups"}
BUILT_IN = {"tie_word_embeddings": True, "position_embedding_type": "absolute", "inner_group_num": 1}
DEFAULTS: dict[str, Any] = {
    "activation": "gelu_tanh",
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "embedding_size": 128,
}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if not (isinstance(spec.model, Encoder) and spec.model.norm_position == "post" and bert.is_like(spec)):
        return None
    if heads_of(spec) == {"masked_tokens", "pair_label"}:
        return "AlbertForPreTraining"
    return "AlbertForMaskedLM" if heads_of(spec) == {"masked_tokens"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.model
    groups = (
        trunk.num_hidden_groups
        if isinstance(trunk, Encoder) and trunk.parameter_sharing == "all"
        else trunk.num_hidden_layers
    )
    theirs = {"max_position_embeddings": trunk.longest, "embedding_size": trunk.table_width}
    return (
        their_keys(trunk, bert.KEYS)
        | theirs
        | {"num_hidden_groups": groups, "classifier_dropout_prob": trunk.hidden_dropout}
    )


def spec(config: Config, tensors: Weights) -> ModelSpec:
    keys = DEFAULTS | our_keys(config, KEYS, BUILT_IN)
    if keys["embedding_size"] == keys["hidden_size"]:
        widen = tensors[NAMES["trunk.widen"][0] + ".weight"]
        import torch

        if not torch.equal(widen, torch.eye(keys["hidden_size"])):
            raise ValueError(
                "embedding_size equals hidden_size, so embedding_hidden_mapping_in must be an identity matrix"
            )
        keys["embedding_size"] = 0
    if keys.get("num_hidden_groups", 1) < keys["num_hidden_layers"]:
        keys["parameter_sharing"] = "all"
    else:
        keys["num_hidden_groups"] = 1
    losses = losses_in(tensors, NAMES, (MaskedTokens(), SentencePair()))
    return ModelSpec(model=bert.encoder(keys), losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    trunk, state = spec.model, bert.from_zero(state, spec)
    copies = {copy: tensor.clone() for name, tensor in state.items() for copy in _copies(name, trunk)}
    if trunk.table_width == trunk.hidden_size:
        import torch

        copies |= {
            "trunk.widen.weight": torch.eye(trunk.hidden_size),
            "trunk.widen.bias": torch.zeros(trunk.hidden_size),
        }
    return rename(copies, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    first = {name: _copies(name, spec.model)[0] for name in wanted}
    gathered = gather(tensors, NAMES, first.values())
    return {name: gathered[copy] for name, copy in first.items()}


def _copies(name: str, trunk: Architecture) -> list[str]:
    """The names of a tensor in transformers: one for each layer group that contains it."""
    assert isinstance(trunk, Encoder)
    block = re.search(r"blocks\.(\d+)\.(attention|feed_forward)", name)
    if block is None:
        return [name]
    number, layers, groups = int(block[1]), trunk.num_hidden_layers, trunk.num_hidden_groups
    numbers = [number]
    if trunk.parameter_sharing == "all":
        numbers = [number * groups // layers]
    elif trunk.parameter_sharing == block[2]:
        numbers = [i for i in range(layers) if i * groups // layers == number * groups // layers]
    return [name.replace(f"blocks.{number}.", f"blocks.{copy}.") for copy in numbers]
