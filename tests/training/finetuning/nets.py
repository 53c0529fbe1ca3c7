"""Tiny nets of each class, and a batch for them."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import unpadded
from preprocessing.schema import IGNORE, Row
from training.specs import (
    Buckets,
    Decoder,
    Encoder,
    EncoderDecoder,
    Learned,
    LearnedCausal,
    Relative,
    RelativeStreams,
    Trunk,
    Twin,
    TwoStream,
)

ROWS: Final = 60  # of the token table
_SIZE: Final = {"layers": 2, "width": 16, "heads": 2}
TRUNKS: Final[Mapping[str, Trunk]] = {
    "bert": Encoder(**_SIZE, positions=Learned(max=40)),
    "albert": Encoder(**_SIZE, positions=Learned(max=40), embedding=8, sharing="all"),
    "megatron": Encoder(**_SIZE, positions=Learned(max=40), norm="pre"),
    "gpt1": Decoder(**_SIZE, positions=LearnedCausal(max=40), norm="post"),
    "gpt2": Decoder(**_SIZE, positions=LearnedCausal(max=40)),
    "transformer_xl": Decoder(**_SIZE, positions=Relative(memory=0), norm="post"),
    "t5": EncoderDecoder(**_SIZE, positions=Buckets(), norm="pre", norm_kind="rms", bias=False, embedding_norm=False),
    "xlnet": TwoStream(**_SIZE, positions=RelativeStreams(memory=0)),
    "electra": Twin(**_SIZE, positions=Learned(max=40), generator=0.5),
}


def rows(count: int = 3, seed: int = 0) -> list[Row]:
    """Rows of tokens with a label each."""
    rng = np.random.default_rng(seed)
    return [
        {
            "ids": rng.integers(5, ROWS, length).astype(np.int32),
            "segments": (np.arange(length) > length // 2).astype(np.int8),
            "labels": np.full(length, IGNORE, np.int32),
            "label": np.int64(rng.integers(2)),
        }
        for length in rng.integers(6, 20, count)
    ]


def batch_of(given: list[Row]) -> dict[str, Tensor]:
    """The rows, unpadded."""
    return {name: torch.from_numpy(array) for name, array in unpadded(given).items()}
