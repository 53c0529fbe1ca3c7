"""The decoder of GPT-like models, and of Transformer-XL with relative positions."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, ScaleOverrides, key, merge_scales, require, spec
from training.specs.alibi import AlibiPositions
from training.specs.attention import PlainAttention, RelativeAttentionSpec, SelfAttentionSpec
from training.specs.attention_window import AlternatingWindow, CausalSlidingWindow, FullAttention
from training.specs.blocks import BlockSpec
from training.specs.feed_forward import Activation
from training.specs.part import Init, Visibility, Writing
from training.specs.position_embedding import LearnedPositions, RelativePositions
from training.specs.rotary import RotaryPositions
from training.specs.stack import NormPosition, SelfAttentionStack, Sharing
from training.specs.tensors import LinearSpec, ModelTensors, TableSpec, Tensors
from training.specs.token_embedding import AdaptiveEmbedding, PlainEmbedding
from training.specs.work import BatchWork


@spec
class Decoder(SelfAttentionStack):
    """Causal Transformer (GPT-2, Radford 2019).

    By default it is pre-norm with a final norm, and residual projections start with init_std / sqrt(2 L). GPT-1 is
    post-norm. With relative positions it is Transformer-XL (arXiv:1901.02860): sinusoids of the distance, two biases
    that all layers share, no biases in the attention projections, embeddings times sqrt(hidden_size), and a memory.
    """

    kind: Literal["decoder"] = "decoder"
    norm_position: NormPosition = "pre"
    norm_eps: float = 1e-5
    activation: Activation = "gelu_tanh"
    position_embedding: Annotated[LearnedPositions | RelativePositions | RotaryPositions | AlibiPositions, BY_KIND] = (
        key(default=LearnedPositions(max_position_embeddings=1024), doc="Type of position embedding.")
    )
    token_embedding: Annotated[PlainEmbedding | AdaptiveEmbedding, BY_KIND] = key(
        default=PlainEmbedding(), doc="Token table: one table, or one per cluster of tokens."
    )
    attention_window: Annotated[FullAttention | CausalSlidingWindow | AlternatingWindow, BY_KIND] = key(
        default=FullAttention(), doc="Attention window of the layers."
    )
    init_method: Init = key(
        default="normal", doc="Initialization of the weights; truncated_normal is cut at 2 standard deviations."
    )
    scale_residual_init: bool = key(
        default=True, doc="Whether residual projections start with init_std / sqrt(2 layers); pre-norm (GPT-2)."
    )

    label: ClassVar[str] = "decoder"
    family: ClassVar[int] = 2
    attention_mask: ClassVar[Visibility] = "causal"
    writes: ClassVar[Writing] = "causal"
    parameter_sharing: ClassVar[Sharing] = "none"
    num_hidden_groups: ClassVar[int] = 1
    first_is_normed: ClassVar[bool] = False
    counts_visible_pairs: ClassVar[bool] = True
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        SelfAttentionStack.scale_overrides, {"tiny": {"init_method": "normal"}, "small": {"init_method": "normal"}}
    )

    def __post_init__(self) -> None:
        SelfAttentionStack.__post_init__(self)
        whole = not self.position_embedding.relative or not self.has_window
        require(whole, "model.attention_window.kind", self.attention_window.kind, "full with relative positions")
        relative, cutoffs = self.position_embedding.relative, self.token_embedding.cutoffs
        require(
            not relative or self.norm_position == "post",
            "model.norm_position",
            self.norm_position,
            "post with relative positions",
        )
        plain = {"attention": PlainAttention(), "num_key_value_heads": 0, "qk_norm": False, "tie_word_embeddings": True}
        for name, value in plain.items():
            allowed = f"{getattr(value, 'kind', value)} with relative positions"
            require(not relative or getattr(self, name) == value, f"model.{name}", getattr(self, name), allowed)
        require(
            relative or not cutoffs,
            "model.token_embedding.kind",
            self.token_embedding.kind,
            "plain with learned positions",
        )
        wide = self.hidden_size // self.token_embedding.div_val ** len(cutoffs) >= 1
        require(
            wide,
            "model.token_embedding.div_val",
            self.token_embedding.div_val,
            "a factor that leaves at least 1 element for each cluster",
        )

    @property
    def oracle(self) -> str:
        return (
            "XLNetModel with causal attention, and with one longer sequence instead of the memory"
            if self.position_embedding.relative
            else ""
        )

    def chunks_over(self, workers: int) -> str:
        if self.position_embedding.relative or self.has_window:
            return "sequence parallelism requires full attention without relative positions"
        return self.heads_over(workers)

    def stages_over(self, stages: int) -> str:
        if self.position_embedding.relative:
            kind = self.position_embedding.kind
            return f"model.position_embedding.kind is {kind}, but pipeline stages require positions without a memory"
        return self.layers_over(stages)

    def answers(self, vocab_size: int) -> int:
        """Number of logits per target; an adaptive softmax counts only the first cluster, with most of the targets."""
        return self.cutoffs[0] if self.cutoffs else vocab_size

    @property
    def attention_layer(self) -> SelfAttentionSpec:
        if self.position_embedding.relative:
            sizes = self.attention_sizes() | {"bias": False}
            return RelativeAttentionSpec(**sizes, shares_biases=True)
        return self.attention.layer_of(**self.attention_sizes())

    @property
    def inner_dropout(self) -> float:
        """Transformer-XL has dropout inside the feed-forward layer."""
        return self.hidden_dropout if self.position_embedding.relative else 0.0

    def tables(self, vocab_size: int) -> tuple[Tensors, ...]:
        """The token table, or the tables of its clusters with their projections. Workers do not split those."""
        if not self.cutoffs:
            return (TableSpec("tokens", vocab_size, self.hidden_size, "rows"),)
        if self.token_embedding.div_val == 1:
            return (TableSpec("tokens", vocab_size, self.hidden_size),)
        bounds = (0, *self.cutoffs, vocab_size)
        widths = [self.hidden_size // self.token_embedding.div_val**cluster for cluster in range(len(bounds) - 1)]
        tables, widen = list[Tensors](), list[Tensors]()
        for cluster, (start, stop, width) in enumerate(zip(bounds, bounds[1:], widths, strict=False)):
            tables.append(TableSpec(f"tokens.clusters.{cluster}", stop - start, width))
            widen.append(LinearSpec(f"tokens.widen.{cluster}", width, (self.hidden_size,), bias=False))
        return *tables, *widen

    def embeddings(self, vocab_size: int) -> tuple[Tensors, ...]:
        """The embedding tables."""
        rows = self.position_embedding.rows
        positions = (TableSpec("positions", rows, self.hidden_size),) if rows else ()
        return *self.tables(vocab_size), *positions, *self.output_tables(vocab_size)

    def tower(self) -> ModelTensors:
        """The layers, the norm above them, and the two biases that all layers of a relative attention share."""
        above = (self.norm("final_norm"),) if self.norm_position == "pre" else ()
        attention = self.attention_layer
        shared = attention.biases if isinstance(attention, RelativeAttentionSpec) else ()
        biases = (replace(one, name=f"blocks.0.attention.{one.name}") for one in shared)
        return ModelTensors((*above, *biases), (self.block_tensors(),))

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """Scores include masked pairs. Relative scores are two matrices, their sum and its softmax.

        This is more than is measured, so the dropout inside their feed-forward layer is not added.
        """
        pairs, more = work.squares + self.mem_len * work.tokens, dict[str, Any]()
        if self.position_embedding.relative:
            more = {"scores": 4, "feed_forward": replace(self.feed_forward_layer, dropout=0.0)}
        return (self.block(self.num_hidden_layers, work.tokens, pairs, **more),)
