"""Token tables of a decoder: one, or clusters of tokens by frequency."""

from typing import ClassVar, Literal, Protocol

from preprocessing.spec import AtMost, Shrinks, require, spec


class TokenEmbedding(Protocol):
    """The tables of tokens, for embeddings and softmax."""

    shrinks: ClassVar[Shrinks]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Ids where clusters of tokens end; () where there is one table."""

    @property
    def div_val(self) -> int:
        """How many times narrower each cluster is than the one before."""

    def describe(self) -> str:
        """What they are, in words."""


@spec
class PlainEmbedding:
    """One table, as wide as the net."""

    kind: Literal["plain"] = "plain"

    shrinks: ClassVar[Shrinks] = {}
    cutoffs: ClassVar[tuple[int, ...]] = ()
    div_val: ClassVar[int] = 1

    def describe(self) -> str:
        return "token embeddings of the hidden size"


@spec
class AdaptiveEmbedding:
    """A table for each cluster of tokens, numbered by falling frequency: adaptive embeddings (arXiv:1809.10853) and
    softmax (arXiv:1609.04309)."""

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...]  # ids where clusters end; the last one ends with the vocabulary
    div_val: int = 1  # each cluster is so many times narrower than the one before (div_val)

    shrinks: ClassVar[Shrinks] = {
        "tiny": {"cutoffs": AtMost([500, 1_500]), "div_val": AtMost(2)},
        "small": {"cutoffs": AtMost([2_000, 6_000]), "div_val": AtMost(2)},
    }

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip((0, *self.cutoffs), self.cutoffs, strict=False))
        require(
            rising and len(self.cutoffs) > 0,
            "model.token_embedding.cutoffs",
            self.cutoffs,
            "numbers of tokens that rise",
        )
        require(self.div_val >= 1, "model.token_embedding.div_val", self.div_val, "a number from 1 up")

    def describe(self) -> str:
        cuts = ", ".join(f"{cut:,}" for cut in self.cutoffs)
        return f"adaptive token embeddings and softmax, with clusters that end at {cuts}"
