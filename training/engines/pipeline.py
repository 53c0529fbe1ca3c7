"""The passes of one stage of a pipeline: one forward, one backward (PipeDream, arXiv:1806.03377).

All stages of a net read the same rows, so that only states travel down and their gradients up. A stage keeps as many of
its micro-batches as there are stages from it to the last one (arXiv:2104.04473, 2.2). The token table is the first
stage's: it lends it to the last one before a step and takes its gradient behind it, so that each weight has one owner.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import torch
from torch import Tensor, distributed

from preprocessing.schema import Batch
from training.architectures import SplitTable, StageInputs, Table
from training.engines.mesh import Mesh
from training.losses import Loss
from training.model import Model
from training.profiler import record_phase
from training.score import Score

LONGEST: Final = 2**30  # elements of a product of vectors: cuBLAS counts in 32 bits


@dataclass(frozen=True)
class _Kept:
    """What a stage keeps of a micro-batch for its backward pass."""

    received: Tensor | None  # states; None at the first stage
    made: Tensor | None  # states; None at the last stage
    rows: Tensor | None  # of the token table, at the last stage


class PipelineRunner:
    """One stage of a net. `run` makes of a batch and of what is given the states of the next stage, or scores.

    Every stage calls `scored` with the same micro-batches, and `backward` for each where it learns.
    """

    def __init__(
        self, model: Model, mesh: Mesh, run: Callable[[Batch, StageInputs], Any], backward: Callable[[Tensor], None]
    ) -> None:
        self._model, self._mesh, self._run, self._backward = model, mesh, run, backward
        self._stage, weight = mesh.line.stage, next(model.parameters())
        self._dtype, self._device = weight.dtype, weight.device
        number, ranks = self._stage.number, mesh.line.ranks
        self._down = _Outbox(ranks[(number + 1) % len(ranks)], mesh.line.down, len(ranks))
        self._up = _Outbox(ranks[number - 1], mesh.line.up, len(ranks))
        self._rows = self._d_rows = torch.empty(0)  # at the last stage: of the token table, and their gradient, float32
        self._last: _Kept | None = None  # of the micro-batch whose scores were given last

    def scored(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        """Each micro-batch with its scores, which are zeros at all stages but the last one."""
        learns, ahead = torch.is_grad_enabled(), self._stage.of - 1 - self._stage.number
        torch.manual_seed(int(torch.randint(2**53, ())) * self._stage.of + self._stage.number)  # layers are others
        self._lend()
        kept: deque[_Kept] = deque()
        for batch in batches:
            with record_phase("forward"):
                scores = self._forward(batch, learns=learns)
            yield batch, scores
            if learns and not self._stage.is_last:
                assert self._last
                kept.append(self._last)
                if len(kept) > ahead:
                    self._learn(kept.popleft())
        while kept:
            self._learn(kept.popleft())
        if learns:
            self._take_back()
        self._down.flush()
        self._up.flush()

    def backward(self, loss: Tensor) -> None:
        """The backward pass of the micro-batch whose scores were given last; it begins at the last stage."""
        if not self._stage.is_last:
            return
        assert self._last
        self._backward(loss)
        if self._last.rows is not None and self._last.rows.grad is not None:
            self._d_rows += self._last.rows.grad
        self._send_up(self._last.received)
        self._last = None

    def _forward(self, batch: Batch, *, learns: bool) -> dict[str, Score]:
        received = self._receive(batch)
        if received is not None:
            received.requires_grad_(learns)
        if self._stage.is_last:
            rows = self._rows.detach().requires_grad_(learns)
            scores: dict[str, Score] = self._run(batch, StageInputs(received, self._table(rows)))
            odd = [kind for kind, score in scores.items() if score.metrics]
            assert not odd, f"heads {odd} have metrics of which the other stages do not know"
            self._last = _Kept(received, None, rows)
            return scores
        made: Tensor = self._run(batch, StageInputs(received, None))
        self._down.send(made.detach())
        self._last = _Kept(received, made, None)
        return {loss.kind: self._no_score(loss, batch) for loss in self._model.spec.losses}

    def _no_score(self, loss: Loss, batch: Batch) -> Score:
        zero = torch.zeros((), device=self._device)
        return Score(zero, loss.count(batch), zero.long())

    def _receive(self, batch: Batch) -> Tensor | None:
        """The states of the stage before, [B, S, D] or [T, D]; of a chunk of the tokens [T', D]."""
        if self._stage.is_first:
            return None
        lying: tuple[int, ...] = batch["input_ids"].shape
        if self._mesh.chunk.of > 1:
            mine = self._mesh.chunk.within(batch["input_ids"].size)
            lying = (mine.stop - mine.start,)
        states = torch.empty(*lying, self._model.spec.model.hidden_size, dtype=self._dtype, device=self._device)
        distributed.recv(states, self._up.to, self._mesh.line.down)
        return states

    def _learn(self, kept: _Kept) -> None:
        """The backward pass of a stage before the last one."""
        assert kept.made is not None
        with record_phase("backward"):
            d_made = torch.empty_like(kept.made)
            distributed.recv(d_made, self._down.to, self._mesh.line.up)
            self._backward(with_gradient(kept.made, d_made))
        self._send_up(kept.received)

    def _send_up(self, received: Tensor | None) -> None:
        if received is not None:
            assert received.grad is not None
            self._up.send(received.grad)

    def weights(self, own: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """At the first stage of the first line the weights of all stages, on the CPU, one after the other: of each
        stage by turns, so that none waits long. Every worker calls it with what its stage has, and goes through it."""
        line = self._mesh.line
        if line.ranks[0] != 0:
            deque(own, maxlen=0)  # its part in gathering them
            return
        if not self._stage.is_first:
            for _, whole in own:
                distributed.send(whole.contiguous(), 0, line.up)
            return
        of_stages: list[list[str]] = [[] for _ in line.ranks]
        for name, stage in self._model.stages.items():
            of_stages[stage].append(name)
        for row in zip_longest(*of_stages):
            for stage, name in enumerate(row):
                if name is None:
                    continue
                if stage == 0:
                    name, whole = next(own)
                else:
                    whole = torch.empty(self._model.whole_shapes[name], device=self._device)
                    distributed.recv(whole, line.ranks[stage], line.up)
                yield name, whole.cpu().clone()
        deque(own, maxlen=0)  # it is at its end

    # The token table.

    def _lend(self) -> None:
        """The table of this step, from the first stage to the last one."""
        line, spec = self._mesh.line, self._model.spec
        if self._stage.is_first:
            self._down.send(self._own_rows.detach(), to=line.ranks[-1])
        elif self._stage.is_last:
            mine = self._mesh.share.within(spec.vocab_size)
            shape = mine.stop - mine.start, spec.model.table_width
            self._rows = torch.empty(shape, dtype=self._dtype, device=self._device)
            distributed.recv(self._rows, line.ranks[0], line.down)
            self._d_rows = torch.zeros_like(self._rows, dtype=torch.float32)

    @property
    def _own_rows(self) -> Tensor:
        """What the first stage has of the token table."""
        table = self._model.trunk.table
        rows = table.rows if isinstance(table, SplitTable) else table
        assert isinstance(rows, Tensor)
        return rows

    def _table(self, rows: Tensor) -> Table:
        share = self._mesh.share
        return rows if share.of == 1 else SplitTable(rows, self._model.spec.vocab_size, share)

    def _take_back(self) -> None:
        """The gradient of the table, from the last stage to the first one."""
        line = self._mesh.line
        if self._stage.is_last:
            self._up.send(self._d_rows, to=line.ranks[0])
        elif self._stage.is_first:
            rows = self._own_rows
            d_rows = torch.empty_like(rows, dtype=torch.float32)
            distributed.recv(d_rows, line.ranks[-1], line.up)
            self._backward(with_gradient(rows, d_rows.to(self._dtype)))


def with_gradient(x: Tensor, d_x: Tensor) -> Tensor:
    """A number whose gradient by x is d_x, of the same shape."""
    pieces = zip(x.flatten().split(LONGEST), d_x.flatten().split(LONGEST), strict=True)
    return torch.stack([piece.dot(d_piece) for piece, d_piece in pieces]).sum()


class _Outbox:
    """What is on its way to another worker, in the order in which that one wants it."""

    def __init__(self, to: int, group: Any, most: int) -> None:
        self.to, self._group, self._most = to, group, most
        self._sent: deque[tuple[Any, Tensor]] = deque()  # not gone yet; the tensors must stay until then

    def send(self, tensor: Tensor, to: int | None = None) -> None:
        tensor = tensor.contiguous()
        self._sent.append((distributed.isend(tensor, self.to if to is None else to, self._group), tensor))
        if len(self._sent) > self._most:
            self._sent.popleft()[0].wait()

    def flush(self) -> None:
        """Wait until everything has gone."""
        while self._sent:
            self._sent.popleft()[0].wait()
