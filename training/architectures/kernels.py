"""Attention kernels that only a GPU has, and the trial that each must pass before a run uses it.

No test can run these kernels without a GPU, and a new driver or another version of torch may change them. So a trial
compares each with plain attention on a small input when a run starts: its results, its dropout, and its gradients with
the same dropout. A kernel that differs or fails is not used, and a warning says so.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

log = logging.getLogger(__name__)

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int, float, bool], Tensor]
"""Attention of unpadded tokens: queries [T, H, K], keys and values [T, G, K], ends of the sequences after a 0 (int32),
the longest length, the dropout rate, and whether attention is causal -> [T, H, K]."""

LENGTHS: Final = (1, 7, 16, 40, 33)  # of the sequences in a trial, but none longer than the size of a head
LEAST_WEIGHT: Final = 1e-3  # smaller weights are not counted, because they may be rounded to 0
TOLERANCES: Final = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


@dataclass(frozen=True)
class TrustedKernels:
    """The kernels that have passed their trial in this process."""

    varlen_dropout: bool = False  # variable lengths with dropout


_trusted = TrustedKernels()


def has_varlen_dropout() -> bool:
    """Whether the kernel for unpadded tokens may be used with dropout."""
    return _trusted.varlen_dropout


def attend_varlen(
    query_THK: Tensor,
    key_TGK: Tensor,
    value_TGK: Tensor,
    ends_B1: Tensor,
    source_ends_B1: Tensor,
    longest: tuple[int, int],
    dropout: float,
    causal: bool,
    scale: float | None = None,
) -> Tensor:
    """FlashAttention-2 (arXiv:2307.08691) of unpadded tokens in 16 bits, with dropout. It needs CUDA.

    Its random numbers depend on the state of torch's generator only. torch.nn.attention.varlen_attn calls the same
    operator, without dropout.
    """
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        query_THK,
        key_TGK,
        value_TGK,
        ends_B1,
        source_ends_B1,
        *longest,
        dropout,
        causal,
        False,
        scale=scale,
    )[0]
    return mixed


def _varlen(q: Tensor, k: Tensor, v: Tensor, ends_B1: Tensor, longest: int, dropout: float, causal: bool) -> Tensor:
    return attend_varlen(q, k, v, ends_B1, ends_B1, (longest, longest), dropout, causal)


def _cudnn(q: Tensor, k: Tensor, v: Tensor, ends_B1: Tensor, longest: int, dropout: float, causal: bool) -> Tensor:
    """cuDNN's kernel, called for each sequence, since a trial has sequences of several lengths."""
    mixed = []
    for start, stop in pairwise(ends_B1.tolist()):
        query, key, value = (x[start:stop].transpose(0, 1)[None] for x in (q, k, v))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=causal, enable_gqa=k.shape[1] != q.shape[1]
            )
        mixed.append(out[0].transpose(0, 1))
    return torch.cat(mixed)


@dataclass(frozen=True)
class AttentionCase:
    """The sizes of the attention of a model."""

    heads: int
    groups: int  # heads of keys and values
    head_dim: int
    dropout: float
    causal: bool = False


