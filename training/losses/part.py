"""The facts that each loss states about itself; loop, checks, scales, exports and reports read them here only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np

from preprocessing.spec import ScaleOverrides
from training.specs import Architecture, BatchWork, NetName, Visibility

if TYPE_CHECKING:
    from torch import Tensor, nn

ScaledPhases: TypeAlias = Mapping[str, Sequence[Mapping[str, int]]]
"""By the name of a scale: length, batch and steps of each phase."""

Arrays: TypeAlias = "Mapping[str, np.ndarray | Tensor]"
"""A batch of schema.py, in arrays or in tensors."""


@dataclass(frozen=True)
class LossContext:
    """What the description of a loss takes from the other parts of a recipe."""

    label_says: str = ""  # segment.label_says: the task of the pair's label
    target: str = ""  # rewrite.target where the trunk reads a source: what its decoder predicts
    permuted: bool = False  # trunk.hides_own_token: tokens are predicted in a permuted order


class LossPart(Protocol):
    """A part of the union Loss: what is predicted from the states of a net, and which head computes that."""

    head_name: ClassVar[str]
    """Name of its head among the modules of the model. First weights are drawn by the names of parameters, and saved
    weights are found by them: a head keeps its name where a `kind` changes."""
    required_columns: ClassVar[frozenset[str]]
    """Columns of schema.py that a row must have."""
    sees: ClassVar[frozenset[Visibility]]
    """Visibilities of a trunk with which it can be combined."""
    reads: ClassVar[frozenset[NetName]]
    """The nets whose states its head can read: the net of a trunk that has one, the generator or the discriminator of a
    trunk that has two (`trunk.nets`)."""
    accuracy: ClassVar[str]
    """Name of its accuracy metric: the share of its targets that get the highest score, from 0 to 1."""
    perplexity: ClassVar[bool]
    """Whether exp(loss) is logged as the perplexity."""
    rewarded: ClassVar[bool]
    """Whether it is a reward for a generator: it needs a loss beside it that `rewards`."""

    @property
    def kept_logits(self) -> int:
        """How many float32 matrices of its targets and the vocabulary are in memory at once, as the backward pass
        begins; 0 where logits are made by slices of LOGITS_AT_ONCE."""

    not_exported: ClassVar[str]
    """Why no class of transformers has its head; "" where one may."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""
    phases: ClassVar[ScaledPhases]
    """What `--scale` takes as phases of a recipe with it, where that is not the recipe's own: how many targets a row
    has is the loss's. Of several losses the last one that says something counts."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def weight(self) -> float:
        """What its mean over the targets is multiplied by in the sum of the losses."""

    @property
    def names_tokens(self) -> bool:
        """Whether its targets are tokens, so that each is projected to the vocabulary."""

    @property
    def rewards(self) -> bool:
        """Whether its head has `surprise(hidden, batch)`: its loss [M] in nats at each of `targets_at`."""

    def describe(self, context: LossContext) -> str:
        """What is predicted, in one line, with its weight where that is not 1: "50 x replaced tokens"."""

    def count(self, batch: Arrays) -> int:
        """Number of its targets in a batch, known before the forward pass; its head must score as many (`Score.count`).

        The loop divides the sum of all scores by this number, over workers and micro-batches.
        """

    def targets(self, work: BatchWork) -> float:
        """About how many targets a batch of such work has: what memory is planned by."""

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        """The head on top of `trunk`: `forward(hidden, batch, table)` -> Score. `hidden` is [B, S, D] or [T, D].

        `table` [V, D] is the token table, borrowed from the trunk (tied weights). A head picks its targets before it
        projects anything to the vocabulary. Its module of torch is imported when this is called.
        """

    def weights(self, trunk: Architecture, vocab_size: int) -> int:
        """How many its head has; the table that it borrows counts in the trunk."""

    def fits(self, trunk: Architecture) -> str:
        """Why it cannot be combined with this trunk, in one line that begins with "losses"; "" where it can."""


def add_weight(weight: float, words: str) -> str:
    """The words with a weight before them, where it is not 1.

    >>> add_weight(50.0, "replaced tokens"), add_weight(1.0, "masked tokens")
    ('50 x replaced tokens', 'masked tokens')
    """
    return words if weight == 1 else f"{weight:g} x {words}"
