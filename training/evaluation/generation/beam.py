"""Beam search: per prompt, extend the best sequences in parallel, and keep the best of those that have ended.

Axes: P prompts, K beams, N new tokens, V rows of the embedding table; C candidates of a step. With E end tokens, a
step has (1 + E) K candidates. At least K of them have not ended, so K beams continue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from training.evaluation.generation.filters import apply_limits
from training.evaluation.generation.rows import GenerationBatch, step
from training.evaluation.generation.sample import GeneratedText
from training.evaluation.generation.spec import BeamSearch, GenerationLimits
from training.model import Model

HOPELESS = -1e9  # the score of an empty or closed beam: worse than any other, but finite


@dataclass(frozen=True)
class BeamSearchState:
    """The state of a search over P prompts."""

    prompts: list[int]  # prompt indices
    score_PK: Tensor  # sum of log p of the open beams
    written_PKN: Tensor  # int64, their new tokens
    best_PK: Tensor  # scores of ended sequences, in descending order
    best_PKN: Tensor  # int64, tokens of the ended sequences
    length_PK: Tensor  # int64, number of tokens of the ended sequences
    ended_PK: Tensor  # bool: ended by an end token, not by the length limit

    def select(self, kept: Tensor) -> "BeamSearchState":
        tensors = {name: x[kept] for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, prompts=[self.prompts[at] for at in kept.tolist()], **tensors)


@torch.no_grad()
def search(
    model: Model, rows: GenerationBatch, room: Sequence[int], method: BeamSearch, limits: GenerationLimits
) -> list[GeneratedText]:
    """Return the best sequence of at most `room` new tokens for each prompt."""
    search, results = _begin(len(room), method.num_beams, max(room), rows.ids_BC.device), dict[int, GeneratedText]()
    for new in range(max(room)):
        score_BV, rows = step(model, rows)
        log_p_BV = score_BV.log_softmax(-1)
        log_p_BV = apply_limits(log_p_BV, rows.ids_BC, rows.lengths_B.to(log_p_BV.device), new, limits)
        if new == 0:  # the first step has one row per prompt
            alone = torch.arange(len(room), device=log_p_BV.device).repeat_interleave(method.num_beams)
            log_p_BV, rows = log_p_BV[alone], rows.select(alone)
        is_last_P = torch.tensor([new + 1 >= room[prompt] for prompt in search.prompts], device=log_p_BV.device)
        search, from_B = _advance(search, log_p_BV, new, is_last_P, method, limits)
        done_P = is_last_P | ~_may_improve(search, new + 1, room, method)
        for at in done_P.nonzero().flatten().tolist():
            results[search.prompts[at]] = _result(search, at)
        kept = (~done_P).nonzero().flatten()
        search = search.select(kept)
        if not search.prompts:
            break
        rows = rows.select(from_B.view(-1, method.num_beams)[kept].flatten())
        rows = rows.append(search.written_PKN[..., new].flatten())
    return [results[prompt] for prompt in range(len(room))]


def _begin(prompts: int, beams: int, longest: int, device: torch.device) -> BeamSearchState:
    """The initial state: no sequence has ended. All open beams of a prompt are equal at first, so all except one get
    the score HOPELESS."""
    score_PK = torch.full((prompts, beams), HOPELESS, device=device)
    number_PK = torch.zeros(prompts, beams, dtype=torch.int64, device=device)
    ids_PKN = torch.zeros(prompts, beams, longest, dtype=torch.int64, device=device)
    open_PK = score_PK.index_fill(1, torch.zeros(1, dtype=torch.int64, device=device), 0.0)
    return BeamSearchState(list(range(prompts)), open_PK, ids_PKN, score_PK, ids_PKN, number_PK, number_PK.bool())


def _advance(
    search: BeamSearchState, log_p_BV: Tensor, new: int, is_last_P: Tensor, method: BeamSearch, limits: GenerationLimits
) -> tuple[BeamSearchState, Tensor]:
    """The state after one more token, and the index [P * K] of the row that each open beam continues."""
    (prompts, beams), vocab_size = search.score_PK.shape, log_p_BV.shape[1]
    total_PC = (search.score_PK[..., None] + log_p_BV.view(prompts, beams, -1)).flatten(1)
    score_PC, at_PC = total_PC.topk(min((1 + max(1, len(limits.ends))) * beams, total_PC.shape[1]))
    beam_PC, token_PC = at_PC // vocab_size, at_PC % vocab_size
    row_P1 = torch.arange(prompts, device=at_PC.device)[:, None]
    written_PCN = search.written_PKN[row_P1, beam_PC]
    written_PCN[..., new] = token_PC
    by_end_PC = torch.isin(token_PC, torch.tensor(limits.ends, dtype=torch.int64, device=token_PC.device))
    ended_PC = by_end_PC | is_last_P[:, None]
    search = _with_ended(search, score_PC[:, :beams], written_PCN[:, :beams], by_end_PC, ended_PC, new + 1, method)
    score_PK, open_PK = (score_PC + HOPELESS * ended_PC).topk(beams)
    search = replace(search, score_PK=score_PK, written_PKN=written_PCN[row_P1, open_PK])
    return search, (row_P1 * beams + beam_PC.gather(1, open_PK)).flatten()


def _with_ended(
    search: BeamSearchState,
    score_PK: Tensor,
    written_PKN: Tensor,
    by_end_PC: Tensor,
    ended_PC: Tensor,
    length: int,
    method: BeamSearch,
) -> BeamSearchState:
    """Add those of the K best candidates that have ended, if they are among the K best ended sequences."""
    beams = score_PK.shape[1]
    score_PK = (score_PK / length**method.length_penalty).where(ended_PC[:, :beams], HOPELESS)
    best_PK, at_PK = torch.cat([search.best_PK, score_PK], dim=1).topk(beams)
    row_P1 = torch.arange(len(at_PK), device=at_PK.device)[:, None]

    def merge(before: Tensor, now: Tensor) -> Tensor:
        return torch.cat([before, now], dim=1)[row_P1, at_PK]

    return replace(
        search,
        best_PK=best_PK,
        best_PKN=merge(search.best_PKN, written_PKN),
        length_PK=merge(search.length_PK, torch.full_like(search.length_PK, length)),
        ended_PK=merge(search.ended_PK, by_end_PC[:, :beams]),
    )


def _may_improve(search: BeamSearchState, length: int, room: Sequence[int], method: BeamSearch) -> Tensor:
    """Bool [P]: whether an open beam can still improve the K best, at `length` new tokens."""
    worst_P = search.best_PK[:, -1]
    full_P = worst_P > HOPELESS / 2
    if method.stop == "full":
        return ~full_P
    at_greatest = method.stop == "never" and method.length_penalty > 0
    length_P = torch.tensor([room[prompt] if at_greatest else length for prompt in search.prompts])
    hoped_P = search.score_PK[:, 0] / length_P.to(worst_P) ** method.length_penalty
    return ~full_P | (hoped_P > worst_P)


def _result(search: BeamSearchState, at: int) -> GeneratedText:
    """The best sequence of the prompt at index `at` of the state."""
    length = int(search.length_PK[at, 0])
    ids = search.best_PKN[at, 0, :length].cpu().numpy()
    return GeneratedText(ids, float(search.best_PK[at, 0]), bool(search.ended_PK[at, 0]))
