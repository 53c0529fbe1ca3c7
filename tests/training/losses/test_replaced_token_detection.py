"""The heads of a discriminator: each one reports the number of replaced tokens as a metric."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.losses import ReplacedTokenDetection
from training.losses.heads import build_head
from training.losses.heads.replaced_token_detection import ReplacedTokenDetectionHead, original_ids
from training.model import Model
from training.score import Score
from training.specs import Encoder, LearnedPositions

ENCODER = Encoder(
    num_hidden_layers=1,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
VOCAB = 50
EVERY = pytest.mark.parametrize(
    "loss",
    [
        ReplacedTokenDetection(predict=asks, predict_at=at)
        for asks in ("replaced", "original")
        for at in ("all", "masked")
    ],
)


def score_of(loss: ReplacedTokenDetection, layout: Any) -> tuple[Score, int]:
    """The score of a batch in which some original tokens are restored, and the number of tokens that are still
    replaced."""
    batch = layout(random_rows([5, 8, 3], VOCAB))
    ids = batch["input_ids"].flatten()
    ids[batch["targets_at"][:3]] = batch["targets"][:3]
    number = int((ids[batch["targets_at"]] != batch["targets"]).sum())
    return Model(ENCODER, (loss,), VOCAB, seed=0)(batch)["replaced_token_detection"], number


@EVERY
@pytest.mark.parametrize("layout", [collate_unpadded, lambda rows: collate_padded(rows, 8)], ids=["unpadded", "padded"])
def test_each_head_counts_the_replaced_tokens(loss: ReplacedTokenDetection, layout: Any) -> None:
    score, number = score_of(loss, layout)
    assert number > 0
    assert {name: int(value) for name, value in score.metrics.items()} == {"replaced_share": number}


@EVERY
def test_the_sums_of_a_score_are_its_loss_correct_count_and_metrics(loss: ReplacedTokenDetection) -> None:
    score, number = score_of(loss, collate_unpadded)
    assert list(score.sums) == ["loss", "correct", "replaced_share"]
    assert (score.sums["loss"], score.sums["correct"], int(score.sums["replaced_share"])) == (
        score.loss,
        score.correct,
        number,
    )


def test_deepspeeds_hooks_reach_every_tensor_of_a_score() -> None:
    from deepspeed.runtime.zero.utils import apply_to_tensors_only

    score, _ = score_of(ReplacedTokenDetection(), collate_unpadded)
    reached: list[torch.Tensor] = []
    again = apply_to_tensors_only(lambda tensor: reached.append(tensor) or tensor, {"replaced": score})["replaced"]
    assert [id(tensor) for tensor in reached] == [id(tensor) for tensor in score.sums.values()]
    assert again == score


def bf16_head() -> tuple[ReplacedTokenDetectionHead, torch.Tensor, dict[str, torch.Tensor]]:
    """A head with random weights, bfloat16 states, and a batch of three sequences of which some tokens were
    replaced."""
    generator, batch = torch.Generator().manual_seed(0), collate_unpadded(random_rows([50, 80, 30], VOCAB))
    head = build_head(ReplacedTokenDetection(), ENCODER, VOCAB)
    with torch.no_grad():
        for weight in head.parameters():
            weight.normal_(0, 0.3, generator=generator)
    batch["input_ids"][batch["targets_at"][:3]] = batch["targets"][:3]
    return head.bfloat16(), torch.randn(160, 32, generator=generator).bfloat16(), batch


@torch.no_grad()
def test_the_loss_of_a_bf16_model_is_summed_in_float32() -> None:
    head, hidden_TD, batch = bf16_head()
    logit_T = head.logits(hidden_TD).double()
    wanted = F.binary_cross_entropy_with_logits(
        logit_T, (batch["input_ids"] != original_ids(batch)).double(), reduction="sum"
    )
    score = head(hidden_TD, batch, torch.empty(0))
    assert score.loss.dtype == torch.float32
    assert float(score.loss) == pytest.approx(float(wanted), rel=1e-5)


@torch.no_grad()
def test_the_surprise_of_a_bf16_model_is_in_float32() -> None:
    head, hidden_TD, batch = bf16_head()
    at_M = batch["targets_at"]
    is_replaced_M = (batch["input_ids"][at_M] != batch["targets"]).double()
    logit_M = head.logits(hidden_TD[at_M]).double()
    wanted_M = F.binary_cross_entropy_with_logits(logit_M, is_replaced_M, reduction="none")
    surprise_M = head.surprise(hidden_TD, batch)
    assert surprise_M.dtype == torch.float32
    torch.testing.assert_close(surprise_M.double(), wanted_M, rtol=1e-5, atol=1e-6)


def test_every_token_of_a_padded_batch_has_one_logit() -> None:
    head, hidden_TD, _ = bf16_head()
    assert head.logits(hidden_TD.view(2, 80, 32)).shape == (2, 80)


@torch.no_grad()
def test_a_token_is_correct_if_the_sign_of_its_logit_is() -> None:
    head, hidden_TD, batch = bf16_head()
    is_replaced_T = batch["input_ids"] != original_ids(batch)
    wanted = sum(
        int((float(logit) > 0) == bool(is_replaced))
        for logit, is_replaced in zip(head.logits(hidden_TD), is_replaced_T, strict=True)
    )
    assert int(head(hidden_TD, batch, torch.empty(0)).correct) == wanted


@torch.no_grad()
def test_a_logit_of_zero_predicts_the_original() -> None:
    head, hidden_TD, batch = bf16_head()
    head.classify.weight.zero_()
    head.classify.bias.zero_()
    assert int(head(hidden_TD, batch, torch.empty(0)).correct) == int((batch["input_ids"] == original_ids(batch)).sum())


@torch.no_grad()
def test_the_original_probabilities_of_a_bf16_model_are_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    head = build_head(ReplacedTokenDetection(predict="original"), ENCODER, VOCAB)
    for weight in head.parameters():
        weight.normal_(0, 0.3, generator=generator)
    head = head.bfloat16()
    hidden_MD, table_VD = (torch.randn(*size, generator=generator).bfloat16() for size in ((20, 32), (VOCAB, 32)))
    given_M = torch.arange(20)
    softmax_MV = F.linear(head.tokens.features(hidden_MD), table_VD, head.tokens.bias).double().softmax(-1)
    copy_M1 = head.copy(hidden_MD).double().sigmoid()
    wanted_MV = (copy_M1 * F.one_hot(given_M, VOCAB) + (1 - copy_M1) * softmax_MV).log()
    found_MV = head.log_p(hidden_MD, given_M, table_VD)
    torch.testing.assert_close(found_MV.double(), wanted_MV, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_originals_with_the_highest_probability_count_as_correct() -> None:
    generator, batch = torch.Generator().manual_seed(0), collate_unpadded(random_rows([50, 80, 30], VOCAB))
    head = build_head(ReplacedTokenDetection(predict="original"), ENCODER, VOCAB)
    for weight in head.parameters():
        weight.normal_(0, 0.3, generator=generator)
    head.copy.bias.fill_(2.0)  # mostly a copy: correct where no token was replaced
    hidden_TD, table_VD = (torch.randn(*size, generator=generator) for size in ((160, 32), (VOCAB, 32)))
    score = head(hidden_TD, batch, table_VD)
    best_T = head.log_p(hidden_TD, batch["input_ids"], table_VD).argmax(1)
    assert int(score.correct) == int((best_T == original_ids(batch)).sum()) > 80


def test_a_surprise_has_no_gradient() -> None:
    head, hidden_TD, batch = bf16_head()
    assert not head.surprise(hidden_TD.requires_grad_(), batch).requires_grad
