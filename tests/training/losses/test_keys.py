"""The facts of each loss, and the default values of its keys."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

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
        (MaskedTokens(), {"weight": 1.0, "transform": True}),
        (NextToken(), {"weight": 1.0, "bias": False}),
        (SentencePair(), {"weight": 1.0}),
        (SpanBoundary(), {"weight": 1.0, "max_pair_targets": 15, "position_embedding_size": 200}),
        (ReplacedTokenDetection(), {"weight": 50.0, "predict": "replaced", "predict_at": "all"}),
        (Adversarial(), {"weight": 1.0}),
    ],
    ids=lambda case: getattr(case, "kind", ""),
)
def test_default_values_are_those_of_the_paper(loss: Loss, values: dict[str, Any]) -> None:
    assert {name: getattr(loss, name) for name in values} == values


def test_a_context_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        LossContext().target = "the whole text"  # type: ignore[misc]
