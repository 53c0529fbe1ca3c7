"""ELECTRA (arXiv:2003.10555): ElectraForPreTraining, and of others also ElectraForMaskedLM.

Of a twin the discriminator goes out, and comes back as an Encoder. The generator is its other `half`: an Encoder with
masked_tokens, for which transformers has other classes too.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from preprocessing.vocab import Vocab
from training.formats import bert
from training.formats.named import (
    Config,
    Names,
    Pipeline,
    Weights,
    gathered,
    losses_in,
    our_keys,
    prefixed,
    renamed,
    their_keys,
)
from training.losses import MaskedTokens, Replaced
from training.model import ModelSpec
from training.specs import Encoder, Twin

pooler = ""
model_type = "electra"
by_layer = False

NAMES: Names = {
    **prefixed({ours: names for ours, names in bert.NAMES.items() if ours.startswith("trunk.")}, "bert.", "electra."),
    "trunk.widen": ["electra.embeddings_project"],
    "heads.replaced.transform": ["discriminator_predictions.dense"],
    "heads.replaced.classify": ["discriminator_predictions.dense_prediction"],
    "heads.masked_tokens.transform": ["generator_predictions.dense"],
    "heads.masked_tokens.norm": ["generator_predictions.LayerNorm"],
    "heads.masked_tokens": ["generator_lm_head"],
}
KEYS = bert.KEYS | {"embedding": "embedding_size"}


def half(state: Weights, spec: ModelSpec, which: Literal["generator", "discriminator"]) -> tuple[Weights, ModelSpec]:
    """One of the two nets of a twin, as an Encoder with tables and a head of its own."""
    trunk = spec.trunk
    assert isinstance(trunk, Twin)
    tower = "discriminator" if trunk.shared == "all" else which
    kind = "masked_tokens" if which == "generator" else "replaced"
    net = trunk.net(which)
    other = tuple(f"trunk.{name}." for name in ("generator", "discriminator", "frozen") if name != tower)
    mine = {
        name.replace(f"trunk.{tower}.", "trunk."): tensor
        for name, tensor in state.items()
        if name.startswith(("trunk.", f"heads.{kind}.")) and not name.startswith(other)
    }
    return mine, replace(spec, trunk=net, losses=tuple(loss for loss in spec.losses if loss.kind == kind))


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if isinstance(spec.trunk, Twin):
        spec = half({}, spec, "discriminator")[1]
    trunk = spec.trunk
    if not isinstance(trunk, Encoder) or trunk.norm != "post" or trunk.positions.offset:
        return None
    wide = replace(spec, trunk=replace(trunk, embedding=0))  # what narrow tables need, it has
    detects = spec.losses == (Replaced(weight=spec.losses[0].weight),)
    return "ElectraForPreTraining" if detects and bert.is_plain(wide) else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.trunk.net("discriminator")
    return their_keys(trunk, KEYS) | {"embedding_size": trunk.table_width}


def pipeline(config: Config) -> Pipeline:
    """Vectors of the tokens: no pipeline asks for a discriminator's answers."""
    return Pipeline("feature-extraction", "ElectraModel")


def spec(config: Config, tensors: Weights) -> ModelSpec:
    keys = {"embedding": 128} | our_keys(config, KEYS, bert.BUILT_IN)
    if keys["embedding"] == keys["width"]:
        keys["embedding"] = 0
    losses = losses_in(tensors, NAMES, (MaskedTokens(), Replaced()))
    return ModelSpec(trunk=bert.encoder(keys), losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> dict[str, Tensor]:
    if isinstance(spec.trunk, Twin):
        state, spec = half(state, spec, "discriminator")
    return renamed(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> dict[str, Tensor]:
    return gathered({bert.modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)
