"""The projection to the vocabulary: the number of logits in memory at once, and draws at the edges of the softmax."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.losses.heads import cross_entropy
from training.losses.heads.cross_entropy import linear_cross_entropy, token_log_p, token_sample, token_score

GENERATOR = torch.Generator()


def random(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=GENERATOR.manual_seed(seed))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of logits computed at once."""
    made, plain = list[int](), F.linear

    def spy(*args: Any) -> Tensor:
        made.append(plain(*args).numel())
        return plain(*args)

    monkeypatch.setattr(cross_entropy.F, "linear", spy)
    return made


@pytest.mark.parametrize(("at_once", "wanted"), [(1, [30] * 5), (70, [60, 60, 30]), (1 << 23, [150])])
def test_at_most_the_allowed_number_of_logits_is_computed_at_once(
    at_once: int, wanted: list[int], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five targets over a vocabulary of thirty tokens; at least one target at a time."""
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    feature_MD, table_VD = random(5, 4), random(30, 4, seed=1)
    token_score(feature_MD, table_VD, None, torch.arange(5))
    assert sizes == wanted
    sizes.clear()
    token_sample(feature_MD, table_VD, None, torch.full((5,), 0.5), None)
    assert sizes == wanted


def test_logits_at_once_are_limited_to_32_mib() -> None:
    assert cross_entropy.LOGITS_AT_ONCE * 4 == 32 * 2**20


def test_a_barred_first_token_is_not_sampled_by_the_lowest_draw() -> None:
    tokens = token_sample(random(8, 4), random(30, 4, seed=1), None, torch.zeros(8), torch.zeros(8, dtype=torch.int64))
    assert tokens.tolist() == [1] * 8


def test_a_barred_last_token_is_not_sampled_by_the_highest_draw() -> None:
    """The float32 sum of this many probabilities is not 1."""
    highest = torch.full((64,), 1 - 2**-24)
    last = torch.full((64,), 2_999)
    assert (token_sample(random(64, 4), random(3_000, 4, seed=1), None, highest, last) < 2_999).all()


def test_samples_of_a_bf16_model_are_drawn_in_float32() -> None:
    feature_MD, table_VD = random(200, 16).bfloat16(), random(3_000, 16, seed=1).bfloat16()
    uniform_M = torch.rand(200, generator=GENERATOR.manual_seed(2))
    below_MV = F.linear(feature_MD, table_VD).double().softmax(-1).cumsum(-1)
    wanted_M = (below_MV <= uniform_M[:, None]).sum(-1)
    assert (token_sample(feature_MD, table_VD, None, uniform_M, None) == wanted_M).float().mean() > 0.98


@pytest.mark.parametrize("has_bias", [True, False])
def test_gradients_of_a_bf16_model_are_summed_in_float32(has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One target at a time, so that a sum in bfloat16 would lose most of them."""
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", 1)
    values = [random(2000, 4).bfloat16(), random(30, 4, seed=1).bfloat16(), random(30, seed=2).bfloat16()]
    found, wanted = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    target = torch.arange(2000) % 3
    token_score(found[0], found[1], found[2] if has_bias else None, target).loss.backward()
    logits = F.linear(wanted[0].double(), wanted[1].double(), wanted[2].double() if has_bias else None)
    F.cross_entropy(logits, target, reduction="sum").backward()
    for ours, theirs in zip(found[1 : 2 + has_bias], wanted[1:], strict=False):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.02, atol=0.5)


def test_no_gradient_is_computed_under_no_grad() -> None:
    feature_MD, table_VD = random(5, 4).requires_grad_(), random(30, 4, seed=1)
    with torch.no_grad():
        assert not token_score(feature_MD, table_VD, None, torch.arange(5)).loss.requires_grad


def test_the_loss_of_several_slices_is_the_same_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", 1)
    feature_MD, table_VD, target_M = random(5, 4), random(30, 4, seed=1), torch.arange(5)
    with torch.no_grad():
        score = token_score(feature_MD, table_VD, None, target_M)
    logits_MV = F.linear(feature_MD, table_VD)
    torch.testing.assert_close(score.loss, F.cross_entropy(logits_MV, target_M, reduction="sum"))
    assert int(score.correct) == int((logits_MV.argmax(-1) == target_M).sum())


