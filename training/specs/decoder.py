"""The decoder: GPT and its line, and with relative positions Transformer-XL."""

from typing import Annotated, ClassVar, Literal

from preprocessing.spec import BY_KIND, Shrinks, require, shrunk, spec
from training.specs.blocks import Blocks
from training.specs.part import Init, NetName, Visibility, Writing
from training.specs.positions import LearnedCausal, Relative
from training.specs.stack import Activation, Norm, Sharing, Stack
from training.specs.tables import Adaptive, Plain
from training.specs.weights import Layers, Weights, linear_weights, norm_weights
from training.specs.window import Band, Everything
from training.specs.work import Work


@spec
class Decoder(Stack):
    """A causal transformer, GPT-2 (Radford 2019): pre-norm, final norm, residual projections by 1 / sqrt(2 L).

    GPT-1 is post-norm. With relative positions it is Transformer-XL (arXiv:1901.02860): sinusoids of the distance, two
    biases that all layers share, no biases in the attention's projections, embeddings times sqrt(width), and a memory.
    """

    kind: Literal["decoder"] = "decoder"
    norm: Norm = "pre"
    norm_eps: float = 1e-5
    activation: Activation = "gelu_tanh"
    positions: Annotated[LearnedCausal | Relative, BY_KIND] = LearnedCausal(max=1024)
    tables: Annotated[Plain | Adaptive, BY_KIND] = Plain()
    init: Init = "normal"  # law of the first weights
    scale_residuals: bool = True  # pre-norm, residual projections begin with 1 / sqrt(2 L) of init_std (GPT-2)

    label: ClassVar[str] = "decoder"
    family: ClassVar[int] = 2
    visibility: ClassVar[Visibility] = "causal"
    writes: ClassVar[Writing] = "causal"
    segments: ClassVar[int] = 0
    languages: ClassVar[int] = 0
    sharing: ClassVar[Sharing] = "none"
    groups: ClassVar[int] = 1
    embedding_norm: ClassVar[bool] = False
    shrinks: ClassVar[Shrinks] = shrunk(Stack.shrinks, {"tiny": {"init": "normal"}, "small": {"init": "normal"}})

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        relative, cutoffs = self.positions.relative, self.tables.cutoffs
        require(not relative or self.norm == "post", "trunk.norm", self.norm, "post where positions are relative")
        require(relative or not cutoffs, "trunk.tables.kind", self.tables.kind, "plain where positions are learned")
        wide = self.width // self.tables.shrink ** len(cutoffs) >= 1
        require(wide, "trunk.tables.shrink", self.tables.shrink, "a number that leaves each cluster a width")

    @property
    def table_width(self) -> int:
        return self.width

    @property
    def window(self) -> Everything | Band:
        return self.positions.window

    @property
    def longest(self) -> int:
        return self.positions.longest

    @property
    def memory(self) -> int:
        return self.positions.memory

    @property
    def reuse(self) -> int:
        return self.positions.reuse

    @property
    def cutoffs(self) -> tuple[int, ...]:
        return self.tables.cutoffs

    @property
    def oracle(self) -> str:
        return "XLNetModel, one way; memory is a longer row" if self.positions.relative else ""

    def net(self, name: NetName) -> "Decoder":
        return self

    def chunks_over(self, workers: int) -> str:
        if self.positions.relative or any(map(self.window.narrows, range(self.layers))):
            return "trunk.positions are relative or have a window, where tokens are not shared"
        return self.heads_over(workers)

    def stages_over(self, stages: int) -> str:
        if self.positions.relative:
            return f"trunk.positions.kind is {self.positions.kind}, allowed with stages are positions without a memory"
        return self.layers_over(stages)

    def answers(self, vocab_size: int) -> int:
        """Of an adaptive softmax the first cluster counts, where most of the targets are."""
        return self.cutoffs[0] if self.cutoffs else vocab_size

    def weights(self, vocab_size: int) -> Weights:
        others = self.positions.rows * self.width + (norm_weights(self.width) if self.norm == "pre" else 0)
        attentions = self.self_attentions(self.layers, self.layers)
        if self.positions.relative:  # a linear for distances, none with a bias, and two biases that all layers share
            split = 5 * linear_weights(self.width, self.width_of_heads, bias=False)
            attentions = Layers(self.layers, self.layers, split, norm_weights(self.width))
            others += 2 * self.width_of_heads
        tables = vocab_size * self.width
        if self.tables.shrink > 1:
            bounds = (0, *self.cutoffs, vocab_size)
            widths = [self.width // self.tables.shrink**cluster for cluster in range(len(bounds) - 1)]
            tables = sum((stop - start) * width for start, stop, width in zip(bounds, bounds[1:], widths, strict=False))
            others += sum(linear_weights(width, self.width, bias=False) for width in widths)
        return Weights(tables, (attentions, self.feed_forwards(self.layers, self.layers)), others)

    def products(self, work: Work) -> float:
        """The linear over the distances, which all rows share, is left out."""
        pairs = self.window.pairs(work, self.layers, causal=True) + self.layers * self.memory * work.tokens
        remembered = self.layers * self.keys_values * self.memory * work.rows
        blocks = self.layers * self.linears * work.tokens
        return blocks + remembered + self.positions.per_pair * self.width_of_heads * pairs

    def blocks(self, work: Work) -> tuple[Blocks, ...]:
        """Scores are whole squares, masked; relative ones are two matrices, their sum and its softmax."""
        pairs = work.squares + self.memory * work.tokens
        return (self.block(self.layers, work.tokens, pairs, scores=4 if self.positions.relative else 0),)

    def describe_positions(self) -> str:
        return self.positions.describe()

    def describe_attention(self) -> str:
        return self.window.describe()

    def describe_tables(self) -> str:
        return self.tables.describe()

    def describe_memory(self) -> str:
        return f"a memory of {self.memory:,} tokens" if self.memory else "no memory"
