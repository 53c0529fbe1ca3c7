"""Pretraining, in the order in which the papers describe it: rows, scores, one global mean, one update."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from preprocessing.errors import BadInput, Diverged, MiscountedLoss, Preempted, ResourceError
from preprocessing.manifest import Manifest
from preprocessing.rng import key
from preprocessing.schema import Batch
from training import checkpoint
from training.data import Batches, Loader, open_loader, open_validation
from training.engines import Engine, StepResult
from training.losses import Loss
from training.meter import BatchWork, Meter, peak
from training.model import Model, net_of
from training.optimizers import rate_at
from training.profiler import Profiler, record_phase, time_items
from training.run import CHECKPOINTS, Run
from training.saver import Saver
from training.score import Score
from training.spikes import highest_loss, remember_update, skip_spikes, spikes_of
from training.state import NOT_MADE, State, Sums, Update, advance

__all__ = ["Run", "State", "TrainingResult", "evaluate", "pretrain"]

Sink = Callable[[int, dict[str, float]], None]
"""Takes the number of updates done and metrics by name; it is called on the first worker only."""

Doing = Callable[[int, str], None]
"""Takes the number of updates done, and what comes now: "evaluation", "checkpoint", "samples", "weights", "rollback",
"profile" (it is written), or "" for the next update."""

MOST_SKIPPED = 10  # updates in a row without a finite gradient; then the run has diverged
HASHED_BYTES = 16 << 30  # of a corpus that is hashed after an error; of a larger one what has another size or time
COUNTED_STEPS = 3  # after each start: a head that does not score what its loss counts shows it in its first batches

SumName = tuple[str, str]
"""Kind of a loss, and what is summed: `loss`, `correct`, or a name of `Score.metrics`."""


@dataclass(frozen=True)
class TrainingResult:
    """How `pretrain` ended."""

    finished: bool  # False: stopped on request, after a checkpoint
    state: State


@dataclass(frozen=True)
class StepWork:
    """The work of a step, over all workers; known before its forward pass."""

    stop: bool
    work: BatchWork
    targets: dict[str, int]  # by kind of loss
    votes: list[float]  # of the saver


def never() -> bool:
    """The `should_stop` of a run that nobody stops."""
    return False


def ignore_activity(done: int, doing: str) -> None:
    """The `doing` of a run that nobody looks at."""


def ignore_samples(done: int) -> None:
    """The `show` of a run that is not shown."""


def ignore_batch() -> None:
    """An `on_batch` callback that does nothing."""


def pretrain(
    run: Run,
    engine: Engine[Model],
    sink: Sink,
    should_stop: Callable[[], bool] = never,
    doing: Doing = ignore_activity,
    show: Callable[[int], None] = ignore_samples,
    keep: Callable[[int], None] = ignore_samples,
    on_batch: Callable[[], None] = ignore_batch,
) -> TrainingResult:
    """Train to the end of the last phase, or until `should_stop` is true on any worker.

    Every worker calls it with its own engine. It goes on from the newest whole checkpoint of the run. `doing` is told
    of each update, and of what takes long between two, before it begins. `show` is called on the first worker, with the
    number of updates done, before the first one and where an evaluation is due: it may look at the net. `keep` is
    called on each worker every `weights_every` updates but at the end: it may gather the weights. `on_batch` is called
    on each worker when the batches of an update are ready.
    Raises BadInput where corpus or checkpoint do not fit the run, Diverged after ten updates in a row without a finite
    gradient, or as `run.stability` says, MiscountedLoss where a head does not score the targets that its loss counts.
    Whichever way it ends, no thread or process of it is left, and a checkpoint that was being written is whole.
    """
    with ExitStack() as room:
        loaders = [open_loader(run, engine.data_rank, engine.data_world)]
        validation = open_validation(run, engine.data_rank, engine.data_world)
        loaders += [validation] if validation else []
        try:
            return _pretrain(run, engine, sink, should_stop, doing, show, keep, on_batch, room, loaders)
        except (BadInput, ResourceError, Preempted):
            raise
        except Exception as error:  # before it is called a bug, or a rate too high: what was read may have changed
            for loader in loaders:
                try:
                    loader.require_unchanged(only_stamps=loader.num_bytes > HASHED_BYTES)
                except BadInput as fault:
                    raise fault from error
            raise


def _pretrain(
    run: Run,
    engine: Engine[Model],
    sink: Sink,
    should_stop: Callable[[], bool],
    doing: Doing,
    show: Callable[[int], None],
    keep: Callable[[int], None],
    on_batch: Callable[[], None],
    room: ExitStack,
    loaders: Sequence[Loader],
) -> TrainingResult:
    """`pretrain`; what has to be closed after it is in `room`. The `loaders`: of training and, where there is one, of
    validation."""
    loader, validation = loaders[0], loaders[1] if len(loaders) > 1 else None
    log = sink if engine.rank == 0 else _ignore
    state = saved = resumed = _resume(run, engine)
    saver = room.enter_context(closing(_saver(run, engine)))
    meter, tally = Meter(run.model, run.vocab_size, _peak(run, engine)), MetricsTally(engine)

    def look(done: int) -> None:
        if run.sample_prompts:
            doing(done, "samples")
        if engine.rank == 0:
            show(done)

    if state.step == 0:
        look(0)
    doing(state.step, "")
    course, learner = Batches(loader, state.step, run.steps), Learner(run, engine, tally, resumed.step)
    profiler = room.enter_context(closing(Profiler(run, engine.model, engine.rank)))
    for step, batches in room.enter_context(closing(time_items(course))):
        on_batch()
        step_work = _step_work(run.losses, batches, should_stop(), engine, saver.votes())
        saver.hear(step_work.votes)
        if step_work.stop:
            break
        if profiler.is_full:
            doing(state.step, "profile")
            profiler.finish()
            doing(state.step, "")
        profiler.at_step()
        if step + 1 in state.skip_steps:
            update = NOT_MADE
        else:
            update = learner.learn(step, batches, step_work.targets, highest_loss(run, state))
        state = advance(state, step_work.work, update)
        if update.is_read:
            meter.add(step_work.work)
            saver.prepare()

        if spikes := spikes_of(run, state, update):
            log(state.step, {f"train/{one.name}_spike": one.value for one in spikes if math.isfinite(one.value)})
            state = skip_spikes(run, engine.rank == 0, state, update, spikes)
            if run.loss_spikes.policy == "rollback" and not update.result.skipped:
                doing(state.step, "rollback")
                saver.finish()
                gone, state = state.step, _roll_back(run, engine, state)
                log(gone, {"train/rolled_back_to": state.step})
                saved = state
                course.back(state.step)
                doing(state.step, "")
                meter.skip()
                continue
        state = remember_update(run, state, update)
        if _due(state.step, run.log_every, run.steps):
            metrics = _vitals(state, rate_at(run.optimizer, run.phases, step), update.result) | meter.report()
            if sums := tally.added_to(state.sums):
                metrics |= _metrics("train", run.losses, sums)
                state = replace(state, sums={}, loss=metrics["train/loss"])
            log(state.step, metrics)
        if state.skipped_in_row == MOST_SKIPPED and run.loss_spikes.policy in ("off", "warn"):
            saver.finish()
            raise Diverged(
                f"{run.folder}: the last {MOST_SKIPPED} of {state.step} updates had no finite gradient; "
                f"lower optimizer.learning_rate (it is {run.optimizer.learning_rate:g}) or raise "
                f"optimizer.warmup_steps (it is {run.optimizer.warmup_steps})"
            )
        if validation and _due(state.step, run.eval_every, run.steps):
            doing(state.step, "evaluation")
            state = replace(state, evaluation=evaluate(run, engine, validation, loader.phase_of(step).seq_length))
            log(state.step, state.evaluation)
            meter.skip()
        if _due(state.step, run.eval_every, run.steps):
            look(state.step)
            meter.skip()
        if run.save_weights_every and state.step % run.save_weights_every == 0 and state.step < run.steps:
            doing(state.step, "weights")
            keep(state.step)
            meter.skip()
        if any(_due(state.step, every, run.steps) for every in (run.save_every, run.keep_checkpoint_every)):
            _require_unchanged(run, engine, loaders)
            state = replace(state, sums=tally.added_to(state.sums))
            doing(state.step, "checkpoint")
            log(state.step, _save(saver, state))
            saved = state
            meter.skip()
        doing(state.step, "")

    if profiler.is_recording:
        doing(state.step, "profile")
    profiler.finish()
    doing(state.step, "checkpoint")  # that may be one which is still being written
    if state.step > resumed.step:
        _require_unchanged(run, engine, loaders)
    if saved.step < state.step:  # stopped on request
        state = replace(state, sums=tally.added_to(state.sums))
        _save(saver, state)
    saver.finish()
    if resumed.step < state.step == run.steps:
        _require_unchanged(run, engine, loaders, since=resumed.step)
    return TrainingResult(finished=state.step == run.steps, state=state)


def _require_unchanged(run: Run, engine: Engine[Model], loaders: Sequence[Loader], since: int | None = None) -> None:
    """BadInput on all workers, which all call it, where what they have learned from is not what the corpus was.

    Before each checkpoint it is asked for the sizes and times of the shards alone. At the end the shards are hashed:
    what changed under the same time did so nobody knows when, and checkpoints after the one of step `since` are set
    aside.
    """
    fault: BadInput | None = None
    for loader in loaders:
        try:
            loader.require_unchanged(engine.rank, engine.world, only_stamps=since is None)
        except BadInput as error:
            fault = fault or error
    (faults,) = engine.reduce_sums([fault is not None])
    if not faults:
        return
    if since is not None:
        checkpoint.set_aside(engine, _checkpoints(run), since)
    raise fault or BadInput(f"{run.corpus}: has changed while it was read, as the log of another worker says")


@dataclass(frozen=True)
class Learner:
    """Makes the update of a step."""

    run: Run
    engine: Engine[Model]
    tally: "MetricsTally"
    first: int  # step after which this process has begun

    def learn(self, step: int, batches: Sequence[Batch], targets: Mapping[str, int], highest_loss: float) -> Update:
        """Forward and backward pass of all micro-batches, then one update with the learning rate of the step.

        Where spikes are looked for, the loss of the step is added up over the workers before the last backward pass. If
        it is above `highest_loss` the update is not made: the last micro-batch's loss is made NaN, and the engine skips
        what is not finite.
        """
        run, engine, watches = self.run, self.engine, self.run.loss_spikes.policy != "off"
        loss, sums = math.nan, dict[str, dict[str, float]]()
        memory = net_of(engine.model).memory_state() if watches else {}
        torch.manual_seed(_noise_seed(run.seed, step, engine.data_rank))
        self.tally.count(targets)
        for number, (batch, scores) in enumerate(engine.scored(batches), 1):
            if step < self.first + COUNTED_STEPS:
                _check_counts(run.losses, batch, scores)
            objective = _objective(run.losses, scores, targets, engine.data_world)
            self.tally.add(_sums(run.losses, scores))
            if watches and number == len(batches):
                sums = self.tally.added_to({})
                loss = _metrics("train", run.losses, sums)["train/loss"]
                objective = objective * math.nan if loss > highest_loss else objective
            with record_phase("backward"):
                engine.backward(objective)
        with record_phase("optimiser"):
            result = engine.step(rate_at(run.optimizer, run.phases, step))
        if result.skipped and watches:  # as if its rows had not been read
            net_of(engine.model).load_memory_state(memory, next(engine.model.parameters()).device)
        return Update(result, loss, sums)


def _roll_back(run: Run, engine: Engine[Model], state: State) -> State:
    """The newest checkpoint from before the first batch that is now skipped, with what is to be skipped."""
    first = max(1, state.step - run.loss_spikes.skip_before)
    if not checkpoint.forget_after(engine, _checkpoints(run), first - 1):
        raise Diverged(
            f"{run.folder}: no checkpoint from before step {first} to roll back to; raise cluster.keep_checkpoints or "
            f"lower "
            "cluster.save_every"
        )
    stored = _resume(replace(run, resume="must"), engine)
    return replace(stored, skip_steps=state.skip_steps)


@torch.no_grad()
def evaluate(run: Run, engine: Engine[Model], validation: Loader, length: int) -> dict[str, float]:
    """Loss, perplexity and accuracies on the first `eval_rows` rows of the validation split, cut to `length` tokens."""
    num_rows = min(run.eval_rows, validation.rows_by_length[length].count(0))
    batches, counts = validation.batches(length, range(num_rows)), validation.has_some(length, num_rows)
    step_work = _step_work(run.losses, batches, stop=False, engine=engine, counts=counts)
    torch.manual_seed(_noise_seed(run.seed, run.steps, engine.data_rank))  # an address that no update has
    engine.model.eval()
    tally = MetricsTally(engine)
    for _, scores in engine.scored(batches):
        tally.add({name: value * counts for name, value in _sums(run.losses, scores).items()})
    tally.count(step_work.targets)
    engine.model.train()
    return _metrics("eval", run.losses, tally.added_to({}))


class MetricsTally:
    """Adds up what becomes metrics, on the device: it waits for the device and for other workers in `added_to` only.

    The terms are single-precision numbers of similar size and their sums double: as long as these are exact, they are
    the same in whatever pieces they are added up, so that a run that was stopped logs what another one does.
    """

    def __init__(self, engine: Engine[Model]) -> None:
        self._engine = engine
        self._sums: dict[SumName, Tensor] = {}
        self._targets: dict[str, int] = {}

    def add(self, sums: Mapping[SumName, Tensor]) -> None:
        """The sums of a micro-batch of this worker."""
        self._sums = {name: self._sums[name] + value if self._sums else value for name, value in sums.items()}

    def count(self, targets: Mapping[str, int]) -> None:
        """The targets of a step of all workers."""
        self._targets = {kind: self._targets.get(kind, 0) + count for kind, count in targets.items()}

    def added_to(self, sums: Sums) -> dict[str, dict[str, float]]:
        """`sums` and what was added here on all workers, all of which call it; it is empty afterwards."""
        total = {kind: dict(of_kind) for kind, of_kind in sums.items()}
        if self._sums:
            mine = (torch.stack(list(self._sums.values())) * self._engine.counts).tolist()
            values = self._engine.reduce_sums(mine)
            found = dict(zip(self._sums, values, strict=True))
            found |= {(kind, "targets"): count for kind, count in self._targets.items()}
            for (kind, name), value in found.items():
                of_kind = total.setdefault(kind, {})
                of_kind[name] = of_kind.get(name, 0) + value
        self._sums, self._targets = {}, {}
        return total


def _step_work(
    losses: Sequence[Loss],
    batches: Sequence[Batch],
    stop: bool,
    engine: Engine[Model],
    votes: Sequence[float] = (),
    counts: bool = True,
) -> StepWork:
    """Targets, work and votes to stop, added up over all workers: the only exchange before the forward pass. With them
    go the `votes` of the saver. `counts` False: this worker's rows are another's, which count there."""
    targets_of = [sum(loss.count(batch) for batch in batches) for loss in losses]
    projected = sum(count for loss, count in zip(losses, targets_of, strict=True) if loss.names_tokens)
    work = _work(batches, projected)
    mine = [count * engine.counts * counts for count in (*astuple(work), *targets_of)]
    stops, *sums = (int(value) for value in engine.reduce_sums([stop, *votes, *mine]))
    heard, sums = sums[: len(votes)], sums[len(votes) :]
    work, targets_of = BatchWork(*sums[: -len(losses)]), sums[-len(losses) :]
    targets: dict[str, int] = {loss.kind: count for loss, count in zip(losses, targets_of, strict=True)}
    return StepWork(stops > 0, work, targets, [float(vote) for vote in heard])


def _check_counts(losses: Sequence[Loss], batch: Batch, scores: Mapping[str, Score]) -> None:
    """Raise MiscountedLoss where a score has another count than its loss: the mean of that loss would be wrong."""
    for loss in losses:
        counted, scored = loss.count(batch), scores[loss.kind].count
        if counted != scored:
            raise MiscountedLoss(
                f"{inspect.getfile(type(loss))}: loss {loss.kind} counts {counted} targets in a micro-batch, its head "
                f"scores {scored}; mend `count` there, or the head that it makes"
            )


def _work(batches: Sequence[Batch], targets: int) -> BatchWork:
    """The work of this worker's batches, of which `targets` states are projected to the vocabulary."""
    length_B = np.concatenate([batch["lengths"] for batch in batches]).astype(np.int64)
    source_B = np.zeros_like(length_B)
    if "source_lengths" in batches[0]:
        source_B = np.concatenate([batch["source_lengths"] for batch in batches]).astype(np.int64)
    return BatchWork(
        tokens=int(length_B.sum()),
        squares=int((length_B**2).sum()),
        targets=targets,
        source_tokens=int(source_B.sum()),
        source_squares=int((source_B**2).sum()),
        crossed=int((length_B * source_B).sum()),
    )


