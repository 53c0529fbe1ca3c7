"""Losses of a target as rules: loss and gradients equal those of full logits, in slices, on two workers, in bf16."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.architectures import Share, SplitTable, Table
from training.losses.heads import Rule, TokenHead, add_z_loss, cross_entropy, smooth_labels
from training.losses.heads.cross_entropy import token_score
from training.losses.heads.rules import cross_entropy as plain
from training.score import Score

TARGETS, WIDTH, VOCAB = 9, 4, 31
SIZES = ((TARGETS, WIDTH), (VOCAB, WIDTH), (VOCAB,))


def focal(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
    log_p_M = logit_M - log_z_M
    return -((1 - log_p_M.exp()) ** 2) * log_p_M


def all_at_once(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
    numbers = log_z_M, logit_M, mean_M
    return add_z_loss(0.1, smooth_labels(0.2))(*numbers) + focal(*numbers)


RULES: dict[str, Rule] = {
    "plain": plain,
    "smooth": smooth_labels(0.1),
    "focal": focal,
    "z": add_z_loss(0.1),
    "all": all_at_once,
}


def values(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for size in SIZES]


def targets() -> Tensor:
    return torch.randint(VOCAB, (TARGETS,), generator=torch.Generator().manual_seed(1))


def oracle(rule: Rule, inputs: list[Tensor]) -> Tensor:
    """The summed loss of full logits in float64."""
    logits_MV = F.linear(inputs[0], inputs[1], inputs[2])
    return rule(logits_MV.logsumexp(-1), logits_MV.gather(1, targets()[:, None]).squeeze(1), logits_MV.mean(-1)).sum()


@pytest.mark.parametrize("at_once", [1, 70, 1 << 23])
@pytest.mark.parametrize("name", RULES)
def test_loss_and_gradients_of_a_rule_equal_those_of_full_logits(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    found, wanted = values(), values(torch.float64)
    score = token_score(found[0], found[1], found[2], targets(), RULES[name])
    loss = oracle(RULES[name], wanted)
    torch.testing.assert_close(score.loss.double(), loss, rtol=1e-6, atol=1e-6)
    (score.loss * 3).backward()
    (loss * 3).backward()
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-5, atol=1e-5)
    assert score.count == TARGETS
    assert int(score.correct) == int((F.linear(*found[:2], found[2]).argmax(-1) == targets()).sum())


def test_the_plain_rule_has_the_loss_of_no_rule() -> None:
    found = [token_score(*values(), targets(), rule).loss for rule in (None, plain)]
    torch.testing.assert_close(found[0], found[1])


def test_smoothed_labels_are_those_of_torch() -> None:
    score = token_score(*values(), targets(), smooth_labels(0.1))
    logits_MV = F.linear(*values()[:2], values()[2])
    wanted = F.cross_entropy(logits_MV, targets(), label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(score.loss, wanted)


def test_a_rule_computes_no_gradient_under_no_grad() -> None:
    with torch.no_grad():
        score = token_score(*values(), targets(), focal)
    assert not score.loss.requires_grad
    torch.testing.assert_close(score.loss, token_score(*values(), targets(), focal).loss.detach())


def test_a_rule_of_a_bf16_model_is_computed_in_float32() -> None:
    score = token_score(*values(torch.bfloat16), targets(), all_at_once)
    wanted = oracle(all_at_once, [value.detach().bfloat16().double() for value in values()])
    assert score.loss.dtype == torch.float32
    torch.testing.assert_close(score.loss.double(), wanted, rtol=0.02, atol=0)


def head_score(head: TokenHead, table: Table, hidden: Tensor) -> Score:
    return head(hidden, {"targets_at": torch.arange(TARGETS), "targets": targets()}, table)


def assert_z_loss(score: Score) -> None:
    """Assert that the score has the sums of full logits in float64, with a z-loss of 0.1."""
    logits_MV = F.linear(*(value.detach() for value in values(torch.float64)))
    plain_loss = F.cross_entropy(logits_MV, targets(), reduction="sum")
    wanted_z = 0.1 * logits_MV.logsumexp(-1).square().sum()
    wanted = {"loss": plain_loss, "correct": (logits_MV.argmax(-1) == targets()).sum(), "z_loss": wanted_z}
    assert to_floats(score.sums) == pytest.approx(to_floats(wanted), rel=1e-6)
    assert float(score.loss.detach()) == pytest.approx(float(plain_loss + wanted_z), rel=1e-6)


def to_floats(sums: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(one.detach()) for name, one in sums.items()}


@pytest.mark.parametrize("at_once", [1, 70, 1 << 23])
def test_the_z_loss_is_minimized_and_reported_separately(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    head, (feature, table, bias) = TokenHead(z_loss=0.1), values()
    head.bias = torch.nn.Parameter(bias.detach())
    score = head_score(head, table, feature)
    assert_z_loss(score)
    score.loss.backward()
    wanted = values(torch.float64)
    oracle(RULES["z"], wanted).backward()
    torch.testing.assert_close(head.bias.grad.double(), wanted[2].grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(feature.grad.double(), wanted[0].grad, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert_z_loss(head_score(head, table, feature))


def test_a_head_without_a_z_loss_reports_none() -> None:
    assert list(head_score(TokenHead(), values()[1], values()[0]).sums) == ["loss", "correct"]


def test_deepspeeds_hooks_reach_the_z_loss_of_a_score() -> None:
    from deepspeed.runtime.zero.utils import apply_to_tensors_only

    score = head_score(TokenHead(z_loss=0.1), values()[1], values()[0])
    assert apply_to_tensors_only(lambda tensor: tensor, score) == score
    plain_score = head_score(TokenHead(), values()[1], values()[0])
    assert apply_to_tensors_only(lambda tensor: tensor, plain_score) == plain_score


@dataclass(frozen=True)
class ThreadShare(Share):
    """A worker that is a thread: sums and maxima over the threads, in the order of the workers."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    parts: dict[int, Tensor] = field(default_factory=dict)

    def add(self, x: Tensor) -> Tensor:
        return self._combine(x, lambda parts: parts.sum(0))

    def greatest(self, x: Tensor) -> Tensor:
        return self._combine(x, lambda parts: parts.amax(0))

    def _combine(self, x: Tensor, how: Callable[[Tensor], Tensor]) -> Tensor:
        self.parts[self.number] = x.clone()
        self.barrier.wait()
        together = how(torch.stack([self.parts[number] for number in range(self.of)]))
        self.barrier.wait()
        return x.copy_(together)


