"""What a recipe says about a net. No torch in here: `sesame check` answers without it.

The modules are next door: transformer.py (Encoder, Decoder), encoder_decoder.py, two_stream.py, twin.py.
"""

from dataclasses import fields, replace
from typing import ClassVar, Final, Literal

from preprocessing.spec import require, spec

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "gelu_tanh", "relu"]
PositionInit = Literal["normal", "sinusoidal"]
Init = Literal["normal", "truncated"]
Sharing = Literal["none", "attention", "feed_forward", "all"]
Visibility = Literal["full", "causal", "rows"]
"""full: each token sees each; causal: those before it and itself; rows: what the batch says (`rank`, `reach`)."""

ENDLESS: Final = 1 << 20  # longest row where positions are relative: more than any device holds


@spec
class Stack:
    """What every stack of blocks has, whatever it is made of."""

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
    def inner_width(self) -> int:
        return self.inner or 4 * self.width

    @property
    def width_of_head(self) -> int:
        return self.head_width or self.width // self.heads


@spec
class Encoder(Stack):
    """A bidirectional transformer: BERT (arXiv:1810.04805) and its line.

    A post-norm one normalises the summed embeddings, a pre-norm one (Megatron-BERT, arXiv:1909.08053) its last states.
    """

    kind: Literal["encoder"] = "encoder"
    embedding: int = 0  # width of the tables where it is not that of the blocks (ALBERT 3.1); 0 means width
    positions: Literal["learned", "sinusoidal"] = "learned"
    init: Init = "normal"  # truncated: at two deviations (google-research/bert, as all who went on from there)
    position_init: PositionInit = "normal"  # what the learned table begins with
    max_positions: int = 512  # rows of the position table, offset included: RoBERTa has 514
    position_offset: int = 0  # RoBERTa starts at padding index + 1 = 2
    segments: int = 2  # rows of the token-type table
    languages: int = 0  # rows of the language table (XLM, arXiv:1901.07291)
    sharing: Sharing = "none"  # what all layers of a group have in common (ALBERT 3.1)
    groups: int = 1  # of layers that share; layer i belongs to group i * groups // layers
    visibility: Visibility = "full"
    window: int = 0  # tokens around each that it sees, both sides together (Longformer, arXiv:2004.05150); 0 means all
    global_tokens: Literal["none", "first"] = "none"  # with a window: the first token sees all and is seen by all

    def __post_init__(self) -> None:
        _check_encoder(self)

    @property
    def table_width(self) -> int:
        return self.embedding or self.width

    @property
    def longest(self) -> int:
        """Longest row, in tokens, that has a position of its own."""
        return self.max_positions - self.position_offset if self.positions == "learned" else ENDLESS


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
    positions: Literal["learned", "relative"] = "learned"
    position_init: PositionInit = "normal"
    max_positions: int = 1024
    band: int = 0  # every second layer sees so many tokens back only (GPT-3, arXiv:2005.14165, 2.1); 0: all layers all
    memory: int = 0  # states of so many earlier tokens that each layer sees, without their gradient
    clamp: int = 0  # distances above count as this one; 0 means none does
    same_length: bool = False  # each token sees the last `memory` tokens, itself among them
    eval_memory: int = 0  # in evaluations a longer memory, if there is one, and the same length for all (3.2)
    eval_clamp: int = 0  # and this in place of `clamp`; both 0: as in training
    cutoffs: tuple[int, ...] = ()  # the most frequent so many tokens, ...: clusters of the adaptive tables
    shrink: int = 1  # each cluster is so many times narrower than the one before (div_val)

    visibility: ClassVar[Visibility] = "causal"
    position_offset: ClassVar[int] = 0
    segments: ClassVar[int] = 0
    languages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.max_positions >= 1, "trunk.max_positions", self.max_positions, "a whole number from 1 up")
        for name in ("band", "memory", "clamp", "eval_memory", "eval_clamp"):
            require(getattr(self, name) >= 0, f"trunk.{name}", getattr(self, name), "a number of tokens from 0 up")
        rising = all(low < high for low, high in zip((0, *self.cutoffs), self.cutoffs, strict=False))
        require(rising, "trunk.cutoffs", self.cutoffs, "numbers of tokens that rise")
        wide = self.shrink >= 1 and self.width // self.shrink ** len(self.cutoffs) >= 1
        require(wide, "trunk.shrink", self.shrink, "a number from 1 up that leaves each cluster a width")
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))  # a list where they come from a file
        if self.positions == "relative":
            require(self.norm == "post", "trunk.norm", self.norm, "post where positions are relative")
            require(not self.band, "trunk.band", self.band, "0 where positions are relative")
            remembers = self.memory > 0 or not self.same_length
            require(remembers, "trunk.same_length", self.same_length, "false without a memory")
            clamps = self.eval_memory > 0 or not self.eval_clamp
            require(clamps, "trunk.eval_clamp", self.eval_clamp, "0 without eval_memory")
        else:
            for name in ("memory", "clamp", "same_length", "eval_memory", "eval_clamp", "cutoffs"):
                require(
                    not getattr(self, name), f"trunk.{name}", getattr(self, name), "none where positions are learned"
                )

    @property
    def table_width(self) -> int:
        return self.width

    @property
    def longest(self) -> int:
        return self.max_positions if self.positions == "learned" else ENDLESS


