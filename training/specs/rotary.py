"""Rotary position embeddings (RoFormer, arXiv:2104.09864), and how they are scaled to longer sequences."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from preprocessing.spec import BY_KIND, AtMost, ScaleOverrides, key, require, spec
from training.specs.position_embedding import NoTable, check_rows

PREFIX = "model.position_embedding.rope_scaling"


class ScalingPart(Protocol):
    """A kind of scaling of the frequencies."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def attention_factor(self) -> float:
        """Factor of all cosines and sines."""

    def divide(self, frequencies: Sequence[float]) -> tuple[float, ...]:
        """Change the angles at position 1, in decreasing order."""

    def describe(self) -> str:
        """Description for reports; "" if the frequencies stay."""


@spec
class NoScaling:
    """The frequencies of the paper."""

    kind: Literal["none"] = "none"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    attention_factor: ClassVar[float] = 1.0

    def divide(self, frequencies: Sequence[float]) -> tuple[float, ...]:
        return tuple(frequencies)

    def describe(self) -> str:
        return "as in the paper"


@spec
class LinearScaling:
    """Position interpolation (arXiv:2306.15595): all positions are divided by a factor."""

    kind: Literal["linear"] = "linear"
    factor: float = key(doc="Factor by which positions are divided.")

    scale_overrides: ClassVar[ScaleOverrides] = {}
    attention_factor: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require(self.factor >= 1, f"{PREFIX}.factor", self.factor, "a number of at least 1")

    def divide(self, frequencies: Sequence[float]) -> tuple[float, ...]:
        """
        >>> LinearScaling(factor=4.0).divide([1.0, 0.1])
        (0.25, 0.025)
        """
        return tuple(each / self.factor for each in frequencies)

    def describe(self) -> str:
        return f"positions divided by {self.factor:g}"


@spec
class Llama3Scaling:
    """Scaling of Llama 3.1 (arXiv:2407.21783): only low frequencies are divided."""

    kind: Literal["llama3"] = "llama3"
    factor: float = key(doc="Factor by which the lowest frequencies are divided.")
    original_max_position_embeddings: int = key(doc="Sequence length before the extension, in tokens.")
    low_freq_factor: float = key(default=1.0, doc="Rotations in the original length up to which all is divided.")
    high_freq_factor: float = key(default=4.0, doc="Rotations in the original length from which nothing changes.")

    scale_overrides: ClassVar[ScaleOverrides] = {}
    attention_factor: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require(self.factor >= 1, f"{PREFIX}.factor", self.factor, "a number of at least 1")
        _check_length(self.original_max_position_embeddings)
        ordered = 0 < self.low_freq_factor < self.high_freq_factor
        allowed = f"a number above 0 and below high_freq_factor ({self.high_freq_factor})"
        require(ordered, f"{PREFIX}.low_freq_factor", self.low_freq_factor, allowed)

    def divide(self, frequencies: Sequence[float]) -> tuple[float, ...]:
        """
        >>> scaled = Llama3Scaling(factor=8.0, original_max_position_embeddings=64).divide([1.0, 0.2, 0.01])
        >>> [round(each, 5) for each in scaled]
        [1.0, 0.0855, 0.00125]
        """
        scaled, span = [], self.high_freq_factor - self.low_freq_factor
        for each in frequencies:
            rotations = self.original_max_position_embeddings * each / (2 * math.pi)
            same = min(1.0, max(0.0, (rotations - self.low_freq_factor) / span))
            scaled.append(each * same + each / self.factor * (1 - same))
        return tuple(scaled)

    def describe(self) -> str:
        return f"scaled for {self.factor:g} times the length as in Llama 3.1"


@spec
class YarnScaling:
    """YaRN (arXiv:2309.00071, 3.2 and 3.4): low frequencies are divided, and scores are scaled."""

    kind: Literal["yarn"] = "yarn"
    factor: float = key(doc="Factor by which the lowest frequencies are divided.")
    original_max_position_embeddings: int = key(doc="Sequence length before the extension, in tokens.")
    beta_fast: float = key(default=32.0, doc="Rotations in the original length from which nothing changes.")
    beta_slow: float = key(default=1.0, doc="Rotations in the original length up to which all is divided.")

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(self.factor >= 1, f"{PREFIX}.factor", self.factor, "a number of at least 1")
        _check_length(self.original_max_position_embeddings)
        ordered = 0 < self.beta_slow < self.beta_fast
        allowed = f"a number above 0 and below beta_fast ({self.beta_fast})"
        require(ordered, f"{PREFIX}.beta_slow", self.beta_slow, allowed)

    @property
    def attention_factor(self) -> float:
        """Factor of all cosines and sines, so that scores are scaled by its square (3.4, equation 22)."""
        return 0.1 * math.log(self.factor) + 1.0

    def divide(self, frequencies: Sequence[float]) -> tuple[float, ...]:
        """
        >>> YarnScaling(factor=4.0, original_max_position_embeddings=64).divide([1.0, 0.1, 0.01, 0.001])
        (1.0, 0.0625, 0.0025, 0.00025)
        """
        pairs, theta = len(frequencies), frequencies[1] ** -len(frequencies) if len(frequencies) > 1 else math.e
        first = max(math.floor(self._pair(self.beta_fast, pairs, theta)), 0)
        last = min(math.ceil(self._pair(self.beta_slow, pairs, theta)), 2 * pairs - 1)
        scaled = []
        for pair, each in enumerate(frequencies):
            divided = min(1.0, max(0.0, (pair - first) / max(last - first, 0.001)))
            scaled.append(each * (1 - divided) + each / self.factor * divided)
        return tuple(scaled)

    def describe(self) -> str:
        return f"scaled for {self.factor:g} times the length by YaRN"

    def _pair(self, rotations: float, pairs: int, theta: float) -> float:
        """The number of the pair that makes so many rotations in the original length."""
        return pairs * math.log(self.original_max_position_embeddings / (rotations * 2 * math.pi)) / math.log(theta)


