"""The reference of a cell: the same sequences in one process. Its training loop is written a second time, only for this
test."""

import torch

from training.data import open_loader
from training.engines import Engine
from training.loop import _noise_seed
from training.model import Model
from training.optimizers import rate_at
from training.run import Run


def plain_losses(run: Run, engine: Engine[Model], data: int) -> list[float]:
    """The loss of each step in one process: the mean over all targets of the step.

    The loop reads the micro-batches of `data` workers one after the other, each with the noise of that worker. A
    generator that samples (ELECTRA) then draws the same tokens. Without sampling, `data` changes only the order of the
    sums.
    """
    loaders = [open_loader(run, rank, data) for rank in range(data)]
    found = []
    for step in range(run.steps):
        batches = [loader.at(step) for loader in loaders]
        counts = [sum(loss.count(batch) for mine in batches for batch in mine) for loss in run.losses]
        mean = 0.0
        for rank, mine in enumerate(batches):
            torch.manual_seed(_noise_seed(run.seed, step, rank))
            for batch in mine:
                scores = engine.forward(batch)
                parts = [
                    loss.weight / max(1, count) * scores[loss.kind].loss
                    for loss, count in zip(run.losses, counts, strict=True)
                ]
                objective = torch.stack(parts).sum()
                mean += float(objective.detach().double())
                engine.backward(objective)
        engine.step(rate_at(run.optimizer, run.phases, step))
        found.append(mean)
    return found
