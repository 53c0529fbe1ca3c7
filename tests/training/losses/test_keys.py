"""The facts of each loss, and the default values of its keys."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from orchestration.config import load
from training.losses import (
    Adversarial,
    Loss,
    LossContext,
    MaskedTokens,
    NextToken,
    ReplacedTokenDetection,
    SentencePair,
    SpanBoundary,
)


@pytest.mark.parametrize(
    ("loss", "facts"),
    [
        (MaskedTokens(), (True, True, False, False, True)),
        (NextToken(), (True, True, False, False, True)),
        (SentencePair(), (False, False, False, False, True)),
        (SpanBoundary(), (False, True, False, False, False)),
        (ReplacedTokenDetection(), (False, False, True, False, True)),
        (ReplacedTokenDetection(predict="original"), (False, True, False, False, True)),
        (Adversarial(), (False, True, False, True, True)),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_facts_of_each_loss(loss: Loss, facts: tuple[bool, ...]) -> None:
    """Whether it has a perplexity, has tokens as targets, gives or receives a reward, and has a head to export."""
    assert facts == (loss.perplexity, loss.names_tokens, loss.rewards, loss.rewarded, not loss.not_exported)


@pytest.mark.parametrize(
    ("loss", "values"),
    [
        (MaskedTokens(), {"weight": 1.0, "transform": True, "z_loss": 0.0}),
        (NextToken(), {"weight": 1.0, "bias": False, "z_loss": 0.0}),
        (SentencePair(), {"weight": 1.0}),
        (SpanBoundary(), {"weight": 1.0, "max_pair_targets": 15, "position_embedding_size": 200}),
        (ReplacedTokenDetection(), {"weight": 50.0, "predict": "replaced", "predict_at": "all"}),
        (Adversarial(), {"weight": 1.0}),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_default_values_are_those_of_the_paper(loss: Loss, values: dict[str, Any]) -> None:
    assert {name: getattr(loss, name) for name in values} == values


@pytest.mark.parametrize("kind", [MaskedTokens, NextToken])
def test_a_negative_z_loss_is_refused(kind: type[MaskedTokens | NextToken]) -> None:
    with pytest.raises(ValueError, match=r"^invalid losses\.z_loss: got -1, expected a number of at least 0$"):
        kind(z_loss=-1)


def test_a_z_loss_of_an_adaptive_softmax_is_refused() -> None:
    trunk = load("transformer_xl_base").model
    assert NextToken(bias=True).fits(trunk) == ""
    refused = "invalid losses.z_loss: got 0.0001, expected 0 with adaptive token embeddings; remove it"
    assert NextToken(bias=True, z_loss=1e-4).fits(trunk) == refused


def test_a_context_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        LossContext().target = "the whole text"  # type: ignore[misc]
