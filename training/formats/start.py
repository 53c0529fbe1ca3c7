"""Weights to begin with: those of another run or of transformers, fitted to a trunk of longer rows than theirs."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training import checkpoint
from training.architectures import ONLY, WHOLE, PipelineStage, Share
from training.formats.load import Lazy, LazyTensor, load_lazily
from training.model import Model
from training.run import CHECKPOINTS, Run
from training.specs import Architecture
from training.workers import ALONE, Workers, all_workers

log = logging.getLogger(__name__)

POSITIONS, SEGMENTS = "trunk.positions.weight", "trunk.segments.weight"
FURTHER_SEGMENTS: Final = (0, 1, 0, 0, 0, 1)  # the one of BERT's two that each begins with, as in UniLM's code


def build_model(run: Run, share: Share = WHOLE) -> Model:
    """The net of a run, or a worker's share of it: initialised at random from its seed, or with the weights of its
    folder `start`.

    Heads that the folder does not have stay random. Raises BadInput where its trunk is not the run's.
    """
    model = Model(run.model, run.losses, run.vocab_size, run.seed, share)
    if run.init_checkpoint:
        load_init_checkpoint(model, Path(run.init_checkpoint))
    return _compiled(run, model)


def describe_model(run: Run, share: Share = WHOLE, stage: PipelineStage = ONLY) -> Model:
    """The same net on the meta device: an engine makes its weights one by one, each worker what it holds of them.

    Where the run goes on from a checkpoint nothing is drawn: a weight that this did not load would make the loss NaN.
    Whether it does is what the first worker sees: on a network file system others may not see it yet. All workers call
    it, after `connect` where they have met.
    """
    workers = all_workers()
    with torch.device("meta"):
        model = Model(run.model, run.losses, run.vocab_size, run.seed, share, stage)
    goes_on = workers.rank == 0 and checkpoint.will_resume(Path(run.folder) / CHECKPOINTS, run.resume)
    model.replaced = any(workers.reduce_sums([goes_on]))
    if run.init_checkpoint and not model.replaced:
        model.given = dict(_taken(model, Path(run.init_checkpoint), workers))
    return _compiled(run, model)


def _compiled(run: Run, model: Model) -> Model:
    if run.engine.torch_compile:
        model.trunk.compile()  # not the heads: their number of targets differs from batch to batch
    return model


@torch.no_grad()
def load_init_checkpoint(model: Model, folder: Path) -> None:
    """Give `model` the weights in `folder`, ours or transformers'; heads that it does not have stay random.

    BadInput where the trunk is another one, but for what `fitted` makes up for.
    """
    for name, value in _taken(model, folder).items():
        cut = model.trunk.cuts.get(name)
        model.get_parameter(name).copy_(cut.of(value()) if cut else value())


def _taken(model: Model, folder: Path, workers: Workers = ALONE) -> Lazy:
    """What `model` takes over, by name."""
    spec, given = load_lazily(folder, workers)
    given = fit_tensor(model.trunk.taken_over(given, spec.model), spec.model, model.spec.model)
    wanted = model.whole_shapes
    for name, shape in wanted.items():
        if name in given and (found := given[name].shape) != shape:
            shapes = f"{list(found)}, this recipe wants {list(shape)}"
            raise BadInput(f"{folder}: {name} is {shapes}; start from weights of the same trunk and vocabulary")
        if name not in given and name.startswith("trunk."):
            raise BadInput(f"{folder}: has no {name}, which this recipe wants; start from weights of the same trunk")
    for name in given:
        if name not in wanted and name.startswith("trunk."):
            raise BadInput(f"{folder}: has {name}, which this recipe has not; start from weights of the same trunk")
    missing = [name for name in wanted if name not in given]
    log.info("%s: weights taken over; %s stay random", folder, ", ".join(missing) or "none")
    return {name: get for name, get in given.items() if name in wanted}


def fit_tensor(given: Lazy, theirs: Architecture, ours: Architecture) -> Lazy:
    """The weights as a trunk with more positions, more segments or a window begins with them.

    The positions are repeated as often as it takes, the linears of a token with global attention begin as those of the
    others (Longformer, arXiv:2004.05150, 5), and further segments as the first or the second (UniLM).
    """
    state = dict(given)
    (ours_at, theirs_at) = (trunk.position_embedding.offset for trunk in (ours, theirs))
    moved = (ours.longest, ours_at) != (theirs.longest, theirs_at)
    if POSITIONS in state and moved and ours.longest >= theirs.longest:
        table = given[POSITIONS]
        shape = (ours_at + ours.longest, *table.shape[1:])
        state[POSITIONS] = LazyTensor(shape, lambda: _repeated(table()[theirs_at:], ours.longest, ours_at))
    if SEGMENTS in state and ours.type_vocab_size > given[SEGMENTS].shape[0] == 2:
        segments, rows = given[SEGMENTS], list(FURTHER_SEGMENTS[: ours.type_vocab_size])
        state[SEGMENTS] = LazyTensor((len(rows), *segments.shape[1:]), lambda: segments()[rows])
    if ours.attention_window.global_first and not theirs.attention_window.global_first:
        for name, get in given.items():
            if ".attention.qkv." in name:
                third, *others = get.shape[0] // 3, *get.shape[1:]
                query, key_value = (partial(_third_and_others, get, of_query=of_query) for of_query in (True, False))
                state[name.replace("qkv", "global_query")] = LazyTensor((third, *others), query)
                state[name.replace("qkv", "global_key_value")] = LazyTensor((2 * third, *others), key_value)
    return state


def _repeated(rows: Tensor, longest: int, offset: int) -> Tensor:
    """A table of positions of which nothing reads the rows before the offset."""
    read = rows[torch.arange(longest) % len(rows)]
    return torch.cat([read[:offset], read])


def _third_and_others(get: Callable[[], Tensor], *, of_query: bool) -> Tensor:
    """The query's part of queries, keys and values, or the others'."""
    query, *key_value = get().chunk(3)
    return query if of_query else torch.cat(key_value)
