"""Memory: what each layer read of the tokens before a row (arXiv:1901.02860, 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RecalledMemory:
    """The memory of the rows of a batch; it lies right before them, so that the last state is the nearest."""

    states: Tensor | None  # [L, B, M, D], L being layers; None where all rows begin anew
    seen_BM: Tensor | None  # False at states that are not of this row
    length: int = 0  # M

    def before(self, layer: int, x_BSD: Tensor) -> Tensor:
        """The context [B, M + S, D] of a layer with inputs `x_BSD`."""
        return x_BSD if self.states is None else torch.cat([self.states[layer].to(x_BSD.dtype), x_BSD], dim=1)


NOTHING = RecalledMemory(None, None)


class SegmentMemory:
    """The inputs of each layer at the last `length` tokens of each row, without gradient: for each slot its own.

    A slot is a stream of batches whose rows go on from one batch to the next: a micro-batch of training has one from 0
    up, those of an evaluation have others, below 0. It is empty at first, not zero.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.states: dict[int, Tensor] = {}  # [L, B, M, D], M being at most `length`
        self.counts: dict[int, Tensor] = {}  # int64 [B]: how many of the M, the last ones, are of the row

    def recall(self, batch: Mapping[str, Tensor]) -> RecalledMemory:
        """The memory of the rows of `batch`: nothing without a slot, and for fresh rows."""
        slot = self._slot(batch)
        if slot not in self.states or bool(batch["fresh"].all()):
            return NOTHING
        states, count_B = self.states[slot], self.counts[slot]
        count_B = count_B.masked_fill(batch["fresh"].to(count_B.device), 0)
        length = states.shape[2]
        seen_BM = torch.arange(length, device=states.device) >= length - count_B[:, None]
        return RecalledMemory(states, seen_BM, length)

    @torch.no_grad()
    def keep(
        self, batch: Mapping[str, Tensor], inputs_BSD: Sequence[Tensor], recalled: RecalledMemory, at_most: int = 0
    ) -> None:
        """Store, behind what was recalled, the inputs of each layer at the rows' tokens, or at the first `at_most`."""
        slot = self._slot(batch)
        if slot is None:
            return
        rows, longest, _ = inputs_BSD[0].shape
        device, longest = inputs_BSD[0].device, min(longest, at_most or longest)
        new_B = batch["lengths"].to(device).long().clamp(max=longest)
        old_B = torch.zeros_like(new_B) if recalled.seen_BM is None else recalled.seen_BM.sum(1)
        length = min(self.length, recalled.length + longest)
        # the last `length` tokens of each row, in its context; what lies before the first of them is masked
        at_BM = (recalled.length + new_B[:, None] + torch.arange(-length, 0, device=device)).clamp(min=0)
        row_B1 = torch.arange(rows, device=device)[:, None]
        contexts = (recalled.before(layer, x_BSD)[row_B1, at_BM] for layer, x_BSD in enumerate(inputs_BSD))
        self.states[slot] = torch.stack([context_BMD.detach() for context_BMD in contexts])
        self.counts[slot] = (old_B + new_B).clamp(max=length)

    def _slot(self, batch: Mapping[str, Tensor]) -> int | None:
        return int(batch["slot"]) if self.length and "slot" in batch else None

    def state(self) -> dict[str, Tensor]:
        """The slots of training, by names for a file of tensors."""
        named = {"states": self.states, "counts": self.counts}
        return {f"{name}.{slot}": held[slot].cpu() for name, held in named.items() for slot in held if slot >= 0}

    def load(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Take over what `state` gave, in place of all else."""
        self.states.clear()
        self.counts.clear()
        for key, tensor in state.items():
            name, _, slot = key.partition(".")
            held = self.states if name == "states" else self.counts
            held[int(slot)] = tensor.to(device)
