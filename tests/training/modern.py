"""Small models with the parts of newer papers: rotary positions, grouped queries, gates, windows, and others."""

from dataclasses import replace
from typing import Any, Final

from training.specs import (
    AlibiPositions,
    AlternatingWindow,
    CausalSlidingWindow,
    Decoder,
    Encoder,
    EncoderAlternatingWindow,
    EncoderDecoder,
    GatedAttention,
    GatedFeedForward,
    Llama3Scaling,
    RelativeBias,
    RotaryPositions,
)

LONGEST: Final = 40
SIZES: Final[dict[str, Any]] = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.2,
}
LLAMA: Final = Decoder(
    **SIZES,
    num_key_value_heads=2,
    intermediate_size=48,
    feed_forward=GatedFeedForward(),
    activation="silu",
    norm_type="rmsnorm",
    norm_eps=1e-6,
    bias=False,
    position_embedding=RotaryPositions(max_position_embeddings=LONGEST),
    tie_word_embeddings=False,
)
NEOX: Final = Decoder(
    **SIZES,
    activation="gelu",
    parallel_residual="two_norms",
    position_embedding=RotaryPositions(max_position_embeddings=LONGEST, partial_rotary_factor=0.25),
    tie_word_embeddings=False,
)
GPTJ: Final = Decoder(
    **SIZES,
    attention_bias=False,
    parallel_residual="one_norm",
    position_embedding=RotaryPositions(max_position_embeddings=LONGEST, partial_rotary_factor=0.5, interleaved=True),
    tie_word_embeddings=False,
)
MPT: Final = Decoder(
    **SIZES, bias=False, activation="gelu", position_embedding=AlibiPositions(max_position_embeddings=LONGEST)
)
DECODERS: Final = {
    "llama": LLAMA,
    "llama 3": replace(
        LLAMA,
        position_embedding=RotaryPositions(
            max_position_embeddings=LONGEST,
            rope_theta=500.0,
            rope_scaling=Llama3Scaling(factor=8.0, original_max_position_embeddings=16),
        ),
    ),
    "mistral": replace(LLAMA, attention_window=CausalSlidingWindow(size=4)),
    "qwen 3": replace(LLAMA, qk_norm=True, num_key_value_heads=1, tie_word_embeddings=True),
    "local theta": replace(
        LLAMA,
        position_embedding=RotaryPositions(max_position_embeddings=LONGEST, local_rope_theta=50.0),
        attention_window=AlternatingWindow(size=4, global_attn_every_n_layers=3),
    ),
    "gated attention": replace(LLAMA, attention=GatedAttention()),
    "gpt-neox": NEOX,
    "gpt-j": GPTJ,
    "mpt": MPT,
}
MODERN_BERT: Final = Encoder(
    **SIZES | {"num_hidden_layers": 5},
    intermediate_size=48,
    feed_forward=GatedFeedForward(),
    norm_position="pre",
    norm_eps=1e-5,
    embedding_norm=True,
    bias=False,
    type_vocab_size=0,
    position_embedding=RotaryPositions(max_position_embeddings=LONGEST, rope_theta=160.0, local_rope_theta=10.0),
    attention_window=EncoderAlternatingWindow(size=8),
)
MOSAIC_BERT: Final = Encoder(
    **SIZES,
    feed_forward=GatedFeedForward(up_bias=False),
    position_embedding=AlibiPositions(max_position_embeddings=LONGEST),
)
ENCODERS: Final = {
    "modernbert": MODERN_BERT,
    "mosaicbert": MOSAIC_BERT,
    "grouped queries": replace(MOSAIC_BERT, num_key_value_heads=2, qk_norm=True, tie_word_embeddings=False),
}
T5_1_1: Final = EncoderDecoder(
    **SIZES,
    intermediate_size=48,
    norm_position="pre",
    norm_type="rmsnorm",
    norm_eps=1e-6,
    bias=False,
    feed_forward=GatedFeedForward(),
    activation="gelu_tanh",
    position_embedding=RelativeBias(),
    embedding_norm=False,
    scale_attention=False,
    tie_word_embeddings=False,
)
TRUNKS: Final[dict[str, Any]] = DECODERS | ENCODERS | {"t5 1.1": T5_1_1}
