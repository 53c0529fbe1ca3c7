"""BERT (arXiv:1810.04805): BertForMaskedLM, BertForPreTraining."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from preprocessing.tokenization import Vocab
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
from training.losses import MaskedTokens, SentencePair, has_transform
from training.model_spec import ModelSpec
from training.specs import Encoder, FullAttention, LearnedPositions

pooler = "bert.pooler.dense"
model_type = "bert"
by_layer = True
task_heads = make_pooled_heads("Bert", pooler)

NAMES: Names = {
    "trunk.tokens": ["bert.embeddings.word_embeddings"],
    "trunk.positions": ["bert.embeddings.position_embeddings"],
    "trunk.segments": ["bert.embeddings.token_type_embeddings"],
    "trunk.embedding_norm": ["bert.embeddings.LayerNorm"],
    "trunk.blocks.*.attention.qkv": [f"bert.encoder.layer.*.attention.self.{x}" for x in ("query", "key", "value")],
    "trunk.blocks.*.attention.out": ["bert.encoder.layer.*.attention.output.dense"],
    "trunk.blocks.*.attention_norm": ["bert.encoder.layer.*.attention.output.LayerNorm"],
    "trunk.blocks.*.feed_forward.up": ["bert.encoder.layer.*.intermediate.dense"],
    "trunk.blocks.*.feed_forward.down": ["bert.encoder.layer.*.output.dense"],
    "trunk.blocks.*.feed_forward_norm": ["bert.encoder.layer.*.output.LayerNorm"],
    "heads.masked_tokens": ["cls.predictions"],
    "heads.masked_tokens.transform": ["cls.predictions.transform.dense"],
    "heads.masked_tokens.norm": ["cls.predictions.transform.LayerNorm"],
    "heads.pair_label.pooler": ["bert.pooler.dense"],
    "heads.pair_label.classify": ["cls.seq_relationship"],
}

pipeline = partial(make_masked_lm_pipeline, NAMES)
KEYS = {
    "num_hidden_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "position_embedding.max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "activation": "hidden_act",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
}
BUILT_IN = {
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def is_like(spec: ModelSpec) -> bool:
    """Whether a model is like BERT, except for norm position, embedding size and parameter sharing.

    The attention mask may be "per_sequence", since it is an argument in transformers.
    """
    trunk = spec.model
    return (
        isinstance(trunk, Encoder)
        and trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
        and isinstance(trunk.position_embedding, LearnedPositions)
        and trunk.type_vocab_size > 0
        and trunk.num_languages == 0
        and trunk.attention_mask != "causal"
        and isinstance(trunk.attention_window, FullAttention)
        and all(has_transform(loss, trunk) for loss in spec.losses if loss.logits_for == "masked")
    )


def is_plain(spec: ModelSpec) -> bool:
    """Whether a model is like BERT, except for norm position."""
    trunk = spec.model
    return (
        is_like(spec)
        and isinstance(trunk, Encoder)
        and trunk.parameter_sharing == "none"
        and trunk.table_width == trunk.hidden_size
    )


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if not (is_plain(spec) and spec.model.norm_position == "post"):
        return None
    if heads_of(spec) == {"masked_tokens", "pair_label"}:
        return "BertForPreTraining"
    return "BertForMaskedLM" if heads_of(spec) == {"masked_tokens"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return their_keys(spec.model, KEYS) | {"max_position_embeddings": spec.model.longest}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    losses = losses_in(tensors, NAMES, (MaskedTokens(), SentencePair()))
    trunk = encoder(our_keys(config, KEYS, BUILT_IN))
    return ModelSpec(model=trunk, losses=losses, vocab_size=config["vocab_size"])


def encoder(keys: Mapping[str, Any], offset: int = 0, **more: Any) -> Encoder:
    """Build an Encoder from our keys; a config.json without a number of positions means 512."""
    rows = keys.get("position_embedding.max_position_embeddings", 512)
    others = {key: value for key, value in keys.items() if key != "position_embedding.max_position_embeddings"}
    return Encoder(**others, position_embedding=LearnedPositions(max_position_embeddings=rows, offset=offset), **more)


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(from_zero(state, spec), NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)


def from_zero(state: Weights, spec: ModelSpec) -> Weights:
    """Remove the unused first rows of the position embeddings, since positions of transformers start at 0."""
    table = "trunk.positions.weight"
    return {**state, table: state[table][spec.model.position_embedding.offset :]} if table in state else state


def modern(name: str) -> str:
    """Return the current name in transformers; old files have gamma and beta.

    >>> modern("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
