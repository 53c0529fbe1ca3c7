"""Keys of the model, phases and engine in recipes and cluster files.

Read part.py (the facts of an architecture), then tensors.py (the tensors that it declares), stack.py and encoder.py,
then attention.py, position_embedding.py and attention_window.py. Each other architecture has one file. The union below
is the registry; the kinds of parts inside an architecture follow it. Losses and optimizers have packages of their own.
This package does not import torch, so that `sesame check` starts quickly.
"""

from typing import Final

from training.specs.alibi import AlibiPositions, alibi_slopes
from training.specs.attention import (
    AttentionPart,
    GlobalAttentionSpec,
    PlainAttention,
    RelativeAttentionSpec,
    SelfAttentionSpec,
    Seq2SeqAttentionSpec,
)
from training.specs.attention_window import (
    AlternatingWindow,
    AttentionWindow,
    CausalSlidingWindow,
    EncoderAlternatingWindow,
    FullAttention,
    SlidingWindow,
)
from training.specs.blocks import BlockSpec
from training.specs.buffers import (
    BUCKET,
    LIVE,
    LOGIT_BYTES,
    LOGITS_AT_ONCE,
    PREFETCH,
    TABLE_ROWS,
    count_logits_at_once,
)
from training.specs.counts import count_weights
from training.specs.decoder import Decoder
from training.specs.disentangled import DisentangledAttentionSpec, DisentangledPositions
from training.specs.encoder import Encoder
from training.specs.encoder_decoder import EncoderDecoder
from training.specs.engine_settings import ActivationCheckpointing, EngineSettings, Fp8Recipe, Offload, Phase
from training.specs.feed_forward import Activation, FeedForwardPart, FeedForwardSpec, PlainFeedForward
from training.specs.gated_attention import GatedAttention, GatedAttentionSpec
from training.specs.gated_feed_forward import GatedFeedForward, GatedFeedForwardSpec
from training.specs.generator_discriminator import GeneratorDiscriminator
from training.specs.kinds import AttentionKind, FeedForwardKind
from training.specs.loss_spikes import LossSpikes
from training.specs.mask_head import list_mask_head
from training.specs.part import ArchitecturePart, Init, LossFacts, NetName, Visibility
from training.specs.phase_blends import list_blends
from training.specs.position_embedding import (
    LearnedPositions,
    PositionEmbedding,
    RelativeBias,
    RelativePositions,
    Seq2SeqLearnedPositions,
    Seq2SeqSinusoidalPositions,
    SinusoidalPositions,
    TwoStreamRelativePositions,
)
from training.specs.rotary import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    RopeScaling,
    RotaryPositions,
    ScalingPart,
    YarnScaling,
)
from training.specs.stack import SelfAttentionStack, Stack
from training.specs.tensors import (
    BlockTensors,
    LinearSpec,
    ModelTensors,
    NormSpec,
    Sublayer,
    TableSpec,
    Tensors,
    VectorsSpec,
)
from training.specs.token_embedding import AdaptiveEmbedding, PlainEmbedding, TokenEmbedding
from training.specs.two_stream import TwoStream
from training.specs.weights import LayerWeights, Weights
from training.specs.work import BatchWork

__all__ = [
    "BUCKET",
    "LIVE",
    "LOGITS_AT_ONCE",
    "LOGIT_BYTES",
    "POSITIONS",
    "PREFETCH",
    "TABLES",
    "TABLE_ROWS",
    "WINDOWS",
    "Activation",
    "ActivationCheckpointing",
    "AdaptiveEmbedding",
    "AlibiPositions",
    "AlternatingWindow",
    "Architecture",
    "ArchitecturePart",
    "AttentionKind",
    "AttentionPart",
    "AttentionWindow",
    "BatchWork",
    "BlockSpec",
    "BlockTensors",
    "CausalSlidingWindow",
    "Decoder",
    "DisentangledAttentionSpec",
    "DisentangledPositions",
    "Encoder",
    "EncoderAlternatingWindow",
    "EncoderDecoder",
    "EngineSettings",
    "FeedForwardKind",
    "FeedForwardPart",
    "FeedForwardSpec",
    "Fp8Recipe",
    "FullAttention",
    "GatedAttention",
    "GatedAttentionSpec",
    "GatedFeedForward",
    "GatedFeedForwardSpec",
    "GeneratorDiscriminator",
    "GlobalAttentionSpec",
    "Init",
    "LayerWeights",
    "LearnedPositions",
    "LinearScaling",
    "LinearSpec",
    "Llama3Scaling",
    "LossFacts",
    "LossSpikes",
    "ModelTensors",
    "NetName",
    "NoScaling",
    "NormSpec",
    "Offload",
    "Phase",
    "PlainAttention",
    "PlainEmbedding",
    "PlainFeedForward",
    "PositionEmbedding",
    "RelativeAttentionSpec",
    "RelativeBias",
    "RelativePositions",
    "RopeScaling",
    "RotaryPositions",
    "ScalingPart",
    "SelfAttentionSpec",
    "SelfAttentionStack",
    "Seq2SeqAttentionSpec",
    "Seq2SeqLearnedPositions",
    "Seq2SeqSinusoidalPositions",
    "SinusoidalPositions",
    "SlidingWindow",
    "Stack",
    "Sublayer",
    "TableSpec",
    "Tensors",
    "TokenEmbedding",
    "TwoStream",
    "TwoStreamRelativePositions",
    "VectorsSpec",
    "Visibility",
    "Weights",
    "YarnScaling",
    "alibi_slopes",
    "count_logits_at_once",
    "count_weights",
    "list_blends",
    "list_mask_head",
]

Architecture = Encoder | Decoder | EncoderDecoder | TwoStream | GeneratorDiscriminator
POSITIONS: Final[tuple[type[PositionEmbedding], ...]] = (
    *(LearnedPositions, Seq2SeqLearnedPositions),
    *(SinusoidalPositions, Seq2SeqSinusoidalPositions, RelativePositions, TwoStreamRelativePositions, RelativeBias),
    *(RotaryPositions, AlibiPositions, DisentangledPositions),
)
WINDOWS: Final[tuple[type[AttentionWindow], ...]] = (
    *(FullAttention, SlidingWindow, AlternatingWindow),
    *(CausalSlidingWindow, EncoderAlternatingWindow),
)
TABLES: Final[tuple[type[TokenEmbedding], ...]] = (PlainEmbedding, AdaptiveEmbedding)


def _has_every_fact(trunk: Architecture) -> ArchitecturePart:
    return trunk  # the type checker reports a member that lacks a fact
