"""T5 (arXiv:1910.10683), version 1.0: T5ForConditionalGeneration."""

from typing import Final

from training.formats.bart import SHIFTED
from training.formats.format import Format, ModelClass
from training.formats.keys import Config, activation, alike
from training.formats.names import Names
from training.formats.task_classes import explain_missing_heads
from training.formats.transformers_pipeline import TransformersPipeline
from training.losses import NextToken


def names_of(side: str) -> Names:
    """The names of the encoder or the decoder."""
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


def extract_features(names: Names, config: Config) -> TransformersPipeline:
    """Feature extraction by the encoder: transformers 5 has no pipeline for an encoder-decoder."""
    return TransformersPipeline("feature-extraction", "T5EncoderModel")


T5: Final = Format(
    model_type="t5",
    classes=(ModelClass("T5ForConditionalGeneration", (NextToken(),)),),
    names={"trunk.tokens": ["shared"], **names_of("encoder"), **names_of("decoder")},
    keys={
        "num_hidden_layers": alike("num_layers", "num_decoder_layers"),
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
        "intermediate_size": "d_ff",
        "norm_eps": "layer_norm_epsilon",
        "position_embedding.num_buckets": "relative_attention_num_buckets",
        "position_embedding.max_distance": "relative_attention_max_distance",
        # gated-* is for version 1.1, which is not supported
        "activation": activation("feed_forward_proj", {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}),
        "attention_dropout": "dropout_rate",  # the class has one rate; the next line writes it
        "hidden_dropout": "dropout_rate",
    },
    fixed={
        "kind": "encoder_decoder",
        "norm_position": "pre",
        "norm_type": "rmsnorm",
        "bias": False,
        "scale_attention": False,
        "scale_decoder_outputs": True,
        "embedding_norm": False,
        "position_embedding.kind": "relative_bias",
    },
    built_in={"tie_word_embeddings": True, "scale_decoder_outputs": True},
    defaults={
        "d_kv": 64,
        "d_ff": 2_048,
        "layer_norm_epsilon": 1e-6,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "relu",
        "dropout_rate": 0.1,
    },
    tokens={"decoder_start_token_id": "pad"},
    task_heads=explain_missing_heads(SHIFTED),
    pipeline_of=extract_features,
)
