"""Cross-entropy over a vocabulary, computed in slices so that the full logits are never in memory."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE
from training.architectures import WHOLE, Share, SplitTable, Table, whole
from training.score import Score
from training.specs import LOGITS_AT_ONCE, TABLE_ROWS, count_logits_at_once


class FunctionCompiler(Protocol):
    """Calls functions, compiled (training/architectures/compiled.py)."""

    def call(self, function: Callable[..., Any], *inputs: object) -> Any:
        """Return function(*inputs)."""


Rule = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The loss of each target, from three vectors float32 [M]: the logarithm of the sum of exp(logits), the logit of the
target, and the mean of all logits of its row. It returns float32 [M], and autograd differentiates it (rules.py)."""

ROWS_AT_ONCE, BLOCK = 512, 4_096  # block sizes for likelihoods on a CPU: 8 MB of float32


def logits_at_once(device: torch.device) -> int:
    """Number of logits in memory at a time."""
    if device.type == "cpu":  # just below 32 MB, from which on the allocator of glibc always asks for new memory
        return LOGITS_AT_ONCE - (LOGITS_AT_ONCE >> 7)
    return _count_logits_at_once(device)


@cache
def _count_logits_at_once(device: torch.device) -> int:
    return count_logits_at_once(torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0)


def tokens_at(hidden: Tensor, at_M: Tensor) -> Tensor:
    """States [M, D] at flat positions of a batch [B, S, D] or [T, D]."""
    return hidden.flatten(0, -2).index_select(0, at_M)


def real_targets(batch: Mapping[str, Tensor]) -> Tensor | None:
    """Bool [M]: whether each target is real, in a batch of a fixed shape (preprocessing/fixed_shapes.py).

    None: all are.
    """
    return batch["targets"] != IGNORE if "real_tokens" in batch else None


def count_real(target_M: Tensor, real_M: Tensor | None) -> int | Tensor:
    """Number of real targets; a tensor if the host does not know it."""
    return len(target_M) if real_M is None else real_M.sum()


def token_score(
    feature_MD: Tensor,
    table_VD: Table,
    bias_V: Tensor | None,
    target_M: Tensor,
    rule: Rule | None = None,
    real_M: Tensor | None = None,
) -> Score:
    """Score of the logits `feature @ table.T + bias`; the full logits are never in memory.

    The loss is the cross-entropy, or that of a `rule`. Only targets in `real_M` count, if it is given.
    """
    loss, right_M, _ = linear_cross_entropy(feature_MD, table_VD, bias_V, target_M, rule, real_M)
    return Score(loss, count_real(target_M, real_M), right_M.sum())