def _objective(losses: Sequence[Loss], scores: Mapping[str, Score], targets: Mapping[str, int], world: int) -> Tensor:
    """A micro-batch's share of the global mean: sums divided once, by the count over all micro-batches and workers.

    Times `world`, since the engine averages the workers' gradients.
    """
    parts = [loss.weight * world / max(1, targets[loss.kind]) * scores[loss.kind].loss for loss in losses]
    return torch.stack(parts).sum()


def _sums(losses: Sequence[Loss], scores: Mapping[str, Score]) -> dict[SumName, Tensor]:
    """The sums of a micro-batch that become metrics: float64 [] each, still on the device and without their graph."""
    return {
        (loss.kind, name): value.detach().double() for loss in losses for name, value in scores[loss.kind].sums.items()
    }


def _metrics(prefix: str, losses: Sequence[Loss], sums: Sums) -> dict[str, float]:
    """Means over the targets: the weighted loss; loss and accuracy of each kind, and the other metrics of its head."""
    metrics = {f"{prefix}/loss": 0.0}
    for loss in losses:
        totals = dict(sums[loss.kind])
        targets = max(1, totals.pop("targets"))
        means = {name: total / targets for name, total in totals.items()}
        mean = means.pop("loss")
        metrics[f"{prefix}/loss"] += loss.weight * mean
        metrics[f"{prefix}/{loss.kind}/loss"] = mean
        metrics[f"{prefix}/{loss.accuracy}"] = means.pop("correct")
        if loss.perplexity:
            metrics[f"{prefix}/perplexity"] = math.exp(min(mean, 700.0))  # exp(710) is too large for a float
        metrics |= {f"{prefix}/{name}": value for name, value in means.items()}
    return metrics


