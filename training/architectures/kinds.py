"""The modules of the kinds of attention and of feed-forward layers (training/specs/kinds.py)."""

from typing import Any, get_args

from training.architectures.attention import Attention
from training.architectures.feed_forward import FeedForward
from training.architectures.gated_attention import GatedAttention
from training.architectures.gated_feed_forward import GatedFeedForward
from training.architectures.global_attention import GlobalAttention
from training.specs import FeedForwardSpec, SelfAttentionSpec

AttentionModule = Attention | GatedAttention | GlobalAttention
FeedForwardModule = FeedForward | GatedFeedForward


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
