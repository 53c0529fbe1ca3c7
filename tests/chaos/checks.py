"""What must be true of a run that was disturbed: nothing can be seen of it."""

import hashlib
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from orchestration.launch import stacks
from orchestration.launch.group import RESTARTS
from orchestration.tracking.store_timeout import pending_updates
from tests.chaos.command import marked
from tests.chaos.ground import Ended, History, ended
from tests.chaos.scene import Scene

STATUS: Final = {0: "FINISHED", 75: "KILLED", 130: "KILLED", 2: "FAILED", 4: "FAILED"}  # of the run, by exit code
END_S: Final = 90.0  # for processes to notice that those above them are gone: agents of Ray 2.60 take 62
UNFINISHED: Final = (".tmp-*", "*.unfinished", ".owner.json", ".workers.lock", ".room", "*.new", "*.seal")
MAY_STAY: Final = (f"{stacks.FOLDER}/", "ray-logs/", "checkpoints/broken-", RESTARTS)  # what a fault leaves to look at
MODEL: Final = "model.safetensors"
OF_TORCH: Final = "torchinductor_"  # a folder of its cache, which every process that imports it makes


def after_each_end(scene: Scene, code: int) -> Iterator[str]:
    """What is wrong when a start has ended by itself."""
    lines = scene.now.refusals()
    if code and len(lines) != 1:
        yield f"ended with {code} and {len(lines)} lines ({' / '.join(lines[:1] + lines[-1:])[:300] or 'nothing'})"
    if left := _processes(scene):
        yield f"after {code}: {left}"
    told, kept = scene.store.status(scene.run_id), pending_updates(scene.run).get("status")
    came_to_it = scene.verb == "train" and scene.now.said_s("opening MLflow")  # else it says what a killed start left
    if came_to_it and scene.run_id and STATUS.get(code) not in (told, kept):
        yield f"after {code} MLflow says {told or 'nothing'}, and the run's folder {kept or 'nothing'}"


def in_the_end(scene: Scene, undisturbed: Ended, runs: Collection[int] = (1,)) -> Iterator[str]:
    """What is wrong with a run that has finished; `runs`: how many MLflow may have of it."""
    found = ended(scene.run)
    for name, wanted in undisturbed.weights.items():
        if found.weights.get(name) != wanted:
            yield f"{name} is {found.weights.get(name, 'missing')[:12]}, undisturbed {wanted[:12]}"
    if found.metrics != undisturbed.metrics:
        yield f"metrics.jsonl: {_difference(found.metrics, undisturbed.metrics)}"
    if (mirrored := scene.store.metrics(scene.run_id)) != undisturbed.metrics:
        yield f"metrics in MLflow: {_difference(mirrored, undisturbed.metrics)}"
    if (number := scene.store.runs()) not in runs:
        yield f"MLflow: {number} runs, wanted is {' or '.join(map(str, sorted(runs)))}"
    if running := scene.store.running():
        yield f"MLflow: {len(running)} runs say RUNNING"
    if (status := scene.store.status(scene.run_id)) != "FINISHED":
        yield f"MLflow: the run is {status or 'missing'}"
    if pending_updates(scene.run):
        yield f"MLflow still lacks {pending_updates(scene.run)}"
    if scene.verb == "export" and _sha256(scene.exported / MODEL) != undisturbed.weights[f"export/{MODEL}"]:
        yield f"{scene.exported}: not the model of the run"
    if more := [name for name in sorted(found.files - undisturbed.files) if not name.startswith(MAY_STAY)]:
        yield f"files: {', '.join(more[:5])}"
    if lacking := sorted(undisturbed.files - found.files):
        yield f"no files: {', '.join(lacking[:5])}"
    if unfinished := [str(path.relative_to(scene.out)) for name in UNFINISHED for path in scene.out.rglob(name)]:
        yield f"unfinished: {', '.join(unfinished[:5])}"
    if left := _processes(scene):
        yield left
    folders = [*scene.ray.iterdir(), *(scene.folder / "tmp").iterdir()]
    if temporary := [str(path) for path in folders if not path.name.startswith(OF_TORCH)]:
        yield f"temporary: {', '.join(temporary[:5])}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _processes(scene: Scene) -> str:
    """Processes that have not ended in time; "" where there are none."""
    until_s = time.monotonic() + END_S
    while left := marked(scene.mark):
        if time.monotonic() > until_s:
            names = [f"{process.pid} {' '.join(process.cmdline())[:60]}" for process in left]
            return f"processes: {', '.join(names[:5])}"
        time.sleep(0.2)
    return ""


def _difference(found: History, wanted: History) -> str:
    """The first metric that differs, and where."""
    for name in sorted({*found, *wanted}):
        has, wants = found.get(name, []), wanted.get(name, [])
        if has != wants:
            odd = next((pair for pair in zip(has, wants, strict=False) if pair[0] != pair[1]), None)
            return f"{name} has {len(has)} points for {len(wants)}, the first that differs: {odd}"
    return "equal"