def _vitals(state: State, learning_rate: float, result: StepResult) -> dict[str, float]:
    return {
        "train/learning_rate": learning_rate,
        "train/grad_norm": result.grad_norm,
        "train/skipped_steps": state.skipped,
        "train/tokens": state.tokens,
    }


def _due(step: int, every: int, last: int) -> bool:
    """Whether something that happens every so many steps (0: never) and at the end happens after this one."""
    return every > 0 and (step % every == 0 or step == last)


def _noise_seed(seed: int, step: int, rank: int) -> int:
    """The seed of torch's global generator, the only one that dropout draws from: an address of (seed, step, worker).

    A head that samples draws from it too.
    """
    return int(key(seed, "dropout").at(step, rank).integers(2**63))


def _resume(run: Run, engine: Engine[Model]) -> State:
    stored = checkpoint.restore(engine, _checkpoints(run), _topology(run, engine), run.resume, run.phases)
    state = State.of(stored or {})
    learned = [step for step in run.skip_steps if step <= state.step and step not in state.skip_steps]
    if learned:
        raise BadInput(
            f"{run.folder}: skip_steps names step {learned[0]}, from which the checkpoint after step {state.step} has "
            "learned; leave it out, or start again with --resume never"
        )
    return replace(state, skip_steps=tuple(sorted({*state.skip_steps, *run.skip_steps})))


