"""Position embeddings. They determine the maximum sequence length and the memory.

Each architecture allows some of them. Keys that only one of them uses are keys of that kind.
"""

from typing import ClassVar, Final, Literal, Protocol

from preprocessing.spec import AtMost, ScaleOverrides, key, require, spec

PositionInit = Literal["normal", "sinusoidal"]
"""Initialization of a position table: as all weights, or with the sinusoids of arXiv:1706.03762, 3.5."""

ENDLESS: Final = 1 << 20  # maximum sequence length without a position table: more than fits on any device


class PositionEmbedding(Protocol):
    """A kind of position embedding."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def longest(self) -> int:
        """Maximum sequence length in tokens."""

    @property
    def rows(self) -> int:
        """Rows of the position table; 0: no table."""

    @property
    def relative(self) -> bool:
        """Whether attention scores use sinusoids of the distance of two tokens."""

    @property
    def per_pair(self) -> int:
        """Multiplications per pair of tokens and element of a head: terms of the score, and the weighted sum."""

    @property
    def offset(self) -> int:
        """Row of the table for the first token of a sequence."""

    @property
    def init_method(self) -> PositionInit:
        """Initialization of the table."""

    @property
    def init_std(self) -> float:
        """Standard deviation of the initial table; 0: that of all weights."""

    @property
    def mem_len(self) -> int:
        """Memory length: number of earlier tokens whose states each layer attends to, without gradient."""

    @property
    def reuse_len(self) -> int:
        """Number of first tokens of a sequence that the memory stores; the next sequence starts after them; 0: all."""

    def describe(self) -> str:
        """Description for reports."""


@spec
class _NoTable:
    """Facts of positions without a table."""

    relative: ClassVar[bool] = False
    per_pair: ClassVar[int] = 2
    rows: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    init_method: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0


@spec
class NoTable(_NoTable):
    """Facts of positions without a table and without a memory."""

    mem_len: ClassVar[int] = 0
    reuse_len: ClassVar[int] = 0


@spec
class _Table:
    """Learned embedding of each position."""

    kind: Literal["learned"] = "learned"
    # RoBERTa has 514.
    max_position_embeddings: int = key(doc="Rows of the position table, offset included.")
    offset: int = key(default=0, doc="First row in use; 2 in RoBERTa and BART (padding index + 1).")

    relative: ClassVar[bool] = False
    per_pair: ClassVar[int] = 2
    mem_len: ClassVar[int] = 0
    reuse_len: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_rows(self.max_position_embeddings)
        require(self.offset >= 0, "model.position_embedding.offset", self.offset, "an integer of at least 0")

    @property
    def rows(self) -> int:
        return self.max_position_embeddings

    @property
    def longest(self) -> int:
        return self.max_position_embeddings - self.offset

    def describe(self) -> str:
        return "learned absolute positions"


@spec
class Seq2SeqLearnedPositions(_Table):
    """Learned positions of an encoder-decoder (BART, arXiv:1910.13461).

    They are initialized like all other weights.
    """

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"max_position_embeddings": AtMost(514)},
        "small": {"max_position_embeddings": AtMost(514)},
    }  # 512 positions and an offset of 2
    init_method: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0
    num_buckets: ClassVar[int] = 0
    max_distance: ClassVar[int] = 0


@spec
class LearnedPositions(_Table):
    """Learned positions of an encoder or a decoder (BERT, arXiv:1810.04805)."""

    init_method: PositionInit = key(default="normal", doc="Initialization of the position table.")
    # GPT-2's code has 0.01 here and 0.02 elsewhere.
    init_std: float = key(default=0.0, doc="Standard deviation of the initial position table; 0: that of the model.")

    # with sinusoids, because a short run would spend most of its steps on learning neighboring positions
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"max_position_embeddings": AtMost(514), "init_method": "sinusoidal", "init_std": 0.0},
        "small": {"max_position_embeddings": AtMost(514), "init_method": "sinusoidal", "init_std": 0.0},
    }

    def __post_init__(self) -> None:
        _Table.__post_init__(self)
        require(
            self.init_std >= 0,
            "model.position_embedding.init_std",
            self.init_std,
            "a positive number, or 0 for the value of all weights",
        )
        is_drawn = self.init_method == "normal" or self.init_std == 0
        require(is_drawn, "model.position_embedding.init_std", self.init_std, "0 with init_method sinusoidal")


@spec
class SinusoidalPositions(NoTable):
    """Fixed sines and cosines of each position (arXiv:1706.03762, 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    max_position_embeddings: int = key(
        default=512, doc="Rows of the table in exported weights, which transformers' classes require."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"max_position_embeddings": AtMost(514)},
        "small": {"max_position_embeddings": AtMost(514)},
    }
    longest: ClassVar[int] = ENDLESS

    def __post_init__(self) -> None:
        check_rows(self.max_position_embeddings)

    def describe(self) -> str:
        return "sinusoidal absolute positions"


