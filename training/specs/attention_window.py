"""Attention windows: the distance up to which tokens attend to each other."""

import math
from typing import ClassVar, Literal, Protocol

from preprocessing.spec import AtMost, ScaleOverrides, key, require, spec
from training.specs.work import BatchWork


class AttentionWindow(Protocol):
    """Number of tokens before and after itself that a token attends to, and the layers with this limit."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def global_first(self) -> bool:
        """Whether the first token attends to all tokens and all attend to it, with separate linear layers."""

    @property
    def sides(self) -> tuple[int, int]:
        """Numbers of tokens before and after itself that a token attends to, in a layer with the window."""

    def narrows(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has the window; other layers attend to the full sequence."""

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Number of attended pairs of tokens in `layers` layers; with `causal`, a full sequence has half of the
        pairs."""

    def describe(self) -> str:
        """Description for reports."""

    def fits(self, longest: int) -> str:
        """Reason why it has no effect on sequences of at most `longest` tokens, in one line, or ""."""


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

    def count_computed_pairs(self, work: BatchWork) -> tuple[float, float]:
        """Number of computed pairs per layer, including masked pairs, and number of copies of each key and value."""
        return work.squares, 0.0

    def describe(self) -> str:
        return "the full sequence"

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
        require(even, "model.attention_window.size", self.size, "an even number of at least 2 tokens")

    @property
    def global_first(self) -> bool:
        return self.global_tokens == "first"

    @property
    def sides(self) -> tuple[int, int]:
        return self.size // 2, self.size // 2

    def narrows(self, layer: int) -> bool:
        return True

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 2 + 3 + 3 + 2 pairs.

        >>> SlidingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 1, causal=False)
        20.0
        """
        side = min(self.size / 2, work.length - 1)
        return layers * (work.rows * (work.length * (2 * side + 1) - side * (side + 1)))

    def count_computed_pairs(self, work: BatchWork) -> tuple[float, float]:
        """See `FullAttention.computed`. Sequences are cut into chunks of queries; each chunk is compared with the keys
        of three chunks (training/architectures/window_attention.py).

        >>> SlidingWindow(size=4).count_computed_pairs(BatchWork(tokens=8, squares=64, targets=0))
        (48.0, 3.0)
        """
        side = max(1.0, min(self.size // 2, work.length - 1))
        queries = math.ceil(work.length / side) * side
        return work.rows * queries * 3 * side, 3 * queries / work.length

    def describe(self) -> str:
        first = ", with global attention on the first token" if self.global_first else ""
        return f"a sliding window of {self.size:,} tokens{first}"

    def fits(self, longest: int) -> str:
        return "" if self.size // 2 < longest else _too_large(self.size, 2 * longest, longest)


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
        require(self.size >= 1, "model.attention_window.size", self.size, "at least 1 token")

    @property
    def sides(self) -> tuple[int, int]:
        return self.size - 1, 0

    def narrows(self, layer: int) -> bool:
        return layer % 2 == 1

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 8 + 6 pairs.

        >>> AlternatingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 2, causal=True)
        28.0
        """
        banded, near = layers // 2, min(self.size, work.length)
        return (layers - banded) * work.squares / 2 + banded * (work.rows * near * (work.length - near / 2))

    def describe(self) -> str:
        return f"a band of {self.size:,} tokens in every second layer"

    def fits(self, longest: int) -> str:
        return "" if self.size < longest else _too_large(self.size, longest, longest)


def _too_large(size: int, limit: int, longest: int) -> str:
    return (
        f"invalid model.attention_window.size: got {size}, expected less than {limit}, because sequences have at most "
        f"{longest} tokens; lower it, or set kind full"
    )
