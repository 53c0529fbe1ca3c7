"""The two streams of XLNet."""

from typing import ClassVar, Literal

from preprocessing.spec import require, spec
from training.specs.blocks import Blocks
from training.specs.part import Init, NetName, Visibility, Writing
from training.specs.positions import RelativeStreams
from training.specs.stack import Stack
from training.specs.tables import Plain
from training.specs.weights import Layers, Weights, linear_weights, norm_weights
from training.specs.window import Everything
from training.specs.work import Work


@spec
class TwoStream(Stack):
    """XLNet (arXiv:1906.08237): relative attention over content, and a second stream of queries that do not attend to
    their own token; relative segments; a memory. The attention mask is that of the rows."""

    kind: Literal["two_stream"] = "two_stream"
    positions: RelativeStreams = RelativeStreams()
    segments: int = 2  # told apart as same or different only; the number is that of the values a row may have

    label: ClassVar[str] = "two-stream encoder"
    family: ClassVar[int] = 3
    hides_own_token: ClassVar[bool] = True
    oracle: ClassVar[str] = ""
    visibility: ClassVar[Visibility] = "rows"
    writes: ClassVar[Writing] = "causal"
    window: ClassVar[Everything] = Everything()
    languages: ClassVar[int] = 0
    tables: ClassVar[Plain] = Plain()
    cutoffs: ClassVar[tuple[int, ...]] = ()
    init: ClassVar[Init] = "normal"

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.norm == "post", "trunk.norm", self.norm, "post")

    @property
    def table_width(self) -> int:
        return self.width

    @property
    def longest(self) -> int:
        return self.positions.longest

    @property
    def memory(self) -> int:
        return self.positions.memory

    @property
    def reuse(self) -> int:
        return self.positions.reuse

    def net(self, name: NetName) -> "TwoStream":
        return self

    def chunks_over(self, workers: int) -> str:
        return f"trunk.kind is {self.kind}, whose tokens are not shared"

    def stages_over(self, stages: int) -> str:
        return f"trunk.kind is {self.kind}, allowed with stages is an encoder or a decoder, one stack of blocks"

    def weights(self, vocab_size: int) -> Weights:
        """Of a layer's attention five linears without biases, three biases and two vectors of segments."""
        split = 5 * linear_weights(self.width, self.width_of_heads, bias=False) + 5 * self.width_of_heads
        attentions = Layers(self.layers, self.layers, split, norm_weights(self.width))
        layers = (attentions, self.feed_forwards(self.layers, self.layers))
        return Weights(tables=vocab_size * self.width, layers=layers, others=self.width)

    def products(self, work: Work) -> float:
        """A query of the second stream is made at the targets only."""
        pairs = (work.tokens + work.targets) * (work.length + self.memory)
        remembered = self.keys_values * self.memory * work.rows
        queries = (self.linears - self.keys_values) * work.targets
        blocks = self.linears * work.tokens + remembered + queries
        return self.layers * (blocks + self.positions.per_pair * self.width_of_heads * pairs)

    def blocks(self, work: Work) -> tuple[Blocks, ...]:
        """Both streams go through each block; scores are of content, distance and segment, their sum and softmax."""
        both = work.tokens + work.targets
        return (self.block(self.layers, both, both * (work.length + self.memory), scores=5),)

    def describe_positions(self) -> str:
        return self.positions.describe()

    def describe_attention(self) -> str:
        return self.window.describe()

    def describe_memory(self) -> str:
        return f"a memory of {self.memory:,} tokens" if self.memory else "no memory"
