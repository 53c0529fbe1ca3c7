"""One point: a run begins, the fault strikes at its moment, and the same command is repeated until it is finished."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from orchestration.tracking.patience import behind
from tests.chaos.checks import after_each_end, in_the_end
from tests.chaos.command import Missed, new_mark
from tests.chaos.faults import BAD_INPUT, DONE, INTERRUPTED, KILLED, PREEMPTED, RESOURCES, Damage, Fault
from tests.chaos.ground import START_S, Ended, Ground, ended
from tests.chaos.plan import COPYING, TABLE, Moment, Point
from tests.chaos.scene import Scene

MOST_STARTS = 5
AGAIN = (PREEMPTED, RESOURCES, KILLED, INTERRUPTED)  # as a scheduler does without asking anybody


@dataclass
class Outcome:
    """How a point went."""

    point: Point
    faults: list[str] = field(default_factory=list)  # of the product; [] is what is wanted
    notes: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)  # of the starts
    seconds: float = 0.0
    next_step_s: float = 0.0  # from the strike to the next step in the record, where the same start went on
    start_s: float = 0.0  # from the start of workers to their first step, in the same run
    logs: str = ""


def play(point: Point, ground: Ground, undisturbed: Ended) -> Outcome:
    """Play a point in a folder of its own, which stays where something is wrong."""
    kind, moments = TABLE[point.fault]
    outcome, fault, began_s = Outcome(point), kind(), time.monotonic()
    with _scene(point, ground, fault) as scene:
        try:
            with fault.around(scene):
                _disturb(scene, fault, moments[point.moment], outcome)
                _go_on(scene, outcome)
                outcome.faults += in_the_end(scene, undisturbed)
        except Exception as error:
            outcome.faults.append(f"{type(error).__name__}: {error}")
        finally:
            for command in scene.commands:
                command.kill_all(scene.mark)
        outcome.notes, outcome.seconds = scene.notes, time.monotonic() - began_s
        if outcome.faults:
            outcome.logs = str(scene.folder)
        else:
            shutil.rmtree(scene.folder)
        with suppress(OSError):
            scene.ray.rmdir()  # empty, unless that is what is wrong
    return outcome


@contextmanager
def _scene(point: Point, ground: Ground, fault: Fault) -> Iterator[Scene]:
    folder = ground.root / point.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scene = Scene(ground, folder, new_mark(), point.rng, overrides=fault.overrides)
    if point.moment == COPYING:
        scene.verb = "export"
    ground.copy(scene.out, finished=scene.verb == "export")
    yield scene


def _disturb(scene: Scene, fault: Fault, moment: Moment, outcome: Outcome) -> None:
    """The first start, struck by the fault."""
    _meet(scene, fault, moment, outcome)
    command, struck_s, step = scene.now, time.monotonic(), scene.step
    fault.strike(scene)
    if scene.verb == "train":
        with suppress(Missed):  # it ends without another step
            command.until(lambda: scene.step > step, START_S, 0.02)
            outcome.next_step_s = time.monotonic() - struck_s
    _ended(scene, outcome)
    first_s = command.said_s("pretrain")
    outcome.start_s = first_s - command.said_s("starting workers ...") if first_s else 0.0
    if outcome.codes[-1] not in fault.ends:
        outcome.faults.append(f"ended with {outcome.codes[-1]} ({scene.now.last_line[:200]})")
    fault.relieve(scene)
    if isinstance(fault, Damage):
        until_s = time.monotonic() + START_S
        while scene.is_at_work() and time.monotonic() < until_s:
            time.sleep(0.1)
        fault.damage(scene)
        scene.start()
        _ended(scene, outcome)
        if outcome.codes[-1] not in fault.then:
            outcome.faults.append(f"damaged, it ended with {outcome.codes[-1]} ({scene.now.last_line[:200]})")
        if outcome.codes[-1]:
            fault.mend(scene)


def _meet(scene: Scene, fault: Fault, moment: Moment, outcome: Outcome) -> None:
    """Start, and wait for the moment; again where the machine is too busy to start Ray."""
    while True:
        scene.start()
        try:
            return moment(scene, lambda: fault.aim(scene))
        except Missed:
            code = scene.now.process.poll()
            if code != RESOURCES or len(outcome.codes) == MOST_STARTS:
                raise
            outcome.codes.append(code)


def _go_on(scene: Scene, outcome: Outcome) -> None:
    """The same command until it is finished, and MLflow has all of it."""
    while outcome.codes[-1] != DONE or behind(scene.run):
        if outcome.codes[-1] not in (*AGAIN, DONE, BAD_INPUT):
            outcome.faults.append(f"nobody would repeat a command that ends with {outcome.codes[-1]}")
        if len(outcome.codes) == MOST_STARTS:
            raise Missed(f"not finished after {MOST_STARTS} starts ({scene.now.last_line[:200]})")
        scene.start()
        _ended(scene, outcome)


def _ended(scene: Scene, outcome: Outcome) -> None:
    """Wait for the end of a start, and look at what it has left."""
    code = scene.now.ended(START_S)
    outcome.codes.append(code)
    if code >= 0:
        outcome.faults += after_each_end(scene, code)


def undisturbed(ground: Ground) -> Ended:
    """What the run leaves that nothing disturbs. RuntimeError where that is not what it should be."""
    outcome, point = Outcome(Point("nothing", "", 0)), Point("nothing", "", 0)
    with _scene(point, ground, Fault()) as scene:
        scene.start()
        _ended(scene, outcome)
        _go_on(scene, outcome)  # a busy machine may be slow to tell MLflow all of it
        found = ended(scene.run)
        outcome.faults += in_the_end(scene, found)
        shutil.rmtree(ground.root / "whole", ignore_errors=True)
        shutil.copytree(scene.out, ground.root / "whole")
    if outcome.faults or set(outcome.codes) != {DONE}:
        raise RuntimeError(f"the undisturbed run: {outcome.codes} {'; '.join(outcome.faults)} (see {scene.folder})")
    shutil.rmtree(scene.folder)
    shutil.rmtree(scene.ray)
    return found
