"""Play one point: start a run, inject the fault at its moment, and repeat the same command until it succeeds.

If the fault came too late to hit anything, the point proves nothing. It is then played again with another fraction of a
second, and after several tries it counts as failed.
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
from tests.chaos.ground import START_S, Ended, Ground, faults_of, results_of
from tests.chaos.plan import COPYING, TABLE, Moment, Point
from tests.chaos.scene import Scene

MOST_STARTS = 5
MOST_TRIES = 4  # for a point whose fault hits nothing
AGAIN = (PREEMPTED, RESOURCES, KILLED, INTERRUPTED)  # exit codes after which a scheduler repeats a command


class Unhit(Exception):
    """The fault hit nothing."""


@dataclass
class Outcome:
    """The outcome of a point."""

    point: Point
    faults: list[str] = field(default_factory=list)  # faults of Sesame; [] if the point succeeded
    notes: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)  # exit codes of the starts
    seconds: float = 0.0
    next_step_s: float = 0.0  # time from the strike to the next logged step, if the same start continued
    start_s: float = 0.0  # part of that time, until the new worker processes had started and imported their packages
    tries: int = 1
    unhit: str = ""  # why the fault hit nothing in the last try
    logs: str = ""


def play(point: Point, ground: Ground, undisturbed: Ended) -> Outcome:
    """Play a point until its fault hits, at most MOST_TRIES times; after that it counts as failed."""
    return repeat_until_hit(lambda tries: _play_once(point, ground, undisturbed, tries))


def repeat_until_hit(once: Callable[[int], Outcome]) -> Outcome:
    """The outcome of the first try whose fault hits or that fails; `once` receives the number of earlier tries.

    If no fault hits, the result is the last outcome, as a failure.
    """
    tries = 0
    while True:
        outcome = once(tries)
        tries += 1
        outcome.tries = tries
        if outcome.unhit and tries == MOST_TRIES:
            outcome.faults.append(f"not tested: the fault hit nothing in {MOST_TRIES} tries: {outcome.unhit}")
        if outcome.faults or not outcome.unhit:
            return outcome


def _play_once(point: Point, ground: Ground, undisturbed: Ended, tries: int) -> Outcome:
    """One try in a new directory, which stays if the try fails."""
    kind, moments = TABLE[point.fault]
    outcome, fault, began_s = Outcome(point), kind(), time.monotonic()
    with _scene(point, ground, fault, tries) as scene:
        try:
            with fault.around(scene):
                _disturb(scene, fault, moments[point.moment], outcome)
                _repeat(scene, outcome)
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
            shutil.rmtree(scene.ray, ignore_errors=True)  # its files were not checked
        if outcome.faults or (outcome.unhit and tries + 1 == MOST_TRIES):
            outcome.logs = str(scene.folder)
        else:
            shutil.rmtree(scene.folder)
        with suppress(OSError):
            scene.ray.rmdir()  # the directory is empty except after a failure
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
    """Start the command, inject the fault, and check the end of this start."""
    _start_and_wait(scene, fault, moment, outcome)
    command, step = scene.now, scene.step
    scene.struck_s = time.monotonic()
    fault.strike(scene)
    if scene.verb == "train":
        with suppress(Missed):  # the command ends without another step
            command.until(lambda: scene.step > step, START_S, 0.02)
            outcome.next_step_s = time.monotonic() - scene.struck_s
    _wait(scene, outcome)
    outcome.start_s = started_s(command, scene.struck_s)
    code = outcome.codes[-1]
    is_hit = fault.hit(scene, code)
    if code not in fault.ends and (is_hit or code != DONE):
        outcome.faults.append(f"ended with {code} ({scene.now.last_line[:200]})")
    if not is_hit:
        raise Unhit(f"{'; '.join(scene.notes)}; the command ended with {code} ({scene.now.last_line[:200]})")
    outcome.faults += fault.wrong(scene, code)
    fault.relieve(scene)
    if isinstance(fault, Between):
        _start_between(scene, fault, outcome)


def started_s(command: Command, since_s: float) -> float:
    """The time that the first workers after `since_s` took to start and import packages; 0 if none started."""
    start_s = command.line_time_s("starting workers", since_s=since_s)
    build_s = command.line_time_s("building the model", since_s=start_s)
    return build_s - start_s if start_s and build_s else 0.0


def _start_between(scene: Scene, fault: Between, outcome: Outcome) -> None:
    """Inject a fault between two starts, and run and check the second start.

    Workers of the killed command may still run: the command must handle that. Only a fault in files that they write
    waits until they have ended.
    """
    until_s = time.monotonic() + START_S
    while fault.of_workers and scene.is_at_work() and time.monotonic() < until_s:
        time.sleep(0.1)
    fault.between(scene)
    scene.start()
    _wait(scene, outcome)
    code = outcome.codes[-1]
    if code not in fault.then:
        outcome.faults.append(f"the second start ended with {code} ({scene.now.last_line[:200]})")
    if not fault.seen(scene, code):
        outcome.faults.append(f"not noticed: {'; '.join(scene.notes)} ({code}, {scene.now.last_line[:200]})")
    fault.after(scene, code)


def _start_and_wait(scene: Scene, fault: Fault, moment: Moment, outcome: Outcome) -> None:
    """Start the command and wait for the moment. Raises Unhit if the command finishes before the moment.

    If the machine is too busy to start Ray, the command is started again.
    """
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


def _repeat(scene: Scene, outcome: Outcome) -> None:
    """Repeat the command until it succeeds and MLflow has all updates."""
    while outcome.codes[-1] != DONE or pending_updates(scene.run):
        if outcome.codes[-1] not in (*AGAIN, DONE, BAD_INPUT):
            outcome.faults.append(f"exit code {outcome.codes[-1]}, after which a scheduler does not repeat a command")
        if len(outcome.codes) == MOST_STARTS:
            raise Missed(f"not finished after {MOST_STARTS} starts ({scene.now.last_line[:200]})")
        scene.start()
        _wait(scene, outcome)


def _wait(scene: Scene, outcome: Outcome) -> None:
    """Wait for the end of a start, and check what it left behind."""
    code = scene.now.wait(START_S)
    outcome.codes.append(code)
    if code >= 0:
        outcome.faults += after_each_end(scene, code)


def undisturbed(ground: Ground) -> Ended:
    """Run without a fault and return the results; RuntimeError if they are invalid."""
    outcome, point = Outcome(Point("nothing", "", 0)), Point("nothing", "", 0)
    with _scene(point, ground, Fault()) as scene:
        scene.start()
        _wait(scene, outcome)
        _repeat(scene, outcome)  # on a busy machine, MLflow may lack updates
        found = results_of(scene.run)
        outcome.faults += [*faults_of(found), *in_the_end(scene, found)]
        shutil.rmtree(ground.root / "whole", ignore_errors=True)
        shutil.copytree(scene.out, ground.root / "whole")
    if outcome.faults or set(outcome.codes) != {DONE}:
        raise RuntimeError(f"the undisturbed run: {outcome.codes} {'; '.join(outcome.faults)} (see {scene.folder})")
    shutil.rmtree(scene.folder)
    shutil.rmtree(scene.ray)
    return found
