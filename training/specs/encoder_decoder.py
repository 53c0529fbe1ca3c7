"""The encoder-decoder of BART, T5, MASS and PEGASUS."""

from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, ScaleOverrides, key, merge_scales, spec
from training.specs.attention import Seq2SeqAttentionSpec
from training.specs.blocks import BlockSpec
from training.specs.part import Init, Visibility, Writing
from training.specs.position_embedding import RelativeBias, Seq2SeqLearnedPositions, Seq2SeqSinusoidalPositions
from training.specs.stack import Stack
from training.specs.tensors import BlockTensors, ModelTensors, Sublayer, TableSpec
from training.specs.work import BatchWork


@spec
class EncoderDecoder(Stack):
    """Encoder-decoder Transformer with `num_hidden_layers` blocks per stack (arXiv:1706.03762).

    BART (arXiv:1910.13461): learned positions, normalized embeddings. T5 (arXiv:1910.10683): pre-norm with RMSNorm, no
    biases, bucketed distances, unscaled attention, tied logits times 1 / sqrt(hidden_size). MASS (arXiv:1905.02450):
    XLM's embeddings. PEGASUS (arXiv:1912.08777): pre-norm, sinusoids, embeddings times sqrt(hidden_size).
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    scale_attention: bool = key(default=True, doc="Whether attention scores are scaled by 1 / sqrt(head_dim).")
    scale_decoder_outputs: bool = key(
        default=False, doc="Whether decoder states are scaled by 1 / sqrt(hidden_size) before the tied table."
    )
    scale_embedding: bool = key(default=False, doc="Whether embeddings are scaled by sqrt(hidden_size).")
    embedding_norm: bool = key(default=True, doc="Whether the summed embeddings are normalized.")
    position_embedding: Annotated[Seq2SeqLearnedPositions | Seq2SeqSinusoidalPositions | RelativeBias, BY_KIND] = key(
        default=Seq2SeqLearnedPositions(max_position_embeddings=1024), doc="Type of position embedding."
    )
    tie_word_embeddings: bool = key(default=True, doc="Whether the token table also predicts tokens.")
    num_languages: int = key(default=0, doc="Number of language embeddings (XLM, arXiv:1901.07291); 0: none.")
    init_method: Init = key(
        default="normal", doc="Initialization of the weights; with scale_attention false it is always T5's."
    )

    label: ClassVar[str] = "encoder-decoder"
    family: ClassVar[int] = 4
    reads_source: ClassVar[bool] = True
    oracle: ClassVar[str] = "closed form; equal to MLM with one masked token, and to CLM with all tokens masked"
    writes: ClassVar[Writing] = "encoder_decoder"
    attention_mask: ClassVar[Visibility] = "causal"  # mask of the decoder, whose tokens are predicted
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Stack.scale_overrides, {"tiny": {"init_method": "normal"}, "small": {"init_method": "normal"}}
    )

    @property
    def begins_with_padding(self) -> bool:
        """Whether the decoder starts with padding and the source has no [CLS], as in T5 and PEGASUS, which are
        pre-norm.

        The decoders of BART and MASS start with the token that ends a sequence.
        """
        return self.norm_position == "pre"

    @property
    def attention_layer(self) -> Seq2SeqAttentionSpec:
        return Seq2SeqAttentionSpec(**self.attention_sizes(), is_scaled=self.scale_attention)

    @property
    def inner_dropout(self) -> float:
        """T5 and PEGASUS have dropout inside the feed-forward layer."""
        return self.hidden_dropout if self.norm_position == "pre" else 0.0

    def tensors(self, vocab_size: int) -> ModelTensors:
        """Both stacks share the token table; each has its own tables of positions, distances and languages."""
        encoder, decoder = self.side("encoder").inside("encoder"), self.side("decoder").inside("decoder")
        return ModelTensors(self.tables(vocab_size), ()) + encoder + decoder

    def tables(self, vocab_size: int) -> tuple[TableSpec, ...]:
        """The token table, and the table that predicts tokens if it is another one (T5 1.1)."""
        names = ("tokens",) if self.tie_word_embeddings else ("tokens", "output")
        return tuple(TableSpec(name, vocab_size, self.hidden_size, "rows") for name in names)

    def side(self, name: Literal["encoder", "decoder"]) -> ModelTensors:
        """The tensors of one stack. A decoder also has cross-attention."""
        rows = {"positions": self.position_embedding.rows, "languages": self.num_languages}
        tables = [TableSpec(table, number, self.hidden_size) for table, number in rows.items() if number]
        if buckets := self.position_embedding.num_buckets:
            tables.append(TableSpec("distances", buckets, self.num_attention_heads))
        norms = ("embedding_norm",) * self.embedding_norm + ("final_norm",) * (self.norm_position == "pre")
        attention, feed_forward = self.sublayers()
        cross = Sublayer("cross", self.attention_layer.tensors(), self.norm("cross_norm"))
        sublayers = (attention, cross, feed_forward) if name == "decoder" else (attention, feed_forward)
        blocks = BlockTensors("blocks", self.num_hidden_layers, sublayers)
        return ModelTensors((*tables, *map(self.norm, norms)), (blocks,))

    def products(self, work: BatchWork) -> float:
        per_pair = self.position_embedding.per_pair * self.width_of_heads
        read = self.linears * work.source_tokens + per_pair * work.source_squares
        written = self.linears * work.tokens + per_pair * work.squares / 2
        crossed = self.keys_values * (work.tokens + work.source_tokens) + per_pair * work.crossed
        return self.num_hidden_layers * (read + written + crossed)

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """With a relative bias, the scores are in memory, because the bias is added to them."""
        more: dict[str, Any] = {"scores": 1 if self.position_embedding.num_buckets else 0}
        reads = self.block(self.num_hidden_layers, work.source_tokens, work.source_squares, **more)
        source = {"source_tokens": work.source_tokens, "source_pairs": work.crossed}
        return reads, self.block(self.num_hidden_layers, work.tokens, work.squares, **more, **source)
