"""ELECTRA (arXiv:2003.10555): ElectraForPreTraining; for loading also ElectraForMaskedLM.

The discriminator of a generator_discriminator is exported, and loaded as an Encoder. The generator is the other
`half`: an Encoder with the loss masked_tokens, which other classes of transformers support too.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from preprocessing.tokenization import Vocab
from training.formats import bert
from training.formats.format import (
    Config,
    Names,
    TaskHeads,
    Tensors,
    TransformersPipeline,
    Weights,
    add_prefix,
    explain_missing_heads,
    gather,
    losses_in,
    make_pooled_heads,
    our_keys,
    rename,
    their_keys,
)
from training.losses import MaskedTokens, ReplacedTokenDetection
from training.model_spec import ModelSpec
from training.specs import Encoder, GeneratorDiscriminator

pooler = ""
model_type = "electra"
by_layer = False
# A fine-tuned model with a pooler is exported as BERT or, with smaller embeddings, as ALBERT.
GELU = "the pooler of ELECTRA's classes has a GELU; that of Sesame has a tanh, as in BERT"
task_heads: TaskHeads = make_pooled_heads("Electra", "") | explain_missing_heads(
    GELU, "row_label", "row_value", "option_choice"
)

NAMES: Names = {
    **add_prefix({ours: names for ours, names in bert.NAMES.items() if ours.startswith("trunk.")}, "bert.", "electra."),
    "trunk.widen": ["electra.embeddings_project"],
    "heads.replaced.transform": ["discriminator_predictions.dense"],
    "heads.replaced.classify": ["discriminator_predictions.dense_prediction"],
    "heads.masked_tokens.transform": ["generator_predictions.dense"],
    "heads.masked_tokens.norm": ["generator_predictions.LayerNorm"],
    "heads.masked_tokens": ["generator_lm_head"],
}
KEYS = bert.KEYS | {"embedding_size": "embedding_size"}


def half(state: Weights, spec: ModelSpec, which: Literal["generator", "discriminator"]) -> tuple[Weights, ModelSpec]:
    """Return the generator or the discriminator as an Encoder with its own embeddings and head."""
    trunk = spec.model
    assert isinstance(trunk, GeneratorDiscriminator)
    tower = "discriminator" if trunk.weight_sharing == "all" else which
    head = "masked_tokens" if which == "generator" else "replaced"
    net = trunk.net(which)
    others = ("generator", "discriminator", "frozen", "difference")
    other = tuple(f"trunk.{name}." for name in others if name != tower)
    selected = {
        name.replace(f"trunk.{tower}.", "trunk."): tensor
        for name, tensor in state.items()
        if name.startswith(("trunk.", f"heads.{head}.")) and not name.startswith(other)
    }
    if which == "discriminator":
        selected |= add_difference(state)
    return selected, replace(spec, model=net, losses=tuple(loss for loss in spec.losses if loss.head_name == head))


def add_difference(state: Weights) -> Tensors:
    """The embeddings of a discriminator with gradient-disentangled sharing (DeBERTaV3, arXiv:2111.09543, 3.3).

    Its tables are those of the generator plus the differences; its norm is separate.
    """
    tensors: Tensors = {}
    prefix = "trunk.difference."
    for name, tensor in state.items():
        if name.startswith(prefix):
            place = name.replace(prefix, "trunk.")
            tensors[place] = tensor if ".embedding_norm." in name else state[place] + tensor
    return tensors


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if isinstance(spec.model, GeneratorDiscriminator):
        spec = half({}, spec, "discriminator")[1]
    trunk = spec.model
    if not isinstance(trunk, Encoder) or trunk.norm_position != "post" or trunk.position_embedding.offset:
        return None
    wide = replace(spec, model=replace(trunk, embedding_size=0))  # the class supports smaller embeddings
    detects = spec.losses == (ReplacedTokenDetection(weight=spec.losses[0].weight),)
    return "ElectraForPreTraining" if detects and bert.is_plain(wide) else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.model.net("discriminator")
    return their_keys(trunk, KEYS) | {"embedding_size": trunk.table_width}


def pipeline(config: Config) -> TransformersPipeline:
    """Feature extraction: no pipeline uses the predictions of a discriminator."""
    return TransformersPipeline("feature-extraction", "ElectraModel", unused=("discriminator_predictions.",))


def spec(config: Config, tensors: Weights) -> ModelSpec:
    keys = {"embedding_size": 128} | our_keys(config, KEYS, bert.BUILT_IN)
    if keys["embedding_size"] == keys["hidden_size"]:
        keys["embedding_size"] = 0
    losses = losses_in(tensors, NAMES, (MaskedTokens(), ReplacedTokenDetection()))
    return ModelSpec(model=bert.encoder(keys), losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    if isinstance(spec.model, GeneratorDiscriminator):
        state, spec = half(state, spec, "discriminator")
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({bert.modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)
