"""T5 (arXiv:1910.10683), version 1.0 and 1.1, and mT5 (arXiv:2010.11934): T5ForConditionalGeneration and its copy."""

from typing import Final

from training.formats.bart import SHIFTED
from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Key, Keys, alike, choice
from training.formats.names import Names, Weights
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import explain_missing_heads
from training.formats.transformers_pipeline import TransformersPipeline
from training.losses import NextToken
from training.model_spec import ModelSpec

UP: Final = ".feed_forward.up."
GATED_UP: Final = ".feed_forward.gated_up."  # the place in the table of names of the first layer with a gate
ACTIVATIONS: Final = {
    "relu": ("relu", "plain"),
    "gelu": ("gelu", "plain"),
    "gelu_new": ("gelu_tanh", "plain"),
    "silu": ("silu", "plain"),
    "gated-gelu": ("gelu_tanh", "gated"),  # the exact function has no name
    "gated-relu": ("relu", "gated"),
    "gated-silu": ("silu", "gated"),
}


def names_of(side: str) -> Names:
    """The names of the encoder or the decoder."""
    ours, theirs = f"trunk.{side}", f"{side}.block.*.layer"
    attentions = {"attention": "0.SelfAttention"} | ({"cross": "1.EncDecAttention"} if side == "decoder" else {})
    last = len(attentions)
    names = {
        f"{ours}.distances": [f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"],
        f"{ours}.blocks.*.feed_forward.up": [f"{theirs}.{last}.DenseReluDense.wi"],
        f"{ours}.blocks.*.feed_forward.gated_up": [f"{theirs}.{last}.DenseReluDense.wi_{x}" for x in (0, 1)],
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


def place_of(name: str, spec: ModelSpec) -> str:
    """The place in the table of names: the first layer has another name if it has a gate."""
    return name.replace(UP, GATED_UP) if spec.model.feed_forward.kind == "gated" else name


def mark_gates(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The same model with the names of `place_of`."""
    return {place_of(name, spec): tensor for name, tensor in state.items()}, spec


def write_scale(values: tuple[bool, bool]) -> tuple[bool, bool]:
    """Whether the tables are tied, and whether the states above the decoder are scaled: both or neither."""
    tied, scaled = values
    if tied != scaled:
        raise ValueError(f"invalid scale_decoder_outputs: got {scaled}, expected {tied} as tie_word_embeddings")
    return values


def read_scale(tied: bool | None, scaled: bool | None) -> tuple[bool, bool]:
    """As in transformers 5, whose config class replaces tie_word_embeddings by scale_decoder_outputs.

    >>> read_scale(False, None), read_scale(True, False)
    ((False, False), (False, False))
    """
    both = tied is not False if scaled is None else scaled
    return both, both


def extract_features(names: Names, config: Config) -> TransformersPipeline:
    """Feature extraction by the encoder: transformers 5 has no pipeline for an encoder-decoder."""
    encoder = config["architectures"][0].replace("ForConditionalGeneration", "EncoderModel")
    return TransformersPipeline("feature-extraction", encoder, unused=("lm_head.",))


NAMES: Final[Names] = {
    "trunk.tokens": ["shared"],
    "trunk.output": ["lm_head"],
    **names_of("encoder"),
    **names_of("decoder"),
}
KEYS: Final[Keys] = {
    "num_hidden_layers": alike("num_layers", "num_decoder_layers"),
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "norm_eps": "layer_norm_epsilon",
    "position_embedding.num_buckets": "relative_attention_num_buckets",
    "position_embedding.max_distance": "relative_attention_max_distance",
    ("activation", "feed_forward.kind"): choice("feed_forward_proj", ACTIVATIONS),
    "attention_dropout": "dropout_rate",  # the class has one rate; the next line writes it
    "hidden_dropout": "dropout_rate",
}
FIXED: Final[Config] = {
    "kind": "encoder_decoder",
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "bias": False,
    "scale_attention": False,
    "embedding_norm": False,
    "position_embedding.kind": "relative_bias",
}
DEFAULTS: Final[Config] = {
    "d_kv": 64,
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "tie_word_embeddings": True,
}
# Both classes tie the tables, but not if the files have two different ones.
CHECK_TENSORS: Final = tie_as_stored("shared.weight", "lm_head.weight", always=True)

T5: Final = Format(
    model_type="t5",
    classes=(ModelClass("T5ForConditionalGeneration", (NextToken(),)),),
    names=NAMES,
    keys={
        **KEYS,
        ("tie_word_embeddings", "scale_decoder_outputs"): Key(
            ("tie_word_embeddings", "scale_decoder_outputs"), write_scale, read_scale
        ),
    },
    fixed=FIXED,
    built_in={},
    defaults={**DEFAULTS, "d_ff": 2_048, "feed_forward_proj": "relu"},
    tokens={"decoder_start_token_id": "pad"},
    task_heads=explain_missing_heads(SHIFTED),
    pipeline_of=extract_features,
    as_class=mark_gates,
    place_of=place_of,
    check_tensors=CHECK_TENSORS,
)
MT5: Final = Format(
    model_type="mt5",
    classes=(ModelClass("MT5ForConditionalGeneration", (NextToken(),)),),
    names=NAMES,
    keys={**KEYS, "tie_word_embeddings": "tie_word_embeddings"},
    fixed={**FIXED, "scale_decoder_outputs": False},
    built_in={},
    defaults={**DEFAULTS, "d_ff": 1_024, "feed_forward_proj": "gated-gelu"},
    tokens={"decoder_start_token_id": "pad"},
    task_heads=explain_missing_heads(SHIFTED),
    pipeline_of=extract_features,
    as_class=mark_gates,
    place_of=place_of,
    check_tensors=CHECK_TENSORS,
)
