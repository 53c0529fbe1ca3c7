"""T5 (arXiv:1910.10683), version 1.0: T5ForConditionalGeneration."""

from collections.abc import Iterable
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats.bart import SHIFTED
from training.formats.format import (
    Config,
    Names,
    Tensors,
    TransformersPipeline,
    Weights,
    explain_missing_heads,
    gather,
    heads_of,
    our_keys,
    rename,
    their_keys,
)
from training.losses import NextToken, has_token_bias
from training.model_spec import ModelSpec
from training.specs import EncoderDecoder, RelativeBias

pooler = ""
task_heads = explain_missing_heads(SHIFTED)
model_type = "t5"
by_layer = True


def _side(side: str) -> Names:
    ours, theirs = f"trunk.{side}", f"{side}.block.*.layer"
    attentions = {"attention": "0.SelfAttention"} | ({"cross": "1.EncDecAttention"} if side == "decoder" else {})
    last = len(attentions)
    names = {
        f"{ours}.distances": [f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"],
        f"{ours}.blocks.*.feed_forward.up": [f"{theirs}.{last}.DenseReluDense.wi"],
        f"{ours}.blocks.*.feed_forward.down": [f"{theirs}.{last}.DenseReluDense.wo"],
        f"{ours}.blocks.*.feed_forward_norm": [f"{theirs}.{last}.layer_norm"],
        f"{ours}.final_norm": [f"{side}.final_layer_norm"],
    }
    for number, (here, there) in enumerate(attentions.items()):
        names |= {
            f"{ours}.blocks.*.{here}.query": [f"{theirs}.{there}.q"],
            f"{ours}.blocks.*.{here}.key_value": [f"{theirs}.{there}.{x}" for x in "kv"],
            f"{ours}.blocks.*.{here}.out": [f"{theirs}.{there}.o"],
            f"{ours}.blocks.*.{here}_norm": [f"{theirs}.{number}.layer_norm"],
        }
    return names


NAMES: Names = {"trunk.tokens": ["shared"], **_side("encoder"), **_side("decoder")}
KEYS = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "norm_eps": "layer_norm_epsilon",
    "position_embedding.num_buckets": "relative_attention_num_buckets",
    "position_embedding.max_distance": "relative_attention_max_distance",
    "hidden_dropout": "dropout_rate",
}
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
}  # gated-* is for version 1.1, which is not supported
BUILT_IN = {"tie_word_embeddings": True, "scale_decoder_outputs": True}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    """The class has a single dropout value; without dropout, it computes the same."""
    trunk = spec.model
    fits = (
        isinstance(trunk, EncoderDecoder)
        and (trunk.norm_position, trunk.norm_type, trunk.bias) == ("pre", "rmsnorm", False)
        and not trunk.scale_attention
        and trunk.scale_decoder_outputs
        and not trunk.embedding_norm
        and isinstance(trunk.position_embedding, RelativeBias)
        and trunk.num_languages == 0
        and not any(has_token_bias(loss, trunk) for loss in spec.losses)
    )
    return "T5ForConditionalGeneration" if fits and heads_of(spec) == {"next_token"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == spec.model.activation)
    return their_keys(spec.model, KEYS) | {
        "num_decoder_layers": spec.model.num_hidden_layers,
        "d_kv": spec.model.width_of_head,
        "feed_forward_proj": activation,
        "decoder_start_token_id": vocab.pad,
    }


def pipeline(config: Config) -> TransformersPipeline:
    """Feature extraction by the encoder: transformers 5 has no pipeline for an encoder-decoder."""
    return TransformersPipeline("feature-extraction", "T5EncoderModel")


def spec(config: Config, tensors: Weights) -> ModelSpec:
    """Encoder and decoder must have equal numbers of layers, and the output layer must be that of version 1.0."""
    built_in = BUILT_IN | {"num_decoder_layers": config["num_layers"]}
    keys = our_keys(config, KEYS | {"attention_dropout": KEYS["hidden_dropout"]}, built_in)
    keys["activation"] = ACTIVATIONS[config.get("feed_forward_proj", "relu")]
    buckets, max_distance = (
        keys.pop("position_embedding.num_buckets", 32),
        keys.pop("position_embedding.max_distance", 128),
    )
    trunk = EncoderDecoder(
        **keys,
        norm_position="pre",
        norm_type="rmsnorm",
        bias=False,
        scale_attention=False,
        scale_decoder_outputs=True,
        embedding_norm=False,
        position_embedding=RelativeBias(num_buckets=buckets, max_distance=max_distance),
    )
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather(tensors, NAMES, wanted)
