"""The module of each kind of attention and of feed-forward layer, by the class of its tensors."""

from collections.abc import Mapping
from typing import Final

from training.architectures.attention import Attention
from training.architectures.feed_forward import FeedForward, GatedFeedForward
from training.architectures.gated_attention import GatedAttention
from training.architectures.global_attention import GlobalAttention
from training.specs import (
    FeedForwardSpec,
    GatedAttentionSpec,
    GatedFeedForwardSpec,
    GlobalAttentionSpec,
    SelfAttentionSpec,
    Seq2SeqAttentionSpec,
)

ATTENTIONS: Final[Mapping[type[SelfAttentionSpec], type[Attention]]] = {
    SelfAttentionSpec: Attention,
    Seq2SeqAttentionSpec: Attention,
    GatedAttentionSpec: GatedAttention,
    GlobalAttentionSpec: GlobalAttention,
}
FEED_FORWARDS: Final[Mapping[type[FeedForwardSpec], type[FeedForward]]] = {
    FeedForwardSpec: FeedForward,
    GatedFeedForwardSpec: GatedFeedForward,
}


def make_attention(spec: SelfAttentionSpec) -> Attention:
    """The module of an attention layer."""
    return ATTENTIONS[type(spec)](spec)


def make_feed_forward(spec: FeedForwardSpec) -> FeedForward:
    """The module of a feed-forward layer."""
    return FEED_FORWARDS[type(spec)](spec)
