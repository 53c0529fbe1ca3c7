"""The two-stream encoder of XLNet."""

from dataclasses import replace
from typing import ClassVar, Literal

from preprocessing.spec import key, require, spec
from training.specs.attention import RelativeAttentionSpec
from training.specs.blocks import BlockSpec
from training.specs.part import Visibility, Writing
from training.specs.position_embedding import TwoStreamRelativePositions
from training.specs.stack import Stack
from training.specs.tensors import ModelTensors, TableSpec, VectorsSpec
from training.specs.work import BatchWork


@spec
class TwoStream(Stack):
    """Two-stream encoder (XLNet, arXiv:1906.08237).

    A content stream has relative attention, relative segments and a memory. A second stream of queries does not attend
    to its own token. The attention mask is that of the sequences.
    """

    kind: Literal["two_stream"] = "two_stream"
    position_embedding: TwoStreamRelativePositions = key(
        default=TwoStreamRelativePositions(), doc="Type of position embedding."
    )
    # Attention uses only whether two tokens have the same type; this is the number of types in a sequence.
    type_vocab_size: int = key(default=2, doc="Number of token types (segments).")

    label: ClassVar[str] = "two-stream encoder"
    family: ClassVar[int] = 3
    hides_own_token: ClassVar[bool] = True
    attention_mask: ClassVar[Visibility] = "per_sequence"
    writes: ClassVar[Writing] = "causal"

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.norm_position == "post", "model.norm_position", self.norm_position, "post")

    @property
    def attention_layer(self) -> RelativeAttentionSpec:
        return RelativeAttentionSpec(**self.attention_sizes() | {"bias": False}, has_segments=True)

    @property
    def inner_dropout(self) -> float:
        return self.hidden_dropout

    def tensors(self, vocab_size: int) -> ModelTensors:
        """`unknown` is the initial state of all queries."""
        tokens = TableSpec("tokens", vocab_size, self.hidden_size, "rows")
        return ModelTensors((tokens, VectorsSpec("unknown", (1, self.hidden_size))), (self.block_tensors(),))

    def products(self, work: BatchWork) -> float:
        """The second stream has queries at the targets only."""
        pairs = (work.tokens + work.targets) * (work.length + self.mem_len)
        remembered = self.keys_values * self.mem_len * work.rows
        queries = (self.linears - self.keys_values) * work.targets
        blocks = self.linears * work.tokens + remembered + queries
        return self.num_hidden_layers * (blocks + self.position_embedding.per_pair * self.width_of_heads * pairs)

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """Each block processes both streams.

        Scores are those of content, distance and segment, their sum and softmax. This is more than is measured, so the
        dropout inside the feed-forward layer is not added.
        """
        both, plain = work.tokens + work.targets, replace(self.feed_forward_layer, dropout=0.0)
        pairs = both * (work.length + self.mem_len)
        return (self.block(self.num_hidden_layers, both, pairs, scores=5, feed_forward=plain),)
