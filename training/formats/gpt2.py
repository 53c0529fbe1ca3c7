"""GPT-2 (Radford 2019): GPT2LMHeadModel."""

from collections.abc import Iterable, Mapping
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats.format import (
    Config,
    Names,
    TaskHeadClass,
    TaskHeads,
    Tensors,
    Weights,
    causal_pipeline,
    gather,
    heads_of,
    our_keys,
    rename,
    their_keys,
)
from training.losses import NextToken, has_token_bias
from training.model_spec import ModelSpec
from training.specs import Decoder, FullAttention, LearnedPositions

pooler = ""
model_type = "gpt2"
by_layer = True
pipeline = causal_pipeline
ROW, NORM = "GPT2ForSequenceClassification", "trunk.final_norm.bias"
task_heads: TaskHeads = {
    "row_label": TaskHeadClass(ROW, {"classify": ["score"]}, bias_into=NORM),
    "row_value": TaskHeadClass(ROW, {"regress": ["score"]}, bias_into=NORM),
    "token_tag": TaskHeadClass("GPT2ForTokenClassification", {"classify": ["classifier"]}),
    "answer_span": TaskHeadClass("GPT2ForQuestionAnswering", {"ends": ["qa_outputs"]}),
    "option_choice": "transformers has no GPT2ForMultipleChoice",
}

NAMES: Names = {
    "trunk.tokens": ["transformer.wte"],
    "trunk.positions": ["transformer.wpe"],
    "trunk.blocks.*.attention_norm": ["transformer.h.*.ln_1"],
    "trunk.blocks.*.attention.qkv": ["transformer.h.*.attn.c_attn"],
    "trunk.blocks.*.attention.out": ["transformer.h.*.attn.c_proj"],
    "trunk.blocks.*.feed_forward_norm": ["transformer.h.*.ln_2"],
    "trunk.blocks.*.feed_forward.up": ["transformer.h.*.mlp.c_fc"],
    "trunk.blocks.*.feed_forward.down": ["transformer.h.*.mlp.c_proj"],
    "trunk.final_norm": ["transformer.ln_f"],
}
INPUT_FIRST = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
KEYS = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "norm_eps": "layer_norm_epsilon",
    "position_embedding.max_position_embeddings": "n_positions",
    "activation": "activation_function",
    "hidden_dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "init_std": "initializer_range",
}
BUILT_IN = {
    "tie_word_embeddings": True,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


def is_like(spec: ModelSpec) -> bool:
    """Whether a model is like GPT-2, except for norm position."""
    trunk = spec.model
    return (
        isinstance(trunk, Decoder)
        and isinstance(trunk.position_embedding, LearnedPositions)
        and trunk.position_embedding.offset == 0
        and trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
        and isinstance(trunk.attention_window, FullAttention)
        and heads_of(spec) == {"next_token"}
        and not any(has_token_bias(loss, trunk) for loss in spec.losses)
    )


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    return "GPT2LMHeadModel" if is_like(spec) and spec.model.norm_position == "pre" else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return their_keys(spec.model, KEYS) | {"embd_pdrop": spec.model.hidden_dropout}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    trunk = decoder(our_keys(config, KEYS, BUILT_IN))
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=config["vocab_size"])


def decoder(keys: Mapping[str, Any], **more: Any) -> Decoder:
    """Build a Decoder from our keys; a config.json without a number of positions means 1,024."""
    rows = keys.get("position_embedding.max_position_embeddings", 1_024)
    others = {key: value for key, value in keys.items() if key != "position_embedding.max_position_embeddings"}
    return Decoder(**others, position_embedding=LearnedPositions(max_position_embeddings=rows), **more)


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES, INPUT_FIRST)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted, INPUT_FIRST)


def modern(name: str) -> str:
    """Return the current name in transformers; files on the hub lack the prefix.

    >>> modern("h.0.ln_1.weight")
    'transformer.h.0.ln_1.weight'
    """
    return f"transformer.{name}" if name.startswith(("h.", "wte.", "wpe.", "ln_f.")) else name
