"""The fine-tuning loop for all heads, and the predictions of a fine-tuned model.

The loss of a step is one mean over the targets of its batch. An example is one sequence, or several that belong
together, such as the choices of a question.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput, Diverged
from preprocessing.rng import key
from preprocessing.schema import Batch, Ints, Row
from training.engines import Engine, to_tensors
from training.finetuning.model import TaskModel
from training.finetuning.rates import thaw
from training.finetuning.tuning import Tuning
from training.optimizers import rate

Example = Sequence[Row]
OnStep = Callable[[int, float], None]
"""Receives the number of completed steps and the loss of the last step."""


def ignore_activity(done: int, loss: float) -> None:
    """Default `on_step`: do nothing."""


def never() -> bool:
    """Default `should_stop`: train all steps."""
    return False


def train_head(
    engine: Engine[TaskModel],
    examples: Sequence[Example],
    tuning: Tuning,
    micro_tokens: int = 16_384,
    on_step: OnStep = ignore_activity,
    should_stop: Callable[[], bool] = never,
) -> None:
    """Train the TaskModel of `engine` on the examples, in an order that depends on the seed.

    Each worker reads its part of each batch. The loss is a mean over the targets of the whole batch, independent of
    micro-batches. With `tuning.early_stopping_patience`, all workers stop after a step if `should_stop` returns True on
    the first worker. Raises Diverged if a loss or gradient is not finite. Raises BadInput for gradual unfreezing with
    ZeRO.
    """
    if tuning.gradual_unfreezing and engine.zero != "none":
        raise BadInput(
            f"invalid tuning.gradual_unfreezing: got true, expected false with ZeRO (here {engine.zero}); "
            "use one worker without ZeRO"
        )
    model, steps = engine.model, tuning.num_steps(len(examples))
    optim = tuning.optim(steps)
    model.train()
    an_epoch = math.ceil(len(examples) / tuning.batch_size)
    for step, index_N in enumerate(orders(len(examples), tuning.batch_size, steps, tuning.seed)):
        if tuning.gradual_unfreezing and step % an_epoch == 0:
            thaw(model, step // an_epoch)
        local = [examples[i] for i in index_N[engine.data_rank :: engine.data_world]]
        batches = list(micro_batches(local, micro_tokens))
        local_counts = [float(sum(target.count(batch) for batch in batches)) for target in model.targets]
        counts = engine.reduce_sums([count * engine.counts for count in local_counts])
        idle = _most(engine, len(batches)) - len(batches)
        torch.manual_seed(_noise_seed(tuning.seed, step, engine.data_rank))
        total = 0.0
        for batch in batches:
            scores = engine.forward(batch)
            parts = [
                target.weight / max(1.0, count) * scores[target.kind].loss
                for target, count in zip(model.targets, counts, strict=True)
            ]
            loss = torch.stack(parts).sum()
            engine.backward(loss * engine.data_world)  # the engine averages over the workers
            total += float(loss.detach())
        for batch in list(micro_batches([examples[index_N[0]]], micro_tokens)) * idle:
            losses = [score.loss for score in engine.forward(batch).values()]
            engine.backward(0.0 * torch.stack(losses).sum())  # all workers must take part in each pass
        result = engine.step(rate(optim, step, steps))
        (total,) = engine.reduce_sums([total * engine.counts])
        if result.skipped or not math.isfinite(total):
            raise Diverged(
                f"fine-tuning diverged at step {step + 1} of {steps}: loss {total:g}; "
                f"lower the learning rate ({tuning.learning_rate:g})"
            )
        on_step(step + 1, total)
        if tuning.early_stopping_patience and any(engine.reduce_sums([engine.rank == 0 and should_stop()])):
            return


def _most(engine: Engine[TaskModel], batches: int) -> int:
    """The maximum number of micro-batches over all workers."""
    if engine.world == 1:
        return batches
    of_each = [0.0] * engine.world
    of_each[engine.rank] = float(batches)
    return int(max(engine.reduce_sums(of_each)))


def orders(examples: int, batch: int, steps: int, seed: int) -> Iterator[Ints]:
    """Yield the example indices of each batch; each epoch has all examples, in a new order.

    >>> [index_N.tolist() for index_N in orders(3, batch=2, steps=3, seed=0)]
    [[1, 0], [2], [2, 0]]
    """
    done = 0
    for epoch in range(steps):
        order_N = key(seed, "task").at(epoch=epoch, sample=1).permutation(examples)
        for start in range(0, examples, batch):
            if done == steps:
                return
            done += 1
            yield order_N[start : start + batch]


def micro_batches(examples: Sequence[Example], tokens: int) -> Iterator[Batch]:
    """Yield the sequences of the examples, unpadded, in batches of at most `tokens` tokens; an example is never
    split."""
    rows, used = list[Row](), 0
    for example in examples:
        length = sum(len(row["input_ids"]) for row in example)
        if rows and used + length > tokens:
            yield collate_unpadded(rows)
            rows, used = [], 0
        rows, used = [*rows, *example], used + length
    if rows:
        yield collate_unpadded(rows)


def outputs(
    model: TaskModel, examples: Sequence[Example], device: torch.device, tokens: int = 16_384
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """Yield example indices and the outputs of the heads. Examples are sorted by length, the longest first."""
    model.eval()
    lengths = np.array([sum(len(row["input_ids"]) for row in example) for example in examples])
    waiting: list[int] = []
    for i in [*np.argsort(-lengths, kind="stable").tolist(), -1]:
        if waiting and (i < 0 or lengths[waiting].sum() + lengths[i] > tokens):
            batch = collate_unpadded([row for number in waiting for row in examples[number]])
            yield waiting, {kind: found.cpu() for kind, found in model.outputs(to_tensors(batch, device)).items()}
            waiting = []
        waiting.append(i)


def _noise_seed(seed: int, step: int, rank: int) -> int:
    """The seed of torch's global generator for dropout: a function of seed, step and worker."""
    return int(key(seed, "dropout").at(step, rank).integers(2**63))
