"""ModernBERT (arXiv:2412.13663): ModernBertForMaskedLM. Most of its layers have an attention window."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from training.formats import rope
from training.formats.format import Format, ModelClass
from training.formats.keys import ACTIVATIONS, Key, activation
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import explain_missing_heads
from training.formats.transformers_pipeline import fill_masks
from training.losses import MaskedTokens
from training.specs import AttentionWindow, EncoderAlternatingWindow, RopeScaling, SlidingWindow

FULL, LOCAL = "full_attention", "sliding_attention"
LAYER: Final = "model.layers.*"
_ACT: Final = activation("hidden_activation")


def write_layers(values: tuple[int, AttentionWindow]) -> tuple[int, list[str], int, int]:
    """The number of layers and their types, the window, and the distance of layers without it.

    >>> write_layers((4, EncoderAlternatingWindow(size=128)))
    (4, ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention'], 128, 3)
    """
    layers, window = values
    types = [LOCAL if window.narrows(layer) else FULL for layer in range(layers)]
    if window.kind == "full":
        return layers, types, 128, 1
    if isinstance(window, EncoderAlternatingWindow):
        return layers, types, window.size, window.global_attn_every_n_layers
    if isinstance(window, SlidingWindow) and not window.global_first:
        return layers, types, window.size, layers
    raise ValueError("invalid local_attention: got global tokens, expected none")


def read_layers(
    layers: int, types: Sequence[str] | None, size: int, every: int | None
) -> tuple[int, Mapping[str, Any]]:
    """The number of layers, and the keys of model.attention_window. `every` is for files without types of layers."""
    every = every or 3
    usual = [LOCAL if layer % every else FULL for layer in range(layers)]
    types = list(types or usual)
    if LOCAL not in types:
        return layers, {"kind": "full"}
    if FULL not in types:
        return layers, {"kind": "sliding", "size": size}
    if types != usual:
        every = next((layer for layer in range(1, layers) if types[layer] == FULL), layers)
    if types != [LOCAL if layer % every else FULL for layer in range(layers)]:
        raise ValueError(f"invalid layer_types: got {types!r}, expected {FULL!r} at equal distances from the first")
    return layers, {"kind": "alternating", "size": size, "global_attn_every_n_layers": every}


def write_positions(values: tuple[int, float, float, RopeScaling]) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Layers with a window are scaled only if they have the same frequencies as the others."""
    longest, theta, local, scaling = values
    everywhere = rope.write_scaling(theta, scaling)
    return longest, everywhere, {"rope_theta": local, "rope_type": "default"} if local else everywhere


def read_positions(
    longest: int, everywhere: Mapping[str, Any], local: Mapping[str, Any]
) -> tuple[int, float, float, dict[str, Any]]:
    """The keys of model.position_embedding."""
    scaling = rope.read_scaling(everywhere, longest)
    if rope.read_scaling(local, longest)["kind"] == "none":
        return longest, everywhere["rope_theta"], local["rope_theta"], scaling
    if local != everywhere:
        raise ValueError(f"invalid rope_parameters.{LOCAL}: got {dict(local)}, expected no scaling, or as in {FULL}")
    return longest, everywhere["rope_theta"], 0.0, scaling


def read_activation(hidden: str, head: str | None) -> str:
    """The activation of the layers, which must be that of the head."""
    if head is not None and ACTIVATIONS.get(head) != ACTIVATIONS.get(hidden):
        raise ValueError(f"invalid classifier_activation: got {head!r}, expected {hidden!r} as hidden_activation")
    ours: str = _ACT.to_ours(hidden)
    return ours


MODERN_BERT: Final = Format(
    model_type="modernbert",
    classes=(ModelClass("ModernBertForMaskedLM", (MaskedTokens(),)),),
    names={
        "trunk.tokens": ["model.embeddings.tok_embeddings"],
        "trunk.output": ["decoder"],
        "trunk.embedding_norm": ["model.embeddings.norm"],
        "trunk.blocks.*.attention_norm": [f"{LAYER}.attn_norm"],  # block 0 has none
        "trunk.blocks.*.attention.qkv": [f"{LAYER}.attn.Wqkv"],
        "trunk.blocks.*.attention.out": [f"{LAYER}.attn.Wo"],
        "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.mlp_norm"],
        "trunk.blocks.*.feed_forward.up": [f"{LAYER}.mlp.Wi"],
        "trunk.blocks.*.feed_forward.down": [f"{LAYER}.mlp.Wo"],
        "trunk.final_norm": ["model.final_norm"],
        "heads.masked_tokens.transform": ["head.dense"],
        "heads.masked_tokens.norm": ["head.norm"],
        "heads.masked_tokens": ["decoder"],
    },
    keys={
        ("num_hidden_layers", "attention_window"): Key(
            ("num_hidden_layers", "layer_types", "local_attention", "global_attn_every_n_layers"),
            write_layers,
            read_layers,
        ),
        "hidden_size": "hidden_size",
        "num_attention_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "norm_eps": "norm_eps",
        "activation": Key(
            ("hidden_activation", "classifier_activation"), lambda ours: (_ACT.to_theirs(ours),) * 2, read_activation
        ),
        "bias": "classifier_bias",  # of the head; the trunk has a key for each of its biases
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "mlp_bias": "mlp_bias",
        tuple(
            f"position_embedding.{name}"
            for name in ("max_position_embeddings", "rope_theta", "local_rope_theta", "rope_scaling")
        ): Key(
            ("max_position_embeddings", f"rope_parameters.{FULL}", f"rope_parameters.{LOCAL}"),
            write_positions,
            read_positions,
        ),
        "tie_word_embeddings": "tie_word_embeddings",
        "hidden_dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "initializer_range",
    },
    fixed={
        "kind": "encoder",
        "norm_position": "pre",
        "embedding_norm": True,
        "type_vocab_size": 0,
        "feed_forward.kind": "gated",
        "position_embedding.kind": "rotary",
    },
    built_in={"decoder_bias": True, "rope_scaling": None},
    defaults={
        "layer_types": None,
        "local_attention": 128,
        "intermediate_size": 1_152,
        "norm_eps": 1e-5,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "max_position_embeddings": 8_192,
        f"rope_parameters.{FULL}.rope_theta": 160_000.0,
        f"rope_parameters.{FULL}.rope_type": "default",
        f"rope_parameters.{LOCAL}.rope_theta": 10_000.0,
        f"rope_parameters.{LOCAL}.rope_type": "default",
        **dict.fromkeys(("classifier_bias", "norm_bias", "attention_bias", "mlp_bias"), False),
        "tie_word_embeddings": True,
        "mlp_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
    },
    old_keys={
        "global_rope_theta": f"rope_parameters.{FULL}.rope_theta",
        "local_rope_theta": f"rope_parameters.{LOCAL}.rope_theta",
    },
    written={"embedding_dropout": "hidden_dropout"},
    tokens={"cls_token_id": "cls", "sep_token_id": "sep"},
    task_heads=explain_missing_heads("the classes of ModernBERT have a further layer and a norm below their task head"),
    pipeline_of=fill_masks,
    check_tensors=tie_as_stored("model.embeddings.tok_embeddings.weight", "decoder.weight"),
)
