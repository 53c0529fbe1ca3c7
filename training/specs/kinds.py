"""The kinds of attention and of feed-forward layers. Their modules are in training/architectures/kinds.py."""

from training.specs.attention import PlainAttention
from training.specs.feed_forward import PlainFeedForward
from training.specs.gated_attention import GatedAttention
from training.specs.gated_feed_forward import GatedFeedForward

AttentionKind = PlainAttention | GatedAttention
FeedForwardKind = PlainFeedForward | GatedFeedForward
