"""The trial of attention kernels finds each kind of fault, on a CPU, with kernels written in plain torch."""

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.architectures import kernels
from training.architectures.kernels import AttentionCase, find_fault, has_varlen_dropout, trust_kernels

CPU = torch.device("cpu")
CASE = AttentionCase(heads=4, groups=2, head_dim=48, dropout=0.1, causal=False)
CAUSAL = AttentionCase(heads=2, groups=2, head_dim=64, dropout=0.2, causal=True)
NARROW = AttentionCase(heads=2, groups=2, head_dim=16, dropout=0.0, causal=True)


def kernel(
    scale: float = 1.0,
    drops: Callable[[Tensor, float], Tensor] | None = None,
    backward: Callable[[Tensor], Tensor] = lambda x: x,
    crosses: bool = False,
) -> kernels.Kernel:
    """Attention in plain torch, with faults: a factor of the scores, another choice of dropped weights, a function of
    the values that changes their gradient only, and attention across sequences."""

    def attend(q: Tensor, k: Tensor, v: Tensor, ends_B1: Tensor, longest: int, dropout: float, causal: bool) -> Tensor:
        assert int(ends_B1.diff().max()) == longest
        repeats, ends = q.shape[1] // k.shape[1], ends_B1.tolist()
        ends = [ends[0], ends[-1]] if crosses else ends
        mixed = []
        for start, stop in pairwise(ends):
            one_q, one_k, one_v = (x[start:stop].transpose(0, 1) for x in (q, k, v))
            one_k, one_v = (x.repeat_interleave(repeats, 0) for x in (one_k, backward(one_v)))
            score = scale * one_q @ one_k.transpose(1, 2) / q.shape[-1] ** 0.5
            if causal:
                score = score.masked_fill(torch.ones_like(score, dtype=torch.bool).triu(1), -torch.inf)
            weight = score.softmax(-1)
            if dropout:
                kept = drops(weight, dropout) if drops else torch.rand_like(weight) >= dropout
                weight = weight * kept / (1 - dropout)
            mixed.append((weight @ one_v).transpose(0, 1))
        return torch.cat(mixed)

    return attend


class ScaledGradient(torch.autograd.Function):
    """The identity, with a gradient that is a hundredth too large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, d_x: Tensor) -> Tensor:
        return d_x * 1.01


def always_the_same(weight: Tensor, dropout: float) -> Tensor:
    return torch.rand(weight.shape, generator=torch.Generator().manual_seed(3)) >= dropout


UNSEEDED = torch.Generator()


def unseeded(weight: Tensor, dropout: float) -> Tensor:
    return torch.rand(weight.shape, generator=UNSEEDED) >= dropout


@pytest.mark.parametrize("case", [CASE, CAUSAL, NARROW], ids=["grouped", "causal", "narrow"])
def test_a_correct_kernel_passes_and_leaves_the_generator_as_it_was(case: AttentionCase) -> None:
    before = torch.get_rng_state()
    assert find_fault(kernel(), case, torch.float32, CPU) == ""
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (kernel(scale=1.02), "its result with dropout 0 differs by"),
        (kernel(crosses=True), "its result with dropout 0 differs by"),
        (kernel(backward=ScaledGradient.apply), "its gradient of values with dropout 0 differs by 1.0e-02"),
        (kernel(drops=lambda weight, rate: torch.rand_like(weight) >= 2 * rate), "it drops 20"),
        (kernel(drops=always_the_same), "its dropout does not depend on the seed"),
        (kernel(drops=unseeded), "its dropout is not reproducible"),
        (lambda *_: 1 / 0, "it failed (division by zero)"),
    ],
    ids=["scale", "sequences", "gradient", "rate", "seed", "reproducible", "error"],
)
def test_each_fault_is_found_and_named(wrong: kernels.Kernel, fault: str) -> None:
    assert find_fault(wrong, CASE, torch.float32, CPU).startswith(fault)


def test_a_kernel_with_other_dropped_weights_in_its_backward_pass_is_found() -> None:
    """The fault that no comparison of results can find: gradients of another dropout."""

    class Other(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            ctx.inputs = inputs
            return kernel()(*inputs)

        @staticmethod
        def backward(ctx: Any, d_mixed: Tensor) -> tuple[Tensor | None, ...]:
            with torch.enable_grad():
                heads = [x.detach().requires_grad_() for x in ctx.inputs[:3]]
                mixed = kernel()(*heads, *ctx.inputs[3:])  # draws again
            return (*torch.autograd.grad(mixed, heads, d_mixed), None, None, None, None)

    assert "with dropout 0.1 differs by" in find_fault(Other.apply, CASE, torch.float32, CPU)


def net(case: AttentionCase) -> nn.Module:
    module = nn.Module()
    module.case = case
    return module


def test_no_kernel_is_trusted_on_a_cpu_and_a_failed_trial_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trust_kernels(net(CASE), torch.bfloat16, CPU)
    assert not has_varlen_dropout()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(kernels, "find_fault", lambda *_: "it is slow")
    with caplog.at_level(logging.WARNING):
        trust_kernels(net(CASE), torch.bfloat16, torch.device("cuda"))
    assert [record.getMessage() for record in caplog.records] == [
        "attention kernel variable lengths with dropout: not used, because it is slow; the plain path replaces it"
    ]
    monkeypatch.setattr(kernels, "find_fault", lambda *_: "")
    trust_kernels(net(CASE), torch.bfloat16, torch.device("cuda"))
    assert has_varlen_dropout()
    trust_kernels(net(CASE), torch.float32, CPU)
    assert not has_varlen_dropout()