@pytest.mark.parametrize(("name", "workers"), product(RULES, (2, 3)))
def test_a_rule_on_a_split_table_equals_one_worker(name: str, workers: int) -> None:
    barrier, parts = threading.Barrier(workers, timeout=60), dict[int, Tensor]()

    head = TokenHead(z_loss=0.1)
    head.bias = torch.nn.Parameter(values()[2].detach())

    def work(number: int) -> tuple[Tensor, int, list[Tensor | None]]:
        share = ThreadShare(number, workers, barrier=barrier, parts=parts)
        feature, table, bias = values()
        rows = table.detach()[share.within(VOCAB)].clone().requires_grad_()
        score = token_score(feature, SplitTable(rows, VOCAB, share), bias, targets(), RULES[name])
        score.loss.backward()
        with torch.no_grad():
            assert_z_loss(head_score(head, SplitTable(rows, VOCAB, share), feature))
        return score.loss.detach(), int(score.correct), [feature.grad, rows.grad, bias.grad]

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(work, range(workers)))
    whole = values()
    score = token_score(*whole, targets(), RULES[name])
    score.loss.backward()
    for loss, correct, (d_feature, _, d_bias) in found:
        torch.testing.assert_close(loss, score.loss.detach())
        assert correct == int(score.correct)
        torch.testing.assert_close(d_feature, whole[0].grad)
        torch.testing.assert_close(d_bias, whole[2].grad)
    torch.testing.assert_close(torch.cat([grads[1] for *_, grads in found if grads[1] is not None]), whole[1].grad)
