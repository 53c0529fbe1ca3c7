"""OPT (arXiv:2205.01068): OPTForCausalLM. Its position table starts with two unused rows."""

from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import activation, alike, shift
from training.formats.task_classes import TaskHeadClass, explain_missing_heads, make_causal_row_heads
from training.losses import NextToken

OFFSET: Final = 2  # of positions; fixed in transformers, like EPSILON
EPSILON: Final = 1e-5
LAYER: Final = "model.decoder.layers.*"


def modernize(name: str) -> str:
    """Return the current name in transformers; files on the hub lack the prefix.

    >>> modernize("decoder.layers.0.fc1.weight")
    'model.decoder.layers.0.fc1.weight'
    """
    return f"model.{name}" if name.startswith("decoder.") else name


OPT: Final = Format(
    model_type="opt",
    classes=(ModelClass("OPTForCausalLM", (NextToken(),)),),
    names={
        "trunk.tokens": ["model.decoder.embed_tokens"],
        "trunk.positions": ["model.decoder.embed_positions"],
        "trunk.blocks.*.attention_norm": [f"{LAYER}.self_attn_layer_norm"],
        "trunk.blocks.*.attention.qkv": [f"{LAYER}.self_attn.{x}_proj" for x in "qkv"],
        "trunk.blocks.*.attention.out": [f"{LAYER}.self_attn.out_proj"],
        "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.final_layer_norm"],
        "trunk.blocks.*.feed_forward.up": [f"{LAYER}.fc1"],
        "trunk.blocks.*.feed_forward.down": [f"{LAYER}.fc2"],
        "trunk.final_norm": ["model.decoder.final_layer_norm"],
    },
    keys={
        "num_hidden_layers": "num_hidden_layers",
        "hidden_size": alike("hidden_size", "word_embed_proj_dim"),
        "num_attention_heads": "num_attention_heads",
        "intermediate_size": "ffn_dim",
        "position_embedding.max_position_embeddings": shift("max_position_embeddings", by=OFFSET),
        "activation": activation("activation_function"),
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "init_std",
    },
    fixed={
        "kind": "decoder",
        "norm_position": "pre",
        "norm_eps": EPSILON,
        "position_embedding.kind": "learned",
        "position_embedding.offset": OFFSET,
    },
    built_in={
        "tie_word_embeddings": True,
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "layerdrop": 0.0,
    },
    defaults={
        "ffn_dim": 3_072,
        "max_position_embeddings": 2_048,
        "activation_function": "relu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "init_std": 0.02,
    },
    task_heads={
        **make_causal_row_heads("OPT", "trunk.final_norm.bias"),
        "answer_span": TaskHeadClass("OPTForQuestionAnswering", {"ends": ["qa_outputs"]}),
        **explain_missing_heads("transformers has no such class of OPT", "token_tag", "option_choice"),
    },
    modern=modernize,
)
