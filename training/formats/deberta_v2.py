"""DeBERTa-v2 and v3 (arXiv:2006.03654, arXiv:2111.09543): DebertaV2ForMaskedLM, DebertaV2Model.

The discriminator of a generator_discriminator is exported without its head, because transformers has no class with
that. The enhanced mask decoder of the paper (3.2) is in no class either.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

from preprocessing.tokenization import Vocab
from training.formats import bert
from training.formats.electra import half
from training.formats.format import (
    Config,
    Names,
    TaskHeads,
    Tensors,
    TransformersPipeline,
    Weights,
    add_prefix,
    gather,
    heads_of,
    losses_in,
    make_masked_lm_pipeline,
    make_pooled_heads,
    our_keys,
    rename,
    their_keys,
)
from training.losses import MaskedTokens, has_transform
from training.model_spec import ModelSpec
from training.specs import DisentangledPositions, Encoder, GeneratorDiscriminator

pooler = ""
model_type = "deberta-v2"
by_layer = False
# The pooler of the classes belongs to their heads.
task_heads: TaskHeads = {
    kind: head._replace(config={"pooler_hidden_act": "tanh"}) if "summary.pooler" in head.names else head
    for kind, head in make_pooled_heads("DebertaV2", "pooler.dense").items()
    if not isinstance(head, str)
}

NAMES: Names = {
    **add_prefix({ours: names for ours, names in bert.NAMES.items() if ".pair_label" not in ours}, "bert.", "deberta."),
    "trunk.blocks.*.attention.qkv": [
        f"deberta.encoder.layer.*.attention.self.{x}_proj" for x in ("query", "key", "value")
    ],
    "trunk.relative.rel_embeddings": ["deberta.encoder.rel_embeddings"],
    "trunk.relative.norm": ["deberta.encoder.LayerNorm"],
}
KEYS: Final = {ours: theirs for ours, theirs in bert.KEYS.items() if not ours.startswith("position_embedding.")} | {
    "position_embedding.position_buckets": "position_buckets",
    "position_embedding.max_relative_positions": "max_relative_positions",
}
FIXED: Final[Config] = {
    "kind": "encoder",
    "position_embedding.kind": "disentangled",
    "norm_position": "post",
    "norm_type": "layernorm",
    "feed_forward.kind": "plain",
    "attention.bias": True,
    "feed_forward_layer.up.bias": True,
    "feed_forward_layer.down.bias": True,
    "attention.rel_norm.bias": True,
    "normalizes_embeddings": True,
    "tie_word_embeddings": True,
    "parameter_sharing": "none",
    "num_languages": 0,
}
"""Values of our keys that the classes have built in."""
BUILT_IN: Final[Config] = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": ["c2p", "p2c"],
    "conv_kernel_size": 0,
    "tie_word_embeddings": True,
}
DEFAULTS: Final[Config] = {
    "relative_attention": False,
    "position_biased_input": True,
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "pos_att_type": [],
    "max_relative_positions": -1,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    if isinstance(spec.model, GeneratorDiscriminator):
        spec = half({}, spec, "discriminator")[1]
    trunk = spec.model
    if not isinstance(trunk, Encoder) or any(attrgetter(key)(trunk) != value for key, value in FIXED.items()):
        return None
    if trunk.hidden_size != trunk.width_of_heads or trunk.hidden_size != trunk.table_width:
        return None
    if heads_of(spec) == {"replaced"}:
        return "DebertaV2Model"
    predicts = heads_of(spec) == {"masked_tokens"} and all(has_transform(loss, trunk) for loss in spec.losses)
    return "DebertaV2ForMaskedLM" if predicts else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.model.net("discriminator")
    keys = their_keys(trunk, KEYS)
    # their buffer of positions, which these models do not use, has this length
    return keys | dict(BUILT_IN) | {"max_position_embeddings": keys["max_relative_positions"]}


def pipeline(config: Config) -> TransformersPipeline:
    if config["architectures"][0] == "DebertaV2Model":
        return TransformersPipeline("feature-extraction", "DebertaV2Model")
    return make_masked_lm_pipeline(NAMES, config)


def spec(config: Config, tensors: Weights) -> ModelSpec:
    config = modernize_config(config)
    keys = our_keys(config, KEYS, {**BUILT_IN, "embedding_size": config["hidden_size"]})
    prefix = "position_embedding."
    positions = {key.removeprefix(prefix): keys.pop(key) for key in tuple(keys) if key.startswith(prefix)}
    trunk = Encoder(**keys, position_embedding=DisentangledPositions(**positions))
    losses = losses_in({modernize(name): one for name, one in tensors.items()}, NAMES, (MaskedTokens(),))
    return ModelSpec(model=trunk, losses=losses, vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    if isinstance(spec.model, GeneratorDiscriminator):
        state, spec = half(state, spec, "discriminator")
    return rename({name: one for name, one in state.items() if not name.startswith("heads.replaced.")}, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({modernize(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)


def modernize_config(config: Config) -> dict[str, Any]:
    """The keys of config.json with defaults, and with one form of each value."""
    config = {**DEFAULTS, **config}
    terms = config["pos_att_type"] or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    farthest = config["max_relative_positions"]
    farthest = config["max_position_embeddings"] if farthest < 1 else farthest
    return config | {"pos_att_type": sorted(term.strip() for term in terms), "max_relative_positions": farthest}


def modernize(name: str) -> str:
    """The name in the class that we export. Files of the authors, and configs with `legacy` false, have other heads.

    >>> modernize("lm_predictions.lm_head.LayerNorm.weight"), modernize("lm_predictions.lm_head.bias")
    ('cls.predictions.transform.LayerNorm.weight', 'cls.predictions.bias')
    """
    name = name.replace("lm_predictions.lm_head.bias", "cls.predictions.bias")
    return name.replace("lm_predictions.lm_head.", "cls.predictions.transform.")
