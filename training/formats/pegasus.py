"""PEGASUS (arXiv:1912.08777): PegasusForConditionalGeneration."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from preprocessing.tokenization import Vocab
from training.formats import bart
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
from training.specs import EncoderDecoder, Seq2SeqSinusoidalPositions

if TYPE_CHECKING:
    from torch import Tensor

pooler = ""
task_heads = explain_missing_heads(bart.SHIFTED)
model_type = "pegasus"
by_layer = False

NOT_THERE = ("positions", "embedding_norm")  # missing in our model: its sinusoids are not weights
TABLES = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]  # sinusoid tables of transformers
NAMES: Names = {name: theirs for name, theirs in bart.NAMES.items() if not name.endswith(NOT_THERE)} | {
    f"trunk.{side}.final_norm": [f"model.{side}.layer_norm"] for side in ("encoder", "decoder")
}
KEYS = bart.KEYS
BUILT_IN = {
    "tie_word_embeddings": True,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "scale_embedding": True,
    "normalize_before": True,
    "normalize_embedding": False,
    "add_final_layer_norm": True,
    "static_position_embeddings": True,
}
DEFAULTS = {
    "scale_embedding": False,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}  # of transformers


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    fits = (
        isinstance(trunk, EncoderDecoder)
        and (trunk.norm_position, trunk.norm_type, trunk.norm_eps) == ("pre", "layernorm", bart.EPSILON)
        and trunk.bias
        and trunk.scale_attention
        and trunk.scale_embedding
        and not trunk.scale_decoder_outputs
        and not trunk.embedding_norm
        and isinstance(trunk.position_embedding, Seq2SeqSinusoidalPositions)
        and trunk.num_languages == 0
        and trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
        and not any(has_token_bias(loss, trunk) for loss in spec.losses)
    )
    return "PegasusForConditionalGeneration" if fits and heads_of(spec) == {"next_token"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    built_in = {key: BUILT_IN[key] for key in ("scale_embedding", "static_position_embeddings", "add_final_layer_norm")}
    built_in["activation_dropout"] = spec.model.hidden_dropout  # inside the feed-forward layer, as in the authors' code
    starts = {"decoder_start_token_id": vocab.pad, "forced_eos_token_id": vocab.sep}
    return their_keys(spec.model, KEYS) | their_keys(spec.model, bart.DECODER_KEYS) | built_in | starts


def pipeline(config: Config) -> TransformersPipeline:
    """No pipeline: transformers 5 has none for an encoder-decoder, and no class for this encoder only."""
    lacks = "transformers 5 has no pipeline for an encoder-decoder"
    return TransformersPipeline("text2text-generation", config["architectures"][0], lacks)


def spec(config: Config, tensors: Weights) -> ModelSpec:
    """Encoder and decoder must have equal sizes and dropout, logits bias 0, and sinusoidal positions."""
    config = {**DEFAULTS, **config}
    equal_sizes = {theirs: config[KEYS[ours]] for ours, theirs in bart.DECODER_KEYS.items()}
    keys = our_keys(config, KEYS, BUILT_IN | equal_sizes | {"activation_dropout": config["dropout"]})
    if bart.BIAS in tensors and (tensors[bart.BIAS] != 0).any():
        raise ValueError(f"{bart.BIAS} is not 0, but a bias of the logits is not supported")
    for name, tensor in tensors.items():
        is_table = bart.modern(name) in TABLES
        if is_table and not tensor.allclose(_positions(*tensor.shape), rtol=0, atol=1e-3):
            raise ValueError(f"{name} does not contain sinusoids")
    positions = Seq2SeqSinusoidalPositions(
        max_position_embeddings=keys.pop("position_embedding.max_position_embeddings", 1_024)
    )
    trunk = EncoderDecoder(
        **keys,
        norm_position="pre",
        norm_eps=bart.EPSILON,
        position_embedding=positions,
        scale_embedding=True,
        embedding_norm=False,
    )
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    positions = spec.model.position_embedding
    assert isinstance(positions, Seq2SeqSinusoidalPositions)
    tables = {name: _positions(positions.max_position_embeddings, spec.model.hidden_size) for name in TABLES}
    return rename(state, NAMES) | tables


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({bart.modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted)


def _positions(rows: int, width: int) -> "Tensor":
    """The position table of transformers [rows, width]. It is float32, so values at row 2,000 have errors of 1e-4."""
    import torch

    from training.architectures import sinusoids

    return sinusoids(torch.arange(rows), width)
