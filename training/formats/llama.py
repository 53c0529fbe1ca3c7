"""LLaMA (arXiv:2302.13971), LLaMA 2 (arXiv:2307.09288) and Llama 3 (arXiv:2407.21783): LlamaForCausalLM."""

from typing import Final

from training.formats import rope
from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Key, Keys, activation
from training.formats.names import Names
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import TaskHeads, explain_missing_heads, make_causal_token_heads
from training.losses import NextToken

LAYER: Final = "model.layers.*"
NAMES: Names = {
    "trunk.tokens": ["model.embed_tokens"],
    "trunk.output": ["lm_head"],
    "trunk.blocks.*.attention_norm": [f"{LAYER}.input_layernorm"],
    "trunk.blocks.*.attention.qkv": [f"{LAYER}.self_attn.{x}_proj" for x in "qkv"],
    "trunk.blocks.*.attention.out": [f"{LAYER}.self_attn.o_proj"],
    "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.post_attention_layernorm"],
    "trunk.blocks.*.feed_forward.up": [f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"],
    "trunk.blocks.*.feed_forward.down": [f"{LAYER}.mlp.down_proj"],
    "trunk.final_norm": ["model.norm"],
}
KEYS: Keys = {
    "num_hidden_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "activation": activation("hidden_act"),
    **rope.rotary(),
    "tie_word_embeddings": "tie_word_embeddings",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
}
FIXED: Config = {
    "kind": "decoder",
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "bias": False,
    "feed_forward.kind": "gated",
    "position_embedding.kind": "rotary",
    "hidden_dropout": 0.0,
}
DEFAULTS: Config = {
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    **rope.DEFAULTS,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
}
CHECK_TENSORS: Final = tie_as_stored("model.embed_tokens.weight", "lm_head.weight")


def make_task_heads(name: str, base: str) -> TaskHeads:
    """The classes with task heads; `base` is the name of the trunk in that for answers."""
    return {
        **make_causal_token_heads(name, "score", base=base),
        **explain_missing_heads(
            f"{name}ForSequenceClassification has no bias in its head, and RMSNorm has none below it",
            "row_label",
            "row_value",
        ),
        "option_choice": f"transformers has no {name}ForMultipleChoice",
    }


def modernize(name: str) -> str:
    """Return the name in the class with the language model; the class for answers has another prefix.

    >>> modernize("transformer.layers.0.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    """
    return f"model.{name.removeprefix('transformer.')}" if name.startswith("transformer.") else name


def write_sizes(sizes: tuple[int, int]) -> tuple[int, int]:
    """The width and the number of heads. The config class of LLaMA refuses others; that of Mistral does not.

    >>> write_sizes((4096, 24))
    Traceback (most recent call last):
    ...
    ValueError: invalid num_attention_heads: got 24, expected a divisor of hidden_size 4096
    """
    width, heads = sizes
    if width % heads:
        raise ValueError(f"invalid num_attention_heads: got {heads}, expected a divisor of hidden_size {width}")
    return sizes


LLAMA: Final = Format(
    model_type="llama",
    classes=(ModelClass("LlamaForCausalLM", (NextToken(),)),),
    names=NAMES,
    keys={
        **KEYS,
        ("hidden_size", "num_attention_heads"): Key(
            ("hidden_size", "num_attention_heads"), write_sizes, lambda *sizes: sizes
        ),
        "attention_bias": "attention_bias",
        "mlp_bias": "mlp_bias",
    },
    fixed=FIXED,
    built_in={"pretraining_tp": 1},
    defaults={
        **DEFAULTS,
        "intermediate_size": 11_008,
        "max_position_embeddings": 2_048,
        "attention_bias": False,
        "mlp_bias": False,
    },
    old_keys=rope.OLD_KEYS,
    task_heads=make_task_heads("Llama", "transformer"),
    modern=modernize,
    check_tensors=CHECK_TENSORS,
)