def trust_kernels(net: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Try the kernels on this device and use those that pass for all attention layers of a model.

    On a GPU of compute capability 9.0 (Hopper) or later, cuDNN's kernel then comes first for full sequences.
    """
    global _trusted
    _trusted = TrustedKernels()
    attached = (getattr(module, "case", None) for module in net.modules())
    cases = {case for case in attached if isinstance(case, AttentionCase)}
    if device.type != "cuda" or dtype == torch.float32 or not cases:
        return
    faults = {"variable lengths with dropout": _first_fault(_varlen, cases, dtype, device)}
    if torch.cuda.get_device_capability(device) >= (9, 0):
        faults["cuDNN"] = _first_fault(_cudnn, cases, dtype, device)
        if not faults["cuDNN"]:
            order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
            _preferred.enter_context(sdpa_kernel([*order, SDPBackend.MATH], set_priority=True))
    _trusted = replace(_trusted, varlen_dropout=not faults["variable lengths with dropout"])
    for name, fault in faults.items():
        if fault:
            log.warning("attention kernel %s: not used, because %s; the plain path replaces it", name, fault)


_preferred = ExitStack()  # the order of kernels, for the rest of the process


def _first_fault(kernel: Kernel, cases: set[AttentionCase], dtype: torch.dtype, device: torch.device) -> str:
    both = (replace(case, causal=causal) for case in sorted(cases, key=repr) for causal in (False, True))
    faults = (find_fault(kernel, case, dtype, device) for case in both)
    return next((fault for fault in faults if fault), "")


def find_fault(kernel: Kernel, case: AttentionCase, dtype: torch.dtype, device: torch.device) -> str:
    """Compare a kernel with plain attention, in float32, on sequences of several lengths.

    Returns how it differs; "" if it does not. The values of each sequence are unit vectors, so that the result is the
    matrix of the weights: its zeros are the dropped weights. Plain attention with the same dropped weights then gives
    the gradients. The state of torch's generators does not change.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            return _find_fault(kernel, case, dtype, device)
        except Exception as error:  # whatever a kernel raises, the plain path replaces it
            return f"it failed ({str(error).strip().splitlines()[0] if str(error) else type(error).__name__})"


def _find_fault(kernel: Kernel, case: AttentionCase, dtype: torch.dtype, device: torch.device) -> str:
    generator, causal = torch.Generator().manual_seed(0), case.causal
    lengths = [min(length, case.head_dim) for length in LENGTHS]
    ends_B1, tokens = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int().to(device), sum(lengths)

    def draw(heads: int) -> Tensor:
        return torch.randn(tokens, heads, case.head_dim, generator=generator).to(device, dtype)

    query, key, value, d_mixed = draw(case.heads), draw(case.groups), draw(case.groups), draw(case.heads)
    place_T = torch.cat([torch.arange(length) for length in lengths]).to(device)
    unit = F.one_hot(place_T, case.head_dim).to(dtype)[:, None].expand(-1, case.groups, -1).contiguous()

    def run(value: Tensor, dropout: float, seed: int) -> tuple[Tensor, list[Tensor]]:
        q, k, v = (x.detach().clone().requires_grad_() for x in (query, key, value))
        torch.manual_seed(seed)
        mixed = kernel(q, k, v, ends_B1, max(lengths), dropout, causal)
        return mixed.detach().float(), [x.float() for x in torch.autograd.grad(mixed, (q, k, v), d_mixed)]

    for dropout in sorted({0.0, case.dropout}):
        kept: Tensor | None = None
        if dropout:
            weights, _ = run(unit, dropout, seed=1)
            plain, _ = _attend_plainly((query, key, unit), lengths, None, d_mixed, causal=causal)
            likely = plain > LEAST_WEIGHT
            dropped, count = (weights == 0) & likely, int(likely.sum())
            share = float(dropped.sum()) / count
            if abs(share - dropout) > 5 * (dropout * (1 - dropout) / count) ** 0.5 + 1e-3:
                return f"it drops {share:.1%} of the weights instead of {dropout:.1%}"
            if torch.equal(weights, run(unit, dropout, seed=2)[0]):
                return "its dropout does not depend on the seed"
            if not torch.equal(weights, run(unit, dropout, seed=1)[0]):
                return "its dropout is not reproducible"
            kept = ~((weights == 0) & (plain > 0))
        found = run(value, dropout, seed=1)
        wanted = _attend_plainly((query, key, value), lengths, kept, d_mixed, dropout, causal=causal)
        names = ("result", "gradient of queries", "gradient of keys", "gradient of values")
        for name, ours, theirs in zip(names, (found[0], *found[1]), (wanted[0], *wanted[1]), strict=True):
            error = float((ours - theirs).abs().max() / theirs.abs().max())
            if not error < TOLERANCES[dtype]:
                return f"its {name} with dropout {dropout:g} differs by {error:.1e} of the largest number"
    return ""


def _attend_plainly(
    heads: tuple[Tensor, Tensor, Tensor],
    lengths: list[int],
    kept: Tensor | None,
    d_mixed: Tensor,
    dropout: float = 0.0,
    *,
    causal: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Attention of queries, keys and values in float32, and its gradients.

    `kept` [T, H, K] tells which weights of a token are not dropped, for each key of its sequence; None: all are kept.
    """
    inputs = [x.detach().float().requires_grad_() for x in heads]
    query, key, _ = inputs
    repeats = query.shape[1] // key.shape[1]
    mixed, start = [], 0
    for length in lengths:
        q, k, v = (x[start : start + length].transpose(0, 1) for x in inputs)
        k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
        score = q @ k.transpose(1, 2) / query.shape[-1] ** 0.5
        if causal:
            later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
            score = score.masked_fill(later, -torch.inf)
        weight = score.softmax(-1)
        if kept is not None:
            weight = weight * kept[start : start + length, :, :length].transpose(0, 1) / (1 - dropout)
        mixed.append((weight @ v).transpose(0, 1))
        start += length
    whole = torch.cat(mixed)
    return whole.detach(), list(torch.autograd.grad(whole, inputs, d_mixed.float()))
