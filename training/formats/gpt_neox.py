"""GPT-NeoX (arXiv:2204.06745) and Pythia (arXiv:2304.01373): GPTNeoXForCausalLM."""

from typing import TYPE_CHECKING, Final

from training.formats import rope
from training.formats.format import Format, ModelClass
from training.formats.keys import activation, choice
from training.formats.names import Reshape
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import make_causal_row_heads, make_causal_token_heads
from training.losses import NextToken

if TYPE_CHECKING:  # formats are imported without torch
    from torch import Tensor

    from training.specs import Architecture

LAYER: Final = "gpt_neox.layers.*"


def group_by_head(ours: str, tensor: "Tensor", trunk: "Architecture") -> "Tensor":
    """The query, the key and the value of each head together."""
    if ".qkv." not in ours:
        return tensor
    return tensor.unflatten(0, (3, trunk.num_attention_heads, -1)).transpose(0, 1).flatten(0, 2)


def group_by_kind(ours: str, tensor: "Tensor", trunk: "Architecture") -> "Tensor":
    """The queries of all heads, then the keys, then the values."""
    if ".qkv." not in ours:
        return tensor
    return tensor.unflatten(0, (trunk.num_attention_heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def modernize(name: str) -> str:
    """Return the current name of the output table.

    >>> modernize("embed_out.weight")
    'lm_head.weight'
    """
    return f"lm_head.{name.removeprefix('embed_out.')}" if name.startswith("embed_out.") else name


GPT_NEOX: Final = Format(
    model_type="gpt_neox",
    classes=(ModelClass("GPTNeoXForCausalLM", (NextToken(),)),),
    names={
        "trunk.tokens": ["gpt_neox.embed_in"],
        "trunk.output": ["lm_head"],
        "trunk.blocks.*.attention_norm": [f"{LAYER}.input_layernorm"],
        "trunk.blocks.*.attention.qkv": [f"{LAYER}.attention.query_key_value"],
        "trunk.blocks.*.attention.out": [f"{LAYER}.attention.dense"],
        "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.post_attention_layernorm"],
        "trunk.blocks.*.feed_forward.up": [f"{LAYER}.mlp.dense_h_to_4h"],
        "trunk.blocks.*.feed_forward.down": [f"{LAYER}.mlp.dense_4h_to_h"],
        "trunk.final_norm": ["gpt_neox.final_layer_norm"],
    },
    keys={
        "num_hidden_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_attention_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "norm_eps": "layer_norm_eps",
        "activation": activation("hidden_act"),
        "attention_bias": "attention_bias",
        "parallel_residual": choice("use_parallel_residual", {True: "two_norms", False: "none"}),
        **rope.rotary(partial=True),
        "tie_word_embeddings": "tie_word_embeddings",
        "hidden_dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "initializer_range",
    },
    fixed={"kind": "decoder", "norm_position": "pre", "position_embedding.kind": "rotary"},
    built_in={"is_decoder": False},
    defaults={
        "intermediate_size": 24_576,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "attention_bias": True,
        "use_parallel_residual": True,
        "max_position_embeddings": 2_048,
        **rope.DEFAULTS,
        "rope_parameters.partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
    },
    old_keys={
        "rotary_emb_base": "rope_parameters.rope_theta",
        "rotary_pct": "rope_parameters.partial_rotary_factor",
        **rope.OLD_KEYS,
    },
    task_heads={
        **make_causal_row_heads("GPTNeoX", "trunk.final_norm.bias"),
        **make_causal_token_heads("GPTNeoX", "classifier"),
        "option_choice": "transformers has no GPTNeoXForMultipleChoice",
    },
    modern=modernize,
    reshape=Reshape(group_by_head, group_by_kind),
    check_tensors=tie_as_stored("gpt_neox.embed_in.weight", "lm_head.weight", "embed_out.weight"),
)
