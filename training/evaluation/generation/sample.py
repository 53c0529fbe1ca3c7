"""Greedy and sampled decoding. A sequence that has ended leaves the batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from preprocessing.rng import RandomKey
from preprocessing.schema import Ints
from training.evaluation.generation.filters import apply_limits, filter_scores
from training.evaluation.generation.rows import GenerationBatch, step
from training.evaluation.generation.spec import GenerationLimits, GreedyDecoding, SampledDecoding
from training.model import Model

Choose = Callable[[Tensor, list[int]], Tensor]
"""Maps scores [A, V] and the sequence indices to the next tokens [A]."""
OnToken = Callable[[int, int, bool], None]
"""Receives the index of a sequence, a new token of it, and whether this token is its last one."""


@dataclass(frozen=True)
class GeneratedText:
    """The continuation of a prompt."""

    ids: Ints  # the new tokens, with the end token
    score: float  # sum of log p in nats; for beam search, its length-normalized score
    ended: bool  # whether a token of `ends` ended it, not the length limit


def make_chooser(
    method: GreedyDecoding | SampledDecoding, addresses: Sequence[tuple[int, int]], key: RandomKey | None
) -> Choose:
    """Return a function that chooses tokens, and is called once per step.

    The draws of a sequence depend only on the key and its address.
    """
    if isinstance(method, GreedyDecoding):
        return lambda score_AV, rows: score_AV.argmax(-1)
    assert key is not None, "sampling needs a key"
    generators = [key.at(*address) for address in addresses]
    return lambda score_AV, rows: draw(
        filter_scores(score_AV, method),
        torch.tensor([generators[row].random() for row in rows], dtype=torch.float64),
    )


def draw(score_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Sample tokens [B] from the softmax of scores, by inverting the cumulative distribution at numbers in [0, 1).

    >>> draw(torch.tensor([[0.5, 0.0, 0.5]]).log().expand(3, 3), torch.tensor([0.0, 0.499, 0.5])).tolist()
    [0, 0, 2]
    """
    below_BV = score_BV.double().softmax(-1).cumsum(-1)
    total_B1 = below_BV[:, -1:]
    # strictly below the total, so that no token of probability 0 at the end of the table is drawn
    threshold_B1 = (uniform_B.to(total_B1)[:, None] * total_B1).minimum(total_B1.nextafter(total_B1.new_zeros(())))
    return torch.searchsorted(below_BV, threshold_B1, right=True).squeeze(1)


@torch.no_grad()
def sample_tokens(
    model: Model,
    rows: GenerationBatch,
    room: Sequence[int],
    choose: Choose,
    limits: GenerationLimits,
    on_token: OnToken | None = None,
) -> list[GeneratedText]:
    """Generate at most `room` new tokens per sequence with the function `choose`; `on_token` receives each token."""
    written: list[list[int]] = [[] for _ in room]
    total, ended, active = [0.0] * len(room), [False] * len(room), list(range(len(room)))
    for new in range(max(room)):
        score_AV, rows = step(model, rows)
        token_A = choose(apply_limits(score_AV, rows.ids_BC, rows.lengths_B.to(score_AV.device), new, limits), active)
        log_p_A = score_AV.log_softmax(-1).gather(1, token_A[:, None]).squeeze(1)
        for row, token, log_p in zip(active, token_A.tolist(), log_p_A.tolist(), strict=True):
            written[row].append(token)
            total[row] += log_p
            ended[row] = token in limits.ends
            if on_token is not None:
                on_token(row, token, ended[row] or new + 1 >= room[row])
        kept = [at for at, row in enumerate(active) if not ended[row] and new + 1 < room[row]]
        if not kept:
            break
        rows = rows.append(token_A)
        if len(kept) < len(active):
            rows, active = rows.select(torch.tensor(kept, device=token_A.device)), [active[at] for at in kept]
    results = zip(written, total, ended, strict=True)
    return [GeneratedText(np.array(ids, np.int64), score, done) for ids, score, done in results]
