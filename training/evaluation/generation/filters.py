"""Scores of the next token, filtered in the order of transformers: repetition penalty, n-grams, minimum length,
forced end; then temperature, top-k, top-p.

A token that is not allowed has the score minus infinity. Axes: B sequences, C tokens so far, V rows of the embedding
table.
"""

import torch
from torch import Tensor

from training.evaluation.generation.spec import GenerationLimits, SampledDecoding


def apply_limits(score_BV: Tensor, ids_BC: Tensor, lengths_B: Tensor, written: int, limits: GenerationLimits) -> Tensor:
    """Apply the limits to the scores. `ids_BC` is padded on the right; the last `written` tokens of each row are
    new."""
    if limits.repetition_penalty != 1:
        score_BV = penalize_repetition(score_BV, ids_BC, lengths_B, limits.repetition_penalty)
    if limits.no_repeat_ngram_size:
        seen = (ids_BC, lengths_B) if limits.no_repeat_in == "row" else newest(ids_BC, lengths_B, written)
        score_BV = score_BV.masked_fill(
            find_completing_tokens(*seen, limits.no_repeat_ngram_size, score_BV.shape[1]), -torch.inf
        )
    if limits.barred:
        score_BV = score_BV.index_fill(1, torch.tensor(limits.barred, device=score_BV.device), -torch.inf)
    ends = torch.tensor(limits.ends, dtype=torch.int64, device=score_BV.device)
    if written < limits.min_new_tokens:
        score_BV = score_BV.index_fill(1, ends, -torch.inf)
    if limits.force_eos and written == limits.max_new_tokens - 1:
        score_BV = torch.full_like(score_BV, -torch.inf).index_fill(1, ends[:1], 0.0)
    return score_BV


def filter_scores(score_BV: Tensor, method: SampledDecoding) -> Tensor:
    """Divide scores by the temperature, then apply top-k and top-p.

    >>> score_BV = torch.tensor([[0.5, 0.25, 0.15, 0.06, 0.04]]).log()
    >>> [int(filter_scores(score_BV, SampledDecoding(top_p=p)).isfinite().sum()) for p in (0.5, 0.51, 0.75, 0.9)]
    [1, 2, 2, 3]
    """
    score_BV = score_BV / method.temperature
    if 0 < method.top_k < score_BV.shape[1]:
        last_B1 = score_BV.topk(method.top_k).values[:, -1:]
        score_BV = score_BV.masked_fill(score_BV < last_B1, -torch.inf)
    if method.top_p < 1:
        rising_BV, token_BV = score_BV.sort()
        rest_BV = rising_BV.softmax(-1).cumsum(-1) <= 1 - method.top_p
        rest_BV[:, -1] = False
        score_BV = score_BV.masked_fill(rest_BV.scatter(1, token_BV, rest_BV), -torch.inf)
    return score_BV


def penalize_repetition(score_BV: Tensor, ids_BC: Tensor, lengths_B: Tensor, penalty: float) -> Tensor:
    """Lower the scores of tokens that the sequence already contains (CTRL, arXiv:1909.05858, 4.1).

    >>> score_BV, ids_BC = torch.tensor([[2.0, -2.0, 3.0]]), torch.tensor([[0, 1, 2]])
    >>> penalize_repetition(score_BV, ids_BC, torch.tensor([2]), 2.0).tolist()
    [[1.0, -4.0, 3.0]]
    """
    inside_BC = torch.arange(ids_BC.shape[1], device=ids_BC.device) < lengths_B[:, None]
    has_BV = mark_tokens(ids_BC, inside_BC, score_BV.shape[1])
    return torch.where(has_BV, torch.where(score_BV < 0, score_BV * penalty, score_BV / penalty), score_BV)


def find_completing_tokens(ids_BC: Tensor, lengths_B: Tensor, size: int, vocab_size: int) -> Tensor:
    """Bool [B, V]: the tokens that would complete an n-gram of length `size` that the sequence already contains.

    >>> find_completing_tokens(torch.tensor([[1, 2, 0, 1, 2]]), torch.tensor([5]), 3, 4).tolist()
    [[True, False, False, False]]
    """
    rows, width = ids_BC.shape
    if width < size:
        return torch.zeros(rows, vocab_size, dtype=torch.bool, device=ids_BC.device)
    before = torch.arange(1 - size, 0, device=ids_BC.device)
    last_BN = ids_BC.gather(1, (lengths_B[:, None] + before).clamp(min=0))
    ngram_BWN = ids_BC.unfold(1, size, 1)
    ended_BW = torch.arange(size, width + 1, device=ids_BC.device) <= lengths_B[:, None]
    same_BW = (ngram_BWN[..., :-1] == last_BN[:, None]).all(-1)
    return mark_tokens(ngram_BWN[..., -1], same_BW & ended_BW, vocab_size)


def newest(ids_BC: Tensor, lengths_B: Tensor, written: int) -> tuple[Tensor, Tensor]:
    """The last `written` tokens of each row, and their number.

    >>> newest(torch.tensor([[1, 2, 3, 0], [1, 2, 3, 4]]), torch.tensor([3, 4]), 2)[0].tolist()
    [[2, 3], [3, 4]]
    """
    at_BW = lengths_B[:, None] + torch.arange(-written, 0, device=ids_BC.device)
    return ids_BC.gather(1, at_BW), torch.full_like(lengths_B, written)


def mark_tokens(ids_BC: Tensor, which_BC: Tensor, vocab_size: int) -> Tensor:
    """Bool [B, V]: the tokens that each row has at positions where `which_BC` is True."""
    mark_BV = torch.zeros(len(ids_BC), vocab_size + 1, dtype=torch.bool, device=ids_BC.device)
    return mark_BV.scatter_(1, ids_BC.where(which_BC, vocab_size), True)[:, :vocab_size]
