"""Progress events of pretraining and of fine-tuning: steps, metrics and the remaining time."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from orchestration.progress import Report
from training.run import Run

FIGURES = {"perf/tokens_per_second": "tokens_per_s", "perf/mfu": "mfu", "train/loss": "loss", "eval/loss": "held_out"}
RECENT = 50  # steps over which the time per token is averaged


class StepReporter:
    """Reports the stage "pretrain" from the progress and the metrics of the training loop."""

    def __init__(self, run: Run, report: Report) -> None:
        self.run, self.report = run, report
        self.figures: dict[str, float] = {}
        self.pace_s: deque[float] = deque(maxlen=RECENT)  # time per token of a batch
        self.once_s: dict[str, float] = {}  # duration of the last evaluation, checkpoint and so on
        self.first_done = self.done = -1  # the first step of a process is slow, so its time does not count
        self.activity, self.since_s = "", 0.0

    def log(self, metrics: Mapping[str, float]) -> None:
        """Store the metrics that progress events contain."""
        self.figures |= {FIGURES[key]: value for key, value in metrics.items() if key in FIGURES}

    def update(self, done: int, activity: str = "") -> None:
        """Report that `done` updates are done and `activity` begins (training/loop.py); "" means the next update."""
        self._measure(done, time.monotonic())
        self.done, self.activity = done, activity
        figures = {name: self.figures[name] for name in FIGURES.values() if name in self.figures}
        event: dict[str, Any] = {"stage": "pretrain", "done": done, "total": self.run.steps, **figures}
        if self.first_done > 0:
            event["resumed_at"] = self.first_done
        if self.pace_s:
            event["left_s"] = self.estimate_left_s()
        if now := activity or ("" if self.pace_s or done == self.run.steps else f"step {done + 1}"):
            event["now"] = now
        self.report(event)

    def _measure(self, done: int, now_s: float) -> None:
        if self.first_done < 0:
            self.first_done = done
        elif self.activity:
            self.once_s[self.activity] = now_s - self.since_s
        elif done == self.done + 1 and done > self.first_done + 1:
            self.pace_s.append(
                (now_s - self.since_s) / (_tokens_left(self.run, done - 1) - _tokens_left(self.run, done))
            )
        self.since_s = now_s

    def estimate_left_s(self) -> float:
        """Seconds until the last step. Evaluations, checkpoints and so on are included as soon as one of them has been
        timed."""
        run = self.run
        every = {
            "evaluation": run.eval_every,
            "checkpoint": run.save_every,
            "samples": run.eval_every,
            "downstream tasks": run.eval_every,
            "weights": run.save_weights_every,
        }
        steps_s = sum(self.pace_s) / len(self.pace_s) * _tokens_left(run, self.done)
        return steps_s + sum(
            took_s * _times_left(run.steps, self.done, every.get(what, 0)) for what, took_s in self.once_s.items()
        )


class FineTunings:
    """Reports the common progress of many fine-tunings as the stage "finetune"."""

    def __init__(self, num: int, steps: int, report: Report) -> None:
        """`num` fine-tunings of `steps` steps each."""
        self.num, self.steps, self.report = num, steps, report
        self.first: tuple[float, int] | None = None  # time of the first update, and the steps done then

    def update(self, ended: int, steps_of_others: int, last: str = "") -> None:
        """Report the number of ended fine-tunings, the steps of all others, and the result of the last one."""
        now_s, done = time.monotonic(), ended * self.steps + steps_of_others
        event: dict[str, Any] = {"stage": "finetune", "done": done, "total": self.num * self.steps}
        first_s, first = self.first = self.first or (now_s, done)
        if done > first and now_s > first_s:
            event["steps_per_s"] = (done - first) / (now_s - first_s)
        self.report(event | {"ended": f"{ended}/{self.num} trials"} | ({"last": last} if last else {}))


def _tokens_left(run: Run, done: int) -> int:
    """Maximum number of tokens in the remaining steps; sequences of a later phase may be longer."""
    tokens = 0
    for phase in run.phases:
        skipped = min(done, phase.steps)
        tokens += (phase.steps - skipped) * phase.global_batch_size * phase.seq_length
        done -= skipped
    return tokens


def _times_left(steps: int, done: int, every: int) -> int:
    """How often an action remains that happens after every `every` steps and at the end; 0 if `every` is 0.

    >>> _times_left(10, 4, 4), _times_left(10, 10, 4), _times_left(10, 0, 0)
    (2, 0, 0)
    """
    if not every or done >= steps:
        return 0
    return steps // every - done // every + (steps % every > 0)
