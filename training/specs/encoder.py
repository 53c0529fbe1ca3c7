"""The encoder: BERT and its line."""

from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal

from preprocessing.spec import BY_KIND, AtMost, Shrinks, require, shrunk, spec
from training.specs.blocks import Blocks
from training.specs.part import Init, NetName, Visibility, Writing
from training.specs.positions import Learned, Sinusoidal
from training.specs.stack import Sharing, Stack
from training.specs.tables import Plain
from training.specs.weights import Weights, attention_weights, linear_weights, norm_weights
from training.specs.window import Around, Everything
from training.specs.work import Work

SUBLAYERS: Final = ("attention", "feed_forward")


@spec
class Encoder(Stack):
    """A bidirectional transformer: BERT (arXiv:1810.04805) and its line.

    A post-norm one normalises the summed embeddings, a pre-norm one (Megatron-BERT, arXiv:1909.08053) its last states.
    """

    kind: Literal["encoder"] = "encoder"
    embedding: int = 0  # width of the tables where it is not that of the blocks (ALBERT 3.1); 0 means width
    positions: Annotated[Learned | Sinusoidal, BY_KIND] = Learned(max=512)
    init: Init = "normal"  # truncated: at two deviations (google-research/bert, as all who went on from there)
    segments: int = 2  # rows of the token-type table
    languages: int = 0  # rows of the language table (XLM, arXiv:1901.07291)
    sharing: Sharing = "none"  # what all layers of a group have in common (ALBERT 3.1)
    groups: int = 1  # of layers that share; layer i belongs to group i * groups // layers
    visibility: Visibility = "full"  # to which tokens one attends: all, those before it, or as each row says (UniLM)
    window: Annotated[Everything | Around, BY_KIND] = Everything()

    label: ClassVar[str] = "encoder"
    family: ClassVar[int] = 0
    oracle: ClassVar[str] = ""
    tables: ClassVar[Plain] = Plain()
    scale_residuals: ClassVar[bool] = True
    cutoffs: ClassVar[tuple[int, ...]] = ()
    shrinks: ClassVar[Shrinks] = shrunk(
        Stack.shrinks,
        {
            "tiny": {"init": "normal", "embedding": AtMost(32), "groups": AtMost(2)},
            "small": {"init": "normal", "embedding": AtMost(64), "groups": AtMost(4)},
        },
    )

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.embedding >= 0, "trunk.embedding", self.embedding, "a whole number from 0 up")
        require(1 <= self.groups <= self.layers, "trunk.groups", self.groups, f"from 1 to the {self.layers} layers")
        sees_all = not self.window.narrows(0) or self.visibility == "full"
        require(sees_all, "trunk.visibility", self.visibility, "full with a window")

    @property
    def writes(self) -> Writing:
        return "causal" if self.visibility == "causal" else "" if self.window.narrows(0) else "masked"

    @property
    def table_width(self) -> int:
        return self.embedding or self.width

    @property
    def embedding_norm(self) -> bool:
        """Whether the summed embeddings are normalised."""
        return self.norm == "post"

    @property
    def longest(self) -> int:
        return self.positions.longest

    @property
    def memory(self) -> int:
        return self.positions.memory

    @property
    def reuse(self) -> int:
        return self.positions.reuse

    def net(self, name: NetName) -> "Encoder":
        return self

    def chunks_over(self, workers: int) -> str:
        if any(map(self.window.narrows, range(self.layers))):
            return f"trunk.window.kind is {self.window.kind}, where tokens are not shared"
        return self.heads_over(workers)

    def stages_over(self, stages: int) -> str:
        if self.sharing != "none":
            return f"trunk.sharing is {self.sharing}, allowed with stages is none: layers that share lie together"
        return self.layers_over(stages)

    @property
    def tower(self) -> Weights:
        """The weights of its layers and of what is between them and the tables."""
        own = {name: self.groups if self.sharing in (name, "all") else self.layers for name in SUBLAYERS}
        attentions = self.self_attentions(self.layers, own["attention"])
        if self.window.global_first:  # a second set of queries, keys and values
            split, _ = attention_weights(self.width, self.width_of_heads)
            attentions = replace(attentions, split=attentions.split + split - self.width * self.width_of_heads)
        widened = linear_weights(self.table_width, self.width) if self.table_width != self.width else 0
        above = norm_weights(self.width) if self.norm == "pre" else 0
        return Weights(
            layers=(attentions, self.feed_forwards(self.layers, own["feed_forward"])), others=widened + above
        )

    def embeddings(self, vocab_size: int) -> Weights:
        """The weights of its tables."""
        rows = self.positions.rows + self.segments + self.languages
        others = rows * self.table_width + (norm_weights(self.table_width) if self.embedding_norm else 0)
        return Weights(tables=vocab_size * self.table_width, others=others)

    def weights(self, vocab_size: int) -> Weights:
        return self.embeddings(vocab_size) + self.tower

    def products(self, work: Work) -> float:
        widened = self.table_width * self.width if self.table_width != self.width else 0
        of_all = self.keys_values if self.window.global_first else 0  # the first token's linears, for all that it reads
        pairs = self.window.pairs(work, self.layers, causal=False)
        blocks = self.layers * (self.linears + of_all) * work.tokens
        return widened * work.tokens + blocks + self.positions.per_pair * self.width_of_heads * pairs

    def blocks(self, work: Work) -> tuple[Blocks, ...]:
        pairs, copies = self.window.computed(work)
        copied = 2 * (copies + self.window.global_first)  # keys and values, and those of all tokens for the first one
        return (self.block(self.layers, work.tokens, pairs, copied=copied),)

    def describe_positions(self) -> str:
        return self.positions.describe()

    def describe_tables(self) -> str:
        narrow = self.table_width != self.width
        return f"factorised token embeddings, {self.table_width:,} wide" if narrow else self.tables.describe()

    def describe_attention(self) -> str:
        return self.window.describe()

    def describe_sharing(self) -> str:
        if self.sharing == "none":
            return Stack.describe_sharing(self)
        what = {"all": "all", "attention": "attention", "feed_forward": "feed-forward"}[self.sharing]
        among = f"the layers of each of {self.groups} groups" if self.groups > 1 else "all layers"
        return f"{what} parameters shared by {among}"
