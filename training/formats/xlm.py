"""XLM (arXiv:1901.07291): XLMWithLMHeadModel, for masked tokens (MLM, TLM) or, causal, for the next token (CLM)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from preprocessing.tokenization import Vocab
from training.formats.format import (
    Config,
    Names,
    TaskHeads,
    Tensors,
    TransformersPipeline,
    Weights,
    causal_pipeline,
    explain_missing_heads,
    gather,
    make_masked_lm_pipeline,
    our_keys,
    rename,
    their_keys,
)
from training.losses import Loss, MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.specs import Encoder, FullAttention, LearnedPositions, SinusoidalPositions

if TYPE_CHECKING:
    from torch import Tensor

pooler = ""
model_type = "xlm"
by_layer = False
# A fine-tuned model is exported as BERT.
NO_POOLER = "the heads of XLM's classes are one linear layer; that of Sesame has a pooler with tanh below it"
LANGUAGE = "XLM's classes need the language of each token as an argument"
task_heads: TaskHeads = {
    **explain_missing_heads(NO_POOLER, "row_label", "row_value", "option_choice"),
    **explain_missing_heads(LANGUAGE, "token_tag", "answer_span"),
}

NAMES: Names = {
    "trunk.tokens": ["transformer.embeddings"],
    "trunk.positions": ["transformer.position_embeddings"],
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
}
KEYS = {
    "num_hidden_layers": "n_layers",
    "hidden_size": "emb_dim",
    "num_attention_heads": "n_heads",
    "norm_eps": "layer_norm_eps",
    "position_embedding.max_position_embeddings": "max_position_embeddings",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "init_std",
}
BUILT_IN = {"tie_word_embeddings": True, "asm": False, "is_encoder": True}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    fits = (
        isinstance(trunk, Encoder)
        and isinstance(trunk.position_embedding, LearnedPositions | SinusoidalPositions)
        and trunk.norm_position == "post"
        and trunk.activation != "gelu_tanh"
        and trunk.table_width == trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
        and trunk.inner_width == 4 * trunk.hidden_size
        and trunk.type_vocab_size == 0
        and trunk.num_languages != 1
        and trunk.parameter_sharing == "none"
        and isinstance(trunk.attention_window, FullAttention)
        and spec.losses == _losses(trunk)
    )
    return "XLMWithLMHeadModel" if fits else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    trunk = spec.model
    assert isinstance(trunk, Encoder)
    return their_keys(trunk, KEYS) | {
        "max_position_embeddings": _positions(trunk),
        "gelu_activation": trunk.activation == "gelu",
        "sinusoidal_embeddings": isinstance(trunk.position_embedding, SinusoidalPositions),
        "causal": trunk.attention_mask == "causal",
        "n_langs": max(1, trunk.num_languages),
        "use_lang_emb": trunk.num_languages > 0,
        "embed_init_std": trunk.init_std,
    }


def pipeline(config: Config) -> TransformersPipeline:
    return causal_pipeline(config) if config["causal"] else make_masked_lm_pipeline(NAMES, config)


def spec(config: Config, tensors: Weights) -> ModelSpec:
    # The class also trains its sinusoid table; a changed table counts as learned positions.
    table = tensors[NAMES["trunk.positions"][0] + ".weight"]
    fixed = table.allclose(_sinusoids(*table.shape), rtol=0, atol=1e-4)
    languages = config.get("n_langs", 1) if config.get("use_lang_emb", True) else 0
    keys = our_keys(config, KEYS, BUILT_IN)
    rows = keys.pop("position_embedding.max_position_embeddings", 512)
    trunk = Encoder(
        **keys,
        activation="gelu" if config.get("gelu_activation", True) else "relu",
        position_embedding=SinusoidalPositions(max_position_embeddings=rows)
        if fixed
        else LearnedPositions(max_position_embeddings=rows),
        attention_mask="causal" if config.get("causal", False) else "bidirectional",
        num_languages=languages if languages > 1 else 0,
        type_vocab_size=0,
    )
    # older files have n_words
    return ModelSpec(model=trunk, losses=_losses(trunk), vocab_size=config.get("vocab_size") or config["n_words"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    trunk = spec.model
    assert isinstance(trunk, Encoder)
    table = "trunk.positions.weight"
    rows = slice(trunk.position_embedding.offset, None)
    positions = state[table][rows] if table in state else _sinusoids(_positions(trunk), trunk.hidden_size)
    return rename({**state, table: positions}, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather(tensors, NAMES, wanted)


def _losses(trunk: Encoder) -> tuple[Loss, ...]:
    """The loss of the class's head."""
    return (NextToken(bias=True),) if trunk.attention_mask == "causal" else (MaskedTokens(transform=False),)


def _positions(trunk: Encoder) -> int:
    """The number of rows of the position table in transformers, which also exists for sinusoids."""
    positions = trunk.position_embedding
    assert isinstance(positions, LearnedPositions | SinusoidalPositions)
    return positions.max_position_embeddings - positions.offset


def _sinusoids(rows: int, width: int) -> "Tensor":
    """The position table [rows, width] of a model without learned positions."""
    import torch

    from training.architectures import sinusoids_at

    return sinusoids_at(torch.arange(rows), width)