@spec
class Seq2SeqSinusoidalPositions(SinusoidalPositions):
    """Sinusoidal positions of an encoder-decoder (PEGASUS, arXiv:1912.08777).

    As in its code, all sines precede all cosines.
    """

    num_buckets: ClassVar[int] = 0
    max_distance: ClassVar[int] = 0


@spec
class RelativePositions(_NoTable):
    """Relative positions with memory (Transformer-XL, arXiv:1901.02860, 3.2 and 3.3).

    Positions are sinusoids of the distance.
    """

    kind: Literal["relative"] = "relative"
    mem_len: int = key(
        default=0, doc="Memory length: earlier tokens that each layer attends to, without their gradient."
    )
    clamp_len: int = key(default=0, doc="Maximum distance; larger distances count as this one; 0: no maximum.")
    same_length: bool = key(
        default=False, doc="Whether each token attends to the last mem_len tokens only, itself included."
    )
    # If it is not 0, evaluations also use the same length for all tokens (3.2).
    eval_mem_len: int = key(default=0, doc="Memory length in evaluations; 0: as in training.")
    eval_clamp_len: int = key(default=0, doc="Maximum distance in evaluations; 0 with eval_mem_len 0: as in training.")

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {
            "mem_len": AtMost(64),
            "clamp_len": AtMost(64),
            "eval_mem_len": AtMost(128),
            "eval_clamp_len": AtMost(96),
        },
        "small": {
            "mem_len": AtMost(128),
            "clamp_len": AtMost(128),
            "eval_mem_len": AtMost(256),
            "eval_clamp_len": AtMost(192),
        },
    }
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = True
    per_pair: ClassVar[int] = 3
    reuse_len: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in ("mem_len", "clamp_len", "eval_mem_len", "eval_clamp_len"):
            _check_tokens(name, getattr(self, name))
        has_memory = self.mem_len > 0 or not self.same_length
        require(has_memory, "model.position_embedding.same_length", self.same_length, "false without a memory")
        evaluates = self.eval_mem_len > 0 or not self.eval_clamp_len
        require(evaluates, "model.position_embedding.eval_clamp_len", self.eval_clamp_len, "0 without eval_mem_len")

    def reach(self, training: bool) -> tuple[int, int, bool]:
        """Memory length, maximum distance (0: none), and `same_length`, in training or in an evaluation."""
        if training or not self.mem_len or not self.eval_mem_len:
            return self.mem_len, self.clamp_len, self.same_length
        return self.eval_mem_len, self.eval_clamp_len, True

    def describe(self) -> str:
        return "relative positions"


@spec
class TwoStreamRelativePositions(_NoTable):
    """Relative positions with a memory of the content stream (XLNet, arXiv:1906.08237, 2.4).

    Positions are sinusoids of the distance.
    """

    kind: Literal["relative"] = "relative"
    mem_len: int = key(
        default=0, doc="Memory length: earlier tokens that each layer attends to, without their gradient."
    )
    reuse_len: int = key(
        default=0, doc="Number of first tokens that the memory stores, where the next sequence starts; 0: all."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"mem_len": AtMost(64), "reuse_len": 32},
        "small": {"mem_len": AtMost(128), "reuse_len": 64},
    }
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = True
    per_pair: ClassVar[int] = 3

    def __post_init__(self) -> None:
        for name in ("mem_len", "reuse_len"):
            _check_tokens(name, getattr(self, name))

    def describe(self) -> str:
        return "relative positions"


@spec
class RelativeBias(NoTable):
    """Relative bias: one bias per head and bucket of distances (T5, arXiv:1910.10683, 2.1)."""

    kind: Literal["relative_bias"] = "relative_bias"
    num_buckets: int = key(default=32, doc="Number of buckets.")
    max_distance: int = key(default=128, doc="Distance threshold; this and all larger distances share the last bucket.")

    scale_overrides: ClassVar[ScaleOverrides] = {}
    longest: ClassVar[int] = ENDLESS

    def __post_init__(self) -> None:
        require(
            self.num_buckets >= 4, "model.position_embedding.num_buckets", self.num_buckets, "a number of at least 4"
        )
        far = self.max_distance > self.num_buckets // 2
        allowed = f"more than half of num_buckets ({self.num_buckets})"
        require(far, "model.position_embedding.max_distance", self.max_distance, allowed)

    def describe(self) -> str:
        return f"relative position biases in {self.num_buckets} buckets"


def check_rows(rows: int) -> None:
    """Raise InvalidValue if a model has no position."""
    require(rows >= 1, "model.position_embedding.max_position_embeddings", rows, "an integer of at least 1")


def _check_tokens(name: str, tokens: int) -> None:
    require(tokens >= 0, f"model.position_embedding.{name}", tokens, "at least 0 tokens")