def linear_cross_entropy(
    feature_MD: Tensor,
    table_VD: Table,
    bias_V: Tensor | None,
    target_M: Tensor,
    rule: Rule | None = None,
    real_M: Tensor | None = None,
    compiler: FunctionCompiler | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss of `token_score`; bool [M]: whether each target has the highest score; the sum of log^2 Z.

    Other targets than those in `real_M` have no loss and no gradient, and count as wrong. Z is the sum of exp(logits)
    of a target. Without a `rule`, the sum of its squared logarithms is 0.

    If the table is split between workers (arXiv:1909.08053, 3), each worker computes the logits of its own rows. It
    uses its part of the bias, which is not split. The workers exchange three numbers per target instead of logits, and
    four with a `rule`. A `compiler` compiles what is between the products.
    """
    with_gradient = torch.is_grad_enabled()
    if real_M is not None:
        target_M = target_M.where(real_M, 0)
    if not isinstance(table_VD, SplitTable):
        size = len(table_VD)
        return _LinearCrossEntropy.apply(
            feature_MD, table_VD, bias_V, target_M, size, WHOLE, with_gradient, rule, real_M, compiler
        )
    share, within = table_VD.share, table_VD.within
    bias = None if bias_V is None else share.enter(bias_V)[within]
    target_M = target_M - within.start
    feature_MD, rows, size = share.enter(feature_MD), table_VD.rows, table_VD.size
    return _LinearCrossEntropy.apply(feature_MD, rows, bias, target_M, size, share, with_gradient, rule, real_M, None)


@torch.no_grad()
def token_log_p(
    feature_UD: Tensor, table_VD: Tensor, bias_V: Tensor | None, target_M: Tensor, of_M: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probabilities float32 [M] of the targets, and bool [M]: whether each target has the highest score.

    `of_M` is the row of `feature_UD` that predicts each target; several targets may share a row. On a CPU, logits are
    computed for a block of the vocabulary at a time, which stays in the cache. This is 1.5 times as fast as full rows
    of logits.
    """
    num_rows, width = max(1, logits_at_once(feature_UD.device) // len(table_VD)), len(table_VD)
    if not feature_UD.is_cuda:
        num_rows, width = ROWS_AT_ONCE, min(width, BLOCK)
    log_p_M = torch.empty(len(target_M), dtype=torch.float32, device=feature_UD.device)
    right_M = torch.empty(len(target_M), dtype=torch.bool, device=feature_UD.device)
    for start in range(0, len(feature_UD), num_rows):
        mine = ((of_M >= start) & (of_M < start + num_rows)).nonzero().squeeze(1)
        feature, of, target = feature_UD[start : start + num_rows], of_M[mine] - start, target_M[mine]
        best, total, logit = _over_blocks(feature, table_VD, bias_V, of, target, width)
        right_M[mine] = logit == best[of]
        log_p_M[mine] = logit - best[of] - total[of].log()
    return log_p_M, right_M


def _over_blocks(
    feature: Tensor, table_VD: Tensor, bias_V: Tensor | None, of: Tensor, target: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The highest logit and the sum of exp(logit - highest) of each row, and the logit of each target.

    The vocabulary is processed in blocks of `width` tokens (online softmax: Milakov and Gimelshein 2018,
    arXiv:1805.02867).
    """
    best = feature.new_full((len(feature),), -torch.inf, dtype=torch.float32)
    total, logit = torch.zeros_like(best), best.new_empty(len(target))
    for first in range(0, len(table_VD), width):
        bias = None if bias_V is None else bias_V[first : first + width]
        logits = F.linear(feature, table_VD[first : first + width], bias).float()
        here = ((target >= first) & (target < first + width)).nonzero().squeeze(1)
        logit[here] = logits[of[here], target[here] - first]
        before, best = best, torch.maximum(best, logits.amax(-1))
        total = total * (before - best).exp() + logits.sub_(best[:, None]).exp_().sum(-1)
    return best, total, logit


@torch.no_grad()
def token_sample(
    feature_MD: Tensor, table_VD: Table, bias_V: Tensor | None, uniform_M: Tensor, barred_M: Tensor | None
) -> Tensor:
    """Tokens [M] sampled from the softmax of `feature @ table.T + bias`, by inverting the cumulative probabilities.

    Each token uses one random number of `uniform_M` in [0, 1); Gumbel noise would need one per logit. Tokens in
    `barred_M` are never sampled.
    """
    table_VD = whole(table_VD)
    num_rows = max(1, logits_at_once(feature_MD.device) // len(table_VD))
    token_M = torch.empty(len(feature_MD), dtype=torch.int64, device=feature_MD.device)
    for start in range(0, len(feature_MD), num_rows):
        rows = slice(start, start + num_rows)
        logits = F.linear(feature_MD[rows], table_VD, bias_V).float()
        if barred_M is not None:
            logits.scatter_(1, barred_M[rows, None], -torch.inf)
        below = logits.softmax(-1).cumsum(-1)
        passed = torch.searchsorted(below, uniform_M[rows, None] * below[:, -1:], right=True)
        token_M[rows] = passed.squeeze(1).clamp_(max=len(table_VD) - 1)
    return token_M


class _LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of a linear layer, in slices of targets. The forward pass computes the gradient, too.

    On a CPU, a slice is a little smaller than LOGITS_AT_ONCE: the C library maps blocks of 32 MB anew each time, which
    takes as long as the softmax.

    torch's own linear_cross_entropy sums in the precision of its input, so that a bfloat16 loss is wrong by 4 %. It
    also does not return which targets are correct. Here, logits have the precision of the model; softmax and sums are
    in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        feature_MD: Tensor,
        table_VD: Tensor,
        bias_V: Tensor | None,
        target_M: Tensor,
        size: int,
        share: Share,
        with_gradient: bool,
        rule: Rule | None,
        real_M: Tensor | None,
        compiler: FunctionCompiler | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`table_VD` has this worker's rows of a table with `size` rows.

        Targets are relative to the first of these rows; targets outside of them belong to other workers. Features of
        targets that are not real are 0, so that they add nothing to the gradient of the table.
        """
        device, own_rows = feature_MD.device, len(table_VD)
        if real_M is not None:
            feature_MD = feature_MD * real_M[:, None]
        num_rows = max(1, logits_at_once(device) * share.of // size)  # the same on every worker
        if device.type != "cpu":
            num_rows = divide_evenly(len(target_M), num_rows)
        if pads_table(device) and share.of == 1:  # products of whole tiles are faster
            missing = -own_rows % TABLE_ROWS
            table_VD = F.pad(table_VD, (0, 0, 0, missing))
            bias_V = None if bias_V is None else F.pad(bias_V, (0, missing))
        fuses = compiler is not None and rule is None and share.of == 1 and with_gradient
        loss, square = (torch.zeros((), dtype=torch.float32, device=device) for _ in range(2))
        right_M = torch.empty(len(target_M), dtype=torch.bool, device=device)
        d_feature_MD = torch.empty_like(feature_MD) if with_gradient else None
        d_table_VD = torch.zeros_like(table_VD, dtype=torch.float32) if with_gradient else None
        d_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if with_gradient and bias_V is not None else None
        for start in range(0, len(target_M), num_rows):
            rows = slice(start, start + num_rows)
            feature, target = feature_MD[rows], target_M[rows, None]
            real = None if real_M is None else real_M[rows]
            logits = F.linear(feature, table_VD, bias_V)
            if compiler is not None and fuses:
                loss_of_each, right_M[rows], d_logits = compiler.call(
                    cross_entropy_of_slice, logits, target, real, own_rows
                )
            elif rule is None:
                logits = logits[:, :own_rows].float()
                loss_of_each, right_M[rows], d_logits = _cross_entropy(logits, target, share, with_gradient)
            else:
                logits = logits[:, :own_rows].float()
                loss_of_each, right_M[rows], d_logits, log_z = _apply_rule(
                    rule, logits, target, size, share, with_gradient
                )
                square += sum_real(log_z.square(), real)
            loss += sum_real(loss_of_each, real)
            if d_feature_MD is None or d_table_VD is None:
                continue
            if d_logits.shape[1] < len(table_VD):
                d_logits = F.pad(d_logits, (0, len(table_VD) - d_logits.shape[1]))
            if d_bias_V is not None:
                if real is None or fuses:  # then rows that are not real are 0
                    d_bias_V += d_logits.sum(0, dtype=torch.float32)
                else:
                    d_bias_V += real.float() @ d_logits
            d_logits = d_logits.to(feature.dtype)
            d_feature_MD[rows] = d_logits @ table_VD
            if feature.dtype == torch.float32:
                d_table_VD.addmm_(d_logits.T, feature)
            else:
                d_table_VD += d_logits.T @ feature
        if real_M is not None:
            right_M &= real_M
            d_feature_MD = d_feature_MD * real_M[:, None] if d_feature_MD is not None else None
        ctx.own_rows = own_rows
        ctx.save_for_backward(d_feature_MD, d_table_VD, d_bias_V)
        ctx.mark_non_differentiable(right_M, square)
        return loss, right_M, square

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # autograd casts each gradient to the precision of its tensor
        d_feature, *of_table = (None if gradient is None else gradient * d_loss for gradient in ctx.saved_tensors)
        own = (None if gradient is None else gradient[: ctx.own_rows] for gradient in of_table)
        return (d_feature, *own, None, None, None, None, None, None, None)


def divide_evenly(number: int, most: int) -> int:
    """The size of the fewest slices of at most `most` of `number` items, all of one size except for the last.

    >>> divide_evenly(10, 4), divide_evenly(0, 4)
    (4, 1)
    """
    slices = -(-number // most)
    return max(1, -(-number // max(1, slices)))


def pads_table(device: torch.device) -> bool:
    """Whether products with the token table have a multiple of TABLE_ROWS rows, the last of them zeros."""
    return device.type != "cpu"


def cross_entropy_of_slice(
    logits_RW: Tensor, target_R1: Tensor, real_R: Tensor | None, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The cross-entropy [R], bool [R] and the gradient [R, W] of `_cross_entropy`, in few kernels if it is compiled.

    The first `size` logits of each row count. The gradient has the precision of the logits, and is 0 in rows that are
    not real.
    """
    token_W = torch.arange(logits_RW.shape[1], device=logits_RW.device)
    x = logits_RW.float().where(token_W < size, -torch.inf)
    best_R1 = x.amax(-1, keepdim=True)
    exp_RW = (x - best_R1).exp()
    total_R1 = exp_RW.sum(-1, keepdim=True)
    logit_R1 = x.gather(1, target_R1)
    d_logits_RW = exp_RW / total_R1 - (token_W == target_R1).float()
    d_logits_RW = d_logits_RW if real_R is None else d_logits_RW * real_R[:, None]
    loss_R = (best_R1 + total_R1.log() - logit_R1).squeeze(1)
    return loss_R, (logit_R1 >= best_R1).squeeze(1), d_logits_RW.to(logits_RW.dtype)


def sum_real(values_M: Tensor, real_M: Tensor | None) -> Tensor:
    """The sum over the real targets; None: all are."""
    return values_M.sum() if real_M is None else (values_M * real_M).sum()


def _cross_entropy(
    logits_MR: Tensor, target_M1: Tensor, share: Share, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The cross-entropy [M], bool [M]: whether each target has the highest logit, and the gradient of the logits.

    Without `with_gradient`, the gradient is an empty tensor.
    """
    if share.of == 1:
        log_p_MR, minus_one = _log_softmax_in_place(logits_MR), logits_MR.new_full(target_M1.shape, -1.0)
        target_log_p_M, right_M = log_p_MR.gather(1, target_M1), _has_highest(log_p_MR, target_M1)
    else:
        mine_M1 = (target_M1 >= 0) & (target_M1 < logits_MR.shape[1])
        target_M1, minus_one = target_M1.where(mine_M1, 0), -mine_M1.float()
        log_p_MR, target_log_p_M, right_M = _log_softmax(logits_MR, target_M1, mine_M1, share)
    loss_M = -target_log_p_M.flatten()
    if not with_gradient:
        return loss_M, right_M, logits_MR.new_empty(0)
    return loss_M, right_M, log_p_MR.exp_().scatter_add_(1, target_M1, minus_one)


def _log_softmax_in_place(logits_MR: Tensor) -> Tensor:
    """The log-probabilities of logits. On a CPU they replace the logits: new memory costs more time than the sums."""
    if logits_MR.device.type != "cpu":
        return logits_MR.log_softmax(-1)
    return torch.log_softmax(logits_MR, -1, out=logits_MR)


def _has_highest(score_MR: Tensor, target_M1: Tensor) -> Tensor:
    """Bool [M]: whether no score is higher than that of the target. On a CPU, argmax takes four times as long."""
    return score_MR.gather(1, target_M1).squeeze(1) == score_MR.amax(-1)


def _log_softmax(logits_MR: Tensor, target_M1: Tensor, mine_M1: Tensor, share: Share) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities over the tokens of all workers, from the logits of this worker's R tokens.

    Returns the log-probabilities [M, R] of this worker's tokens, those of the targets [M], and bool [M]: whether each
    target has the highest logit. `mine_M1` is whether a target is one of this worker's tokens.
    """
    best_M1 = share.greatest(logits_MR.amax(-1, keepdim=True))
    sums_M2 = torch.cat(
        [(logits_MR - best_M1).exp().sum(-1, keepdim=True), logits_MR.gather(1, target_M1) * mine_M1], 1
    )
    total_M1, logit_M1 = share.add(sums_M2).split(1, 1)
    least_M1 = best_M1 + total_M1.log()
    return logits_MR - least_M1, (logit_M1 - least_M1).squeeze(1), (logit_M1 == best_M1).squeeze(1)


def _apply_rule(
    rule: Rule, logits_MR: Tensor, target_M1: Tensor, size: int, share: Share, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss [M] of a rule, bool [M]: whether each target has the highest logit, the gradient of the logits, and
    the logarithm [M] of the sum of exp(logits).

    The rule gets three numbers per target, so autograd runs on these alone. The gradient of a logit follows: the
    derivative by log-sum-exp times its probability, that by the mean divided by the size of the vocabulary, and at the
    target that by its logit. Without `with_gradient`, the gradient is an empty tensor.
    """
    mine_M1 = (target_M1 >= 0) & (target_M1 < logits_MR.shape[1])
    target_M1 = target_M1.where(mine_M1, 0)
    if share.of == 1:
        log_z_M, logit_M, mean_M = (
            logits_MR.logsumexp(-1),
            logits_MR.gather(1, target_M1).squeeze(1),
            logits_MR.mean(-1),
        )
        right_M = _has_highest(logits_MR, target_M1)
    else:
        best_M1 = share.greatest(logits_MR.amax(-1, keepdim=True))
        total_M1 = (logits_MR - best_M1).exp().sum(-1, keepdim=True)
        sums_M3 = torch.cat([total_M1, logits_MR.gather(1, target_M1) * mine_M1, logits_MR.sum(-1, keepdim=True)], 1)
        total_M, logit_M, sum_M = share.add(sums_M3).unbind(1)
        log_z_M, mean_M = best_M1.squeeze(1) + total_M.log(), sum_M / size
        right_M = logit_M == best_M1.squeeze(1)
    with torch.set_grad_enabled(with_gradient):
        inputs = [x.detach().requires_grad_(with_gradient) for x in (log_z_M, logit_M, mean_M)]
        each = rule(*inputs)
        if each.shape != log_z_M.shape:
            shapes = f"got {list(each.shape)}, expected {list(log_z_M.shape)}, a number for each target"
            raise BadInput(f"invalid shape of the result of a loss rule: {shapes}; do not reduce it")
        loss = each.sum()
    if not with_gradient:
        return each, right_M, logits_MR.new_empty(0), log_z_M
    grads = torch.autograd.grad(loss, inputs, allow_unused=True)
    d_log_z_M, d_logit_M, d_mean_M = (
        torch.zeros_like(x) if d is None else d for d, x in zip(grads, inputs, strict=True)
    )
    d_logits_MR = (logits_MR - log_z_M[:, None]).exp_().mul_(d_log_z_M[:, None]).add_(d_mean_M[:, None] / size)
    d_logits_MR.scatter_add_(1, target_M1, d_logit_M[:, None] * mine_M1)
    return each.detach(), right_M, d_logits_MR, log_z_M
