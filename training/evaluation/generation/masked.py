"""Generation with masked language models: a fixed number of masks is filled in, repeatedly.

Gibbs sampling (Wang and Cho 2019, arXiv:1902.04094) draws one position at a time, given all others. Mask-predict
(Ghazvininejad et al. 2019, arXiv:1904.09324) fills in all positions at once, then masks the least confident ones
again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.rng import RandomKey
from preprocessing.schema import Ints
from preprocessing.spec import key, require, spec
from training.evaluation.generation.filters import filter_scores
from training.evaluation.generation.sample import GeneratedText, draw
from training.evaluation.generation.spec import SampledDecoding
from training.losses.heads import TokenHead
from training.model import Model


@spec
class GibbsDecoding:
    """Gibbs sampling: one position after the other, in random order, given all other positions.

    After `warm` sweeps over the sequence the best token is taken instead (section 4).
    """

    kind: Literal["gibbs"] = "gibbs"
    sweeps: int = key(default=10, doc="Number of sweeps over the sequence.")
    warm: int = key(default=5, doc="Number of sweeps with sampling; later sweeps take the best token.")
    temperature: float = key(default=1.0, doc="Sampling temperature.")
    top_k: int = key(default=0, doc="Number of most probable tokens to sample from; 0: all.")

    def __post_init__(self) -> None:
        require(self.sweeps >= 1, "sweeps", self.sweeps, "an integer of at least 1")
        require(0 <= self.warm <= self.sweeps, "warm", self.warm, f"0 to {self.sweeps} (sweeps)")
        SampledDecoding(temperature=self.temperature, top_k=self.top_k)  # validates the shared keys


@spec
class MaskPredict:
    """Mask-predict: all masks are filled with the best tokens, and the least certain are masked again.

    Of N positions, the N (T - t) / T least certain ones are masked again after iteration t of T.
    """

    kind: Literal["mask_predict"] = "mask_predict"
    iterations: int = key(default=10, doc="Number of iterations.")

    def __post_init__(self) -> None:
        require(self.iterations >= 1, "iterations", self.iterations, "an integer of at least 1")


@dataclass(frozen=True)
class MaskedPrompt:
    """A sequence to fill in: the tokens before and after `count` masks, special tokens included."""

    before: Ints
    count: int
    behind: Ints


def can_fill_masks(model: Model) -> bool:
    """Whether a model predicts masked tokens from the tokens on both sides."""
    trunk = model.spec.model
    return model.head_for("masked") is not None and not trunk.hides_own_token and len(trunk.nets) == 1


def fill(
    model: Model,
    rows: Sequence[MaskedPrompt],
    method: GibbsDecoding | MaskPredict,
    *,
    mask: int,
    barred: Sequence[int],
    key: RandomKey,
    addresses: Sequence[tuple[int, int]] | None = None,
) -> Iterator[GeneratedText]:
    """Yield the generated tokens of each sequence; `score` is the sum of log p of each token given all others.

    A result depends only on its own sequence, and on its address in `key`: (0, index) by default. Raises BadInput at
    the first result if the model cannot fill in masks, or any sequence is too long.
    """
    assert not model.training, "generation needs dropout off: call model.eval()"
    trunk = model.spec.model
    if not can_fill_masks(model):
        raise BadInput(f"generate: this {trunk.kind} cannot fill in masks; give a masked language model such as BERT")
    for number, row in enumerate(rows, 1):
        _check(row, trunk.longest, f"prompt {number}")
    where = addresses or [(0, number) for number in range(len(rows))]
    both = zip(rows, where, strict=True)
    for row, address in both:
        yield _fill_one(model, row, method, mask, barred, key.at(*address))


def _check(row: MaskedPrompt, longest: int, where: str) -> None:
    """Raise BadInput unless the sequence fits into the model, with one mask or more."""
    around = len(row.before) + len(row.behind)
    if around >= longest:
        raise BadInput(
            f"{where}: too long: got {around} tokens around the masks, expected fewer than {longest}; shorten it"
        )
    if not 1 <= row.count <= longest - around:
        raise BadInput(
            f"{where}: invalid number of masks: got {row.count}, expected 1 to {longest - around}; change the number"
        )


@torch.no_grad()
def _fill_one(
    model: Model,
    row: MaskedPrompt,
    method: GibbsDecoding | MaskPredict,
    mask: int,
    barred: Sequence[int],
    rng: np.random.Generator,
) -> GeneratedText:
    ids_S = np.concatenate([row.before, np.full(row.count, mask), row.behind]).astype(np.int64)
    sequence = _MaskedSequence(model, torch.tensor(list(barred), dtype=torch.int64), torch.from_numpy(ids_S)[None])
    place_N = len(row.before) + np.arange(row.count)
    if isinstance(method, MaskPredict):
        sequence.predict(place_N, method.iterations, mask)
    else:
        sequence.sweep(place_N, method, mask, rng)
    score = sum(float(sequence.log_p(np.array([at]), mask)[0, sequence.ids_1S[0, at]]) for at in place_N)
    return GeneratedText(sequence.ids_1S[0, torch.from_numpy(place_N)].numpy(), score, ended=False)


class _MaskedSequence:
    """A sequence that is being filled in."""

    def __init__(self, model: Model, barred: Tensor, ids_1S: Tensor) -> None:
        self.model, self.barred, self.ids_1S = model, barred, ids_1S

    def predict(self, place_N: Ints, iterations: int, mask: int) -> None:
        """Mask-predict (section 3.2). A position that is not masked again keeps its confidence."""
        confidence_N, masked = np.zeros(len(place_N)), np.arange(len(place_N))
        for done in range(iterations):
            log_p_MV = self.log_p(place_N[masked], mask)
            best_M, token_M = log_p_MV.max(-1)
            self.ids_1S[0, torch.from_numpy(place_N[masked])] = token_M
            confidence_N[masked] = best_M.numpy()
            again = int(len(place_N) * (iterations - done - 1) / iterations)
            if again == 0:
                break
            masked = np.argsort(confidence_N, kind="stable")[:again]

    def sweep(self, place_N: Ints, method: GibbsDecoding, mask: int, rng: np.random.Generator) -> None:
        """Gibbs sampling. All positions start as masks."""
        sampling = SampledDecoding(temperature=method.temperature, top_k=method.top_k)
        for done in range(method.sweeps):
            for at in rng.permutation(place_N):
                log_p_1V = self.log_p(np.array([at]), mask)
                uniform_1 = torch.tensor([rng.random()])
                warm = done < method.warm
                token_1 = draw(filter_scores(log_p_1V, sampling), uniform_1) if warm else log_p_1V.argmax(-1)
                self.ids_1S[0, at] = token_1[0]

    def log_p(self, place_M: Ints, mask: int) -> Tensor:
        """Log-probabilities float32 [M, V], on the CPU, of each token at the given positions, which are all masked
        at once."""
        place = torch.from_numpy(np.asarray(place_M, np.int64))
        device, ids_1S = next(self.model.parameters()).device, self.ids_1S.index_fill(1, place, mask)
        length = ids_1S.shape[1]
        batch = {
            "input_ids": ids_1S.to(device),
            "positions": torch.arange(length, device=device)[None],
            "token_type_ids": torch.zeros_like(ids_1S).to(device),
            "lengths": torch.tensor([length]),
            "first_at": torch.zeros(1, dtype=torch.int64, device=device),
        }
        head, table = self.model.head_for("masked"), self.model.trunk.table
        assert isinstance(head, TokenHead)
        assert isinstance(table, Tensor)
        hidden_MD = self.model.trunk(batch)[0, place.to(device)]
        logits_MV = head.next_scores(hidden_MD, table).cpu()
        return logits_MV.index_fill(1, self.barred, -torch.inf).log_softmax(-1)
