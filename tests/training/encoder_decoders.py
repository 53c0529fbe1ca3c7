"""Small encoder-decoders of each kind, and sequences with sources for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from preprocessing.schema import Row
from tests.training.batches import random_rows
from tests.training.parity import built
from training.architectures import EncoderDecoderModel
from training.losses import NextToken
from training.model_spec import ModelSpec
from training.specs import EncoderDecoder, RelativeBias, Seq2SeqLearnedPositions, Seq2SeqSinusoidalPositions

NO_DROPOUT: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
SMALL: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, **NO_DROPOUT}
T5_KNOBS: dict[str, Any] = {
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "norm_eps": 1e-6,
    "bias": False,
    "activation": "relu",
    "scale_attention": False,
    "scale_decoder_outputs": True,
    "position_embedding": RelativeBias(),
    "embedding_norm": False,
}
PEGASUS_KNOBS: dict[str, Any] = {
    "norm_position": "pre",
    "norm_eps": 1e-5,
    "activation": "relu",
    "position_embedding": Seq2SeqSinusoidalPositions(),
    "scale_embedding": True,
    "embedding_norm": False,
}
BART = EncoderDecoder(
    **SMALL,
    norm_eps=1e-5,
    position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=18, offset=2),
    init_std=0.2,
)
T5 = EncoderDecoder(
    **SMALL,
    **T5_KNOBS | {"position_embedding": RelativeBias(num_buckets=8, max_distance=10)},
    head_dim=12,
    intermediate_size=40,
)
MASS = EncoderDecoder(
    **SMALL, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=16), num_languages=2, init_std=0.2
)
PEGASUS = EncoderDecoder(
    **SMALL,
    **PEGASUS_KNOBS | {"position_embedding": Seq2SeqSinusoidalPositions(max_position_embeddings=16)},
    init_std=0.2,
)
MBART = replace(BART, norm_position="pre", scale_embedding=True)
VOCAB = 320
RAGGED, SOURCES = [5, 12, 1, 7], [9, 3, 6, 14]


def spec_of(trunk: EncoderDecoder) -> ModelSpec:
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=VOCAB)


def net(trunk: EncoderDecoder) -> EncoderDecoderModel:
    """The trunk alone, in evaluation mode, with random values in every tensor."""
    made = built(spec_of(trunk)).trunk
    assert isinstance(made, EncoderDecoderModel)
    return made


def rows_of(trunk: EncoderDecoder, lengths: Sequence[int] = RAGGED, sources: Sequence[int] = SOURCES) -> list[Row]:
    """Sequences with a source. Those of MASS have languages, positions of a fragment, and a partly hidden source."""
    rng, rows = np.random.default_rng(1), list[Row]()
    for row, source in zip(random_rows(lengths, VOCAB - 2), sources, strict=True):
        length = len(row["input_ids"])
        row |= {
            "input_ids": row["input_ids"] + 2,
            "source_input_ids": rng.integers(2, VOCAB, size=source),
        }  # 1 is BART's padding ID
        if trunk.num_languages:
            row |= {"positions": np.arange(length) + 3, "languages": np.ones(length, np.int8)}
            row |= {"source_languages": np.zeros(source, np.int8), "source_seen": rng.random(source) < 0.5}
        rows.append(row)
    return rows


def inside(batch: Mapping[str, Tensor], side: str = "") -> Tensor:
    """Mask [B, S] of the tokens in a padded batch."""
    return torch.arange(batch[f"{side}input_ids"].shape[1]) < batch[f"{side}lengths"][:, None]
