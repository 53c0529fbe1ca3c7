"""BART (arXiv:1910.13461): BartForConditionalGeneration.

mBART (arXiv:2001.08210): MBartForConditionalGeneration, pre-norm, with a norm above each stack.
"""

from dataclasses import replace
from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Keys, activation, alike, shift
from training.formats.names import Names, Weights
from training.formats.task_classes import explain_missing_heads
from training.formats.transformers_pipeline import fill_masks
from training.losses import NextToken
from training.specs import Architecture

SHIFTED: Final = "transformers shifts the input of the decoder for such tasks, and Sesame does not"
OFFSET: Final = 2  # of position embeddings; fixed in transformers, like EPSILON
EPSILON: Final = 1e-5
BIAS: Final = "final_logits_bias"  # [1, V] in transformers: an untrained buffer of zeros, which a file may omit


def names_of(side: str) -> Names:
    """The names of the encoder or the decoder."""
    ours, theirs = f"trunk.{side}", f"model.{side}"
    attentions = {"attention": "self_attn"} | ({"cross": "encoder_attn"} if side == "decoder" else {})
    names = {
        f"{ours}.positions": [f"{theirs}.embed_positions"],
        f"{ours}.embedding_norm": [f"{theirs}.layernorm_embedding"],
        f"{ours}.blocks.*.feed_forward.up": [f"{theirs}.layers.*.fc1"],
        f"{ours}.blocks.*.feed_forward.down": [f"{theirs}.layers.*.fc2"],
        f"{ours}.blocks.*.feed_forward_norm": [f"{theirs}.layers.*.final_layer_norm"],
    }
    for here, there in attentions.items():
        names |= {
            f"{ours}.blocks.*.{here}.query": [f"{theirs}.layers.*.{there}.q_proj"],
            f"{ours}.blocks.*.{here}.key_value": [f"{theirs}.layers.*.{there}.{x}_proj" for x in "kv"],
            f"{ours}.blocks.*.{here}.out": [f"{theirs}.layers.*.{there}.out_proj"],
            f"{ours}.blocks.*.{here}_norm": [f"{theirs}.layers.*.{there}_layer_norm"],
        }
    return names


def modernize(name: str) -> str:
    """Add the prefix that files of BartModel lack.

    >>> modernize("encoder.layers.0.fc1.weight")
    'model.encoder.layers.0.fc1.weight'
    """
    return f"model.{name}" if name.startswith(("shared.", "encoder.", "decoder.")) else name


def refuse_bias(trunk: Architecture, tensors: Weights) -> Architecture:
    """The architecture unchanged. Raises ValueError if the logits have a bias."""
    if BIAS in tensors and (tensors[BIAS] != 0).any():
        raise ValueError(f"{BIAS} is not 0, but a bias of the logits is not supported")
    return trunk


KEYS: Final[Keys] = {
    "num_hidden_layers": alike("encoder_layers", "decoder_layers"),
    "hidden_size": "d_model",
    "num_attention_heads": alike("encoder_attention_heads", "decoder_attention_heads"),
    "intermediate_size": alike("encoder_ffn_dim", "decoder_ffn_dim"),
    "position_embedding.max_position_embeddings": shift("max_position_embeddings", by=OFFSET),
    "activation": activation("activation_function"),
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "init_std",
}
NO_LAYER_DROP: Final[Config] = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
BART: Final = Format(
    model_type="bart",
    classes=(ModelClass("BartForConditionalGeneration", (NextToken(),)),),
    names={"trunk.tokens": ["model.shared"], **names_of("encoder"), **names_of("decoder")},
    keys=KEYS,
    fixed={
        "kind": "encoder_decoder",
        "norm_position": "post",
        "norm_eps": EPSILON,
        "position_embedding.kind": "learned",
        "position_embedding.offset": OFFSET,
    },
    built_in={
        **NO_LAYER_DROP,
        "tie_word_embeddings": True,
        "activation_dropout": 0.0,
        "scale_embedding": False,
        "normalize_before": False,  # this and the next keys are of older versions of transformers
        "add_final_layer_norm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
    defaults={
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4_096,
        "decoder_ffn_dim": 4_096,
        "max_position_embeddings": 1_024,
        "activation_function": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "init_std": 0.02,
    },
    tokens={"decoder_start_token_id": "sep", "forced_eos_token_id": "sep"},
    task_heads=explain_missing_heads(SHIFTED),
    pipeline_of=fill_masks,
    modern=modernize,
    check_tensors=refuse_bias,
)
PRE_NORM_NAMES: Final[Names] = {
    **BART.names,
    **{f"trunk.{side}.final_norm": [f"model.{side}.layer_norm"] for side in ("encoder", "decoder")},
}
MBART: Final[Format] = replace(
    BART,
    model_type="mbart",
    classes=(ModelClass("MBartForConditionalGeneration", (NextToken(),)),),
    names=PRE_NORM_NAMES,
    keys={**KEYS, "scale_embedding": "scale_embedding"},
    fixed={**BART.fixed, "norm_position": "pre"},
    built_in={
        **NO_LAYER_DROP,
        "tie_word_embeddings": True,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_final_layer_norm": True,
        "static_position_embeddings": False,
    },
    defaults={**BART.defaults, "scale_embedding": False},
    written={"activation_dropout": "hidden_dropout"},  # our pre-norm stacks have it
    tokens={"decoder_start_token_id": "pad", "forced_eos_token_id": "sep"},
)
