"""The head of a rewarded generator, computed target by target, in float32 and in a bfloat16 model."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.losses import Adversarial
from training.losses.heads import AdversarialHead, build_head
from training.score import Score
from training.specs import Encoder

ENCODER = Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
VOCAB = 50
BATCH = {"targets_at": torch.tensor([1, 3, 4]), "targets": torch.tensor([7, 8, 9])}
SAMPLED, REWARD = torch.tensor([7, 2, 9]), torch.tensor([0.3, 1.2, 2.5])


def values(dtype: torch.dtype) -> tuple[AdversarialHead, Tensor, Tensor]:
    """A head, states [6, D] and a table [V, D], all random."""
    generator = torch.Generator().manual_seed(0)
    head = build_head(Adversarial(), ENCODER, VOCAB)
    with torch.no_grad():
        for weight in head.parameters():
            weight.normal_(0, 0.3, generator=generator)
    hidden, table = (torch.randn(*size, generator=generator) for size in ((6, 32), (VOCAB, 32)))
    return head.to(dtype), hidden.to(dtype), table.to(dtype)


@torch.no_grad()
def scored(dtype: torch.dtype) -> tuple[Score, float]:
    """The score of the head, and its loss target by target in double precision, from the model's own logits."""
    head, hidden, table = values(dtype)
    hidden_MD = hidden[BATCH["targets_at"]]
    logits_MV = F.linear(head.tokens.features(hidden_MD), table, head.tokens.bias).double()
    sure_M = head.baseline(hidden_MD).double().squeeze(1)
    wanted = 0.0
    for logits_V, sure, sample, reward in zip(logits_MV, sure_M, SAMPLED, REWARD.double(), strict=True):
        right, share = torch.exp(-reward), torch.sigmoid(sure)
        fitted = -(right * share.log() + (1 - right) * (1 - share).log())
        advantage = reward + share.log()
        wanted += float(fitted - advantage * logits_V.log_softmax(0)[sample])
    return head(hidden, BATCH, table, SAMPLED, REWARD), wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_loss_sums_samples_and_baseline_in_float32(dtype: torch.dtype) -> None:
    score, wanted = scored(dtype)
    assert score.loss.dtype == torch.float32
    assert float(score.loss) == pytest.approx(wanted, rel=2e-6)


def test_samples_equal_to_the_originals_count_as_correct() -> None:
    score, _ = scored(torch.float32)
    assert (int(score.correct), score.count) == (2, 3)


def test_the_number_of_targets_equals_the_number_of_samples() -> None:
    assert Adversarial().count(BATCH) == 3
