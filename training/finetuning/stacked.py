"""A decoder on top of a pretrained encoder, for sequence-to-sequence tasks.

The encoder keeps its weights. The decoder has as many layers, with random weights, and attends to the encoder's
states (arXiv:1907.12461, BERT2RND). Both use one embedding table, which is also the tied output layer.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training.specs import Architecture, Encoder, EncoderDecoder, LearnedPositions, Seq2SeqLearnedPositions

_POSITIONS, _SEGMENTS = "trunk.positions.weight", "trunk.segments.weight"


def with_decoder(trunk: Architecture) -> EncoderDecoder:
    """Return the encoder with a decoder on top. Raises BadInput if the encoder does not support a decoder."""
    why = _reason_unsupported(trunk)
    if why or not isinstance(trunk, Encoder):
        raise BadInput(f"cannot add a decoder to this {trunk.kind}: {why}; use an encoder such as BERT or RoBERTa")
    return EncoderDecoder(
        num_hidden_layers=trunk.num_hidden_layers,
        hidden_size=trunk.hidden_size,
        num_attention_heads=trunk.num_attention_heads,
        head_dim=trunk.head_dim,
        intermediate_size=trunk.intermediate_size,
        norm_position=trunk.norm_position,
        norm_eps=trunk.norm_eps,
        activation=trunk.activation,
        hidden_dropout=trunk.hidden_dropout,
        attention_dropout=trunk.attention_dropout,
        init_std=trunk.init_std,
        position_embedding=Seq2SeqLearnedPositions(
            max_position_embeddings=trunk.position_embedding.rows, offset=trunk.position_embedding.offset
        ),
        embedding_norm=trunk.normalizes_embeddings,
    )


def _reason_unsupported(trunk: Architecture) -> str:
    if not isinstance(trunk, Encoder):
        return "it is not an encoder"
    if not isinstance(trunk.position_embedding, LearnedPositions):
        return f"position_embedding is {trunk.position_embedding.kind}, expected learned"
    if trunk.parameter_sharing != "none" or trunk.table_width != trunk.hidden_size:
        return "its layers share weights, or embedding_size differs from hidden_size"
    if trunk.num_languages or trunk.attention_window.narrows(0):
        return "it has language embeddings or an attention window"
    return ""


def under_decoder(weights: Mapping[str, Tensor], trunk: Encoder) -> dict[str, Tensor]:
    """Rename the weights of an encoder to their names in an encoder-decoder.

    All tokens of a source have segment 0, so the embedding of segment 0 is added to each position embedding.
    """
    renamed = {}
    for name, weight in weights.items():
        if not name.startswith("trunk.") or name in (_POSITIONS, _SEGMENTS):
            continue
        if name == "trunk.tokens.weight":
            renamed[name] = weight
        elif ".attention.qkv." in name:
            query, key_value = weight.split([len(weight) // 3, 2 * len(weight) // 3])
            for part, tensor in (("query", query), ("key_value", key_value)):
                renamed[name.replace("trunk.", "trunk.encoder.", 1).replace("qkv", part)] = tensor
        else:
            renamed[name.replace("trunk.", "trunk.encoder.", 1)] = weight
    positions = weights[_POSITIONS]
    if trunk.type_vocab_size:
        positions = positions + weights[_SEGMENTS][0]
    return renamed | {"trunk.encoder.positions.weight": torch.as_tensor(positions)}
