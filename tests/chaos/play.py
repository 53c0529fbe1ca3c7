"""One point: a run begins, the fault strikes at its moment, and the same command is repeated until it is finished.

A fault that has struck nothing, as it came too late, shows nothing: then the point is played again, with another part
of a second, and at last counts as wrong.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from orchestration.tracking.store_timeout import pending_updates
from tests.chaos.checks import after_each_end, in_the_end
from tests.chaos.command import Command, Missed, new_mark
from tests.chaos.faults import BAD_INPUT, DONE, INTERRUPTED, KILLED, PREEMPTED, RESOURCES, Between, Fault
from tests.chaos.ground import START_S, Ended, Ground, ended, faults_of
from tests.chaos.plan import COPYING, TABLE, Moment, Point
from tests.chaos.scene import Scene

MOST_STARTS = 5
MOST_TRIES = 4  # of a point whose fault strikes nothing
AGAIN = (PREEMPTED, RESOURCES, KILLED, INTERRUPTED)  # as a scheduler does without asking anybody


class Unhit(Exception):
    """The fault has struck nothing."""


@dataclass
class Outcome:
    """How a point went."""

    point: Point
    faults: list[str] = field(default_factory=list)  # of the product; [] is what is wanted
    notes: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)  # of the starts
    seconds: float = 0.0
    next_step_s: float = 0.0  # from the strike to the next step in the record, where the same start went on
    start_s: float = 0.0  # of that: until the processes of new workers were there and had imported what they need
    tries: int = 1
    unhit: str = ""  # why the fault has struck nothing, in the last try
    logs: str = ""


def play(point: Point, ground: Ground, undisturbed: Ended) -> Outcome:
    """Play a point until its fault has struck, or MOST_TRIES times: then it counts as wrong."""
    return played(lambda tries: _played(point, ground, undisturbed, tries))


def played(once: Callable[[int], Outcome]) -> Outcome:
    """The outcome of the first try whose fault has struck, or that went wrong; `once` gets the number of those before.

    Where none has struck, the last one, which is wrong then.
    """
    tries = 0
    while True:
        outcome = once(tries)
        tries += 1
        outcome.tries = tries
        if outcome.unhit and tries == MOST_TRIES:
            outcome.faults.append(f"not played, as its fault has struck nothing {MOST_TRIES} times: {outcome.unhit}")
        if outcome.faults or not outcome.unhit:
            return outcome


def _played(point: Point, ground: Ground, undisturbed: Ended, tries: int) -> Outcome:
    """One try, in a folder of its own, which stays where something is wrong."""
    kind, moments = TABLE[point.fault]
    outcome, fault, began_s = Outcome(point), kind(), time.monotonic()
    with _scene(point, ground, fault, tries) as scene:
        try:
            with fault.around(scene):
                _disturb(scene, fault, moments[point.moment], outcome)
                _go_on(scene, outcome)
                outcome.faults += in_the_end(scene, undisturbed, fault.runs)
        except Unhit as unhit:
            outcome.unhit = str(unhit)
        except Exception as error:
            outcome.faults.append(f"{type(error).__name__}: {error}")
        finally:
            for command in scene.commands:
                command.kill_all(scene.mark)
        outcome.notes, outcome.seconds = scene.notes, time.monotonic() - began_s
        if outcome.unhit:
            shutil.rmtree(scene.ray, ignore_errors=True)  # nobody looked at what the run has left
        if outcome.faults or (outcome.unhit and tries + 1 == MOST_TRIES):
            outcome.logs = str(scene.folder)
        else:
            shutil.rmtree(scene.folder)
        with suppress(OSError):
            scene.ray.rmdir()  # empty, unless that is what is wrong
    return outcome


@contextmanager
def _scene(point: Point, ground: Ground, fault: Fault, tries: int = 0) -> Iterator[Scene]:
    folder = ground.root / point.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scene = Scene(ground, folder, new_mark(), point.drawn(tries), overrides=fault.overrides, tries=tries)
    if point.moment == COPYING:
        scene.verb = "export"
    ground.copy(scene.out, finished=scene.verb == "export")
    yield scene


def _disturb(scene: Scene, fault: Fault, moment: Moment, outcome: Outcome) -> None:
    """The first start, struck by the fault."""
    _meet(scene, fault, moment, outcome)
    command, step = scene.now, scene.step
    scene.struck_s = time.monotonic()
    fault.strike(scene)
    if scene.verb == "train":
        with suppress(Missed):  # it ends without another step
            command.until(lambda: scene.step > step, START_S, 0.02)
            outcome.next_step_s = time.monotonic() - scene.struck_s
    _ended(scene, outcome)
    outcome.start_s = started_s(command, scene.struck_s)
    code = outcome.codes[-1]
    is_hit = fault.hit(scene, code)
    if code not in fault.ends and (is_hit or code != DONE):
        outcome.faults.append(f"ended with {code} ({scene.now.last_line[:200]})")
    if not is_hit:
        raise Unhit(f"{'; '.join(scene.notes)}; it ended with {code} ({scene.now.last_line[:200]})")
    outcome.faults += fault.wrong(scene, code)
    fault.relieve(scene)
    if isinstance(fault, Between):
        _start_between(scene, fault, outcome)


def started_s(command: Command, since_s: float) -> float:
    """How long the processes of the first workers that were asked for since then took to be there, with their imports;
    0 where none were."""
    asked_s = command.said_s("starting workers", since_s=since_s)
    built_s = command.said_s("building the model", since_s=asked_s)
    return built_s - asked_s if asked_s and built_s else 0.0


def _start_between(scene: Scene, fault: Between, outcome: Outcome) -> None:
    """What happens between two starts, and the second of them.

    That workers of a killed command may still be at work is the command's own matter, unless the fault is about what
    they write.
    """
    until_s = time.monotonic() + START_S
    while fault.of_workers and scene.is_at_work() and time.monotonic() < until_s:
        time.sleep(0.1)
    fault.between(scene)
    scene.start()
    _ended(scene, outcome)
    code = outcome.codes[-1]
    if code not in fault.then:
        outcome.faults.append(f"started again, it ended with {code} ({scene.now.last_line[:200]})")
    if not fault.seen(scene, code):
        outcome.faults.append(f"not noticed: {'; '.join(scene.notes)} ({code}, {scene.now.last_line[:200]})")
    fault.after(scene, code)


def _meet(scene: Scene, fault: Fault, moment: Moment, outcome: Outcome) -> None:
    """Start, and wait for the moment; again where the machine is too busy to start Ray. Unhit where the command has
    done all before."""
    while True:
        scene.start()
        try:
            return moment(scene, lambda: fault.aim(scene))
        except Missed as missed:
            code = scene.now.process.poll()
            if code == DONE:
                raise Unhit(str(missed)) from None
            if code != RESOURCES or len(outcome.codes) == MOST_STARTS:
                raise
            outcome.codes.append(code)


def _go_on(scene: Scene, outcome: Outcome) -> None:
    """The same command until it is finished, and MLflow has all of it."""
    while outcome.codes[-1] != DONE or pending_updates(scene.run):
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
        outcome.faults += [*faults_of(found), *in_the_end(scene, found)]
        shutil.rmtree(ground.root / "whole", ignore_errors=True)
        shutil.copytree(scene.out, ground.root / "whole")
    if outcome.faults or set(outcome.codes) != {DONE}:
        raise RuntimeError(f"the undisturbed run: {outcome.codes} {'; '.join(outcome.faults)} (see {scene.folder})")
    shutil.rmtree(scene.folder)
    shutil.rmtree(scene.ray)
    return found
