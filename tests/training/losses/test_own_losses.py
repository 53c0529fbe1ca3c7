"""What a loss or an attention of a user can get wrong, and the line that says so."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training.architectures.kinds import make_attention, make_feed_forward
from training.losses.heads.cross_entropy import token_score
from training.specs import FeedForwardSpec, SelfAttentionSpec


def test_a_rule_that_returns_one_number_is_refused() -> None:
    def rule(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
        return (log_z_M - logit_M).mean()

    with pytest.raises(
        BadInput, match=r"invalid shape of the result of a loss rule: got \[\], expected \[3\], a number"
    ):
        token_score(torch.randn(3, 8), torch.randn(10, 8), None, torch.tensor([1, 2, 3]), rule)


@dataclass(frozen=True)
class OwnAttentionSpec(SelfAttentionSpec):
    kind: ClassVar[str] = "own"


@dataclass(frozen=True)
class OwnFeedForwardSpec(FeedForwardSpec):
    kind: ClassVar[str] = "own"


def test_a_spec_without_a_module_is_named() -> None:
    with pytest.raises(BadInput, match=r"kinds\.py: no module has the kind 'own' of a spec; .* union AttentionModule"):
        make_attention(OwnAttentionSpec(8, 2, 4))
    with pytest.raises(BadInput, match="union FeedForwardModule"):
        make_feed_forward(OwnFeedForwardSpec(8, 16, "gelu"))
