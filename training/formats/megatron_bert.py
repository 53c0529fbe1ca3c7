"""Megatron-BERT (arXiv:1909.08053): pre-norm, without embedding norm, with a final norm."""

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
)
from training.losses import MaskedTokens, SentencePair
from training.model_spec import ModelSpec

pooler = "bert.pooler.dense"
model_type = "megatron-bert"
by_layer = True
task_heads = make_pooled_heads("MegatronBert", pooler)

NAMES: Names = {
    **{ours: theirs for ours, theirs in bert.NAMES.items() if ours != "trunk.embedding_norm"},
    "trunk.blocks.*.attention_norm": ["bert.encoder.layer.*.attention.ln"],
    "trunk.blocks.*.feed_forward_norm": ["bert.encoder.layer.*.ln"],
    "trunk.final_norm": ["bert.encoder.ln"],
}

pipeline = partial(make_masked_lm_pipeline, NAMES)


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if not (bert.is_plain(spec) and spec.model.norm_position == "pre"):
        return None
    if heads_of(spec) == {"masked_tokens", "pair_label"}:
        return "MegatronBertForPreTraining"
    return "MegatronBertForMaskedLM" if heads_of(spec) == {"masked_tokens"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return bert.config(spec, vocab)


def spec(config: Config, tensors: Weights) -> ModelSpec:
    losses = losses_in(tensors, NAMES, (MaskedTokens(), SentencePair()))
    trunk = bert.encoder(our_keys(config, bert.KEYS, bert.BUILT_IN), norm_position="pre")
    return ModelSpec(model=trunk, losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(bert.from_zero(state, spec), NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather(tensors, NAMES, wanted)
