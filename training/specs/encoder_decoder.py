"""The encoder and decoder: BART, T5, MASS."""

from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, Shrinks, merge_scales, spec
from training.specs.attention_window import FullAttention
from training.specs.blocks import BlockSpec
from training.specs.part import Init, NetName, Visibility, Writing
from training.specs.position_embedding import RelativeBias, Seq2SeqLearnedPositions, Seq2SeqSinusoidalPositions
from training.specs.stack import Stack
from training.specs.token_embedding import PlainEmbedding
from training.specs.weights import LayerWeights, Weights, attention_weights, feed_forward_weights, norm_weights
from training.specs.work import BatchWork


@spec
class EncoderDecoder(Stack):
    """An encoder, and a decoder that also attends to the encoder's states: `num_hidden_layers` each (arXiv:1706.03762).

    BART (arXiv:1910.13461): learned positions, embeddings normalised. T5 (arXiv:1910.10683): pre-norm by the root mean
    square, no biases, distances in buckets, attention not scaled, tied logits times 1 / sqrt(width). MASS
    (arXiv:1905.02450): XLM's embeddings. PEGASUS (arXiv:1912.08777): pre-norm, sinusoids, embeddings times sqrt(width).
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"  # LayerNorm, or by the root mean square
    bias: bool = True  # in every linear and norm
    scale_attention: bool = True  # by 1 / sqrt(width of a head)
    scale_decoder_outputs: bool = False  # states by 1 / sqrt(width) before the tied table
    scale_embedding: bool = False  # embeddings times sqrt(width)
    embedding_norm: bool = True  # whether the summed embeddings are normalised
    position_embedding: Annotated[Seq2SeqLearnedPositions | Seq2SeqSinusoidalPositions | RelativeBias, BY_KIND] = (
        Seq2SeqLearnedPositions(max_position_embeddings=1024)
    )
    num_languages: int = 0  # rows of the language table
    init_method: Init = "normal"  # where attention is not scaled, T5's own, whatever this is

    label: ClassVar[str] = "encoder-decoder"
    family: ClassVar[int] = 4
    reads_source: ClassVar[bool] = True
    oracle: ClassVar[str] = "closed form; one token is MLM, all are CLM"
    writes: ClassVar[Writing] = "encoder_decoder"
    attention_mask: ClassVar[Visibility] = "causal"  # of the decoder, whose tokens are predicted
    attention_window: ClassVar[FullAttention] = FullAttention()
    type_vocab_size: ClassVar[int] = 0
    token_embedding: ClassVar[PlainEmbedding] = PlainEmbedding()
    cutoffs: ClassVar[tuple[int, ...]] = ()
    shrinks: ClassVar[Shrinks] = merge_scales(
        Stack.shrinks, {"tiny": {"init_method": "normal"}, "small": {"init_method": "normal"}}
    )

    @property
    def begins_with_padding(self) -> bool:
        """Whether its decoder begins with padding, and its source without [CLS], as T5's and PEGASUS', the ones of the
        family with norms first; that of BART and MASS begins with the token that ends a row."""
        return self.norm_position == "pre"

    @property
    def table_width(self) -> int:
        return self.hidden_size

    @property
    def longest(self) -> int:
        return self.position_embedding.longest

    @property
    def mem_len(self) -> int:
        return self.position_embedding.mem_len

    @property
    def reuse_len(self) -> int:
        return self.position_embedding.reuse_len

    def net(self, name: NetName) -> "EncoderDecoder":
        return self

    def chunks_over(self, workers: int) -> str:
        return f"model.kind is {self.kind}, whose tokens are not shared"

    def stages_over(self, stages: int) -> str:
        return f"model.kind is {self.kind}, allowed with stages is an encoder or a decoder, one stack of blocks"

    def weights(self, vocab_size: int) -> Weights:
        """Both stacks have tables of positions, distances and languages of their own."""
        of_norm = norm_weights(self.hidden_size, bias=self.bias and self.norm_type == "layernorm")
        norms = self.embedding_norm + (self.norm_position == "pre")
        rows = self.position_embedding.rows + self.num_languages
        others = 2 * (
            rows * self.hidden_size + self.position_embedding.num_buckets * self.num_attention_heads + norms * of_norm
        )
        split, whole = attention_weights(self.hidden_size, self.width_of_heads, bias=self.bias)
        attentions = LayerWeights(
            3 * self.num_hidden_layers, 3 * self.num_hidden_layers, split, whole + of_norm
        )  # a decoder's layer has two
        split, whole = feed_forward_weights(self.hidden_size, self.inner_width, bias=self.bias)
        feed_forwards = LayerWeights(2 * self.num_hidden_layers, 2 * self.num_hidden_layers, split, whole + of_norm)
        return Weights(vocab_size * self.hidden_size, (attentions, feed_forwards), others)

    def products(self, work: BatchWork) -> float:
        per_pair = self.position_embedding.per_pair * self.width_of_heads
        read = self.linears * work.source_tokens + per_pair * work.source_squares
        written = self.linears * work.tokens + per_pair * work.squares / 2
        crossed = self.keys_values * (work.tokens + work.source_tokens) + per_pair * work.crossed
        return self.num_hidden_layers * (read + written + crossed)

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """Distances in buckets are added to the scores, which therefore stand in memory."""
        more: dict[str, Any] = {"scores": 1 if self.position_embedding.num_buckets else 0}
        more["kept_by_norm"] = 2 if self.norm_type == "layernorm" else 3
        more["inner_dropout"] = self.hidden_dropout if self.norm_position == "pre" else 0.0
        reads = self.block(self.num_hidden_layers, work.source_tokens, work.source_squares, **more)
        source = {"source_tokens": work.source_tokens, "source_pairs": work.crossed}
        return reads, self.block(self.num_hidden_layers, work.tokens, work.squares, **more, **source)

    def describe_positions(self) -> str:
        return self.position_embedding.describe()

    def describe_attention(self) -> str:
        return self.attention_window.describe()

    def describe_norm(self) -> str:
        return "RMSNorm" if self.norm_type == "rmsnorm" else "LayerNorm"
