"""BART (arXiv:1910.13461): BartForConditionalGeneration."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats.format import (
    Config,
    Names,
    Tensors,
    Weights,
    explain_missing_heads,
    gather,
    heads_of,
    make_masked_lm_pipeline,
    our_keys,
    rename,
    their_keys,
)
from training.losses import NextToken, has_token_bias
from training.model_spec import ModelSpec
from training.specs import EncoderDecoder, Seq2SeqLearnedPositions

pooler = ""
SHIFTED = "transformers shifts the input of the decoder for such tasks, and Sesame does not"
task_heads = explain_missing_heads(SHIFTED)
model_type = "bart"
by_layer = True

OFFSET = 2  # offset of position embeddings; fixed in transformers, like EPSILON
EPSILON = 1e-5
BIAS = "final_logits_bias"  # [1, V] in transformers: an untrained buffer of zeros, which a file may omit


def _side(side: str) -> Names:
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


NAMES: Names = {"trunk.tokens": ["model.shared"], **_side("encoder"), **_side("decoder")}

pipeline = partial(make_masked_lm_pipeline, NAMES)
KEYS = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
    "position_embedding.max_position_embeddings": "max_position_embeddings",
    "activation": "activation_function",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "init_std",
}
DECODER_KEYS = {
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
    "intermediate_size": "decoder_ffn_dim",
}
BUILT_IN = {
    "tie_word_embeddings": True,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "scale_embedding": False,
    "normalize_before": False,
    "normalize_embedding": True,
    "static_position_embeddings": False,
}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    fits = (
        isinstance(trunk, EncoderDecoder)
        and (trunk.norm_position, trunk.norm_type, trunk.norm_eps) == ("post", "layernorm", EPSILON)
        and trunk.bias
        and trunk.scale_attention
        and not trunk.scale_decoder_outputs
        and trunk.embedding_norm
        and isinstance(trunk.position_embedding, Seq2SeqLearnedPositions)
        and trunk.position_embedding.offset == OFFSET
        and trunk.num_languages == 0
        and trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
        and not any(has_token_bias(loss, trunk) for loss in spec.losses)
    )
    return "BartForConditionalGeneration" if fits and heads_of(spec) == {"next_token"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    return (
        their_keys(spec.model, KEYS)
        | their_keys(spec.model, DECODER_KEYS)
        | {
            "max_position_embeddings": spec.model.longest,
            "decoder_start_token_id": vocab.sep,
            "forced_eos_token_id": vocab.sep,
        }
    )


def spec(config: Config, tensors: Weights) -> ModelSpec:
    """Encoder and decoder must have equal sizes, and the logits bias must be 0."""
    equal_sizes = {theirs: config[KEYS[ours]] for ours, theirs in DECODER_KEYS.items()}
    keys = our_keys(config, KEYS, BUILT_IN | equal_sizes)
    if BIAS in tensors and (tensors[BIAS] != 0).any():
        raise ValueError(f"{BIAS} is not 0, but a bias of the logits is not supported")
    positions = Seq2SeqLearnedPositions(
        max_position_embeddings=keys.pop("position_embedding.max_position_embeddings", 1_024) + OFFSET, offset=OFFSET
    )
    trunk = EncoderDecoder(**keys, norm_eps=EPSILON, position_embedding=positions)
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)


def modern(name: str) -> str:
    """Add the prefix that files of BartModel lack.

    >>> modern("encoder.layers.0.fc1.weight")
    'model.encoder.layers.0.fc1.weight'
    """
    return f"model.{name}" if name.startswith(("shared.", "encoder.", "decoder.")) else name
