"""Which losses a trunk can have: what is refused, and what is not."""

from dataclasses import replace
from typing import Any

import pytest

from training.losses import (
    Adversarial,
    Loss,
    MaskedTokens,
    NextToken,
    PairLabel,
    Replaced,
    SpanBoundary,
    check_losses,
)
from training.specs import Adaptive, Decoder, Encoder, Relative, Trunk, Twin

ENCODER = Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
DECODER = Decoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
TWIN = Twin(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
ONE = replace(TWIN, generator_size_ratio=1.0)
FROZEN = replace(ONE, sample_from="frozen")
UNIFORM = replace(TWIN, sample_from="uniform")
ADVERSARIES = (Adversarial(), Replaced())


@pytest.mark.parametrize(
    ("trunk", "losses"),
    [
        (ENCODER, (MaskedTokens(), PairLabel())),
        (ENCODER, (MaskedTokens(), SpanBoundary())),
        (DECODER, (NextToken(),)),
        (TWIN, (MaskedTokens(), Replaced())),
        (TWIN, (MaskedTokens(), Replaced(predict="original"))),
        (TWIN, ADVERSARIES),
        (FROZEN, (Replaced(),)),
        (UNIFORM, (Replaced(),)),
        (TWIN.discriminator_net, (Replaced(),)),  # what an export keeps of a twin
        (TWIN.generator_net, (MaskedTokens(),)),
    ],
)
def test_losses_of_the_papers_fit(trunk: Trunk, losses: tuple[Loss, ...]) -> None:
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
        (TWIN, (Replaced(),)),
        (TWIN, (Adversarial(),)),
        (TWIN, (MaskedTokens(), Replaced(), PairLabel())),
        (TWIN, (PairLabel(), Replaced())),
        (TWIN, (MaskedTokens(), *ADVERSARIES)),
        (FROZEN, (MaskedTokens(), Replaced())),
        (UNIFORM, (MaskedTokens(), Replaced())),
        (FROZEN, ADVERSARIES),
        (UNIFORM, ADVERSARIES),
        (FROZEN, (MaskedTokens(),)),
        (replace(TWIN, allow_correct=False), ADVERSARIES),
        (replace(ONE, weight_sharing="all"), ADVERSARIES),
        (TWIN, (Adversarial(), Replaced(predict="original"))),
    ],
)
def test_losses_that_a_trunk_cannot_have_are_refused_in_one_line(trunk: Trunk, losses: tuple[Loss, ...]) -> None:
    with pytest.raises(ValueError, match=r"^losses .*allowed is [^\n]+$"):
        check_losses(trunk, losses)


@pytest.mark.parametrize("trunk", [replace(ENCODER, embedding_size=16), TWIN])
def test_masked_tokens_need_a_transform_where_tables_and_blocks_differ_in_width(trunk: Any) -> None:
    losses = (MaskedTokens(transform=False), *((Replaced(),) if "generator" in trunk.nets else ()))
    with pytest.raises(ValueError, match=r"^losses\.transform is False, allowed is true where the tables"):
        check_losses(trunk, losses)


def test_masked_tokens_without_a_transform_fit_a_generator_as_wide_as_its_tables() -> None:
    check_losses(ONE, (MaskedTokens(transform=False), Replaced()))


def test_an_adaptive_softmax_has_biases_and_a_recipe_says_so() -> None:
    adaptive = replace(
        DECODER, position_embedding=Relative(), token_embedding=Adaptive(cutoffs=(20,)), norm_position="post"
    )
    check_losses(adaptive, (NextToken(bias=True),))
    with pytest.raises(ValueError, match=r"^losses\.bias is False, allowed is true where the tables are adaptive"):
        check_losses(adaptive, (NextToken(),))
