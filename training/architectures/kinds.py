"""The modules of the kinds of attention and of feed-forward layers (training/specs/kinds.py)."""

from typing import Any, get_args

from training.architectures.attention import Attention
from training.architectures.disentangled import DisentangledAttention
from training.architectures.feed_forward import FeedForward
from training.architectures.gated_attention import GatedAttentionModule
from training.architectures.gated_feed_forward import GatedFeedForwardModule
from training.architectures.global_attention import GlobalAttention
from training.specs import FeedForwardSpec, SelfAttentionSpec

AttentionModule = Attention | DisentangledAttention | GatedAttentionModule | GlobalAttention
FeedForwardModule = FeedForward | GatedFeedForwardModule


def make_attention(spec: SelfAttentionSpec) -> AttentionModule:
    """The module of an attention layer."""
    module: AttentionModule = _find_module(AttentionModule, spec.kind)(spec)
    return module


def make_feed_forward(spec: FeedForwardSpec) -> FeedForwardModule:
    """The module of a feed-forward layer."""
    module: FeedForwardModule = _find_module(FeedForwardModule, spec.kind)(spec)
    return module


def _find_module(union: Any, kind: str) -> Any:
    """The class of a union with this kind."""
    return next(module for module in get_args(union) if module.kind == kind)
