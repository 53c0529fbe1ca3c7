"""Positions: how a net tells where a token stands, and what follows from that: its longest row, and its memory.

A trunk allows those that make sense for it. What makes sense with one of them only is a key of that one.
"""

from typing import Annotated, ClassVar, Final, Literal, Protocol

from preprocessing.spec import BY_KIND, AtMost, Shrinks, require, spec
from training.specs.window import Band, Everything

PositionInit = Literal["normal", "sinusoidal"]
"""What a table of positions begins with: as all weights, or with the sinusoids of arXiv:1706.03762, 3.5."""

ENDLESS: Final = 1 << 20  # longest row where positions need no table: more than any device holds


class Positions(Protocol):
    """How a net tells where a token stands."""

    shrinks: ClassVar[Shrinks]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def longest(self) -> int:
        """Longest row, in tokens, all of whose positions differ."""

    @property
    def rows(self) -> int:
        """Rows of the table of positions, 0 where there is none."""

    @property
    def relative(self) -> bool:
        """Whether attention scores the distance of two tokens by its sinusoids."""

    @property
    def per_pair(self) -> int:
        """Multiplications for a pair of tokens and an element of their heads: the terms of its score, and the mix."""

    @property
    def offset(self) -> int:
        """Row of the table that a row's first token reads."""

    @property
    def init(self) -> PositionInit:
        """What the table begins with."""

    @property
    def init_std(self) -> float:
        """Deviation of the normal that the table begins with; 0: that of all weights."""

    @property
    def memory(self) -> int:
        """Tokens before a row whose states each layer attends to, without their gradient."""

    @property
    def reuse(self) -> int:
        """First tokens of a row, which the next row goes on from and the memory keeps; 0 means all."""

    def describe(self) -> str:
        """What they are, in words."""


@spec
class _Table:
    """A table with a row for each position."""

    kind: Literal["learned"] = "learned"
    max: int  # rows of the table, offset included: RoBERTa has 514
    offset: int = 0  # RoBERTa and BART start at padding index + 1 = 2

    relative: ClassVar[bool] = False
    per_pair: ClassVar[int] = 2
    memory: ClassVar[int] = 0
    reuse: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require(self.max >= 1, "trunk.positions.max", self.max, "a whole number from 1 up")
        require(self.offset >= 0, "trunk.positions.offset", self.offset, "a whole number from 0 up")

    @property
    def rows(self) -> int:
        return self.max

    @property
    def longest(self) -> int:
        return self.max - self.offset

    def describe(self) -> str:
        return "learned absolute positions"


@spec
class LearnedPlain(_Table):
    """Those of two stacks (BART, arXiv:1910.13461), which begin as all weights do."""

    shrinks: ClassVar[Shrinks] = {"tiny": {"max": AtMost(514)}, "small": {"max": AtMost(514)}}  # 512 and an offset of 2
    init: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0
    buckets: ClassVar[int] = 0
    max_distance: ClassVar[int] = 0


@spec
class Learned(_Table):
    """Those of an encoder (BERT, arXiv:1810.04805)."""

    init: PositionInit = "normal"
    init_std: float = 0.0  # of the normal; 0: as all weights. GPT-2's code has .01 here and .02 elsewhere

    # with sinusoids from the start, else most of a short run goes into learning which tokens are neighbours
    shrinks: ClassVar[Shrinks] = {
        "tiny": {"max": AtMost(514), "init": "sinusoidal", "init_std": 0.0},
        "small": {"max": AtMost(514), "init": "sinusoidal", "init_std": 0.0},
    }

    def __post_init__(self) -> None:
        _Table.__post_init__(self)
        require(
            self.init_std >= 0, "trunk.positions.init_std", self.init_std, "a positive number, or 0: as all weights"
        )
        is_drawn = self.init == "normal" or self.init_std == 0
        require(is_drawn, "trunk.positions.init_std", self.init_std, "0 where positions begin as sinusoids")


@spec
class LearnedCausal(Learned):
    """Those of a decoder (GPT-2, Radford 2019), whose layers may have a window: relative attention has none."""

    window: Annotated[Everything | Band, BY_KIND] = Everything()


