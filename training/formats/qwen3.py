"""Qwen3 (arXiv:2505.09388): Qwen3ForCausalLM. It is LLaMA with norms of queries and keys."""

from typing import Final

from training.formats import llama, rope
from training.formats.format import Format, ModelClass
from training.formats.keys import Key
from training.losses import NextToken


def read_layers(layers: int, types: list[str] | None) -> int:
    """The number of layers. Raises ValueError if one has an attention window.

    >>> read_layers(2, ["full_attention", "sliding_attention"])
    Traceback (most recent call last):
    ...
    ValueError: invalid layer_types: got 'sliding_attention', expected 'full_attention'
    """
    for other in set(types or ()) - {"full_attention"}:
        raise ValueError(f"invalid layer_types: got {other!r}, expected 'full_attention'")
    return layers


LAYERS: Final = Key(
    ("num_hidden_layers", "layer_types"), lambda layers: (layers, ["full_attention"] * layers), read_layers
)
QWEN3: Final = Format(
    model_type="qwen3",
    classes=(ModelClass("Qwen3ForCausalLM", (NextToken(),)),),
    names={
        **llama.NAMES,
        "trunk.blocks.*.attention.query_norm": [f"{llama.LAYER}.self_attn.q_norm"],
        "trunk.blocks.*.attention.key_norm": [f"{llama.LAYER}.self_attn.k_norm"],
    },
    keys={**llama.KEYS, "attention_bias": "attention_bias", "num_hidden_layers": LAYERS},
    fixed={**llama.FIXED, "qk_norm": True},
    built_in={"use_sliding_window": False},
    defaults={
        **llama.DEFAULTS,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "intermediate_size": 22_016,
        "max_position_embeddings": 32_768,
        "attention_bias": False,
    },
    old_keys=rope.OLD_KEYS,
    task_heads=llama.make_task_heads("Qwen3", "transformer"),
    modern=llama.modernize,
    check_tensors=llama.CHECK_TENSORS,
)
