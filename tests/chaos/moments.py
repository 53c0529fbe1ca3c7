"""The moments of faults, which are recognized by the output of the command and the files of the run, not by a clock.

A moment is a seeded stage, step or checkpoint, followed by a seeded fraction of a second.
"""

import time
from collections.abc import Callable
from typing import Final

from orchestration.launch import WEIGHTS
from tests.chaos.command import Missed
from tests.chaos.ground import SAVE_EVERY, START_S, STEPS
from tests.chaos.scene import Scene
from training.run import CHECKPOINTS

Aim = Callable[[], None]
"""Finds the process that the fault will hit; it is called shortly before a moment, because some moments are short."""

WITHOUT_WORKERS: Final = ("opening MLflow", "starting Ray")
WITH_WORKERS: Final = ("importing DeepSpeed", "building the model", "opening corpus and checkpoint")
TWO_SAVED: Final = 2 * SAVE_EVERY + 4  # steps after which there are two complete checkpoints
FAST_S: Final = 0.001  # checking interval for moments that last milliseconds


def starting(scene: Scene, aim: Aim, stages: tuple[str, ...]) -> None:
    """Wait for a stage before the first step."""
    stage = scene.rng.choice(stages)
    scene.now.until(lambda: scene.now.line_time_s(f"{stage} ..."), START_S)
    time.sleep(scene.part(0.7))
    aim()
    scene.notes.append(f"in '{stage}'")


def training(scene: Scene, aim: Aim, first: int = 2) -> None:
    """Wait for the end of a step, which is not before the step `first`."""
    step = scene.rng.randrange(first, STEPS - 6)
    scene.now.until(lambda: scene.step > 0, START_S)
    aim()
    scene.now.until(lambda: scene.step >= step, START_S)
    scene.notes.append(f"after step {scene.step}")


def saving(scene: Scene, aim: Aim, first: int = SAVE_EVERY) -> None:
    """Wait until a checkpoint is being written, so that its directory has the name of an unfinished one."""
    wanted = scene.rng.randrange(first, STEPS - 1, SAVE_EVERY)
    delay_s = scene.part(0.02)
    scene.now.until(lambda: scene.step > 0, START_S)
    aim()
    while True:
        try:
            scene.now.until(lambda: _unfinished(scene, wanted), START_S, FAST_S)
        except Missed as missed:
            raise Missed(f"saw no unfinished checkpoint: {missed}") from None
        time.sleep(delay_s)
        if _unfinished(scene, wanted):
            break
        delay_s /= 2
    scene.notes.append(f"while checkpoint {wanted} or a later one was written, at step {scene.step}")


def restarting(scene: Scene, aim: Aim, stages: tuple[str, ...] = WITH_WORKERS) -> None:
    """Kill a worker after a step, and wait until the workers are starting again."""
    step, stage = scene.rng.randrange(2, STEPS - 10), scene.rng.choice(stages)
    scene.now.until(lambda: scene.step >= step, START_S)
    killed = scene.workers()[scene.rng.randrange(2)]
    killed.kill()
    scene.now.until(lambda: scene.now.line_time_s("WARNING: worker"), START_S)
    scene.now.until(lambda: scene.now.line_time_s(f"{stage} ...", 2), START_S)
    time.sleep(scene.part(0.5))
    aim()
    scene.notes.append(f"a worker was killed after step {step}; in the second '{stage}'")


def exporting(scene: Scene, aim: Aim) -> None:
    """Wait until the weights are being written."""
    delay_s = scene.part(0.3)
    scene.now.until(lambda: scene.step >= STEPS - 4, START_S)
    aim()
    scene.now.until((scene.run / WEIGHTS).exists, START_S, FAST_S)
    time.sleep(delay_s)
    has = sorted(path.name for path in scene.run.glob("*/*.safetensors"))
    scene.notes.append(
        f"{delay_s:.2f} s after the first file of weights appeared; existing files: {', '.join(has) or 'none'}"
    )


def copying(scene: Scene, aim: Aim) -> None:
    """Wait until `sesame export` is writing its directory, which has another name until it is complete."""
    delay_s = scene.part(0.01)
    aim()
    scene.now.until(scene.exported.with_name(f".{scene.exported.name}.unfinished").exists, START_S, FAST_S)
    time.sleep(delay_s)
    scene.notes.append(f"{1000 * delay_s:.0f} ms after its directory appeared; it was {_state(scene)}")


def _state(scene: Scene) -> str:
    return "complete" if scene.exported.exists() else "incomplete"


def ending(scene: Scene, aim: Aim) -> None:
    """Wait until metrics and model are being logged to MLflow."""
    scene.now.until(lambda: scene.now.line_time_s("logging to MLflow"), START_S)
    aim()
    time.sleep(scene.part(0.5))
    scene.notes.append("in 'logging to MLflow'")


def _unfinished(scene: Scene, wanted: int) -> bool:
    folders = (scene.run / CHECKPOINTS).glob(".tmp-step-*")
    return any(int(path.name.rpartition("-")[2]) >= wanted for path in folders)
