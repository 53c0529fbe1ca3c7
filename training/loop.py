"""Pretraining: each step computes the scores of its micro-batches, one mean loss over all workers, and one update."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import torch
from torch import Tensor

from preprocessing.errors import BadInput, Diverged, MiscountedLoss, Preempted, ResourceError
from preprocessing.manifest import Manifest
from preprocessing.rng import key
from preprocessing.schema import Batch
from training import checkpoint
from training.architectures import has_compiled_blocks
from training.best import is_over, is_tracked, update_best
from training.data import Batches, Loader, open_loader, open_validation
from training.engines import Engine
from training.garbage import collect_by_hand, collect_young
from training.losses import Loss
from training.meter import HostBoundProbe, Meter, peak
from training.model import Model, net_of
from training.optimizers import rate_at
from training.profiler import Profiler, observe_phases, record_phase, time_items
from training.run import CHECKPOINTS, Run
from training.saver import Saver, SaverVotes
from training.score import UNCOUNTED, Score
from training.spikes import highest_loss, remember_update, skip_spikes, spikes_of
from training.state import State, TrainingResult
from training.step_work import StepWork, measure_step
from training.tally import MetricsTally, mean_metrics, sums_of
from training.update import NOT_MADE, Update, advance, count_skipped

__all__ = ["Callbacks", "Run", "State", "TrainingResult", "evaluate", "pretrain"]

LogMetrics = Callable[[int, dict[str, float]], None]
"""Takes the number of completed updates, and metrics by name."""

MAX_SKIPPED_IN_ROW = 10  # consecutive updates without a finite gradient, after which the run has diverged
MAX_HASHED_BYTES = 16 << 30  # in larger corpora, only files with a new size or time are hashed after an error
COUNTED_STEPS = 3  # number of steps after each start in which the loop compares the target counts of losses and heads


def never() -> bool:
    """Do not stop the training."""
    return False


def ignore_activity(done: int, activity: str) -> None:
    """Do not report the activity."""


def ignore_step(done: int) -> None:
    """Write no samples or weights."""


def score_nothing(done: int) -> Mapping[str, float]:
    """Score no downstream tasks."""
    return {}


def ignore_batch() -> None:
    """Do nothing before an update."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that `pretrain` calls. Their argument `done` is the number of completed updates."""

    should_stop: Callable[[], bool] = never
    """Whether to stop before the next update. If one worker returns True, all workers stop after a checkpoint."""

    report_activity: Callable[[int, str], None] = ignore_activity
    """Takes `done` and the activity that begins now: "evaluation", "downstream tasks", "checkpoint", "samples",
    "weights", "rollback", "profile" (writing it), "compiling" (and the first update), or "" for the next update."""

    write_samples: Callable[[int], None] = ignore_step
    """Called on the first worker before the first update, and at each evaluation. It may use the model."""

    save_weights: Callable[[int], None] = ignore_step
    """Called on each worker every `Run.save_weights_every` updates, except after the last one. It may gather the
    weights."""

    score_downstream: Callable[[int], Mapping[str, float]] = score_nothing
    """Called on each worker before the first update and at each evaluation, if `Run.downstream_tasks` names tasks. It
    may gather the weights. The metrics that it returns on the first worker are logged."""

    on_batch: Callable[[], None] = ignore_batch
    """Called on each worker when the micro-batches of an update are ready."""


def pretrain(run: Run, engine: Engine[Model], log: LogMetrics, callbacks: Callbacks = Callbacks()) -> TrainingResult:
    """Train to the end of the last phase, or until `callbacks.should_stop` returns True on any worker.

    Every worker calls this function with its own engine; `log` is called on the first worker only. Training resumes
    from the newest complete checkpoint of the run. When the function returns or raises, all its threads and processes
    have ended, and a checkpoint in progress has been completed.

    Raises BadInput if corpus or checkpoint do not fit the run, and MiscountedLoss if the target counts of a loss and
    its head differ. Raises Diverged after MAX_SKIPPED_IN_ROW consecutive updates without a finite gradient, or as
    `run.loss_spikes` defines.
    """
    training_data = open_loader(run, engine.data_rank, engine.data_world)
    validation_data = open_validation(run, engine.data_rank, engine.data_world)
    loaders = [training_data, validation_data] if validation_data else [training_data]
    with ExitStack() as resources, _explain_changed_data(loaders), collect_by_hand():
        return Pretraining(run, engine, log, callbacks, training_data, validation_data, resources).train()


