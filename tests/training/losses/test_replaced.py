"""The heads of a discriminator: how many tokens were replaced is a metric of each of them."""

from typing import Any

import pytest
import torch

from tests.training.batches import padded, random_rows, unpadded
from training.losses import Replaced
from training.model import Model
from training.score import Score
from training.specs import Encoder, Learned

ENCODER = Encoder(
    layers=1, width=32, heads=4, positions=Learned(max=16), dropout=0.0, attention_dropout=0.0, init_std=0.2
)
VOCAB = 50
EVERY = pytest.mark.parametrize(
    "loss", [Replaced(asks=asks, at=at) for asks in ("replaced", "original") for at in ("all", "chosen")]
)


def score_of(loss: Replaced, layout: Any) -> tuple[Score, int]:
    """The score of a batch in which some originals are back in their places, and how many are not."""
    batch = layout(random_rows([5, 8, 3], VOCAB))
    ids = batch["ids"].flatten()
    ids[batch["targets_at"][:3]] = batch["targets"][:3]
    number = int((ids[batch["targets_at"]] != batch["targets"]).sum())
    return Model(ENCODER, (loss,), VOCAB, seed=0)(batch)["replaced"], number


@EVERY
@pytest.mark.parametrize("layout", [unpadded, lambda rows: padded(rows, 8)], ids=["unpadded", "padded"])
def test_each_head_counts_the_tokens_that_were_replaced(loss: Replaced, layout: Any) -> None:
    score, number = score_of(loss, layout)
    assert number > 0
    assert {name: int(value) for name, value in score.metrics.items()} == {"replaced_share": number}


@EVERY
def test_the_sums_of_a_score_are_its_loss_its_right_answers_and_its_metrics(loss: Replaced) -> None:
    score, number = score_of(loss, unpadded)
    assert list(score.sums) == ["loss", "correct", "replaced_share"]
    assert (score.sums["loss"], score.sums["correct"], int(score.sums["replaced_share"])) == (
        score.loss,
        score.correct,
        number,
    )


def test_deepspeeds_hooks_reach_every_tensor_of_a_score() -> None:
    from deepspeed.runtime.zero.utils import apply_to_tensors_only

    score, _ = score_of(Replaced(), unpadded)
    reached: list[torch.Tensor] = []
    again = apply_to_tensors_only(lambda tensor: reached.append(tensor) or tensor, {"replaced": score})["replaced"]
    assert [id(tensor) for tensor in reached] == [id(tensor) for tensor in score.sums.values()]
    assert again == score
