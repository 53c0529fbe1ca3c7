"""ERNIE (Baidu, arXiv:1904.09223): ErnieForMaskedLM, ErnieForPreTraining.

These classes compute the same as the classes of BERT. Such a model is loaded from ERNIE's classes and exported as
BERT.
"""

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
    add_prefix,
    gather,
    losses_in,
    make_masked_lm_pipeline,
    make_pooled_heads,
    our_keys,
    rename,
)
from training.losses import MaskedTokens, SentencePair
from training.model_spec import ModelSpec

pooler = "ernie.pooler.dense"
model_type = "ernie"
by_layer = True
task_heads = make_pooled_heads("Ernie", pooler)

NAMES: Names = add_prefix(bert.NAMES, "bert.", "ernie.")

pipeline = partial(make_masked_lm_pipeline, NAMES)
BUILT_IN = bert.BUILT_IN | {"use_task_id": False}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    return None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return bert.config(spec, vocab) | {"use_task_id": False}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    losses = losses_in(tensors, NAMES, (MaskedTokens(), SentencePair()))
    trunk = bert.encoder(our_keys(config, bert.KEYS, BUILT_IN))
    return ModelSpec(model=trunk, losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather(tensors, NAMES, wanted)
