"""A decoder on top of a pretrained encoder: general sequence to sequence from a net that only reads.

The encoder keeps its weights; the decoder has as many blocks, with random ones, and attends to the encoder's states
(arXiv:1907.12461, BERT2RND). Both have one token table, which is the tied output too.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training.specs import Architecture, Encoder, EncoderDecoder, LearnedPositions, Seq2SeqLearnedPositions

_POSITIONS, _SEGMENTS = "trunk.positions.weight", "trunk.segments.weight"


def with_decoder(trunk: Architecture) -> EncoderDecoder:
    """The trunk of an encoder with a decoder on top. BadInput where the stacks cannot be of one kind."""
    why = _unfit(trunk)
    if why or not isinstance(trunk, Encoder):
        raise BadInput(f"a decoder on top of this {trunk.kind}: {why}; take an encoder such as BERT's or RoBERTa's")
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
        embedding_norm=trunk.embedding_norm,
    )


def _unfit(trunk: Architecture) -> str:
    if not isinstance(trunk, Encoder):
        return "it is no encoder"
    if not isinstance(trunk.position_embedding, LearnedPositions):
        return f"its positions are {trunk.position_embedding.kind}, allowed is learned"
    if trunk.parameter_sharing != "none" or trunk.table_width != trunk.hidden_size:
        return "its layers share weights, or its tables are narrower than its blocks"
    if trunk.num_languages or trunk.attention_window.narrows(0):
        return "it has languages or a window"
    return ""


def under_decoder(weights: Mapping[str, Tensor], trunk: Encoder) -> dict[str, Tensor]:
    """The weights of an encoder by the names that they have under a decoder.

    A source is one text, whose segment is 0: that row of the table is added to each position.
    """
    found = {}
    for name, weight in weights.items():
        if not name.startswith("trunk.") or name in (_POSITIONS, _SEGMENTS):
            continue
        if name == "trunk.tokens.weight":
            found[name] = weight
        elif ".attention.qkv." in name:
            query, key_value = weight.split([len(weight) // 3, 2 * len(weight) // 3])
            for part, tensor in (("query", query), ("key_value", key_value)):
                found[name.replace("trunk.", "trunk.encoder.", 1).replace("qkv", part)] = tensor
        else:
            found[name.replace("trunk.", "trunk.encoder.", 1)] = weight
    positions = weights[_POSITIONS]
    if trunk.type_vocab_size:
        positions = positions + weights[_SEGMENTS][0]
    return found | {"trunk.encoder.positions.weight": torch.as_tensor(positions)}
