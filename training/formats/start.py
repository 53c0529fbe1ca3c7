"""Initial weights from another run or from transformers, adapted to an architecture with more positions."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training import checkpoint
from training.architectures import ONLY, WHOLE, BlockCompiler, PipelineStage, Share, compile_blocks
from training.batch_shapes import compiles, fixes_shapes
from training.formats.load import Lazy, LazyTensor, load_lazily
from training.formats.same_architecture import FURTHER_SEGMENTS, require_same_architecture, warn_of_other_epsilon
from training.losses import Loss
from training.model import Model
from training.run import CHECKPOINTS, Run
from training.specs import Architecture
from training.workers import ALONE, Workers, all_workers

log = logging.getLogger(__name__)

POSITIONS, SEGMENTS = "trunk.positions.weight", "trunk.segments.weight"


def build_model(run: Run, share: Share = WHOLE) -> Model:
    """Build the model of a run, or a worker's part of it, with random weights or those of `init_checkpoint`.

    Heads that `init_checkpoint` lacks stay random. Raises BadInput if its architecture differs from the run's.
    """
    model = Model(run.model, run.losses, run.vocab_size, run.seed, share)
    if run.init_checkpoint:
        load_init_checkpoint(model, Path(run.init_checkpoint))
    return _compile(run, model, world=1)


def describe_model(run: Run, share: Share = WHOLE, stage: PipelineStage = ONLY) -> Model:
    """Build the model on the meta device; the engine then creates the weights one by one, on each worker only its
    part.

    If the run resumes from a checkpoint, weights are not initialized: a weight missing from the checkpoint would
    make the loss NaN. The first worker decides whether the run resumes, since other workers may not see the
    checkpoint yet on a network file system. All workers must call this function, after `connect` if they form a
    group.
    """
    workers = all_workers()
    with torch.device("meta"):
        model = Model(run.model, run.losses, run.vocab_size, run.seed, share, stage)
    resumes = workers.rank == 0 and checkpoint.will_resume(Path(run.folder) / CHECKPOINTS, run.resume)
    model.replaced = any(workers.reduce_sums([resumes]))
    if run.init_checkpoint and not model.replaced:
        model.given = dict(_select_weights(model, Path(run.init_checkpoint), workers))
    return _compile(run, model, workers.world)


def _compile(run: Run, model: Model, world: int) -> Model:
    if compiles(run.engine, world):
        compile_blocks(model, BlockCompiler(dynamic=not fixes_shapes(run.engine, world)))
    return model


@torch.no_grad()
def load_init_checkpoint(model: Model, folder: Path) -> None:
    """Load the weights in `folder`, in our format or of transformers, into `model`; missing heads stay random.

    Raises BadInput if the architecture differs, except for differences that `fit_tensor` supports.
    """
    for name, value in _select_weights(model, folder).items():
        cut = model.trunk.cuts.get(name)
        model.get_parameter(name).copy_(cut.of(value()) if cut else value())


def require_fitting_weights(folder: Path, architecture: Architecture, losses: Sequence[Loss]) -> None:
    """Raise BadInput if a model of this architecture cannot start with the weights in `folder`.

    Architecture, names and shapes are compared, but not the values of weights. The vocabulary of the model is assumed
    to be that of the directory.
    """
    spec, _ = load_lazily(folder)
    warn_of_other_epsilon(folder, spec.model, architecture)
    with torch.device("meta"):
        _select_weights(Model(architecture, tuple(losses), spec.vocab_size, seed=0), folder)


def _select_weights(model: Model, folder: Path, workers: Workers = ALONE) -> Lazy:
    """Return the initial weights that `model` uses, by name."""
    spec, weights = load_lazily(folder, workers)
    require_same_architecture(folder, spec.model, model.spec.model)
    weights = fit_tensor(model.trunk.adapt_weights(weights, spec.model), spec.model, model.spec.model)
    expected_shapes = model.whole_shapes
    remedy = "set init_checkpoint to a model of the same architecture"
    for name, shape in expected_shapes.items():
        if name in weights and (actual := weights[name].shape) != shape:
            shapes = f"got {list(actual)}, expected {list(shape)}"
            if spec.vocab_size != model.spec.vocab_size:
                shapes += (
                    f", because the vocabulary has {spec.vocab_size:,} tokens in this directory, and "
                    f"{model.spec.vocab_size:,} in the recipe"
                )
                remedy = "set data.tokenizer.path to the vocabulary of these weights"
            raise BadInput(f"{folder}: invalid shape of {name}: {shapes}; {remedy}")
        if name not in weights and name.startswith("trunk."):
            raise BadInput(f"{folder}: missing weight {name}; {remedy}")
    for name in weights:
        if name not in expected_shapes and name.startswith("trunk."):
            raise BadInput(f"{folder}: unexpected weight {name}, which the recipe's model lacks; {remedy}")
    missing = [name for name in expected_shapes if name not in weights]
    log.info("%s: weights loaded; randomly initialized: %s", folder, ", ".join(missing) or "none")
    return {name: get for name, get in weights.items() if name in expected_shapes}


def fit_tensor(given: Lazy, theirs: Architecture, ours: Architecture) -> Lazy:
    """Adapt weights to an architecture with more positions, more segments or an attention window.

    Position embeddings are repeated. Projections for global attention start as copies of the others (Longformer,
    arXiv:2004.05150, 5). Additional segment embeddings start as copies of the first or the second (UniLM).
    """
    state = dict(given)
    (ours_at, theirs_at) = (trunk.position_embedding.offset for trunk in (ours, theirs))
    moved = (ours.longest, ours_at) != (theirs.longest, theirs_at)
    if POSITIONS in state and moved and ours.longest >= theirs.longest:
        table = given[POSITIONS]
        shape = (ours_at + ours.longest, *table.shape[1:])
        state[POSITIONS] = LazyTensor(shape, lambda: _repeat(table()[theirs_at:], ours.longest, ours_at))
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


def _repeat(rows: Tensor, longest: int, offset: int) -> Tensor:
    """Repeat position embeddings up to `longest`; rows before the offset are unused."""
    read = rows[torch.arange(longest) % len(rows)]
    return torch.cat([read[:offset], read])


def _third_and_others(get: Callable[[], Tensor], *, of_query: bool) -> Tensor:
    """The query part of a stacked query-key-value weight, or the key and value part."""
    query, *key_value = get().chunk(3)
    return query if of_query else torch.cat(key_value)
