"""Which losses a trunk supports, and which are refused."""

from dataclasses import replace
from typing import Any

import pytest

from training.losses import (
    Adversarial,
    Loss,
    MaskedTokens,
    NextToken,
    ReplacedTokenDetection,
    SentencePair,
    SpanBoundary,
    check_losses,
)
from training.specs import AdaptiveEmbedding, Architecture, Decoder, Encoder, GeneratorDiscriminator, RelativePositions

ENCODER = Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
DECODER = Decoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
TWIN = GeneratorDiscriminator(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
ONE = replace(TWIN, generator_size_ratio=1.0)
FROZEN = replace(ONE, sample_from="frozen")
UNIFORM = replace(TWIN, sample_from="uniform")
ADVERSARIES = (Adversarial(), ReplacedTokenDetection())


@pytest.mark.parametrize(
    ("trunk", "losses"),
    [
        (ENCODER, (MaskedTokens(), SentencePair())),
        (ENCODER, (MaskedTokens(), SpanBoundary())),
        (DECODER, (NextToken(),)),
        (TWIN, (MaskedTokens(), ReplacedTokenDetection())),
        (TWIN, (MaskedTokens(), ReplacedTokenDetection(predict="original"))),
        (TWIN, ADVERSARIES),
        (FROZEN, (ReplacedTokenDetection(),)),
        (UNIFORM, (ReplacedTokenDetection(),)),
        (TWIN.discriminator_net, (ReplacedTokenDetection(),)),  # the part of ELECTRA that an export keeps
        (TWIN.generator_net, (MaskedTokens(),)),
    ],
)
def test_losses_of_the_papers_fit(trunk: Architecture, losses: tuple[Loss, ...]) -> None:
    check_losses(trunk, losses)
    assert [loss.fits(trunk) for loss in losses] == [""] * len(losses)


@pytest.mark.parametrize(
    ("trunk", "losses"),
    [
        (ENCODER, ()),
        (ENCODER, (MaskedTokens(), MaskedTokens(weight=2.0))),
        (ENCODER, ADVERSARIES),
        (ENCODER, (Adversarial(),)),
        (TWIN, (MaskedTokens(),)),
        (TWIN, (ReplacedTokenDetection(),)),
        (TWIN, (Adversarial(),)),
        (TWIN, (MaskedTokens(), ReplacedTokenDetection(), SentencePair())),
        (TWIN, (SentencePair(), ReplacedTokenDetection())),
        (TWIN, (MaskedTokens(), *ADVERSARIES)),
        (FROZEN, (MaskedTokens(), ReplacedTokenDetection())),
        (UNIFORM, (MaskedTokens(), ReplacedTokenDetection())),
        (FROZEN, ADVERSARIES),
        (UNIFORM, ADVERSARIES),
        (FROZEN, (MaskedTokens(),)),
        (replace(TWIN, allow_correct=False), ADVERSARIES),
        (replace(ONE, weight_sharing="all"), ADVERSARIES),
        (TWIN, (Adversarial(), ReplacedTokenDetection(predict="original"))),
    ],
)
def test_losses_that_a_trunk_does_not_support_are_refused_in_one_line(
    trunk: Architecture, losses: tuple[Loss, ...]
) -> None:
    with pytest.raises(ValueError, match=r"^invalid losses: got .*expected [^\n]+$"):
        check_losses(trunk, losses)


@pytest.mark.parametrize("trunk", [replace(ENCODER, embedding_size=16), TWIN])
def test_masked_tokens_require_a_transform_if_embeddings_and_blocks_differ_in_width(trunk: Any) -> None:
    losses = (MaskedTokens(transform=False), *((ReplacedTokenDetection(),) if "generator" in trunk.nets else ()))
    with pytest.raises(
        ValueError, match=r"^invalid losses\.transform: got False, expected true if embedding_size differs"
    ):
        check_losses(trunk, losses)


def test_masked_tokens_without_a_transform_fit_a_generator_as_wide_as_its_embeddings() -> None:
    check_losses(ONE, (MaskedTokens(transform=False), ReplacedTokenDetection()))


def test_an_adaptive_softmax_requires_biases() -> None:
    adaptive = replace(
        DECODER,
        position_embedding=RelativePositions(),
        token_embedding=AdaptiveEmbedding(cutoffs=(20,)),
        norm_position="post",
    )
    check_losses(adaptive, (NextToken(bias=True),))
    with pytest.raises(
        ValueError, match=r"^invalid losses\.bias: got False, expected true with adaptive token embeddings"
    ):
        check_losses(adaptive, (NextToken(),))
