"""Dropout on CPUs: its rate, its repeatability, and attention with it compared with torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.architectures import dropout_attention
from training.architectures.dropout import Dropout
from training.architectures.dropout_attention import DropoutAttention

ENDS, SOURCE_ENDS = [0, 7, 8, 20], [0, 3, 9, 20]


def attend(query: Tensor, key_value: Tensor, source_ends: list[int], causal: bool, dropout: float) -> Tensor:
    torch.manual_seed(1)
    mixed: Tensor = DropoutAttention.apply(query, key_value, ENDS, source_ends, causal, dropout, 0.5)
    return mixed


def heads(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(20, number, 4, dtype=torch.float64, generator=generator).requires_grad_()


def test_dropout_drops_its_rate_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 1001, requires_grad=True)
    y = Dropout(0.1)(x)
    y.sum().backward()
    assert (y == 0).float().mean().item() == pytest.approx(0.1, abs=2e-3)
    assert y.detach().unique().tolist() == [0.0, pytest.approx(1 / 0.9, rel=1e-4)]
    assert x.grad is not None
    assert torch.equal(x.grad, y)


def test_dropout_depends_on_the_seed_and_not_on_the_number_of_threads() -> None:
    results, threads = [], torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        torch.manual_seed(3)
        results.append(Dropout(0.3)(torch.ones(300, 300)))
    torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_dropout_changes_nothing_in_evaluation() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_dropout_keeps_the_precision() -> None:
    assert Dropout(0.5)(torch.ones(8, dtype=torch.bfloat16)).dtype == torch.bfloat16


CASES = pytest.mark.parametrize(("causal", "source"), [(False, ENDS), (True, ENDS), (False, SOURCE_ENDS)])


@CASES
def test_attention_without_dropped_weights_is_torchs(
    causal: bool, source: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropout_attention, "QUERIES", 5)  # several blocks
    query, key_value = heads(2), heads(4)
    mixed = attend(query, key_value, source, causal, 1e-9)
    for row in range(len(ENDS) - 1):
        queries, keys = slice(*ENDS[row : row + 2]), slice(*source[row : row + 2])
        key, value = key_value[keys].transpose(0, 1).chunk(2)
        wanted = F.scaled_dot_product_attention(query[queries].transpose(0, 1), key, value, is_causal=causal, scale=0.5)
        torch.testing.assert_close(mixed[queries], wanted.transpose(0, 1))


@CASES
def test_gradients_of_attention_with_dropout(causal: bool, source: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout_attention, "QUERIES", 5)
    assert torch.autograd.gradcheck(lambda q, kv: attend(q, kv, source, causal, 0.3), (heads(2), heads(4)))


def test_attention_drops_its_rate_and_keeps_the_mean() -> None:
    """With equal scores and values of 1, a result is the fraction of kept weights, divided by the rate of keeping."""
    query, key_value = torch.zeros(400, 2, 4), torch.ones(400, 4, 4)
    torch.manual_seed(0)
    mixed = DropoutAttention.apply(query, key_value, [0, 400], [0, 400], False, 0.25, 1.0)
    assert mixed.mean().item() == pytest.approx(1, abs=5e-3)
    assert mixed[..., 0].std().item() == pytest.approx((0.25 / 0.75 / 400) ** 0.5, rel=0.1)
