"""What every stack of blocks has, whatever it is made of."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from preprocessing.spec import Shrinks, require, spec
from training.specs.blocks import Blocks
from training.specs.part import NetName, Read
from training.specs.tables import Plain
from training.specs.weights import Layers, attention_weights, feed_forward_weights, norm_weights

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "gelu_tanh", "relu"]
Sharing = Literal["none", "attention", "feed_forward", "all"]


@spec
class Stack:
    """Sizes of a stack of blocks, and the facts that most trunks share."""

    layers: int
    width: int
    heads: int
    head_width: int = 0  # 0 means width / heads; GPT-3 1.3B and T5 3B have others
    inner: int = 0  # width of the feed-forward layer; 0 means 4 x width, as in most published sizes
    norm: Norm = "post"
    norm_eps: float = 1e-12
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02

    label: ClassVar[str]  # the kind in words
    nets: ClassVar[frozenset[NetName]] = frozenset({"net"})
    reads_source: ClassVar[bool] = False
    hides_own_token: ClassVar[bool] = False
    # init_std is 0.02 * sqrt(768 / width): at 0.02 a narrow net learns no pair task
    shrinks: ClassVar[Shrinks] = {
        scale: {
            "layers": layers,
            "width": width,
            "heads": heads,
            "head_width": 0,
            "inner": 0,
            "init_std": init_std,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }
        for scale, layers, width, heads, init_std in (("tiny", 2, 64, 2, 0.069), ("small", 2, 256, 4, 0.035))
    }

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads"):
            require(getattr(self, name) >= 1, f"trunk.{name}", getattr(self, name), "a whole number from 1 up")
        for name in ("head_width", "inner"):
            require(getattr(self, name) >= 0, f"trunk.{name}", getattr(self, name), "a whole number from 0 up")
        fits = self.head_width > 0 or self.width % self.heads == 0
        require(fits, "trunk.heads", self.heads, f"a divisor of width {self.width}")
        for name in ("dropout", "attention_dropout"):
            require(0 <= getattr(self, name) < 1, f"trunk.{name}", getattr(self, name), "a share from 0 up to 1")
        require(self.init_std > 0, "trunk.init_std", self.init_std, "a positive number")

    @property
    def begins_trained(self) -> str:
        return ""

    @property
    def inner_width(self) -> int:
        return self.inner or 4 * self.width

    @property
    def width_of_head(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def width_of_heads(self) -> int:
        """Of all heads together."""
        return self.heads * self.width_of_head

    @property
    def linears(self) -> int:
        """Multiplications of a block's linears for a token: queries, keys, values and output, and feed-forward."""
        return 4 * self.width * self.width_of_heads + 2 * self.width * self.inner_width

    @property
    def keys_values(self) -> int:
        """Multiplications of the linears for a token's keys and values alone."""
        return 2 * self.width * self.width_of_heads

    def self_attentions(self, number: int, copies: int) -> Layers:
        """The weights of so many attentions with one linear for queries, keys and values, and a norm each."""
        split, whole = attention_weights(self.width, self.width_of_heads)
        return Layers(number, copies, split, whole + norm_weights(self.width))

    def feed_forwards(self, number: int, copies: int) -> Layers:
        """The weights of so many feed-forward layers, with a norm each."""
        split, whole = feed_forward_weights(self.width, self.inner_width)
        return Layers(number, copies, split, whole + norm_weights(self.width))

    def block(self, number: int, tokens: float, pairs: float, **more: Any) -> Blocks:
        """So many blocks of these sizes, each with so many tokens and pairs of them."""
        return Blocks(
            number=number,
            tokens=tokens,
            pairs=pairs,
            width=self.width,
            heads=self.heads,
            head_width=self.width_of_head,
            inner=self.inner_width,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            kept_inside=1 if self.activation == "relu" else 2,
            **more,
        )

    def answers(self, vocab_size: int) -> int:
        return vocab_size

    def split_over(self, workers: int) -> str:
        sizes = {"trunk.heads": self.heads, "trunk.inner": self.inner_width}
        odd = [f"{key} is {size}" for key, size in sizes.items() if size % workers]
        return f"{odd[0]}, allowed is a multiple of the {workers} workers that share a net" if odd else ""

    def layers_over(self, stages: int) -> str:
        """What `stages_over` is where the layers are one stack of blocks, each with weights of its own."""
        if self.layers >= stages:
            return ""
        return f"trunk.layers is {self.layers}, allowed is at least one for each of the {stages} stages"

    def heads_over(self, workers: int) -> str:
        """What `chunks_over` is where a token may attend to any of its row."""
        if self.heads % workers == 0:
            return ""
        return f"trunk.heads is {self.heads}, allowed is a multiple of the {workers} workers that share rows"

    def fits(self, losses: Sequence[Read]) -> str:
        return ""

    def describe(self) -> str:
        size = f"{self.layers} layers, width {self.width:,}, {self.heads} heads"
        return f"{self.label}, {size}, {self.norm}-norm"

    def describe_memory(self) -> str:
        return "no memory"

    def describe_tables(self) -> str:
        return Plain().describe()

    def describe_sharing(self) -> str:
        return "no parameters shared between layers"

    def describe_norm(self) -> str:
        return "LayerNorm"
