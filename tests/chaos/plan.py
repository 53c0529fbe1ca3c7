"""The table of `make chaos`, which lists the moments of each fault, and the selection of points from it."""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.chaos import faults, moments
from tests.chaos.faults import Fault
from tests.chaos.ground import SAVE_EVERY
from tests.chaos.moments import WITH_WORKERS, WITHOUT_WORKERS, Aim
from tests.chaos.scene import Scene

COPYING: Final = "sesame export"  # the moment of this other command, on a finished run
Moment = Callable[[Scene, Aim], None]
Moments = dict[str, Moment]

ANY_START: Final[Moment] = partial(moments.starting, stages=(*WITHOUT_WORKERS, "starting workers", *WITH_WORKERS))
WORKERS_START: Final[Moment] = partial(moments.starting, stages=WITH_WORKERS)
RAY_STARTED: Final[Moment] = partial(moments.starting, stages=("starting workers", *WITH_WORKERS))
STORE_OPENED: Final[Moment] = partial(moments.starting, stages=("starting Ray", "starting workers", *WITH_WORKERS))
AT_WORK: Final[Moments] = {"training": moments.training, "saving": moments.saving, "restarting": moments.restarting}
LATE: Final[Moments] = {"exporting": moments.exporting}
THE_END: Final[Moments] = {"ending": moments.ending}
EXPORT: Final[Moments] = {COPYING: moments.copying}
TRAINING: Final[Moments] = {"training": moments.training}
SAVED: Final[Moments] = {"training": partial(moments.training, first=moments.TWO_SAVED)}
AT_WORK_SAVED: Final[Moments] = {**SAVED, "saving": partial(moments.saving, first=3 * SAVE_EVERY)}

TABLE: Final[dict[str, tuple[type[Fault], Moments]]] = {
    "kill worker": (faults.KillWorker, {"starting": WORKERS_START, **AT_WORK, **LATE}),
    "kill first worker": (faults.KillFirstWorker, {"starting": WORKERS_START, **AT_WORK, **LATE}),
    "kill driver": (faults.KillDriver, {"starting": ANY_START, **AT_WORK, **LATE, **THE_END, **EXPORT}),
    "kill raylet": (faults.KillRaylet, {"starting": RAY_STARTED, **AT_WORK, **LATE, **THE_END}),
    "kill head": (faults.KillHead, {"starting": RAY_STARTED, **AT_WORK, **LATE, **THE_END}),
    "SIGTERM": (faults.Terminate, {"starting": ANY_START, **AT_WORK, **LATE, **EXPORT}),
    "SIGTERM twice": (faults.TerminateTwice, {"starting": ANY_START, **AT_WORK, **LATE}),
    "SIGTERM on a slow disk": (faults.TerminateOnSlowDisk, {"saving": moments.saving}),
    "SIGINT": (faults.Interrupt, {"starting": ANY_START, **TRAINING}),
    "SIGSTOP worker": (faults.StopWorker, {"training": moments.training, "saving": moments.saving}),
    "SIGSTOP raylet": (faults.StopRaylet, {"training": moments.training, **LATE}),
    "SIGSTOP driver": (faults.StopDriver, {"training": moments.training}),
    "short partition": (faults.Partition, {"training": moments.training, "saving": moments.saving, **LATE}),
    "long partition": (faults.LongPartition, {"starting": WORKERS_START, "training": moments.training}),
    "disk full": (faults.FullDisk, {"starting": ANY_START, "training": moments.training, **LATE, **EXPORT}),
    "MLflow locked": (faults.LockedStore, {"starting": STORE_OPENED, "training": moments.training, **LATE, **THE_END}),
    "MLflow locked between two starts": (faults.LockedBetween, TRAINING),
    "MLflow down": (faults.DeadServer, {"starting": ANY_START, "training": moments.training, **LATE}),
    "MLflow hangs": (faults.HangingServer, {"training": moments.training, **THE_END}),
    "no memory": (
        faults.LimitMemory,
        {"training": moments.training, "saving": moments.saving},
    ),  # an export allocates no memory
    "killed for memory": (faults.KillForMemory, TRAINING),
    "killed for memory, no restart": (faults.KillForMemoryAtLast, TRAINING),
    "checkpoint damaged at work": (faults.DamageAtWork, AT_WORK_SAVED),
    "checkpoint flipped": (faults.Checkpoint, SAVED),
    "checkpoint cut": (faults.CutCheckpoint, SAVED),
    "checkpoint manifest flipped": (faults.CheckpointManifest, SAVED),
    "checkpoint state cut": (faults.CutCheckpointState, SAVED),
    "shard flipped": (faults.Shard, SAVED),
    "shard cut": (faults.CutShard, SAVED),
    "corpus manifest flipped": (faults.CorpusManifest, SAVED),
    "metrics.jsonl flipped": (faults.Record, TRAINING),
    "metrics.jsonl cut": (faults.CutRecord, TRAINING),
    "pretrain.json flipped": (faults.RunFile, TRAINING),
    "mlflow.json cut": (faults.CutTracked, TRAINING),
    "code.json flipped": (faults.Code, TRAINING),
    "mlflow-behind.json cut": (faults.Lacks, TRAINING),
    "lock garbled": (faults.Lock, TRAINING),
}


@dataclass(frozen=True)
class Point:
    """One fault at one moment; the seed selects the stage, step, file and fraction of a second."""

    fault: str
    moment: str
    seed: int

    @property
    def name(self) -> str:
        """
        >>> Point("kill worker", "saving", 7).name
        'kill-worker-saving-7'
        """
        return f"{self.fault}-{self.moment}-{self.seed}".replace(" ", "-").lower()

    @property
    def rng(self) -> random.Random:
        """The random generator of this point."""
        return self.drawn(0)

    def drawn(self, tries: int) -> random.Random:
        """The random generator of a repetition, after `tries` earlier ones."""
        return random.Random(zlib.crc32(self.name.encode(), tries))


def lacking(point: Point) -> str:
    """The reason why a point cannot be played on this machine; "" if it can."""
    return TABLE[point.fault][0]().lacks()


def points(number: int = 0, seed: int = 0, only: str = "") -> list[Point]:
    """The points of a seed: `number` pairs of fault and moment in turn, or each pair once if `number` is 0.

    Only pairs with the text `only` in their names are used.
    """
    pairs = [(fault, moment) for fault, (_, row) in TABLE.items() for moment in row]
    pairs = [(fault, moment) for fault, moment in pairs if only in f"{fault} {moment}"]
    random.Random(seed).shuffle(pairs)  # so that a few points are a random sample
    wanted = number or len(pairs)
    return [Point(*pairs[at % len(pairs)], seed=seed + at // len(pairs)) for at in range(wanted)] if pairs else []
