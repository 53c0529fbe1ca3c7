"""Keys and facts that all stacks of Transformer blocks share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, AtMost, ScaleOverrides, key, merge_scales, require, spec
from training.specs.attention import PlainAttention, SelfAttentionSpec
from training.specs.attention_window import AttentionWindow, FullAttention
from training.specs.blocks import BlockSpec, ParallelResidual
from training.specs.counts import count_products, count_weights
from training.specs.feed_forward import Activation, FeedForwardSpec, PlainFeedForward
from training.specs.kinds import AttentionKind, FeedForwardKind
from training.specs.part import Init, LossFacts, NetName
from training.specs.position_embedding import PositionEmbedding
from training.specs.rotary import RotaryPositions
from training.specs.tensors import (
    BlockTensors,
    LinearSpec,
    ModelTensors,
    NormKind,
    NormSpec,
    Sublayer,
    TableSpec,
    Tensors,
)
from training.specs.token_embedding import PlainEmbedding, TokenEmbedding
from training.specs.weights import Weights
from training.specs.work import BatchWork

NormPosition = Literal["pre", "post"]
Sharing = Literal["none", "attention", "feed_forward", "all"]


@spec
class Stack:
    """Sizes of a stack of Transformer blocks, and the facts that follow from them and from the parts."""

    num_hidden_layers: int = key(doc="Number of Transformer blocks.")
    hidden_size: int = key(doc="Size of the hidden states.")
    num_attention_heads: int = key(doc="Number of attention heads per layer.")
    # GPT-3 1.3B and T5 3B have other sizes.
    head_dim: int = key(default=0, doc="Size of an attention head; 0: hidden_size / num_attention_heads.")
    intermediate_size: int = key(default=0, doc="Size of the feed-forward layer; 0: 4 x hidden_size.")
    feed_forward: Annotated[FeedForwardKind, BY_KIND] = key(
        default=PlainFeedForward(), doc="Type of feed-forward layer: plain, or gated (SwiGLU, GeGLU)."
    )
    activation: Activation = key(default="gelu", doc="Activation of the feed-forward layer.")
    norm_position: NormPosition = key(default="post", doc="Position of the norms: after or before each sublayer.")
    norm_type: NormKind = key(default="layernorm", doc="Type of the norms.")
    norm_eps: float = key(default=1e-12, doc="Epsilon of the norms.")
    bias: bool = key(default=True, doc="Whether linear layers and norms have biases.")
    attention_bias: bool | None = key(default=None, doc="Whether attention's linear layers have biases; null: as bias.")
    mlp_bias: bool | None = key(default=None, doc="Whether the feed-forward layer has biases; null: as bias.")
    norm_bias: bool | None = key(default=None, doc="Whether norms of type layernorm have biases; null: as bias.")
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

    # What most architectures have in common; one with other facts states them itself, as a key or as a fact.

    @property
    def attention_window(self) -> AttentionWindow:
        return FullAttention()

    @property
    def token_embedding(self) -> TokenEmbedding:
        return PlainEmbedding()

    @property
    def cutoffs(self) -> tuple[int, ...]:
        return self.token_embedding.cutoffs

    @property
    def table_width(self) -> int:
        return self.hidden_size

    @property
    def type_vocab_size(self) -> int:
        return 0

    @property
    def num_languages(self) -> int:
        return 0

    @property
    def tie_word_embeddings(self) -> bool:
        return True

    @property
    def init_method(self) -> Init:
        return "normal"

    @property
    def oracle(self) -> str:
        return ""

    @property
    def begins_trained(self) -> str:
        return ""

    @property
    def longest(self) -> int:
        return self.position_embedding.longest

    @property
    def mem_len(self) -> int:
        return self.position_embedding.mem_len

    @property
    def reuse_len(self) -> int:
        return self.position_embedding.reuse_len

    @property
    def kind(self) -> str:
        raise NotImplementedError

    @property
    def position_embedding(self) -> PositionEmbedding:
        raise NotImplementedError

    def net(self, name: NetName) -> Any:
        """The architecture itself: it has one model."""
        return self

    def chunks_over(self, workers: int) -> str:
        return f"model.kind is {self.kind}, which does not support sequence parallelism"

    def stages_over(self, stages: int) -> str:
        return f"model.kind is {self.kind}, but pipeline stages require an encoder or a decoder"

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
    def attention_layer(self) -> SelfAttentionSpec:
        """The self-attention of a block."""
        return SelfAttentionSpec(**self.attention_sizes())

    def attention_at(self, layer: int) -> SelfAttentionSpec:
        """The self-attention of a layer, counted from 0; the tensors of all layers are equal."""
        return self.attention_layer

    def attention_sizes(self) -> dict[str, Any]:
        """The sizes that each kind of attention has."""
        return {
            "width": self.hidden_size,
            "heads": self.num_attention_heads,
            "head_dim": self.width_of_head,
            "dropout": self.attention_dropout,
            "bias": self.bias if self.attention_bias is None else self.attention_bias,
        }

    @property
    def feed_forward_layer(self) -> FeedForwardSpec:
        """The feed-forward layer of a block."""
        return self.feed_forward.layer_of(
            width=self.hidden_size,
            inner=self.inner_width,
            activation=self.activation,
            dropout=self.inner_dropout,
            bias=self.bias if self.mlp_bias is None else self.mlp_bias,
        )

    @property
    def inner_dropout(self) -> float:
        """Dropout probability inside the feed-forward layer."""
        return 0.0

    def norm(self, name: str, width: int = 0) -> NormSpec:
        """A norm of this name; `width` 0: of hidden states."""
        bias = self.bias if self.norm_bias is None else self.norm_bias
        return NormSpec(name, width or self.hidden_size, self.norm_type, self.norm_eps, bias)

    def sublayers(self) -> tuple[Sublayer, ...]:
        """The layers of a block with a residual, in their order."""
        return (
            Sublayer("attention", self.attention_layer.tensors(), self.norm("attention_norm")),
            Sublayer("feed_forward", self.feed_forward_layer.tensors(), self.norm("feed_forward_norm")),
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
        return self.attention_layer.key_value.products

    def block(self, number: int, tokens: float, pairs: float, **more: Any) -> BlockSpec:
        """`number` blocks of these sizes, with the tokens and pairs of a batch in each of them."""
        parts: dict[str, Any] = {"attention": self.attention_layer, "feed_forward": self.feed_forward_layer}
        parts["kept_by_norm"] = 2 if self.norm_type == "layernorm" else 3
        return BlockSpec(number=number, tokens=tokens, pairs=pairs, dropout=self.hidden_dropout, **parts | more)

    def answers(self, vocab_size: int) -> int:
        return vocab_size

    def split_over(self, workers: int) -> str:
        sizes = self.head_counts() | {"model.intermediate_size": self.inner_width}
        odd = [f"{key} is {size}" for key, size in sizes.items() if size % workers]
        return f"{odd[0]}, not a multiple of the {workers} workers that share a model" if odd else ""

    def head_counts(self) -> dict[str, int]:
        """The numbers of heads, which parallel workers divide, by key."""
        return {"model.num_attention_heads": self.num_attention_heads}

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
        odd = [f"{key} is {size}" for key, size in self.head_counts().items() if size % workers]
        return f"{odd[0]}, not a multiple of the {workers} workers that share sequences" if odd else ""

    def fits(self, losses: Sequence[LossFacts]) -> str:
        return ""

    def describe(self) -> str:
        size = f"{self.num_hidden_layers} layers, width {self.hidden_size:,}, {self.num_attention_heads} heads"
        return f"{self.label}, {size}, {self.norm_position}-norm"

    def describe_positions(self) -> str:
        return self.position_embedding.describe()

    def describe_attention(self) -> str:
        return self.attention_window.describe()

    def describe_memory(self) -> str:
        return f"a memory of {self.mem_len:,} tokens" if self.mem_len else "no memory"

    def describe_tables(self) -> str:
        if self.table_width != self.hidden_size:
            return f"factorized token embeddings of size {self.table_width:,}"
        return self.token_embedding.describe()

    def describe_sharing(self) -> str:
        return "no parameters shared between layers"

    def describe_norm(self) -> str:
        return "RMSNorm" if self.norm_type == "rmsnorm" else "LayerNorm"


@spec
class SelfAttentionStack(Stack):
    """A stack with the parts of newer models: shared keys and values, norms of queries and keys, an untied head.

    They belong to attention that is computed from queries, keys and values alone.
    """

    attention: Annotated[AttentionKind, BY_KIND] = key(default=PlainAttention(), doc="Type of attention.")
    # LLaMA 2 70B, Mistral
    num_key_value_heads: int = key(default=0, doc="Heads of keys and values (grouped queries); 0: one per query head.")
    qk_norm: bool = key(default=False, doc="Whether each query and key has a norm (arXiv:2010.04245).")
    # GPT-NeoX: two_norms; GPT-J: one_norm
    parallel_residual: ParallelResidual = key(
        default="none", doc="Whether attention and feed-forward layer read the same states, with one or two norms."
    )
    tie_word_embeddings: bool = key(default=True, doc="Whether the token table also predicts tokens.")

    counts_visible_pairs: ClassVar[bool] = False  # FLOPs of half of the pairs, because a causal mask hides the others
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Stack.scale_overrides, {"tiny": {"num_key_value_heads": AtMost(1)}, "small": {"num_key_value_heads": AtMost(2)}}
    )

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        groups, heads = self.num_key_value_heads, self.num_attention_heads
        allowed = f"a divisor of num_attention_heads ({heads}), or 0"
        shared = groups == 0 or (groups > 0 and heads % groups == 0)
        require(shared, "model.num_key_value_heads", groups, allowed)
        pre = self.parallel_residual == "none" or self.norm_position == "pre"
        require(pre, "model.parallel_residual", self.parallel_residual, "none with norm_position post")
        if isinstance(self.position_embedding, RotaryPositions):
            allowed = self.position_embedding.fits_head(self.width_of_head)
            part = self.position_embedding.partial_rotary_factor
            require(not allowed, "model.position_embedding.partial_rotary_factor", part, allowed)
        whole = self.position_embedding.kind != "alibi" or not self.has_window
        require(whole, "model.attention_window.kind", self.attention_window.kind, "full with alibi positions")

    def attention_sizes(self) -> dict[str, Any]:
        norm = replace(self.norm("", self.width_of_head), of_heads=True)
        return Stack.attention_sizes(self) | {
            "key_value_heads": self.num_key_value_heads,
            "head_norm": norm if self.qk_norm else None,
            "is_rotated": self.position_embedding.kind == "rotary",
        }

    @property
    def attention_layer(self) -> SelfAttentionSpec:
        return self.attention.layer_of(**self.attention_sizes())

    def attention_at(self, layer: int) -> SelfAttentionSpec:
        window = self.attention_window
        layer_spec = self.attention_layer
        return replace(layer_spec, window=window.sides) if window.narrows(layer) else layer_spec

    @property
    def groups(self) -> int:
        """Number of heads of keys and of values."""
        return self.num_key_value_heads or self.num_attention_heads

    def block(self, number: int, tokens: float, pairs: float, **more: Any) -> BlockSpec:
        return Stack.block(self, number, tokens, pairs, parallel_residual=self.parallel_residual, **more)

    def sublayers(self) -> tuple[Sublayer, ...]:
        attention, feed_forward = Stack.sublayers(self)
        return attention, replace(feed_forward, norm=None) if self.parallel_residual == "one_norm" else feed_forward

    def embeddings(self, vocab_size: int) -> tuple[Tensors, ...]:
        """The tensors below the layers, and an untied output table."""
        raise NotImplementedError

    def tower(self) -> ModelTensors:
        """The layers, and the tensors between the embeddings and the heads."""
        raise NotImplementedError

    def tensors(self, vocab_size: int) -> ModelTensors:
        return ModelTensors(self.embeddings(vocab_size), ()) + self.tower()

    def products(self, work: BatchWork) -> float:
        """The linear layer over relative distances is not counted, because all sequences share its result."""
        pairs = self.attention_window.pairs(work, self.num_hidden_layers, causal=self.counts_visible_pairs)
        pairs += self.num_hidden_layers * self.mem_len * work.tokens
        around = sum(tensor.products for tensor in self.tower().outside if isinstance(tensor, LinearSpec))
        remembered = self.num_hidden_layers * self.keys_values * self.mem_len * work.rows
        blocks = around * work.tokens + self.num_hidden_layers * self.linears * work.tokens
        return blocks + remembered + self.position_embedding.per_pair * self.width_of_heads * pairs

    def describe_attention(self) -> str:
        """The window, and a kind of attention or a number of key heads that is not the usual one."""
        groups = f"{self.groups} heads of keys and values" if self.num_key_value_heads else ""
        kind = self.attention.describe() if self.attention.kind != "plain" else ""
        return ", ".join(part for part in (self.attention_window.describe(), kind, groups) if part)

    def output_tables(self, vocab_size: int) -> tuple[TableSpec, ...]:
        """The table that predicts tokens, if it is not the token table."""
        return () if self.tie_word_embeddings else (TableSpec("output", vocab_size, self.table_width, "rows"),)

    def head_counts(self) -> dict[str, int]:
        """The numbers of heads, which parallel workers divide. Megatron-LM copies key heads if they are too few."""
        groups = {"model.num_key_value_heads": self.num_key_value_heads} if self.num_key_value_heads else {}
        return Stack.head_counts(self) | groups

    @property
    def has_window(self) -> bool:
        """Whether a layer has an attention window."""
        return any(map(self.attention_window.narrows, range(min(2, self.num_hidden_layers))))  # or no layer has one