def test_a_second_derivative_is_refused() -> None:
    feature_MD, table_VD = random(5, 4).requires_grad_(), random(30, 4, seed=1).requires_grad_()
    loss = token_score(feature_MD, table_VD, None, torch.arange(5)).loss
    (slope,) = torch.autograd.grad(loss.square(), feature_MD, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()


def test_samples_have_no_gradient() -> None:
    feature_MD, table_VD = random(5, 4).requires_grad_(), random(30, 4, seed=1)
    assert not token_sample(feature_MD, table_VD, None, torch.full((5,), 0.5), None).requires_grad


def test_a_diverged_model_still_samples_tokens_of_the_vocabulary() -> None:
    """The loss then reports the error. An ID outside of the vocabulary would stop the run earlier, with another
    error."""
    tokens = token_sample(torch.full((3, 4), torch.nan), random(30, 4), None, torch.tensor([0.0, 0.5, 0.9]), None)
    assert int(tokens.max()) < 30


def test_no_memory_is_allocated_for_a_gradient_under_no_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    feature_MD, table_VD, bias_V, taken = random(5, 4), random(30, 4, seed=1), random(30, seed=2), list[Tensor]()
    for name in ("empty_like", "zeros_like"):
        monkeypatch.setattr(cross_entropy.torch, name, lambda tensor, **_: taken.append(tensor))
    with torch.no_grad():
        token_score(feature_MD, table_VD, bias_V, torch.arange(5))
    assert taken == []


@pytest.mark.parametrize("at_once", [1, 70, 1 << 23])
def test_targets_of_one_state_share_its_logits(at_once: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    feature_UD, table_VD, bias_V = random(3, 4), random(30, 4, seed=1), random(30, seed=2)
    of_M, target_M = torch.tensor([2, 0, 0, 1, 2, 0]), torch.tensor([5, 0, 29, 7, 5, 3])
    log_p_M, right_M = token_log_p(feature_UD, table_VD, bias_V, target_M, of_M)
    assert sum(sizes) == 3 * 30
    plain = (feature_UD @ table_VD.T + bias_V).log_softmax(-1)
    torch.testing.assert_close(log_p_M, plain[of_M, target_M])
    best_U = plain.argmax(-1)
    assert right_M.tolist() == (best_U[of_M] == target_M).tolist()
    _, best_M = token_log_p(feature_UD, table_VD, bias_V, best_U, torch.arange(3))
    assert best_M.all()


@pytest.mark.parametrize(("rows", "block"), [(512, 4_096), (2, 3), (1, 1), (3, 7), (512, 5)])
def test_blocks_of_the_vocabulary_do_not_change_the_log_probabilities(
    rows: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr(cross_entropy, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    feature_UD, table_VD = (torch.randn(size, 4, generator=generator) * 5 for size in (5, 17))
    bias_V = torch.randn(17, generator=generator)
    target_M, of_M = torch.tensor([16, 0, 3, 8, 8, 2, 16]), torch.tensor([0, 0, 4, 2, 3, 1, 4])
    log_p = (feature_UD @ table_VD.T + bias_V).log_softmax(-1)
    best_U = log_p.argmax(-1)
    found_M, right_M = token_log_p(feature_UD, table_VD, bias_V, target_M, of_M)
    torch.testing.assert_close(found_M, log_p[of_M, target_M])
    assert torch.equal(right_M, best_U[of_M] == target_M)
    assert token_log_p(feature_UD, table_VD, bias_V, best_U, torch.arange(5))[1].all()


class Uncompiled:
    """Calls the functions that a GPU compiles."""

    def __init__(self) -> None:
        self.called = 0

    def call(self, function: Any, *inputs: Any) -> Any:
        self.called += 1
        return function(*inputs)


def differentiate(values: list[Tensor], target_M: Tensor, *more: Any) -> list[Tensor]:
    """Loss, the targets that are right, and the gradients by features, table and bias."""
    inputs = [value.clone().requires_grad_() for value in values]
    loss, right_M, _ = linear_cross_entropy(*inputs, target_M, *more)
    return [loss.detach(), right_M, *(x.float() for x in torch.autograd.grad(2 * loss, inputs))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_filler", [True, False])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_way_of_a_gpu_is_that_of_a_cpu(
    dtype: torch.dtype, has_filler: bool, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of whole tiles, slices of one size, and the function that a GPU compiles."""
    values = [value.to(dtype) for value in (random(50, 8), random(300, 8, seed=1), random(300, seed=2))]
    target_M = torch.randint(300, (50,), generator=GENERATOR.manual_seed(3))
    real_M = torch.arange(50) < 41 if has_filler else None
    wanted = differentiate(values, target_M, None, real_M)
    compiler = Uncompiled()
    monkeypatch.setattr(cross_entropy, "pads_table", lambda device: True)
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", 300 * 14)  # 13 targets at a time
    found = differentiate(values, target_M, None, real_M, compiler if is_compiled else None)
    assert compiler.called == 4 * is_compiled
    assert torch.equal(found[1], wanted[1])
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            ours.float(),
            theirs.float(),
            rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
            atol=1e-2 if dtype == torch.bfloat16 else 1e-5,
        )
    if real_M is not None:
        assert not found[2][41:].any()


def test_filler_is_as_if_it_were_absent() -> None:
    values, target_M = [random(50, 8), random(30, 8, seed=1), random(30, seed=2)], torch.arange(50) % 30
    loss, right_M, d_feature, d_table, d_bias = differentiate(values, target_M, None, torch.arange(50) < 41)
    wanted = differentiate([values[0][:41], *values[1:]], target_M[:41])
    assert torch.equal(right_M[:41], wanted[1])
    assert not right_M[41:].any()
    for ours, theirs in zip((loss, d_feature[:41], d_table, d_bias), (wanted[0], *wanted[2:]), strict=True):
        torch.testing.assert_close(ours, theirs)