@spec
class Sinusoidal:
    """Sines and cosines of each position (arXiv:1706.03762, 3.5), which nothing trains."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    max: int = 512  # rows of the table that an export writes: the classes of transformers have one

    shrinks: ClassVar[Shrinks] = {"tiny": {"max": AtMost(514)}, "small": {"max": AtMost(514)}}
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = False
    per_pair: ClassVar[int] = 2
    rows: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    init: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0
    memory: ClassVar[int] = 0
    reuse: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require(self.max >= 1, "trunk.positions.max", self.max, "a whole number from 1 up")

    def describe(self) -> str:
        return "sinusoidal absolute positions"


@spec
class SinusoidalStacks(Sinusoidal):
    """Those of two stacks, all sines before all cosines (PEGASUS, arXiv:1912.08777, as its code)."""

    buckets: ClassVar[int] = 0
    max_distance: ClassVar[int] = 0


@spec
class Relative:
    """Sinusoids of the distance, and a memory (Transformer-XL, arXiv:1901.02860, 3.2 and 3.3)."""

    kind: Literal["relative"] = "relative"
    memory: int = 0  # states of so many earlier tokens that each layer attends to, without their gradient
    clamp: int = 0  # distances above count as this one; 0 means none does
    same_length: bool = False  # each token attends to the last `memory` tokens, itself among them
    eval_memory: int = 0  # in evaluations a longer memory, if there is one, and the same length for all (3.2)
    eval_clamp: int = 0  # and this in place of `clamp`; both 0: as in training

    shrinks: ClassVar[Shrinks] = {
        "tiny": {"memory": AtMost(64), "clamp": AtMost(64), "eval_memory": AtMost(128), "eval_clamp": AtMost(96)},
        "small": {"memory": AtMost(128), "clamp": AtMost(128), "eval_memory": AtMost(256), "eval_clamp": AtMost(192)},
    }
    window: ClassVar[Everything] = Everything()
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = True
    per_pair: ClassVar[int] = 3
    rows: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    init: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0
    reuse: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in ("memory", "clamp", "eval_memory", "eval_clamp"):
            _check_tokens(name, getattr(self, name))
        has_memory = self.memory > 0 or not self.same_length
        require(has_memory, "trunk.positions.same_length", self.same_length, "false without a memory")
        evaluates = self.eval_memory > 0 or not self.eval_clamp
        require(evaluates, "trunk.positions.eval_clamp", self.eval_clamp, "0 without eval_memory")

    def reach(self, training: bool) -> tuple[int, int, bool]:
        """Length of the memory, largest distance (0: none), and whether all tokens attend to as many, in training or in
        an evaluation."""
        if training or not self.memory or not self.eval_memory:
            return self.memory, self.clamp, self.same_length
        return self.eval_memory, self.eval_clamp, True

    def describe(self) -> str:
        return "relative positions"


@spec
class RelativeStreams:
    """Sinusoids of the distance, and a memory of the content stream (XLNet, arXiv:1906.08237, 2.4)."""

    kind: Literal["relative"] = "relative"
    memory: int = 0  # states of so many earlier tokens that each layer attends to, without their gradient
    reuse: int = 0  # first tokens of a row, which the next row goes on from and the memory keeps; 0 means all

    shrinks: ClassVar[Shrinks] = {
        "tiny": {"memory": AtMost(64), "reuse": 32},
        "small": {"memory": AtMost(128), "reuse": 64},
    }
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = True
    per_pair: ClassVar[int] = 3
    rows: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    init: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        for name in ("memory", "reuse"):
            _check_tokens(name, getattr(self, name))

    def describe(self) -> str:
        return "relative positions"


@spec
class Buckets:
    """A bias of each head for each bucket of distances (T5, arXiv:1910.10683, 2.1)."""

    kind: Literal["buckets"] = "buckets"
    buckets: int = 32
    max_distance: int = 128  # from here on all distances are in the last bucket

    shrinks: ClassVar[Shrinks] = {}
    longest: ClassVar[int] = ENDLESS
    relative: ClassVar[bool] = False
    per_pair: ClassVar[int] = 2
    rows: ClassVar[int] = 0
    offset: ClassVar[int] = 0
    init: ClassVar[PositionInit] = "normal"
    init_std: ClassVar[float] = 0.0
    memory: ClassVar[int] = 0
    reuse: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require(self.buckets >= 4, "trunk.positions.buckets", self.buckets, "a number from 4 up")
        far = self.max_distance > self.buckets // 2
        allowed = f"more than half of the {self.buckets} buckets"
        require(far, "trunk.positions.max_distance", self.max_distance, allowed)

    def describe(self) -> str:
        return f"relative position biases in {self.buckets} buckets"


def _check_tokens(name: str, tokens: int) -> None:
    require(tokens >= 0, f"trunk.positions.{name}", tokens, "a number of tokens from 0 up")
