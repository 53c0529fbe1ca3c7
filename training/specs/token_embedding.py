"""Token tables of a decoder: one table, or one per cluster of tokens with similar frequency."""

from typing import ClassVar, Literal, Protocol

from preprocessing.spec import AtMost, ScaleOverrides, key, require, spec


class TokenEmbedding(Protocol):
    """The token tables for embeddings and softmax."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Token IDs at which clusters end; () if there is one table."""

    @property
    def div_val(self) -> int:
        """Factor by which the embedding size decreases from cluster to cluster."""

    def describe(self) -> str:
        """Description for reports."""


@spec
class PlainEmbedding:
    """One token table with the hidden size of the model."""

    kind: Literal["plain"] = "plain"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    cutoffs: ClassVar[tuple[int, ...]] = ()
    div_val: ClassVar[int] = 1

    def describe(self) -> str:
        return "token embeddings of the hidden size"


@spec
class AdaptiveEmbedding:
    """Adaptive embeddings and softmax: one table per cluster of tokens.

    Clusters follow the token IDs, which must be in order of falling frequency: adaptive embeddings (arXiv:1809.10853)
    and softmax (arXiv:1609.04309).
    """

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...] = key(doc="Token IDs at which clusters end; the last cluster ends with the vocabulary.")
    div_val: int = key(default=1, doc="Factor by which the embedding size decreases from each cluster to the next.")

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"cutoffs": AtMost([500, 1_500]), "div_val": AtMost(2)},
        "small": {"cutoffs": AtMost([2_000, 6_000]), "div_val": AtMost(2)},
    }

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in zip((0, *self.cutoffs), self.cutoffs, strict=False))
        require(
            rising and len(self.cutoffs) > 0,
            "model.token_embedding.cutoffs",
            self.cutoffs,
            "increasing token IDs",
        )
        require(self.div_val >= 1, "model.token_embedding.div_val", self.div_val, "a number of at least 1")

    def describe(self) -> str:
        cuts = ", ".join(f"{cut:,}" for cut in self.cutoffs)
        return f"adaptive token embeddings and softmax, with clusters that end at {cuts}"
