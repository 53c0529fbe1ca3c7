"""The encoder and decoder: BART, T5, MASS."""

from typing import Annotated, Any, ClassVar, Literal

from preprocessing.spec import BY_KIND, Shrinks, shrunk, spec
from training.specs.blocks import Blocks
from training.specs.part import Init, NetName, Visibility, Writing
from training.specs.positions import Buckets, LearnedPlain, SinusoidalStacks
from training.specs.stack import Stack
from training.specs.tables import Plain
from training.specs.weights import Layers, Weights, attention_weights, feed_forward_weights, norm_weights
from training.specs.window import Everything
from training.specs.work import Work


@spec
class EncoderDecoder(Stack):
    """An encoder, and a decoder that also attends to the encoder's states: `layers` each (arXiv:1706.03762).

    BART (arXiv:1910.13461): learned positions, embeddings normalised. T5 (arXiv:1910.10683): pre-norm by the root mean
    square, no biases, distances in buckets, attention not scaled, tied logits times 1 / sqrt(width). MASS
    (arXiv:1905.02450): XLM's embeddings. PEGASUS (arXiv:1912.08777): pre-norm, sinusoids, embeddings times sqrt(width).
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    norm_kind: Literal["layer", "rms"] = "layer"  # LayerNorm, or by the root mean square
    bias: bool = True  # in every linear and norm
    scale_attention: bool = True  # by 1 / sqrt(width of a head)
    scale_output: bool = False  # states by 1 / sqrt(width) before the tied table
    scale_embedding: bool = False  # embeddings times sqrt(width)
    embedding_norm: bool = True  # whether the summed embeddings are normalised
    positions: Annotated[LearnedPlain | SinusoidalStacks | Buckets, BY_KIND] = LearnedPlain(max=1024)
    languages: int = 0  # rows of the language table
    init: Init = "normal"  # where attention is not scaled, T5's own, whatever this is

    label: ClassVar[str] = "encoder-decoder"
    family: ClassVar[int] = 4
    reads_source: ClassVar[bool] = True
    oracle: ClassVar[str] = "closed form; one token is MLM, all are CLM"
    writes: ClassVar[Writing] = "encoder_decoder"
    visibility: ClassVar[Visibility] = "causal"  # of the decoder, whose tokens are predicted
    window: ClassVar[Everything] = Everything()
    segments: ClassVar[int] = 0
    tables: ClassVar[Plain] = Plain()
    cutoffs: ClassVar[tuple[int, ...]] = ()
    shrinks: ClassVar[Shrinks] = shrunk(Stack.shrinks, {"tiny": {"init": "normal"}, "small": {"init": "normal"}})

    @property
    def begins_with_padding(self) -> bool:
        """Whether its decoder begins with padding, and its source without [CLS], as T5's and PEGASUS', the ones of the
        family with norms first; that of BART and MASS begins with the token that ends a row."""
        return self.norm == "pre"

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

    def net(self, name: NetName) -> "EncoderDecoder":
        return self

    def chunks_over(self, workers: int) -> str:
        return f"trunk.kind is {self.kind}, whose tokens are not shared"

    def stages_over(self, stages: int) -> str:
        return f"trunk.kind is {self.kind}, allowed with stages is an encoder or a decoder, one stack of blocks"

    def weights(self, vocab_size: int) -> Weights:
        """Both stacks have tables of positions, distances and languages of their own."""
        of_norm = norm_weights(self.width, bias=self.bias and self.norm_kind == "layer")
        norms = self.embedding_norm + (self.norm == "pre")
        rows = self.positions.rows + self.languages
        others = 2 * (rows * self.width + self.positions.buckets * self.heads + norms * of_norm)
        split, whole = attention_weights(self.width, self.width_of_heads, bias=self.bias)
        attentions = Layers(3 * self.layers, 3 * self.layers, split, whole + of_norm)  # a decoder's layer has two
        split, whole = feed_forward_weights(self.width, self.inner_width, bias=self.bias)
        feed_forwards = Layers(2 * self.layers, 2 * self.layers, split, whole + of_norm)
        return Weights(vocab_size * self.width, (attentions, feed_forwards), others)

    def products(self, work: Work) -> float:
        per_pair = self.positions.per_pair * self.width_of_heads
        read = self.linears * work.source_tokens + per_pair * work.source_squares
        written = self.linears * work.tokens + per_pair * work.squares / 2
        crossed = self.keys_values * (work.tokens + work.source_tokens) + per_pair * work.crossed
        return self.layers * (read + written + crossed)

    def blocks(self, work: Work) -> tuple[Blocks, ...]:
        """Distances in buckets are added to the scores, which therefore stand in memory."""
        more: dict[str, Any] = {"scores": 1 if self.positions.buckets else 0}
        more["kept_by_norm"] = 2 if self.norm_kind == "layer" else 3
        more["inner_dropout"] = self.dropout if self.norm == "pre" else 0.0
        reads = self.block(self.layers, work.source_tokens, work.source_squares, **more)
        source = {"source_tokens": work.source_tokens, "source_pairs": work.crossed}
        return reads, self.block(self.layers, work.tokens, work.squares, **more, **source)

    def describe_positions(self) -> str:
        return self.positions.describe()

    def describe_attention(self) -> str:
        return self.window.describe()

    def describe_norm(self) -> str:
        return "RMSNorm" if self.norm_kind == "rms" else "LayerNorm"
