"""PEGASUS (arXiv:1912.08777): PegasusForConditionalGeneration."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from training.formats import bart
from training.formats.bart import KEYS, MBART, NO_LAYER_DROP
from training.formats.format import Format, ModelClass
from training.formats.keys import alike
from training.formats.names import Tensors, Weights
from training.formats.transformers_pipeline import refuse_seq2seq
from training.losses import NextToken
from training.model_spec import ModelSpec
from training.specs import Architecture, Seq2SeqSinusoidalPositions

if TYPE_CHECKING:
    from torch import Tensor

TABLES: Final = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))  # sinusoids there
NOT_THERE: Final = ("positions", "embedding_norm")  # in our model: its sinusoids are not weights


def check_sinusoids(trunk: Architecture, tensors: Weights) -> Architecture:
    """The architecture unchanged. Raises ValueError if positions are not sinusoids, or if the logits have a bias."""
    bart.refuse_bias(trunk, tensors)
    for name, tensor in tensors.items():
        is_table = bart.modernize(name) in TABLES
        if is_table and not tensor.allclose(_positions(*tensor.shape), rtol=0, atol=1e-3):
            raise ValueError(f"{name} does not contain sinusoids")
    return trunk


def make_tables(spec: ModelSpec) -> Tensors:
    """The position tables, which transformers has as weights."""
    positions = spec.model.position_embedding
    assert isinstance(positions, Seq2SeqSinusoidalPositions)
    return {name: _positions(positions.max_position_embeddings, spec.model.hidden_size) for name in TABLES}


def _positions(rows: int, width: int) -> "Tensor":
    """The position table of transformers [rows, width]. It is float32, so values at row 2,000 have errors of 1e-4."""
    import torch

    from training.architectures import sinusoids

    return sinusoids(torch.arange(rows), width)


PEGASUS: Final[Format] = replace(
    MBART,
    model_type="pegasus",
    classes=(ModelClass("PegasusForConditionalGeneration", (NextToken(),)),),
    names={ours: theirs for ours, theirs in MBART.names.items() if not ours.endswith(NOT_THERE)},
    keys={
        **KEYS,
        "position_embedding.max_position_embeddings": "max_position_embeddings",
        "hidden_dropout": alike("dropout", "activation_dropout"),  # also inside feed-forward layers, as in its code
    },
    fixed={
        "kind": "encoder_decoder",
        "norm_position": "pre",
        "norm_eps": bart.EPSILON,
        "scale_embedding": True,
        "embedding_norm": False,
        "position_embedding.kind": "sinusoidal",
    },
    built_in={
        **NO_LAYER_DROP,
        "tie_word_embeddings": True,
        "scale_embedding": True,
        "normalize_before": True,
        "normalize_embedding": False,
        "add_final_layer_norm": True,
        "static_position_embeddings": True,
    },
    defaults={**MBART.defaults, "activation_dropout": 0.0},
    constant_keys={"add_final_layer_norm": True, "static_position_embeddings": True},
    written={},
    pipeline_of=refuse_seq2seq,
    constants=make_tables,
    check_tensors=check_sinusoids,
)
