"""The encoder of BERT-like models."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, AtMost, ScaleOverrides, key, merge_scales, require, spec
from training.specs.alibi import AlibiPositions
from training.specs.attention import GlobalAttentionSpec, SelfAttentionSpec
from training.specs.attention_window import EncoderAlternatingWindow, FullAttention, SlidingWindow
from training.specs.blocks import BlockSpec
from training.specs.disentangled import DisentangledAttentionSpec, DisentangledPositions
from training.specs.part import Init, Visibility, Writing
from training.specs.position_embedding import LearnedPositions, SinusoidalPositions
from training.specs.rotary import RotaryPositions
from training.specs.stack import SelfAttentionStack, Sharing
from training.specs.tensors import LinearSpec, ModelTensors, Sublayer, TableSpec, Tensors
from training.specs.work import BatchWork


@spec
class Encoder(SelfAttentionStack):
    """Bidirectional Transformer (BERT, arXiv:1810.04805).

    A post-norm encoder normalizes the summed embeddings; a pre-norm one (Megatron-BERT, arXiv:1909.08053) its final
    states. A pre-norm encoder that normalizes both (ModernBERT, arXiv:2412.13663) has no norm before its first
    attention.
    """

    kind: Literal["encoder"] = "encoder"
    embedding_size: int = key(default=0, doc="Size of the embeddings, if not hidden_size (ALBERT 3.1); 0: hidden_size.")
    position_embedding: Annotated[
        LearnedPositions | SinusoidalPositions | RotaryPositions | AlibiPositions | DisentangledPositions, BY_KIND
    ] = key(default=LearnedPositions(max_position_embeddings=512), doc="Type of position embedding.")
    # Google-research/bert and the code based on it use truncated_normal.
    init_method: Init = key(
        default="normal", doc="Initialization of the weights; truncated_normal is cut at 2 standard deviations."
    )
    type_vocab_size: int = key(default=2, doc="Number of token types (segments).")
    num_languages: int = key(default=0, doc="Number of language embeddings (XLM, arXiv:1901.07291); 0: none.")
    parameter_sharing: Sharing = key(default="none", doc="Parameters that all layers of a group share (ALBERT 3.1).")
    embedding_norm: bool | None = key(
        default=None, doc="Whether the summed embeddings are normalized; null: with norm_position post."
    )
    # Layer i belongs to group i * groups // layers.
    num_hidden_groups: int = key(default=1, doc="Number of groups of layers that share parameters.")
    attention_mask: Visibility = key(
        default="bidirectional", doc="Attention mask: all tokens, earlier tokens, or by sequence (UniLM)."
    )
    attention_window: Annotated[FullAttention | SlidingWindow | EncoderAlternatingWindow, BY_KIND] = key(
        default=FullAttention(), doc="Attention window of the layers."
    )

    label: ClassVar[str] = "encoder"
    family: ClassVar[int] = 0
    scale_residual_init: ClassVar[bool] = True
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        SelfAttentionStack.scale_overrides,
        {
            "tiny": {"init_method": "normal", "embedding_size": AtMost(32), "num_hidden_groups": AtMost(2)},
            "small": {"init_method": "normal", "embedding_size": AtMost(64), "num_hidden_groups": AtMost(4)},
        },
    )

    def __post_init__(self) -> None:
        SelfAttentionStack.__post_init__(self)
        require(self.embedding_size >= 0, "model.embedding_size", self.embedding_size, "an integer of at least 0")
        require(
            1 <= self.num_hidden_groups <= self.num_hidden_layers,
            "model.num_hidden_groups",
            self.num_hidden_groups,
            f"from 1 to num_hidden_layers ({self.num_hidden_layers})",
        )
        plain = self.attention.kind == "plain" or not self.attention_window.global_first
        require(plain, "model.attention.kind", self.attention.kind, "plain with global tokens")
        sees_all = not self.has_window or self.attention_mask == "bidirectional"
        require(sees_all, "model.attention_mask", self.attention_mask, "bidirectional with an attention window")
        if self.position_embedding.kind == "disentangled":
            self._require_plain_attention()

    def _require_plain_attention(self) -> None:
        """Raise InvalidValue for options of attention that disentangled positions do not support."""
        positions, heads = "with position_embedding.kind disentangled", self.num_attention_heads
        allowed = f"0 or num_attention_heads ({heads}) {positions}"
        require(self.groups == heads, "model.num_key_value_heads", self.num_key_value_heads, allowed)
        for name, value in {"qk_norm": False, "attention_mask": "bidirectional"}.items():
            given = getattr(self, name)
            require(given == value, f"model.{name}", given, f"{str(value).lower()} {positions}")
        window = self.attention_window.kind
        require(window == "full", "model.attention_window.kind", window, f"full {positions}")

    @property
    def writes(self) -> Writing:
        return "causal" if self.attention_mask == "causal" else "" if self.attention_window.narrows(0) else "masked"

    @property
    def table_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def normalizes_embeddings(self) -> bool:
        """Whether the summed embeddings are normalized."""
        return self.norm_position == "post" if self.embedding_norm is None else self.embedding_norm

    def chunks_over(self, workers: int) -> str:
        if self.position_embedding.kind == "disentangled":
            return "model.position_embedding.kind is disentangled, which does not support sequence parallelism"
        if self.has_window:
            kind = self.attention_window.kind
            return f"model.attention_window.kind is {kind}, which does not support sequence parallelism"
        return self.heads_over(workers)

    def stages_over(self, stages: int) -> str:
        if self.position_embedding.kind == "disentangled":
            return "model.position_embedding.kind is disentangled, but only the first pipeline stage has tables"
        if self.parameter_sharing != "none":
            return (
                f"model.parameter_sharing is {self.parameter_sharing}, but pipeline stages require none: layers "
                "that share parameters must be in one stage"
            )
        return self.layers_over(stages)

    @property
    def attention_layer(self) -> SelfAttentionSpec:
        sizes, positions = self.attention_sizes(), self.position_embedding
        if isinstance(positions, DisentangledPositions):
            norm, rows = self.norm("norm"), positions.relative_rows
            return DisentangledAttentionSpec(**sizes, rel_rows=rows, rel_norm=norm, rel_dropout=self.hidden_dropout)
        if self.attention_window.global_first:
            return GlobalAttentionSpec(**sizes)
        return self.attention.layer_of(**sizes)

    def sublayers(self) -> tuple[Sublayer, ...]:
        """Layers of a group share the weights of a sublayer with those of its first layer (ALBERT 3.1)."""
        groups = [layer * self.num_hidden_groups // self.num_hidden_layers for layer in range(self.num_hidden_layers)]
        owners = tuple(map(groups.index, groups))
        attention, feed_forward = (
            replace(sublayer, owners=owners) if self.parameter_sharing in (sublayer.name, "all") else sublayer
            for sublayer in SelfAttentionStack.sublayers(self)
        )
        return replace(attention, norm_from=1 if self.first_is_normed else 0), feed_forward

    @property
    def first_is_normed(self) -> bool:
        """Whether the first block reads normalized states, so that it has no norm before its attention."""
        return self.norm_position == "pre" and self.normalizes_embeddings

    def tower(self) -> ModelTensors:
        """The layers, the linear layer below them that widens narrow embeddings, and the norm above them.

        Disentangled attention has a table of distances, which all layers share.
        """
        narrow = self.table_width != self.hidden_size
        below = (LinearSpec("widen", self.table_width, (self.hidden_size,)),) if narrow else ()
        above = (self.norm("final_norm"),) if self.norm_position == "pre" else ()
        attention = self.attention_layer
        shared = attention.shared if isinstance(attention, DisentangledAttentionSpec) else ()
        relative = (replace(one, name=f"relative.{one.name}") for one in shared)
        return ModelTensors((*below, *above, *relative), (self.block_tensors(),))

    def embeddings(self, vocab_size: int) -> tuple[Tensors, ...]:
        """The embedding tables, and their norm."""
        rows = {"positions": self.position_embedding.rows, "segments": self.type_vocab_size}
        rows["languages"] = self.num_languages
        tables = (TableSpec(name, number, self.table_width) for name, number in rows.items() if number)
        norm = (self.norm("embedding_norm", self.table_width),) if self.normalizes_embeddings else ()
        tokens = TableSpec("tokens", vocab_size, self.table_width, "rows")
        return tokens, *tables, *norm, *self.output_tables(vocab_size)

    def attention_sizes(self) -> dict[str, Any]:
        return SelfAttentionStack.attention_sizes(self) | {"is_per_sequence": self.attention_mask == "per_sequence"}

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        local, window = sum(map(self.attention_window.narrows, range(self.num_hidden_layers))), self.attention_window
        full = self.block(self.num_hidden_layers - local, work.tokens, work.squares, **self._storage_of_distances(work))
        pairs, copies = window.count_computed_pairs(work)
        if window.global_first:  # keys and values; the first token has a second set
            more = {"copied": 2 * (copies + 1)}
        else:  # copies replace keys and values
            more = {"chunked": 2 * (copies - 1) * self.groups / self.num_attention_heads}
        attention = replace(self.attention_layer, window=window.sides)
        banded = self.block(local, work.tokens, pairs, attention=attention, **more)
        return tuple(stack for stack in (full, banded) if stack.number)

    def _storage_of_distances(self, work: BatchWork) -> dict[str, Any]:
        """What disentangled attention stores: the scores of positions, and a query and a key for each distance."""
        if self.position_embedding.kind != "disentangled":
            return {}
        return {"scores": 1, "copied": 2 * 2 * work.length / max(1, work.tokens)}

    def describe_sharing(self) -> str:
        if self.parameter_sharing == "none":
            return SelfAttentionStack.describe_sharing(self)
        what = {"all": "all", "attention": "attention", "feed_forward": "feed-forward"}[self.parameter_sharing]
        among = f"the layers of each of {self.num_hidden_groups} groups" if self.num_hidden_groups > 1 else "all layers"
        return f"{what} parameters shared by {among}"