@contextmanager
def _explain_changed_data(loaders: Sequence[Loader]) -> Iterator[None]:
    """If the block fails and the data on the disk have changed, raise BadInput: the change may be the cause."""
    try:
        yield
    except (BadInput, ResourceError, Preempted):
        raise
    except Exception as error:
        for loader in loaders:
            try:
                loader.require_unchanged(only_stamps=loader.num_bytes > MAX_HASHED_BYTES)
            except BadInput as fault:
                raise fault from error
        raise


class Pretraining:
    """One call of `pretrain` on one worker.

    `resources` closes the saver, the profiler and the batches after `train`.
    """

    def __init__(
        self,
        run: Run,
        engine: Engine[Model],
        log: LogMetrics,
        callbacks: Callbacks,
        training_data: Loader,
        validation_data: Loader | None,
        resources: ExitStack,
    ) -> None:
        self.run, self.engine, self.callbacks = run, engine, callbacks
        self.training_data, self.validation_data = training_data, validation_data
        if is_tracked(run) and not (validation_data and run.eval_every):
            key = "early_stopping_patience" if run.early_stopping_patience else "keep_best"
            raise BadInput(
                f"invalid cluster.{key}: got {getattr(run, key)}, but the corpus {run.corpus} has no validation text; "
                "hold out text (--holdout-ratio), or leave the key out"
            )
        self.log = log if engine.rank == 0 else ignore_metrics
        self.state = _resume(run, engine)
        self.first_step = self.saved_step = self.state.step
        self.unread: list[Update] = []  # updates whose results were not read, because that waits for the device
        self.saver = resources.enter_context(closing(_saver(run, engine)))
        probe = HostBoundProbe(torch.cuda.Event) if run.engine.device == "cuda" else None
        self.meter = Meter(run.model, run.vocab_size, _peak(run, engine), probe)
        resources.enter_context(observe_phases(*self.meter.observers))
        self.tally = MetricsTally(engine)
        self.learner = Learner(run, engine, self.tally, self.first_step)
        self.profiler = resources.enter_context(closing(Profiler(run, engine.model, engine.rank)))
        self.batches = Batches(training_data, self.state.step, run.steps)
        self.steps = resources.enter_context(closing(time_items(self.batches)))

    def train(self) -> TrainingResult:
        """Run the remaining steps, then write the last checkpoint."""
        if self.state.step == 0:
            self._write_samples()
            self._score_downstream()
        self._report("compiling" if has_compiled_blocks(self.engine.model) else "")
        for step, batches in self.steps if not self._stops_early() else ():
            self.callbacks.on_batch()
            step_work = self._exchange(batches)
            if step_work.stop_requests:
                break
            self._advance_profiler()
            update = self._make_update(step, batches, step_work)
            if self._handle_spikes(update):
                continue
            self.state = remember_update(self.run, self.state, update)
            self._log_update(step, update)
            self._run_periodic_work(step)
            if self._stops_early():
                break
            self._report("")
        self._finish()
        return TrainingResult(finished=self._is_finished(), state=self.state)

    def _stops_early(self) -> bool:
        """Whether the validation loss has not improved for too long. All workers have the same losses."""
        return is_over(self.run, self.state.best)

    def _is_finished(self) -> bool:
        return self.state.step == self.run.steps or self._stops_early()

    def _exchange(self, batches: Sequence[Batch]) -> StepWork:
        """The work of the step over all workers. The votes in it are passed to the saver."""
        local = measure_step(
            self.run.losses,
            batches,
            is_counted=self.engine.counts,
            stop=self.callbacks.should_stop(),
            votes=self.saver.votes(),
        )
        total = local.sum_over(self.engine)
        self.saver.apply_votes(total.votes)
        return total

    def _advance_profiler(self) -> None:
        """Begin the next step of the profiler. If it has recorded all its steps, write the profile first."""
        if self.profiler.is_full:
            self._report("profile")
            self.profiler.finish()
            self._report("")
        self.profiler.at_step()

    def _make_update(self, step: int, batches: Sequence[Batch], step_work: StepWork) -> Update:
        """Learn from the batches of the step, unless it is in `skip_steps`, and advance the state."""
        if step + 1 in self.state.skip_steps:
            update = NOT_MADE
        else:
            update = self.learner.learn(step, batches, step_work.targets, highest_loss(self.run, self.state))
        self.state = advance(self.state, step_work.work)
        self.unread.append(update)
        if self._reads_results():
            self._read_results()
        if update.is_read:
            self.meter.add(step_work.work)
            self.saver.prepare()
        return update

    def _reads_results(self) -> bool:
        """Whether the host must know now which updates were skipped. Otherwise it runs ahead of the device."""
        run = self.run
        every = (run.log_every, run.eval_every, run.save_every, run.keep_checkpoint_every, run.save_weights_every)
        return run.loss_spikes.policy != "off" or any(map(self._is_due, every))

    def _read_results(self) -> None:
        """Count the skipped updates since the last call.

        Raises Diverged after MAX_SKIPPED_IN_ROW skipped updates, unless `loss_spikes` limits them.
        """
        unread, self.unread = self.unread, []
        collect_young()
        for update in unread:
            self.state = count_skipped(self.state, update)
            if self.state.skipped_in_row == MAX_SKIPPED_IN_ROW and self.run.loss_spikes.policy in ("off", "warn"):
                self._stop_diverged()

    def _handle_spikes(self, update: Update) -> bool:
        """Apply the policy of `run.loss_spikes` to an update. Return whether training was rolled back."""
        spikes = spikes_of(self.run, self.state, update)
        if not spikes:
            return False
        finite = {f"train/{spike.name}_spike": spike.value for spike in spikes if math.isfinite(spike.value)}
        self.log(self.state.step, finite)
        self.state = skip_spikes(self.run, self.engine.rank == 0, self.state, update, spikes)
        if self.run.loss_spikes.policy != "rollback" or update.result.skipped:
            return False
        with self._pause("rollback"):
            self._roll_back()
        self._report("")
        return True

    def _roll_back(self) -> None:
        """Continue from the newest checkpoint before the first batch that is now skipped."""
        run, spike_step = self.run, self.state.step
        first = max(1, spike_step - run.loss_spikes.skip_before)
        self.saver.finish()
        if not checkpoint.forget_after(self.engine, _checkpoints(run), first - 1):
            raise Diverged(
                f"{run.folder}: no checkpoint from before step {first} to roll back to; raise cluster.keep_checkpoints "
                "or lower cluster.save_every"
            )
        self.state = replace(_resume(replace(run, resume="must"), self.engine), skip_steps=self.state.skip_steps)
        self.log(spike_step, {"train/rolled_back_to": self.state.step})
        self.saved_step = self.state.step
        self.batches.back(self.state.step)

    def _log_update(self, step: int, update: Update) -> None:
        """Log the metrics of the updates since the last log, every `log_every` updates."""
        if not self._is_due(self.run.log_every):
            return
        metrics = {
            "train/learning_rate": rate_at(self.run.optimizer, self.run.phases, step),
            "train/grad_norm": update.result.grad_norm,
            "train/skipped_steps": self.state.skipped,
            "train/tokens": self.state.tokens,
        }
        metrics |= self.meter.report()
        if sums := self.tally.drain_into(self.state.sums):
            metrics |= mean_metrics("train", self.run.losses, sums)
            self.state = replace(self.state, sums={}, loss=metrics["train/loss"])
        self.log(self.state.step, metrics)

    def _stop_diverged(self) -> NoReturn:
        self.saver.finish()
        optimizer = self.run.optimizer
        raise Diverged(
            f"{self.run.folder}: {MAX_SKIPPED_IN_ROW} updates in a row, of {self.state.step}, had no finite gradient; "
            f"lower optimizer.learning_rate (it is {optimizer.learning_rate:g}) or raise "
            f"optimizer.warmup_steps (it is {optimizer.warmup_steps})"
        )

    def _run_periodic_work(self, step: int) -> None:
        """Run the evaluation, samples, weights and checkpoint that are due after this step."""
        run = self.run
        if self._is_due(run.eval_every):
            if self.validation_data:
                self._evaluate(self.validation_data, self.training_data.phase_of(step).seq_length)
            self._write_samples()
            self._score_downstream()
            self.meter.skip()
        if self._is_due(run.save_weights_every) and self.state.step < run.steps:
            with self._pause("weights"):
                self.callbacks.save_weights(self.state.step)
        is_best = run.keep_best and self.state.best.get("step") == self.state.step
        if is_best or self._is_due(run.save_every) or self._is_due(run.keep_checkpoint_every):
            self._require_unchanged()
            self._save_checkpoint()

    def _evaluate(self, validation_data: Loader, length: int) -> None:
        with self._pause("evaluation"):
            evaluation = evaluate(self.run, self.engine, validation_data, length)
            self.state = replace(self.state, evaluation=evaluation)
            if is_tracked(self.run):
                best = update_best(self.state.best, self.state.step, evaluation["eval/loss"])
                self.state = replace(self.state, best=best)
            self.log(self.state.step, evaluation)

    def _write_samples(self) -> None:
        if self.run.sample_prompts:
            self._report("samples")
        if self.engine.rank == 0:
            with self.profiler.pause():
                self.callbacks.write_samples(self.state.step)

    def _score_downstream(self) -> None:
        """Score the downstream tasks. Their metrics are no part of the state, so they change no checkpoint."""
        if self.run.downstream_tasks:
            with self._pause("downstream tasks"):
                started = perf_counter()
                metrics = dict(self.callbacks.score_downstream(self.state.step))
                self.log(self.state.step, metrics | {"eval/downstream_seconds": perf_counter() - started})

    def _save_checkpoint(self) -> None:
        """Start a checkpoint, and log the time that training waited for it."""
        self.state = replace(self.state, sums=self.tally.drain_into(self.state.sums))
        with self._pause("checkpoint"):
            started = perf_counter()
            self.saver.save(self.state.step, asdict(self.state))
            self.log(self.state.step, {"ckpt/save_s": perf_counter() - started})
        self.saved_step = self.state.step

    def _finish(self) -> None:
        """Write the profile and the last checkpoint, and verify that the data have not changed."""
        if self.profiler.is_recording:
            self._report("profile")
        self.profiler.finish()
        self._read_results()
        self._report("checkpoint")  # an earlier checkpoint may still be in progress
        is_trained = self.state.step > self.first_step
        if is_trained:
            self._require_unchanged()
        if self.saved_step < self.state.step:  # training stopped on request
            self.state = replace(self.state, sums=self.tally.drain_into(self.state.sums))
            self.saver.save(self.state.step, asdict(self.state))
        self.saver.finish()
        if is_trained and self._is_finished():
            self._require_unchanged(since=self.first_step)

    def _require_unchanged(self, since: int | None = None) -> None:
        """Raise BadInput on all workers if the corpus has changed since training opened it. All workers must call it.

        Without `since`, only sizes and times of the shards are compared. With `since`, all shards are hashed. If a
        hash differs, the time of the change is unknown, so the checkpoints after step `since` are renamed.
        """
        loaders = [loader for loader in (self.training_data, self.validation_data) if loader]
        fault: BadInput | None = None
        for loader in loaders:
            try:
                loader.require_unchanged(self.engine.rank, self.engine.world, only_stamps=since is None)
            except BadInput as error:
                fault = fault or error
        (num_faults,) = self.engine.reduce_sums([fault is not None])
        if not num_faults:
            return
        if since is not None:
            checkpoint.set_aside(self.engine, _checkpoints(self.run), since)
        raise fault or BadInput(
            f"{self.run.corpus}: has changed while it was read; see the log of the other workers, then restore the "
            "corpus"
        )

    @contextmanager
    def _pause(self, activity: str) -> Iterator[None]:
        """Report the activity, and exclude the time of the block from the throughput."""
        self._report(activity)
        with self.profiler.pause():
            yield
        self.meter.skip()

    def _report(self, activity: str) -> None:
        self.callbacks.report_activity(self.state.step, activity)

    def _is_due(self, every: int) -> bool:
        """Whether work that is done every N steps (0: never) and after the last step is due now."""
        return every > 0 and (self.state.step % every == 0 or self.state.step == self.run.steps)