def _saver(run: Run, engine: Engine[Model]) -> Saver:
    return Saver(
        engine,
        _checkpoints(run),
        _topology(run, engine),
        asdict(engine.model.spec),
        keep=run.keep_checkpoints,
        keep_every=run.keep_checkpoint_every,
        background=run.async_checkpointing,
    )


def _save(saver: Saver, state: State) -> dict[str, float]:
    """Begin to write a checkpoint; how long training waited for that."""
    started = perf_counter()
    saver.save(state.step, asdict(state))
    return {"ckpt/save_s": perf_counter() - started}


def _checkpoints(run: Run) -> Path:
    return Path(run.folder) / CHECKPOINTS


def _topology(run: Run, engine: Engine[Model]) -> checkpoint.Topology:
    machine = run.engine
    return {
        "recipe": run.recipe_hash,
        "corpus": Manifest.load(run.corpus).digest,
        "workers": engine.world,
        "zero": engine.zero,
        "precision": machine.precision,
        "tensor_parallel": machine.tensor_parallel_size,
        "sequence_parallel": machine.sequence_parallel_size,
        "pipeline_parallel": machine.pipeline_parallel_size,
        "micro_tokens": machine.micro_batch_tokens,
    }


def _peak(run: Run, engine: Engine[Model]) -> float | None:
    """FLOP/s of all workers' devices together, where that is known and means something."""
    if run.engine.device == "cpu" or run.engine.precision == "fp32":
        return None
    flops = peak(torch.cuda.get_device_name())
    return flops and flops * engine.world


def _ignore(step: int, metrics: dict[str, float]) -> None:
    pass
