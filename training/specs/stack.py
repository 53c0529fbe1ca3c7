"""Keys and facts that all stacks of Transformer blocks share."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, require, spec
from training.specs.attention import SelfAttentionSpec
from training.specs.blocks import BlockSpec
from training.specs.counts import count_products, count_weights
from training.specs.feed_forward import Activation, FeedForwardSpec
from training.specs.part import LossFacts, NetName
from training.specs.tensors import BlockTensors, ModelTensors, NormSpec, Sublayer
from training.specs.token_embedding import PlainEmbedding
from training.specs.weights import Weights

NormPosition = Literal["pre", "post"]
Sharing = Literal["none", "attention", "feed_forward", "all"]


@spec
class Stack:
    """Sizes of a stack of Transformer blocks."""

    num_hidden_layers: int = key(doc="Number of Transformer blocks.")
    hidden_size: int = key(doc="Size of the hidden states.")
    num_attention_heads: int = key(doc="Number of attention heads per layer.")
    # GPT-3 1.3B and T5 3B have other sizes.
    head_dim: int = key(default=0, doc="Size of an attention head; 0: hidden_size / num_attention_heads.")
    intermediate_size: int = key(default=0, doc="Size of the feed-forward layer; 0: 4 x hidden_size.")
    norm_position: NormPosition = key(default="post", doc="Position of the norms: after or before each sublayer.")
    norm_eps: float = key(default=1e-12, doc="Epsilon of the norms.")
    activation: Activation = key(default="gelu", doc="Activation of the feed-forward layer.")
    hidden_dropout: float = key(default=0.1, doc="Dropout probability of hidden states.")
    attention_dropout: float = key(default=0.1, doc="Dropout probability of attention weights.")
    init_std: float = key(default=0.02, doc="Standard deviation of initial weights.")

    label: ClassVar[str]  # description of the kind
    nets: ClassVar[frozenset[NetName]] = frozenset({"net"})
    reads_source: ClassVar[bool] = False
    hides_own_token: ClassVar[bool] = False
    # init_std is 0.02 * sqrt(768 / hidden_size): with 0.02, a small model does not learn tasks of segment pairs
    scale_overrides: ClassVar[ScaleOverrides] = {
        scale: {
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": heads,
            "head_dim": 0,
            "intermediate_size": 0,
            "init_std": init_std,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        }
        for scale, layers, width, heads, init_std in (("tiny", 2, 64, 2, 0.069), ("small", 2, 256, 4, 0.035))
    }

    def __post_init__(self) -> None:
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
            require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "an integer of at least 1")
        for name in ("head_dim", "intermediate_size"):
            require(getattr(self, name) >= 0, f"model.{name}", getattr(self, name), "an integer of at least 0")
        fits = self.head_dim > 0 or self.hidden_size % self.num_attention_heads == 0
        require(
            fits, "model.num_attention_heads", self.num_attention_heads, f"a divisor of hidden_size {self.hidden_size}"
        )
        for name in ("hidden_dropout", "attention_dropout"):
            require(
                0 <= getattr(self, name) < 1, f"model.{name}", getattr(self, name), "a probability from 0 to below 1"
            )
        require(self.init_std > 0, "model.init_std", self.init_std, "a positive number")

    @property
    def begins_trained(self) -> str:
        return ""

    @property
    def inner_width(self) -> int:
        return self.intermediate_size or 4 * self.hidden_size

    @property
    def width_of_head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def width_of_heads(self) -> int:
        """Size of all heads together."""
        return self.num_attention_heads * self.width_of_head

    @property
    def attention(self) -> SelfAttentionSpec:
        """The self-attention of a block."""
        return SelfAttentionSpec(**self.attention_sizes)

    def attention_at(self, layer: int) -> SelfAttentionSpec:
        """The self-attention of a layer, counted from 0; the tensors of all layers are equal."""
        return self.attention

    @property
    def attention_sizes(self) -> dict[str, Any]:
        """The sizes that each kind of attention has."""
        heads, dropout = self.num_attention_heads, self.attention_dropout
        return {"width": self.hidden_size, "heads": heads, "head_dim": self.width_of_head, "dropout": dropout}

    @property
    def feed_forward(self) -> FeedForwardSpec:
        """The feed-forward layer of a block."""
        return FeedForwardSpec(self.hidden_size, self.inner_width, self.activation, self.inner_dropout)

    @property
    def inner_dropout(self) -> float:
        """Dropout probability inside the feed-forward layer."""
        return 0.0

    def norm(self, name: str, width: int = 0) -> NormSpec:
        """A norm of this name; `width` 0: of hidden states."""
        return NormSpec(name, width or self.hidden_size, eps=self.norm_eps)

    def sublayers(self) -> tuple[Sublayer, ...]:
        """The layers of a block with a residual, in their order."""
        return (
            Sublayer("attention", self.attention.tensors(), self.norm("attention_norm")),
            Sublayer("feed_forward", self.feed_forward.tensors(), self.norm("feed_forward_norm")),
        )

    def block_tensors(self) -> BlockTensors:
        """The tensors of the stack of blocks."""
        return BlockTensors("blocks", self.num_hidden_layers, self.sublayers())

    def tensors(self, vocab_size: int) -> ModelTensors:
        """All tensors of the model without its heads, with `vocab_size` rows in the token table."""
        raise NotImplementedError

    def weights(self, vocab_size: int) -> Weights:
        return count_weights(self.tensors(vocab_size))

    @property
    def linears(self) -> int:
        """Multiplications per token in the linear layers of a block."""
        return sum(map(count_products, self.sublayers()))

    @property
    def keys_values(self) -> int:
        """Multiplications per token in the linear layers of keys and values."""
        return self.attention.key_value.products

    def block(self, number: int, tokens: float, pairs: float, **more: Any) -> BlockSpec:
        """`number` blocks of these sizes, with the tokens and pairs of a batch in each of them."""
        parts: dict[str, Any] = {"attention": self.attention, "feed_forward": self.feed_forward} | more
        return BlockSpec(number=number, tokens=tokens, pairs=pairs, dropout=self.hidden_dropout, **parts)

    def answers(self, vocab_size: int) -> int:
        return vocab_size

    def split_over(self, workers: int) -> str:
        sizes = {"model.num_attention_heads": self.num_attention_heads, "model.intermediate_size": self.inner_width}
        odd = [f"{key} is {size}" for key, size in sizes.items() if size % workers]
        return f"{odd[0]}, not a multiple of the {workers} workers that share a model" if odd else ""

    def layers_over(self, stages: int) -> str:
        """`stages_over` of one stack of blocks with separate weights."""
        if self.num_hidden_layers >= stages:
            return ""
        return (
            f"model.num_hidden_layers is {self.num_hidden_layers}, but each of the {stages} stages needs at least one "
            "layer"
        )

    def heads_over(self, workers: int) -> str:
        """`chunks_over` if tokens attend to the full sequence."""
        if self.num_attention_heads % workers == 0:
            return ""
        return (
            f"model.num_attention_heads is {self.num_attention_heads}, not a multiple of the {workers} workers that "
            "share sequences"
        )

    def fits(self, losses: Sequence[LossFacts]) -> str:
        return ""

    def describe(self) -> str:
        size = f"{self.num_hidden_layers} layers, width {self.hidden_size:,}, {self.num_attention_heads} heads"
        return f"{self.label}, {size}, {self.norm_position}-norm"

    def describe_memory(self) -> str:
        return "no memory"

    def describe_tables(self) -> str:
        return PlainEmbedding().describe()

    def describe_sharing(self) -> str:
        return "no parameters shared between layers"

    def describe_norm(self) -> str:
        return "LayerNorm"
