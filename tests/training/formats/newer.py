"""A small model of each model type with newer parts."""

from dataclasses import replace
from typing import Any, Final

from tests.training import modern
from training.losses import MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.specs import RotaryPositions, YarnScaling

YARN: Final = RotaryPositions(
    max_position_embeddings=modern.LONGEST,
    rope_theta=100.0,
    rope_scaling=YarnScaling(factor=2.5, original_max_position_embeddings=16, beta_fast=4.0),
)
TRUNKS: Final[dict[str, Any]] = {
    "llama": modern.LLAMA,
    "mistral": modern.DECODERS["mistral"],
    "qwen3": modern.DECODERS["qwen 3"],
    "gpt_neox": modern.NEOX,
    "gptj": modern.GPTJ,
    "mpt": modern.MPT,
    "modernbert": modern.MODERN_BERT,
    "mt5": replace(modern.T5_1_1, tie_word_embeddings=True),
}


def make_spec(trunk: Any, rows: int) -> ModelSpec:
    """The model with the head of its class in transformers."""
    is_gptj = getattr(trunk, "parallel_residual", "") == "one_norm"
    loss = MaskedTokens() if trunk.kind == "encoder" else NextToken(bias=is_gptj)
    return ModelSpec(model=trunk, losses=(loss,), vocab_size=rows)
