"""Segment-level memory: the inputs of each layer for the tokens before a sequence (arXiv:1901.02860, 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.architectures.host_columns import host_of


@dataclass(frozen=True)
class RecalledMemory:
    """The memory of the sequences of a batch: the states directly before them, in the order of the text."""

    states: Tensor | None  # [L, B, M, D] for L layers; None if no sequence continues an earlier one
    seen_BM: Tensor | None  # False for states that do not belong to the sequence
    length: int = 0  # M

    def before(self, layer: int, x_BSD: Tensor) -> Tensor:
        """The context [B, M + S, D] of a layer with inputs `x_BSD`."""
        return x_BSD if self.states is None else torch.cat([self.states[layer].to(x_BSD.dtype), x_BSD], dim=1)


NOTHING = RecalledMemory(None, None)


class SegmentMemory:
    """Inputs of each layer at the last `length` tokens of each sequence, without gradient, for each slot separately.

    A slot is a stream of batches: each sequence of a batch continues the same sequence of the batch before it. The
    micro-batches of training have the slots 0, 1, ...; evaluations have negative slots. A slot is empty at first.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.states: dict[int, Tensor] = {}  # by slot, [L, B, M, D] with M <= `length`
        self.counts: dict[int, Tensor] = {}  # by slot, int64 [B]: how many of the last M states belong to the sequence

    def recall(self, batch: Mapping[str, Tensor]) -> RecalledMemory:
        """The memory of the sequences of `batch`; empty without a slot, and for sequences that start a new text."""
        slot = self._slot(batch)
        if slot not in self.states or bool(host_of(batch, "fresh").all()):
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
        """Append the inputs of each layer to the recalled memory and store the last `length` states of each sequence.

        If `at_most` is not 0, only the first `at_most` tokens of each sequence are appended.
        """
        slot = self._slot(batch)
        if slot is None:
            return
        rows, longest, _ = inputs_BSD[0].shape
        device, longest = inputs_BSD[0].device, min(longest, at_most or longest)
        new_B = batch["lengths"].to(device).long().clamp(max=longest)
        old_B = torch.zeros_like(new_B) if recalled.seen_BM is None else recalled.seen_BM.sum(1)
        length = min(self.length, recalled.length + longest)
        # indices of the last `length` tokens of each sequence in its context; indices below 0 become 0 and are masked
        at_BM = (recalled.length + new_B[:, None] + torch.arange(-length, 0, device=device)).clamp(min=0)
        row_B1 = torch.arange(rows, device=device)[:, None]
        contexts = (recalled.before(layer, x_BSD)[row_B1, at_BM] for layer, x_BSD in enumerate(inputs_BSD))
        self.states[slot] = torch.stack([context_BMD.detach() for context_BMD in contexts])
        self.counts[slot] = (old_B + new_B).clamp(max=length)

    def _slot(self, batch: Mapping[str, Tensor]) -> int | None:
        return int(host_of(batch, "slot")) if self.length and "slot" in batch else None

    def state(self) -> dict[str, Tensor]:
        """The tensors of the training slots, by names for a checkpoint."""
        named = {"states": self.states, "counts": self.counts}
        return {f"{name}.{slot}": held[slot].cpu() for name, held in named.items() for slot in held if slot >= 0}

    def load(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Replace the memory with a result of `state`."""
        self.states.clear()
        self.counts.clear()
        for key, tensor in state.items():
            name, _, slot = key.partition(".")
            held = self.states if name == "states" else self.counts
            held[int(slot)] = tensor.to(device)
