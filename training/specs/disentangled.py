"""Disentangled attention (DeBERTa, arXiv:2006.03654): scores of content and of relative position."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from preprocessing.spec import AtMost, ScaleOverrides, key, require, spec
from training.specs.attention import SelfAttentionSpec
from training.specs.position_embedding import ENDLESS, NoTable
from training.specs.tensors import NormSpec, TableSpec, Tensors

TERMS: Final = 3  # of a score: content to content, content to position, position to content


@spec
class DisentangledPositions(NoTable):
    """Embeddings of the distance of two tokens, which attention compares with queries and keys (DeBERTa 3.1).

    All layers share the table, and project it like their hidden states. Distances have buckets: near distances have
    one each, and far ones share buckets whose size grows logarithmically (DeBERTa V2, appendix A.5 of the paper).
    """

    kind: Literal["disentangled"] = "disentangled"
    position_buckets: int = key(default=256, doc="Number of buckets of distances in each direction.")
    max_relative_positions: int = key(
        default=512, doc="Distance threshold; this and all larger distances share the last bucket."
    )

    # a short run would seldom read the embeddings of far buckets
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"position_buckets": AtMost(32), "max_relative_positions": AtMost(128)},
        "small": {"position_buckets": AtMost(32), "max_relative_positions": AtMost(128)},
    }
    longest: ClassVar[int] = ENDLESS
    per_pair: ClassVar[int] = TERMS + 1

    def __post_init__(self) -> None:
        buckets, farthest = self.position_buckets, self.max_relative_positions
        even = buckets >= 2 and buckets % 2 == 0
        require(even, "model.position_embedding.position_buckets", buckets, "an even number of at least 2")
        allowed = f"more than half of position_buckets ({buckets}) plus 1"
        far = farthest > buckets // 2 + 1
        require(far, "model.position_embedding.max_relative_positions", farthest, allowed)

    @property
    def relative_rows(self) -> int:
        """Rows of the table of distances, negative ones first."""
        return 2 * self.position_buckets

    def bucket(self, distance: int) -> int:
        """Bucket of a distance of at least 0; the module limits it to the rows of the table.

        >>> [DisentangledPositions().bucket(distance) for distance in (0, 127, 128, 130, 150, 256, 511, 512)]
        [0, 127, 128, 130, 143, 192, 255, 256]
        """
        middle = self.position_buckets // 2
        if distance <= middle:
            return distance
        part = math.log(distance / middle) / math.log((self.max_relative_positions - 1) / middle)
        return math.ceil(part * (middle - 1)) + middle

    @property
    def first_distances(self) -> tuple[int, ...]:
        """The smallest distance in or above each bucket from 1 to `position_buckets`.

        The bucket of a distance is therefore the number of these that it reaches, without any rounding on a device.

        >>> DisentangledPositions(position_buckets=8, max_relative_positions=32).first_distances
        (1, 2, 3, 4, 5, 8, 16, 32)
        """
        found, distance = list[int](), 0
        while len(found) < self.position_buckets:
            distance += 1
            found += [distance] * (min(self.bucket(distance), self.position_buckets) - len(found))
        return tuple(found)

    def describe(self) -> str:
        return f"disentangled relative positions in {self.relative_rows} buckets"


@dataclass(frozen=True)
class DisentangledAttentionSpec(SelfAttentionSpec):
    """Attention whose scores compare content with content, and content with relative positions in both directions.

    Queries and keys of positions have the linear layers of the content (`share_att_key` in the authors' code).
    """

    kind: ClassVar[str] = "disentangled"
    rel_rows: int = 0  # rows of the table of distances
    rel_norm: NormSpec | None = None  # of this table (norm_rel_ebd: layer_norm in the authors' code)
    rel_dropout: float = 0.0  # of the states of distances, in each layer

    @property
    def scale(self) -> float:
        """Factor of the scores, whose variance grows with the number of terms (equation 4)."""
        return float((TERMS * self.head_dim) ** -0.5)

    @property
    def shared(self) -> tuple[Tensors, ...]:
        """The tensors that all layers share: the table of distances, and its norm."""
        norm = () if self.rel_norm is None else (self.rel_norm,)
        return TableSpec("rel_embeddings", self.rel_rows, self.width), *norm
