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
class _Symmetric:
    """A window around each token of an encoder: half of it on each side."""

    size: int = key(doc="Window size in tokens, half of them on each side.")

    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"size": AtMost(16)}, "small": {"size": AtMost(32)}}

    def __post_init__(self) -> None:
        even = self.size > 0 and self.size % 2 == 0
        require(even, "model.attention_window.size", self.size, "an even number of at least 2 tokens")

    @property
    def sides(self) -> tuple[int, int]:
        return self.size // 2, self.size // 2

    def pairs_of_layer(self, work: BatchWork) -> float:
        """Attended pairs of a layer with the window."""
        side = min(self.size / 2, work.length - 1)
        return work.rows * (work.length * (2 * side + 1) - side * (side + 1))

    def count_computed_pairs(self, work: BatchWork) -> tuple[float, float]:
        """See `FullAttention.count_computed_pairs`. Sequences are cut into chunks of queries; each chunk is compared
        with the keys of three chunks (training/architectures/banded.py).

        >>> SlidingWindow(size=4).count_computed_pairs(BatchWork(tokens=8, squares=64, targets=0))
        (48.0, 3.0)
        """
        side = max(1.0, min(self.size // 2, work.length - 1))
        queries = math.ceil(work.length / side) * side
        return work.rows * queries * 3 * side, 3 * queries / work.length

    def fits(self, longest: int) -> str:
        return "" if self.size // 2 < longest else _too_large(self.size, 2 * longest, longest)


@spec
class SlidingWindow(_Symmetric):
    """Sliding window around each token in every layer (Longformer, arXiv:2004.05150, 3.1)."""

    kind: Literal["sliding"] = "sliding"
    global_tokens: Literal["none", "first"] = key(
        default="none", doc="Tokens with global attention: none, or the first token, in both directions."
    )

    @property
    def global_first(self) -> bool:
        return self.global_tokens == "first"

    def narrows(self, layer: int) -> bool:
        return True

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 2 + 3 + 3 + 2 pairs.

        >>> SlidingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 1, causal=False)
        20.0
        """
        return layers * self.pairs_of_layer(work)

    def describe(self) -> str:
        first = ", with global attention on the first token" if self.global_first else ""
        return f"a sliding window of {self.size:,} tokens{first}"


@spec
class EncoderAlternatingWindow(_Symmetric):
    """Local attention in most layers of an encoder (ModernBERT, arXiv:2412.13663, 2.1.2)."""

    kind: Literal["alternating"] = "alternating"
    global_attn_every_n_layers: int = key(default=3, doc="Distance of two layers with full attention; 0 is the first.")

    global_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _Symmetric.__post_init__(self)
        _check_every(self.global_attn_every_n_layers)

    def narrows(self, layer: int) -> bool:
        return layer % self.global_attn_every_n_layers != 0

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 16 + 10 pairs.

        >>> EncoderAlternatingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 2, causal=False)
        52.0
        """
        local = sum(map(self.narrows, range(layers)))
        return (layers - local) * work.squares + local * self.pairs_of_layer(work)

    def describe(self) -> str:
        return f"a window of {self.size:,} tokens, except in layers 0, {self.global_attn_every_n_layers}, ..."


@spec
class _Before:
    """A window of a causal model: a token attends to itself and to the tokens right before it."""

    size: int = key(doc="Window size in tokens, the token itself included.")

    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"size": AtMost(16)}, "small": {"size": AtMost(32)}}
    global_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.size >= 1, "model.attention_window.size", self.size, "at least 1 token")

    @property
    def sides(self) -> tuple[int, int]:
        return self.size - 1, 0

    def pairs_of_layer(self, work: BatchWork) -> float:
        """Attended pairs of a layer with the window."""
        near = min(self.size, work.length)
        return work.rows * near * (work.length - near / 2)

    def fits(self, longest: int) -> str:
        return "" if self.size < longest else _too_large(self.size, longest, longest)


@spec
class CausalSlidingWindow(_Before):
    """A window in every layer of a causal model (Mistral, arXiv:2310.06825, 2)."""

    kind: Literal["sliding"] = "sliding"

    def narrows(self, layer: int) -> bool:
        return True

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 6 pairs.

        >>> CausalSlidingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 1, causal=True)
        12.0
        """
        return layers * self.pairs_of_layer(work)

    def describe(self) -> str:
        return f"a sliding window of {self.size:,} tokens"


@spec
class AlternatingWindow(_Before):
    """Local attention in some layers of a causal model (GPT-3, arXiv:2005.14165, 2.1: every second layer)."""

    kind: Literal["alternating"] = "alternating"
    global_attn_every_n_layers: int = key(default=2, doc="Distance of two layers with full attention; 0 is the first.")

    def __post_init__(self) -> None:
        _Before.__post_init__(self)
        _check_every(self.global_attn_every_n_layers)

    def narrows(self, layer: int) -> bool:
        return layer % self.global_attn_every_n_layers != 0

    def pairs(self, work: BatchWork, layers: int, *, causal: bool) -> float:
        """Pairs of `layers` layers. In the example, each sequence has 8 + 6 pairs.

        >>> AlternatingWindow(size=2).pairs(BatchWork(tokens=8, squares=32, targets=0), 2, causal=True)
        28.0
        """
        local = sum(map(self.narrows, range(layers)))
        return (layers - local) * work.squares / 2 + local * self.pairs_of_layer(work)

    def describe(self) -> str:
        every = self.global_attn_every_n_layers
        where = "in every second layer" if every == 2 else f"except in layers 0, {every}, ..."
        return f"a band of {self.size:,} tokens {where}"


def _check_every(layers: int) -> None:
    name = "model.attention_window.global_attn_every_n_layers"
    require(layers >= 2, name, layers, "at least 2 layers; for full attention in all layers, set kind full")


def _too_large(size: int, limit: int, longest: int) -> str:
    return (
        f"invalid model.attention_window.size: got {size}, expected less than {limit}, because sequences have at most "
        f"{longest} tokens; lower it, or set kind full"
    )
