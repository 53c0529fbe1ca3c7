"""Windows: how far from itself a token attends."""

import math
from typing import ClassVar, Literal, Protocol

from preprocessing.spec import AtMost, ScaleOverrides, key, require, spec
from training.specs.work import BatchWork


class AttentionWindow(Protocol):
    """How many tokens before and behind itself a token attends to, and in which layers."""

    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def global_first(self) -> bool:
        """Whether the first token attends to all and all attend to it, by linears of their own."""

    @property
    def sides(self) -> tuple[int, int]:
        """Tokens before and behind itself that a token attends to, in a layer that the window narrows."""

    def narrows(self, layer: int) -> bool:
        """Whether the layer of this number, from 0, has the window; the others attend to the whole row."""

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of tokens that attention scores in so many layers; `causal` halves a whole row."""

    def describe(self) -> str:
        """What a token attends to, in words."""

    def fits(self, longest: int) -> str:
        """One line that says why it has no effect on rows of at most so many tokens, "" where it has."""


@spec
class FullAttention:
    """Full attention: each token attends to all tokens that the attention mask allows."""

    kind: Literal["full"] = "full"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    global_first: ClassVar[bool] = False
    sides: ClassVar[tuple[int, int]] = (0, 0)

    def narrows(self, layer: int) -> bool:
        return False

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        return layers * work.squares / (2 if causal else 1)

    def computed(self, work: BatchWork) -> tuple[float, float]:
        """Pairs of a layer that are scored at once, masked ones too, and how often each key and value is copied."""
        return work.squares, 0.0

    def describe(self) -> str:
        return "the whole row"

    def fits(self, longest: int) -> str:
        return ""


@spec
class SlidingWindow:
    """Sliding window around each token in every layer (Longformer, arXiv:2004.05150, 3.1)."""

    kind: Literal["sliding"] = "sliding"
    size: int = key(doc="Window size in tokens, half of them on each side.")
    global_tokens: Literal["none", "first"] = key(
        default="none", doc="Tokens with global attention: none, or the first token, in both directions."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"size": AtMost(16)}, "small": {"size": AtMost(32)}}

    def __post_init__(self) -> None:
        even = self.size > 0 and self.size % 2 == 0
        require(even, "model.attention_window.size", self.size, "an even number of tokens from 2 up")

    @property
    def global_first(self) -> bool:
        return self.global_tokens == "first"

    @property
    def sides(self) -> tuple[int, int]:
        return self.size // 2, self.size // 2

    def narrows(self, layer: int) -> bool:
        return True

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """
        # 2 + 3 + 3 + 2 a row
        >>> SlidingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 1, causal=False)
        20.0
        """
        side = min(self.size / 2, work.length - 1)
        return layers * (work.rows * (work.length * (2 * side + 1) - side * (side + 1)))

    def computed(self, work: BatchWork) -> tuple[float, float]:
        """As of Everything: rows are cut into chunks of queries, and each meets the keys of three (see
        training/architectures/window_attention.py).

        >>> SlidingWindow(size=4).computed(BatchWork(tokens=8, squares=64, targets=0))
        (48.0, 3.0)
        """
        side = max(1.0, min(self.size // 2, work.length - 1))
        queries = math.ceil(work.length / side) * side
        return work.rows * queries * 3 * side, 3 * queries / work.length

    def describe(self) -> str:
        first = ", with global attention on the first token" if self.global_first else ""
        return f"a sliding window of {self.size:,} tokens{first}"

    def fits(self, longest: int) -> str:
        narrow = self.size // 2 < longest
        return "" if narrow else f"model.attention_window.size is {self.size}, {_rows(longest)}"


@spec
class AlternatingWindow:
    """Local attention in every second layer of a causal model (GPT-3, arXiv:2005.14165, 2.1).

    In these layers each token attends to itself and the tokens right before it.
    """

    kind: Literal["alternating"] = "alternating"
    size: int = key(doc="Window size in tokens, the token itself included.")

    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"size": AtMost(16)}, "small": {"size": AtMost(32)}}
    global_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.size >= 1, "model.attention_window.size", self.size, "a number of tokens from 1 up")

    @property
    def sides(self) -> tuple[int, int]:
        return self.size - 1, 0

    def narrows(self, layer: int) -> bool:
        return layer % 2 == 1

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """
        >>> AlternatingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 2, causal=True)  # 8 + 6 a row
        28.0
        """
        banded, near = layers // 2, min(self.size, work.length)
        return (layers - banded) * work.squares / 2 + banded * (work.rows * near * (work.length - near / 2))

    def describe(self) -> str:
        return f"a band of {self.size:,} tokens in every second layer"

    def fits(self, longest: int) -> str:
        narrow = self.size < longest
        return "" if narrow else f"model.attention_window.size is {self.size}, {_rows(longest)}"


def _rows(longest: int) -> str:
    return f"rows have at most {longest} tokens; lower it, or set kind full"