RopeScaling = NoScaling | LinearScaling | Llama3Scaling | YarnScaling


@spec
class RotaryPositions(NoTable):
    """Rotary positions (RoFormer, arXiv:2104.09864): queries and keys are rotated by their positions."""

    kind: Literal["rotary"] = "rotary"
    max_position_embeddings: int = key(default=2048, doc="Maximum sequence length in tokens.")
    rope_theta: float = key(default=10_000.0, doc="Base of the wavelengths.")
    # GPT-NeoX rotates a quarter of each head (20B, arXiv:2204.06745, 2.1.1).
    partial_rotary_factor: float = key(default=1.0, doc="Fraction of the elements of a head that are rotated.")
    # GPT-J and the paper: elements 2 i and 2 i + 1; GPT-NeoX and LLaMA: elements i and i + rotated / 2.
    interleaved: bool = key(default=False, doc="Whether neighboring elements form a pair (GPT-J).")
    # ModernBERT has 10,000 in local and 160,000 in global layers.
    local_rope_theta: float = key(default=0.0, doc="Base in layers with an attention window; 0: rope_theta.")
    rope_scaling: Annotated[RopeScaling, BY_KIND] = key(
        default=NoScaling(), doc="Change of the frequencies for longer sequences."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"max_position_embeddings": AtMost(512)},
        "small": {"max_position_embeddings": AtMost(512)},
    }

    def __post_init__(self) -> None:
        check_rows(self.max_position_embeddings)
        require(self.rope_theta > 1, "model.position_embedding.rope_theta", self.rope_theta, "a number above 1")
        known = self.local_rope_theta == 0 or self.local_rope_theta > 1
        require(known, "model.position_embedding.local_rope_theta", self.local_rope_theta, "a number above 1, or 0")
        part = 0 < self.partial_rotary_factor <= 1
        allowed = "a fraction above 0 and at most 1"
        require(part, "model.position_embedding.partial_rotary_factor", self.partial_rotary_factor, allowed)

    @property
    def longest(self) -> int:
        return self.max_position_embeddings

    def count_rotated(self, head_dim: int) -> int:
        """Number of rotated elements of a head.

        >>> RotaryPositions(partial_rotary_factor=0.25).count_rotated(64)
        16
        """
        return int(head_dim * self.partial_rotary_factor)

    def frequencies(self, head_dim: int, *, local: bool = False) -> tuple[float, ...]:
        """Angle of each pair of elements at position 1: theta ** (-2 i / R) for pair i of R / 2, then scaled.

        `local`: in layers with an attention window, which have no scaling if they have their own theta.

        >>> [round(each, 6) for each in RotaryPositions().frequencies(8)]
        [1.0, 0.1, 0.01, 0.001]
        """
        rotated, own = self.count_rotated(head_dim), local and self.local_rope_theta > 0
        theta = self.local_rope_theta if own else self.rope_theta
        plain = [theta ** (-pair / rotated) for pair in range(0, rotated, 2)]
        return tuple(plain) if own else self.rope_scaling.divide(plain)

    def attention_factor(self, *, local: bool = False) -> float:
        """Factor of the cosines and sines."""
        return 1.0 if local and self.local_rope_theta else self.rope_scaling.attention_factor

    def fits_head(self, head_dim: int) -> str:
        """Reason why heads of this size cannot be rotated, as a value that is allowed; "" if they can."""
        rotated = self.count_rotated(head_dim)
        return "" if rotated >= 2 and rotated % 2 == 0 else f"a fraction of {head_dim} (head_dim) that is even"

    def describe(self) -> str:
        part = "" if self.partial_rotary_factor == 1 else f" of {self.partial_rotary_factor:.0%} of each head"
        scaled = "" if self.rope_scaling.kind == "none" else f", {self.rope_scaling.describe()}"
        return f"rotary positions{part}{scaled}"


def _check_length(length: int) -> None:
    require(length >= 1, f"{PREFIX}.original_max_position_embeddings", length, "an integer of at least 1")
