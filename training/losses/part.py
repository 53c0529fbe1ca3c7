"""The facts of a loss. Loop, checks, scales, exports and reports use only these facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from preprocessing.schema import IGNORE
from preprocessing.spec import ScaleOverrides
from training.specs import Architecture, BatchWork, ModelTensors, NetName, Visibility, count_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

LogitsFor = Literal["", "causal", "masked"]
"""Tokens that a head predicts by a softmax over the vocabulary.

causal: the token after each state; masked: the token at each state; "": none, or not from the state of one token.
"""

ScaledPhases: TypeAlias = Mapping[str, Sequence[Mapping[str, int]]]
"""Sequence length, batch size and steps of each phase, by name of a scale."""

Arrays: TypeAlias = "Mapping[str, np.ndarray | Tensor]"
"""A batch of preprocessing/schema.py, as arrays or tensors."""


@dataclass(frozen=True)
class LossContext:
    """Facts of other parts of a recipe that the description of a loss uses."""

    label_says: str = ""  # packing.label_says: the meaning of the label of a segment pair
    target: str = ""  # objective.target of an encoder-decoder: the targets of its decoder
    permuted: bool = False  # model.hides_own_token: tokens are predicted in a permuted order


class LossPart(Protocol):
    """A member of the union Loss: a prediction target for the hidden states of a model, and its head."""

    head_name: ClassVar[str]
    """Name of the head among the modules of the model. Parameter names seed the initial weights and are the keys of
    saved weights. Therefore, the name of a head stays the same if its `kind` changes. Losses with the same head have
    the same name, so that their weights fit each other and are exported alike."""
    logits_for: ClassVar[LogitsFor]
    """Tokens that the head predicts, which is how generation, likelihoods and exports find it."""
    required_columns: ClassVar[frozenset[str]]
    """Columns of preprocessing/schema.py that a sequence must have."""
    sees: ClassVar[frozenset[Visibility]]
    """Attention masks with which the loss can be combined."""
    reads: ClassVar[frozenset[NetName]]
    """Names of the models whose hidden states the head can use: `net`, or `generator` or `discriminator` if the
    architecture has both (`Architecture.nets`)."""
    accuracy: ClassVar[str]
    """Name of the accuracy metric: the fraction of targets with the highest score, from 0 to 1."""
    perplexity: ClassVar[bool]
    """Whether exp(loss) is logged as the perplexity."""
    rewarded: ClassVar[bool]
    """Whether the loss trains a generator by a reward. It requires another loss that `rewards`."""

    @property
    def kept_logits(self) -> int:
        """Number of float32 matrices of size targets x vocabulary in memory at the start of the backward pass.

        It is 0 if logits are computed in slices of LOGITS_AT_ONCE.
        """

    @property
    def z_loss(self) -> float:
        """Weight of log^2 Z per target, which the head reports separately; 0: none."""

    not_exported: ClassVar[str]
    """Reason why no class of transformers has this head; "" if a class may have it."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values."""
    phases: ClassVar[ScaledPhases]
    """Phases that `--scale` gives to a recipe with this loss; empty: the phases of the recipe. They depend on the loss,
    because it defines the number of targets per sequence. If several losses have phases, the last one's apply."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def weight(self) -> float:
        """Factor of the mean over the targets in the sum of the losses."""

    @property
    def names_tokens(self) -> bool:
        """Whether the targets are tokens, so that each is projected to the vocabulary."""

    @property
    def rewards(self) -> bool:
        """Whether the head has `surprise(hidden, batch)`, which returns the loss [M] in nats at each of
        `targets_at`."""

    def describe(self, context: LossContext) -> str:
        """The prediction target in one line, with its weight if this is not 1: "50 x replaced tokens"."""

    def count(self, batch: Arrays) -> int:
        """Number of targets in a batch, computed before the forward pass. `Score.count` of the head must be equal.

        In batches of a fixed shape, targets with the label IGNORE do not count (`count_targets`).

        The loop divides the sum of the losses by this number, both summed over workers and micro-batches.
        """

    def targets(self, work: BatchWork) -> float:
        """Approximate number of targets in a batch with this work, to estimate memory."""

    def head(self, trunk: Architecture, vocab_size: int) -> "nn.Module":
        """The head on top of `trunk`, without weights: `build_head` adds the modules of its `tensors`.

        `forward(hidden, batch, table)` returns a Score. `hidden` is [B, S, D] or [T, D].

        `table` [V, D] is the tied token table of the trunk. A head must select its targets before it projects them to
        the vocabulary. This method imports the head, because the head imports torch.
        """

    def tensors(self, trunk: Architecture, vocab_size: int) -> ModelTensors:
        """The tensors of the head, without the tied token table."""

    def fits(self, trunk: Architecture) -> str:
        """Reason why the loss does not fit this model, in one line that starts with "invalid losses"; "" if it fits."""


def count_targets(batch: Arrays) -> int:
    """Number of targets of a batch. Those with the label IGNORE are filler (preprocessing/fixed_shapes.py).

    >>> count_targets({"targets": np.array([7, 8, IGNORE])})
    2
    """
    return int((batch["targets"] != IGNORE).sum())


def add_weight(weight: float, words: str) -> str:
    """The words, with the weight before them if it is not 1.

    >>> add_weight(50.0, "replaced tokens"), add_weight(1.0, "masked tokens")
    ('50 x replaced tokens', 'masked tokens')
    """
    return words if weight == 1 else f"{weight:g} x {words}"


def mention_z_loss(z_loss: float, words: str) -> str:
    """The words, followed by the z-loss if there is one.

    >>> mention_z_loss(1e-4, "next token"), mention_z_loss(0.0, "masked tokens")
    ('next token, with z-loss 0.0001', 'masked tokens')
    """
    return f"{words}, with z-loss {z_loss:g}" if z_loss else words


def has_token_bias(loss: LossPart, trunk: Architecture) -> bool:
    """Whether the head of a loss has a bias per token: its tensors depend on the size of the vocabulary."""
    return loss.tensors(trunk, 1) != loss.tensors(trunk, 0)


def has_transform(loss: LossPart, trunk: Architecture) -> bool:
    """Whether the head of a loss has layers between the hidden states and the token table."""
    return count_weights(loss.tensors(trunk, 0)).total > 0