def ignore_metrics(done: int, metrics: dict[str, float]) -> None:
    """Ignore the metrics, because the first worker logs those of all workers."""


@dataclass(frozen=True)
class Learner:
    """Computes the gradient of a step and applies the update."""

    run: Run
    engine: Engine[Model]
    tally: MetricsTally
    first_step: int  # number of updates before this process started

    def learn(self, step: int, batches: Sequence[Batch], targets: Mapping[str, int], highest_loss: float) -> Update:
        """Run forward and backward passes of all micro-batches, then one update with the learning rate of the step.

        If the run checks for loss spikes, the loss of the step is summed over the workers before the last backward
        pass. If this loss is above `highest_loss`, the loss of the last micro-batch becomes NaN. The engine then skips
        the update, because its gradient is not finite.
        """
        run, engine = self.run, self.engine
        checks_spikes = run.loss_spikes.policy != "off"
        loss, sums = math.nan, dict[str, dict[str, float]]()
        memory = net_of(engine.model).memory_state() if checks_spikes else {}
        torch.manual_seed(_noise_seed(run.seed, step, engine.data_rank))
        self.tally.count(targets)
        for number, (batch, scores) in enumerate(engine.iterate_scores(batches), 1):
            if step < self.first_step + COUNTED_STEPS:
                _check_counts(run.losses, batch, scores)
            objective = _objective(run.losses, scores, targets, engine.data_world)
            self.tally.add(sums_of(run.losses, scores))
            if checks_spikes and number == len(batches):
                sums = self.tally.drain_into({})
                loss = mean_metrics("train", run.losses, sums)["train/loss"]
                objective = objective * math.nan if loss > highest_loss else objective
            with record_phase("backward"):
                engine.backward(objective)
        with record_phase("optimizer"):
            result = engine.step(rate_at(run.optimizer, run.phases, step))
        if checks_spikes and result.skipped:  # the memory must not contain the skipped sequences
            net_of(engine.model).load_memory_state(memory, next(engine.model.parameters()).device)
        return Update(result, loss, sums)


