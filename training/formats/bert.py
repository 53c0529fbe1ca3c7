"""BERT (arXiv:1810.04805): BertForMaskedLM, BertForPreTraining."""

from dataclasses import replace
from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Keys, activation, at_least_one
from training.formats.names import Names, Weights
from training.formats.task_classes import make_pooled_heads
from training.formats.transformers_pipeline import fill_masks
from training.losses import MaskedTokens, SentencePair
from training.model_spec import ModelSpec
from training.specs import Encoder, LearnedPositions

POSITIONS: Final = "trunk.positions.weight"
POOLER: Final = "bert.pooler.dense"
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
    "heads.pair_label.pooler": [POOLER],
    "heads.pair_label.classify": ["cls.seq_relationship"],
}
KEYS: Keys = {
    "num_hidden_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "position_embedding.max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": at_least_one("type_vocab_size"),
    "activation": activation("hidden_act"),
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
}
FIXED: Config = {"kind": "encoder", "norm_position": "post", "position_embedding.kind": "learned"}
BUILT_IN: Config = {
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",  # of older versions of transformers
    "is_decoder": False,
    "add_cross_attention": False,
}
DEFAULTS: Config = {
    "intermediate_size": 3_072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}


def classes_of(name: str) -> tuple[ModelClass, ...]:
    """The classes with the heads of BERT.

    >>> [one.architecture for one in classes_of("Bert")]
    ['BertForPreTraining', 'BertForMaskedLM']
    """
    both = ModelClass(f"{name}ForPreTraining", (MaskedTokens(), SentencePair()))
    return both, ModelClass(f"{name}ForMaskedLM", (MaskedTokens(),))


def with_mask_argument(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The same model with full attention: the attention mask of a sequence is an argument in transformers."""
    if spec.model.kind != "encoder" or spec.model.attention_mask != "per_sequence":
        return state, spec
    return state, replace(spec, model=replace(spec.model, attention_mask="bidirectional"))


def from_zero(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The same model without the unused first rows of the position table: positions of transformers start at 0."""
    state, spec = with_mask_argument(state, spec)
    trunk = spec.model
    if not (isinstance(trunk, Encoder) and isinstance(trunk.position_embedding, LearnedPositions)):
        return state, spec
    offset, longest = trunk.position_embedding.offset, trunk.longest
    positions = replace(trunk.position_embedding, max_position_embeddings=longest, offset=0)
    state = {name: tensor[offset:] if name == POSITIONS else tensor for name, tensor in state.items()}
    return state, replace(spec, model=replace(trunk, position_embedding=positions))


def modernize(name: str) -> str:
    """Return the current name in transformers; old files have gamma and beta.

    >>> modernize("bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


BERT: Final = Format(
    model_type="bert",
    classes=classes_of("Bert"),
    names=NAMES,
    keys=KEYS,
    fixed=FIXED,
    built_in=BUILT_IN,
    defaults=DEFAULTS,
    pooler=POOLER,
    task_heads=make_pooled_heads("Bert", POOLER),
    pipeline_of=fill_masks,
    modern=modernize,
    as_class=from_zero,
)
