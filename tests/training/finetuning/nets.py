"""Tiny models of each class, and a batch for them."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import collate_unpadded
from preprocessing.schema import IGNORE, Row
from training.specs import (
    Architecture,
    Decoder,
    Encoder,
    EncoderDecoder,
    GeneratorDiscriminator,
    LearnedPositions,
    RelativeBias,
    RelativePositions,
    TwoStream,
    TwoStreamRelativePositions,
)

ROWS: Final = 60  # of the token table
_SIZE: Final = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
TRUNKS: Final[Mapping[str, Architecture]] = {
    "bert": Encoder(**_SIZE, position_embedding=LearnedPositions(max_position_embeddings=40)),
    "albert": Encoder(
        **_SIZE,
        position_embedding=LearnedPositions(max_position_embeddings=40),
        embedding_size=8,
        parameter_sharing="all",
    ),
    "megatron": Encoder(**_SIZE, position_embedding=LearnedPositions(max_position_embeddings=40), norm_position="pre"),
    "gpt1": Decoder(**_SIZE, position_embedding=LearnedPositions(max_position_embeddings=40), norm_position="post"),
    "gpt2": Decoder(**_SIZE, position_embedding=LearnedPositions(max_position_embeddings=40)),
    "transformer_xl": Decoder(**_SIZE, position_embedding=RelativePositions(mem_len=0), norm_position="post"),
    "t5": EncoderDecoder(
        **_SIZE,
        position_embedding=RelativeBias(),
        norm_position="pre",
        norm_type="rmsnorm",
        bias=False,
        embedding_norm=False,
    ),
    "xlnet": TwoStream(**_SIZE, position_embedding=TwoStreamRelativePositions(mem_len=0)),
    "electra": GeneratorDiscriminator(
        **_SIZE, position_embedding=LearnedPositions(max_position_embeddings=40), generator_size_ratio=0.5
    ),
}


def rows(count: int = 3, seed: int = 0) -> list[Row]:
    """Sequences of tokens with a label each."""
    rng = np.random.default_rng(seed)
    return [
        {
            "input_ids": rng.integers(5, ROWS, length).astype(np.int32),
            "token_type_ids": (np.arange(length) > length // 2).astype(np.int8),
            "labels": np.full(length, IGNORE, np.int32),
            "label": np.int64(rng.integers(2)),
        }
        for length in rng.integers(6, 20, count)
    ]


def batch_of(given: list[Row]) -> dict[str, Tensor]:
    """The sequences, unpadded."""
    return {name: torch.from_numpy(array) for name, array in collate_unpadded(given).items()}