@torch.no_grad()
def evaluate(run: Run, engine: Engine[Model], validation: Loader, length: int) -> dict[str, float]:
    """Loss, perplexity and accuracies on at most `eval_rows` validation sequences of `length` tokens."""
    num_rows = min(run.eval_rows, validation.rows_by_length[length].count(0))
    batches = validation.batches(length, range(num_rows))
    has_sequences = validation.has_some(length, num_rows)  # else its batches repeat sequences of another worker
    local = measure_step(
        run.losses, batches, is_counted=engine.counts and has_sequences, stop=False, votes=SaverVotes()
    )
    targets = local.sum_over(engine).targets
    torch.manual_seed(_noise_seed(run.seed, run.steps, engine.data_rank))  # no update uses this step
    engine.model.eval()
    tally = MetricsTally(engine)
    for _, scores in engine.iterate_scores(batches):
        tally.add({name: value * has_sequences for name, value in sums_of(run.losses, scores).items()})
    tally.count(targets)
    engine.model.train()
    return mean_metrics("eval", run.losses, tally.drain_into({}))


def _check_counts(losses: Sequence[Loss], batch: Batch, scores: Mapping[str, Score]) -> None:
    """Raise MiscountedLoss if a loss and its head count different targets, which would make the mean loss wrong."""
    for loss in losses:
        counted, scored = loss.count(batch), scores[loss.kind].count
        if counted != scored and scored != UNCOUNTED:
            raise MiscountedLoss(
                f"{inspect.getfile(type(loss))}: loss {loss.kind} counts {counted} targets in a micro-batch, but its "
                f"head scores {scored}; correct `count` in this file, or the head of the loss"
            )


