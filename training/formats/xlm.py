"""XLM (arXiv:1901.07291): XLMWithLMHeadModel, for masked tokens (MLM, TLM) or, causal, for the next token (CLM)."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from training.formats.bert import from_zero
from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Key, choice
from training.formats.names import Names, Tensors, Weights
from training.formats.task_classes import explain_missing_heads
from training.formats.transformers_pipeline import TransformersPipeline, fill_masks, generate_text
from training.losses import MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.specs import Architecture, Encoder, LearnedPositions, SinusoidalPositions

if TYPE_CHECKING:
    from torch import Tensor

# A fine-tuned model is exported as BERT.
NO_POOLER: Final = "the heads of XLM's classes are one linear layer; that of Sesame has a pooler with tanh below it"
LANGUAGE: Final = "XLM's classes need the language of each token as an argument"
TABLE: Final = "transformer.position_embeddings"


def choose_pipeline(names: Names, config: Config) -> TransformersPipeline:
    """The pipeline for masked tokens, or for the next token."""
    return (generate_text if config["causal"] else fill_masks)(names, config)


def make_sinusoids(spec: ModelSpec) -> Tensors:
    """The table of fixed positions, which transformers has as weights."""
    positions = spec.model.position_embedding
    if not isinstance(positions, SinusoidalPositions):
        return {}
    return {f"{TABLE}.weight": _sinusoids(positions.max_position_embeddings, spec.model.hidden_size)}


def check_positions(trunk: Architecture, tensors: Weights) -> Architecture:
    """The encoder with the positions of its table: the class also trains its sinusoids."""
    assert isinstance(trunk, Encoder)
    table = tensors[f"{TABLE}.weight"]
    is_fixed = table.allclose(_sinusoids(*table.shape), rtol=0, atol=1e-4)
    kind = SinusoidalPositions if is_fixed else LearnedPositions
    return replace(trunk, position_embedding=kind(max_position_embeddings=len(table)))


def _sinusoids(rows: int, width: int) -> "Tensor":
    """The position table [rows, width] of a model without learned positions."""
    import torch

    from training.architectures import sinusoids_at

    return sinusoids_at(torch.arange(rows), width)


def _write_languages(number: int) -> tuple[int, bool]:
    """Their number of languages, and whether they have embeddings. A single language has none in transformers."""
    return max(1, number), number > 0


def _read_languages(number: int, has_embeddings: bool) -> int:
    return number if has_embeddings and number > 1 else 0


XLM: Final = Format(
    model_type="xlm",
    classes=(
        ModelClass("XLMWithLMHeadModel", (MaskedTokens(transform=False),)),
        ModelClass("XLMWithLMHeadModel", (NextToken(bias=True),)),
    ),
    names={
        "trunk.tokens": ["transformer.embeddings"],
        "trunk.positions": [TABLE],
        "trunk.languages": ["transformer.lang_embeddings"],
        "trunk.embedding_norm": ["transformer.layer_norm_emb"],
        "trunk.blocks.*.attention.qkv": [f"transformer.attentions.*.{x}_lin" for x in "qkv"],
        "trunk.blocks.*.attention.out": ["transformer.attentions.*.out_lin"],
        "trunk.blocks.*.attention_norm": ["transformer.layer_norm1.*"],
        "trunk.blocks.*.feed_forward.up": ["transformer.ffns.*.lin1"],
        "trunk.blocks.*.feed_forward.down": ["transformer.ffns.*.lin2"],
        "trunk.blocks.*.feed_forward_norm": ["transformer.layer_norm2.*"],
        "heads.masked_tokens": ["pred_layer.proj"],
        "heads.next_token": ["pred_layer.proj"],
    },
    keys={
        "num_hidden_layers": "n_layers",
        "hidden_size": "emb_dim",
        "num_attention_heads": "n_heads",
        "norm_eps": "layer_norm_eps",
        "position_embedding.kind": choice("sinusoidal_embeddings", {True: "sinusoidal", False: "learned"}),
        "position_embedding.max_position_embeddings": "max_position_embeddings",
        "num_languages": Key(("n_langs", "use_lang_emb"), _write_languages, _read_languages),
        "activation": choice("gelu_activation", {True: "gelu", False: "relu"}),
        "attention_mask": choice("causal", {True: "causal", False: "bidirectional"}),
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "init_std",
    },
    fixed={"kind": "encoder", "norm_position": "post", "type_vocab_size": 0},
    built_in={"tie_word_embeddings": True, "asm": False, "is_encoder": True},
    defaults={
        "layer_norm_eps": 1e-12,
        "sinusoidal_embeddings": False,
        "max_position_embeddings": 512,
        "n_langs": 1,
        "use_lang_emb": True,
        "gelu_activation": True,
        "causal": False,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "init_std": 0.02,
    },
    written={"embed_init_std": "init_std"},
    old_keys={"n_words": "vocab_size"},
    task_heads={
        **explain_missing_heads(NO_POOLER, "row_label", "row_value", "option_choice"),
        **explain_missing_heads(LANGUAGE, "token_tag", "answer_span"),
    },
    pipeline_of=choose_pipeline,
    as_class=from_zero,
    constants=make_sinusoids,
    check_tensors=check_positions,
)