@spec
class EncoderDecoder(Stack):
    """An encoder, and a decoder that also looks at what it says: `layers` each (arXiv:1706.03762).

    BART (arXiv:1910.13461): learned positions, embeddings normalised. T5 (arXiv:1910.10683): pre-norm by the root mean
    square, no biases, distances in buckets, attention not scaled, tied logits times 1 / sqrt(width). MASS
    (arXiv:1905.02450): XLM's embeddings.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    norm_kind: Literal["layer", "rms"] = "layer"
    bias: bool = True  # in every linear and norm
    scale_attention: bool = True  # by 1 / sqrt(width of a head)
    scale_output: bool = False  # states by 1 / sqrt(width) before the tied table
    embedding_norm: bool = True
    positions: Literal["learned", "buckets"] = "learned"
    max_positions: int = 1024
    position_offset: int = 0
    buckets: int = 32
    max_distance: int = 128
    languages: int = 0

    visibility: ClassVar[Visibility] = "causal"  # of the decoder, whose tokens are asked
    segments: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.max_positions >= 1, "trunk.max_positions", self.max_positions, "a whole number from 1 up")
        require(self.buckets >= 4, "trunk.buckets", self.buckets, "a number from 4 up")
        far = self.max_distance > self.buckets // 2
        require(far, "trunk.max_distance", self.max_distance, f"more than half of the {self.buckets} buckets")

    @property
    def table_width(self) -> int:
        return self.width

    @property
    def longest(self) -> int:
        return self.max_positions - self.position_offset if self.positions == "learned" else ENDLESS


@spec
class TwoStream(Stack):
    """XLNet (arXiv:1906.08237): relative attention over content, and a second stream of queries that do not see their
    own token; relative segments; a memory. What a token sees is what its row says."""

    kind: Literal["two_stream"] = "two_stream"
    memory: int = 0  # states of so many earlier tokens, without their gradient
    reuse: int = 0  # first tokens of a row, which the next row goes on from and the memory keeps; 0 means all
    segments: int = 2  # told apart as same or different only; the number is that of the values a row may have

    visibility: ClassVar[Visibility] = "rows"
    position_offset: ClassVar[int] = 0
    languages: ClassVar[int] = 0
    longest: ClassVar[int] = ENDLESS

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(self.norm == "post", "trunk.norm", self.norm, "post")
        for name in ("memory", "reuse"):
            require(getattr(self, name) >= 0, f"trunk.{name}", getattr(self, name), "a number of tokens from 0 up")

    @property
    def table_width(self) -> int:
        return self.width


@spec
class Twin(Stack):
    """ELECTRA (arXiv:2003.10555): a small generator fills in the masks, the discriminator, whose sizes these are, looks
    for what it changed. Both have the same embeddings.

    Samples of a frozen generator are the second of two stages (3.2): an encoder of the discriminator's sizes has learnt
    to fill in masks, both nets begin with its weights (`start`), tables too, and the generator keeps them.
    """

    kind: Literal["twin"] = "twin"
    embedding: int = 0
    positions: Literal["learned"] = "learned"
    init: Init = "normal"
    position_init: PositionInit = "normal"
    max_positions: int = 512
    segments: int = 2
    generator: float = 0.25  # its width as a share of ours; heads and inner width follow, the depth is ours
    shared: Literal["embeddings", "all"] = "embeddings"  # all: one net, where the generator is as wide (2, table 5)
    samples: Literal["generator", "frozen", "uniform"] = "generator"  # where replacements come from
    allow_correct: bool = True  # a sample may be the token that was there

    visibility: ClassVar[Visibility] = "full"
    position_offset: ClassVar[int] = 0
    languages: ClassVar[int] = 0
    sharing: ClassVar[str] = "none"
    window: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(0 < self.generator <= 1, "trunk.generator", self.generator, "a share of the width, above 0 up to 1")
        require(self.shared == "embeddings" or self.generator == 1, "trunk.shared", self.shared, "all with generator 1")
        alike = self.generator == 1 and self.shared == "embeddings"
        require(
            self.samples != "frozen" or alike, "trunk.samples", self.samples, "frozen with generator 1 and no sharing"
        )
        width, heads = round(self.generator * self.width), max(1, round(self.generator * self.heads))
        fits = self.head_width > 0 or width % heads == 0
        require(fits, "trunk.generator", self.generator, f"a share for which {heads} heads divide the width {width}")

    @property
    def table_width(self) -> int:
        return self.embedding or self.width

    @property
    def longest(self) -> int:
        return self.max_positions

    @property
    def discriminator_net(self) -> Encoder:
        """The discriminator, which is what is kept, as an Encoder with tables of its own."""
        common = {field.name for field in fields(Encoder)} & {field.name for field in fields(self)} - {"kind"}
        return Encoder(**{name: getattr(self, name) for name in common})

    @property
    def generator_net(self) -> Encoder:
        """The generator as an Encoder with tables of its own: a share of our width, heads and inner width."""
        return replace(
            self.discriminator_net,
            width=round(self.generator * self.width),
            heads=max(1, round(self.generator * self.heads)),
            inner=round(self.generator * self.inner_width),
            embedding=self.table_width,
        )


Trunk = Encoder | Decoder | EncoderDecoder | TwoStream | Twin


def _check_encoder(trunk: Encoder) -> None:
    Stack.__post_init__(trunk)
    require(trunk.max_positions >= 1, "trunk.max_positions", trunk.max_positions, "a whole number from 1 up")
    require(trunk.embedding >= 0, "trunk.embedding", trunk.embedding, "a whole number from 0 up")
    require(1 <= trunk.groups <= trunk.layers, "trunk.groups", trunk.groups, f"from 1 to the {trunk.layers} layers")
    even = trunk.window >= 0 and trunk.window % 2 == 0
    require(even, "trunk.window", trunk.window, "an even number of tokens, or 0")
    windowed = trunk.window > 0 or trunk.global_tokens == "none"
    require(windowed, "trunk.global_tokens", trunk.global_tokens, "none without a window")
    sees_all = trunk.window == 0 or trunk.visibility == "full"
    require(sees_all, "trunk.visibility", trunk.visibility, "full with a window")