def _objective(losses: Sequence[Loss], scores: Mapping[str, Score], targets: Mapping[str, int], world: int) -> Tensor:
    """The part of the mean loss that one micro-batch contributes.

    Each sum is divided once, by the number of targets in all micro-batches of all workers. The result is multiplied by
    `world`, because the engine averages the gradients of the workers.
    """
    parts = [loss.weight * world / max(1, targets[loss.kind]) * scores[loss.kind].loss for loss in losses]
    return torch.stack(parts).sum()


def _noise_seed(seed: int, step: int, rank: int) -> int:
    """The seed of torch's global generator for a step of a worker.

    Only dropout and heads that sample use this generator.
    """
    return int(key(seed, "dropout").at(step, rank).integers(2**63))


def _resume(run: Run, engine: Engine[Model]) -> State:
    stored = checkpoint.restore(engine, _checkpoints(run), _topology(run, engine), run.resume, run.phases)
    state = State.of(stored or {})
    learned = [step for step in run.skip_steps if step <= state.step and step not in state.skip_steps]
    if learned:
        raise BadInput(
            f"{run.folder}: invalid skip_steps: got step {learned[0]}, but the checkpoint after step {state.step} was "
            "trained on it; remove this step, or start again with --resume never"
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
        keep_best=run.keep_best,
        background=run.async_checkpointing,
    )


def _checkpoints(run: Run) -> Path:
    return Path(run.folder) / CHECKPOINTS


def _topology(run: Run, engine: Engine[Model]) -> checkpoint.Topology:
    machine = run.engine
    return {
        "recipe": run.recipe_hash,
        "corpus": Manifest.load(run.corpus).digest,
        "workers": engine.world,
        "zero_stage": engine.zero,
        "precision": machine.precision,
        "tensor_parallel_size": machine.tensor_parallel_size,
        "sequence_parallel_size": machine.sequence_parallel_size,
        "pipeline_parallel_size": machine.pipeline_parallel_size,
        "micro_batch_tokens": machine.micro_batch_tokens,
    }


def _peak(run: Run, engine: Engine[Model]) -> float | None:
    """FLOP/s of all devices together; None on a CPU, in fp32, or if it is unknown."""
    if run.engine.device == "cpu" or run.engine.precision == "fp32":
        return None
    flops = peak(torch.cuda.get_device_name())
    return flops and flops * engine.world
