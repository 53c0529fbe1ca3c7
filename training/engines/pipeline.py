"""The schedule of a pipeline stage: alternating forward and backward passes, 1F1B (PipeDream, arXiv:1806.03377).

All stages of a model read the same sequences, so only states are sent down and only gradients are sent up. A stage
stores at most one micro-batch for each stage from itself to the last one (arXiv:2104.04473, 2.2). The first stage owns
the token table. If it also predicts tokens, the first stage sends it to the last one before a step, and receives its
gradient after the step, so that each weight has one owner. Another table that predicts tokens is on the last stage.
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

LONGEST: Final = 2**30  # largest number of elements in a dot product, because cuBLAS uses 32-bit sizes


@dataclass(frozen=True)
class _StoredBatch:
    """The tensors of a micro-batch that a stage stores for the backward pass."""

    received: Tensor | None  # input states; None at the first stage
    output: Tensor | None  # output states; None at the last stage
    rows: Tensor | None  # rows of the token table, at the last stage


class PipelineRunner:
    """One stage of a model. `run` computes states for the next stage, or scores at the last stage.

    Every stage calls `scored` with the same micro-batches and, in training, `backward` for each of them.
    """

    def __init__(
        self, model: Model, mesh: Mesh, run: Callable[[Batch, StageInputs], Any], backward: Callable[[Tensor], None]
    ) -> None:
        self._model, self._mesh, self._run, self._backward = model, mesh, run, backward
        self._stage, weight = mesh.line.stage, next(model.parameters())
        self._is_tied = model.spec.model.tie_word_embeddings
        self._dtype, self._device = weight.dtype, weight.device
        number, ranks = self._stage.number, mesh.line.ranks
        self._down = _Outbox(ranks[(number + 1) % len(ranks)], mesh.line.down, len(ranks))
        self._up = _Outbox(ranks[number - 1], mesh.line.up, len(ranks))
        self._rows = self._d_rows = torch.empty(0)  # at the last stage: rows of the token table, and float32 gradient
        self._last: _StoredBatch | None = None  # the micro-batch whose scores were returned last

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        """Iterate over the micro-batches and their scores, which are 0 except at the last stage."""
        learns, ahead = torch.is_grad_enabled(), self._stage.of - 1 - self._stage.number
        # a different seed for each stage, because stages have different layers
        torch.manual_seed(int(torch.randint(2**53, ())) * self._stage.of + self._stage.number)
        if self._is_tied:
            self._send_table()
        stored: deque[_StoredBatch] = deque()
        for batch in batches:
            with record_phase("forward"):
                scores = self._forward(batch, learns=learns)
            yield batch, scores
            if learns and not self._stage.is_last:
                assert self._last
                stored.append(self._last)
                if len(stored) > ahead:
                    self._backward_of(stored.popleft())
        while stored:
            self._backward_of(stored.popleft())
        if learns and self._is_tied:
            self._return_gradient()
        self._down.flush()
        self._up.flush()

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass of the micro-batch whose scores were returned last.

        It starts at the last stage; at other stages this method does nothing.
        """
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
            rows = self._rows.detach().requires_grad_(learns) if self._is_tied else None
            table = None if rows is None else self._table(rows)
            scores: dict[str, Score] = self._run(batch, StageInputs(received, table))
            odd = [kind for kind, score in scores.items() if score.metrics]
            assert not odd, (
                f"invalid metrics of the heads {odd}: expected none, because the other stages have no such metrics"
            )
            self._last = _StoredBatch(received, None, rows)
            return scores
        output: Tensor = self._run(batch, StageInputs(received, None))
        self._down.send(output.detach())
        self._last = _StoredBatch(received, output, None)
        return {loss.kind: self._no_score(loss, batch) for loss in self._model.spec.losses}

    def _no_score(self, loss: Loss, batch: Batch) -> Score:
        zero = torch.zeros((), device=self._device)
        return Score(zero, loss.count(batch), zero.long(), z_loss=zero if loss.z_loss else None)

    def _receive(self, batch: Batch) -> Tensor | None:
        """Receive the states of the previous stage, [B, S, D] or [T, D], or [T', D] for a chunk of the tokens."""
        if self._stage.is_first:
            return None
        shape: tuple[int, ...] = batch["input_ids"].shape
        if self._mesh.chunk.of > 1:
            local = self._mesh.chunk.within(batch["input_ids"].size)
            shape = (local.stop - local.start,)
        states = torch.empty(*shape, self._model.spec.model.hidden_size, dtype=self._dtype, device=self._device)
        distributed.recv(states, self._up.to, self._mesh.line.down)
        return states

    def _backward_of(self, stored: _StoredBatch) -> None:
        """Run the backward pass of a micro-batch at a stage before the last one."""
        assert stored.output is not None
        with record_phase("backward"):
            d_output = torch.empty_like(stored.output)
            distributed.recv(d_output, self._down.to, self._mesh.line.up)
            self._backward(with_gradient(stored.output, d_output))
        self._send_up(stored.received)

    def _send_up(self, received: Tensor | None) -> None:
        if received is not None:
            assert received.grad is not None
            self._up.send(received.grad)

    def weights(self, local: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the weights of all stages, on the CPU, at the first stage of the first pipeline.

        Stages take turns, so that none waits long. Every worker calls it with the weights `local` of its stage, and
        must exhaust the iterator.
        """
        line = self._mesh.line
        if line.ranks[0] != 0:
            deque(local, maxlen=0)  # takes part in collective calls
            return
        if not self._stage.is_first:
            for _, whole in local:
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
                    name, whole = next(local)
                else:
                    whole = torch.empty(self._model.whole_shapes[name], device=self._device)
                    distributed.recv(whole, line.ranks[stage], line.up)
                yield name, whole.cpu().clone()
        deque(local, maxlen=0)  # exhausts the iterator

    # The token table.

    def _send_table(self) -> None:
        """Send the token table for this step from the first stage to the last one."""
        line, spec = self._mesh.line, self._model.spec
        if self._stage.is_first:
            self._down.send(self._own_rows.detach(), to=line.ranks[-1])
        elif self._stage.is_last:
            local = self._mesh.share.within(spec.vocab_size)
            shape = local.stop - local.start, spec.model.table_width
            self._rows = torch.empty(shape, dtype=self._dtype, device=self._device)
            distributed.recv(self._rows, line.ranks[0], line.down)
            self._d_rows = torch.zeros_like(self._rows, dtype=torch.float32)

    @property
    def _own_rows(self) -> Tensor:
        """This worker's rows of the token table, at the first stage."""
        table = self._model.trunk.table
        rows = table.rows if isinstance(table, SplitTable) else table
        assert isinstance(rows, Tensor)
        return rows

    def _table(self, rows: Tensor) -> Table:
        share = self._mesh.share
        return rows if share.of == 1 else SplitTable(rows, self._model.spec.vocab_size, share)

    def _return_gradient(self) -> None:
        """Send the gradient of the token table from the last stage to the first one."""
        line = self._mesh.line
        if self._stage.is_last:
            self._up.send(self._d_rows, to=line.ranks[0])
        elif self._stage.is_first:
            rows = self._own_rows
            d_rows = torch.empty_like(rows, dtype=torch.float32)
            distributed.recv(d_rows, line.ranks[-1], line.up)
            self._backward(with_gradient(rows, d_rows.to(self._dtype)))


def with_gradient(x: Tensor, d_x: Tensor) -> Tensor:
    """Return a scalar whose gradient with respect to `x` is `d_x`."""
    parts = zip(x.flatten().split(LONGEST), d_x.flatten().split(LONGEST), strict=True)
    return torch.stack([part.dot(d_part) for part, d_part in parts]).sum()


class _Outbox:
    """Sends tensors to another worker without blocking, in the order in which that worker receives them."""

    def __init__(self, to: int, group: Any, most: int) -> None:
        self.to, self._group, self._most = to, group, most
        self._pending: deque[tuple[Any, Tensor]] = deque()  # unfinished sends, with tensors that must stay in memory

    def send(self, tensor: Tensor, to: int | None = None) -> None:
        tensor = tensor.contiguous()
        self._pending.append((distributed.isend(tensor, self.to if to is None else to, self._group), tensor))
        if len(self._pending) > self._most:
            self._pending.popleft()[0].wait()

    def flush(self) -> None:
        """Wait until all tensors are sent."""
        while self._pending:
            self._pending.popleft()[0].wait()
