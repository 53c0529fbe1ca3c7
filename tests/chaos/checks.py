"""Conditions for a disturbed run: in the end it must equal the undisturbed run."""

import hashlib
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from orchestration.launch import stacks
from orchestration.launch.group import RESTARTS
from orchestration.tracking.store_timeout import pending_updates
from tests.chaos.command import marked
from tests.chaos.ground import Ended, History, results_of
from tests.chaos.scene import Scene

STATUS: Final = {
    0: "FINISHED",
    75: "KILLED",
    130: "KILLED",
    2: "FAILED",
    4: "FAILED",
}  # exit code -> status of the run in MLflow
END_S: Final = 90.0  # time for processes to end after their parents; agents of Ray 2.60 need 62 s
UNFINISHED: Final = (".tmp-*", "*.unfinished", ".owner.json", ".workers.lock", ".room", "*.new", "*.seal")
MAY_STAY: Final = (
    f"{stacks.FOLDER}/",
    "ray-logs/",
    "checkpoints/broken-",
    RESTARTS,
)  # traces of a fault that are left on purpose
MODEL: Final = "model.safetensors"
OF_TORCH: Final = "torchinductor_"  # a cache directory, which every process that imports torch creates


def after_each_end(scene: Scene, code: int) -> Iterator[str]:
    """The faults that are visible after the end of a start."""
    lines = scene.now.refusals()
    if code and len(lines) != 1:
        yield f"ended with {code} and {len(lines)} lines ({' / '.join(lines[:1] + lines[-1:])[:300] or 'nothing'})"
    if left := _processes(scene):
        yield f"after {code}: {left}"
    stored, pending = scene.store.status(scene.run_id), pending_updates(scene.run).get("status")
    is_opened = scene.verb == "train" and scene.now.line_time_s(
        "opening MLflow"
    )  # otherwise an earlier, killed start has set the status
    if is_opened and scene.run_id and STATUS.get(code) not in (stored, pending):
        yield f"after {code}: status {stored or 'missing'} in MLflow, {pending or 'missing'} in the run directory"


def in_the_end(scene: Scene, undisturbed: Ended, runs: Collection[int] = (1,)) -> Iterator[str]:
    """The differences of a finished run from the undisturbed run; `runs` are the allowed numbers of runs in MLflow."""
    found = results_of(scene.run)
    for name, wanted in undisturbed.weights.items():
        if found.weights.get(name) != wanted:
            yield f"{name}: got {found.weights.get(name, 'missing')[:12]}, expected {wanted[:12]}"
    if found.metrics != undisturbed.metrics:
        yield f"metrics.jsonl: {_difference(found.metrics, undisturbed.metrics)}"
    if (mirrored := scene.store.metrics(scene.run_id)) != undisturbed.metrics:
        yield f"metrics in MLflow: {_difference(mirrored, undisturbed.metrics)}"
    if (number := scene.store.runs()) not in runs:
        yield f"MLflow: got {number} runs, expected {' or '.join(map(str, sorted(runs)))}"
    if running := scene.store.running():
        yield f"MLflow: {len(running)} runs have the status RUNNING"
    if (status := scene.store.status(scene.run_id)) != "FINISHED":
        yield f"MLflow: status {status or 'missing'}, expected FINISHED"
    if pending_updates(scene.run):
        yield f"MLflow: missing updates: {pending_updates(scene.run)}"
    if scene.verb == "export" and _sha256(scene.exported / MODEL) != undisturbed.weights[f"export/{MODEL}"]:
        yield f"{scene.exported}: differs from the model of the run"
    if more := [name for name in sorted(found.files - undisturbed.files) if not name.startswith(MAY_STAY)]:
        yield f"additional files: {', '.join(more[:5])}"
    if missing := sorted(undisturbed.files - found.files):
        yield f"missing files: {', '.join(missing[:5])}"
    if unfinished := [str(path.relative_to(scene.out)) for name in UNFINISHED for path in scene.out.rglob(name)]:
        yield f"unfinished files: {', '.join(unfinished[:5])}"
    if left := _processes(scene):
        yield left
    folders = [*scene.ray.iterdir(), *(scene.folder / "tmp").iterdir()]
    if temporary := [str(path) for path in folders if not path.name.startswith(OF_TORCH)]:
        yield f"temporary files: {', '.join(temporary[:5])}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _processes(scene: Scene) -> str:
    """A message with the processes that did not end in time; "" if there are none."""
    until_s = time.monotonic() + END_S
    while left := marked(scene.mark):
        if time.monotonic() > until_s:
            names = [f"{process.pid} {' '.join(process.cmdline())[:60]}" for process in left]
            return f"running processes: {', '.join(names[:5])}"
        time.sleep(0.2)
    return ""


def _difference(found: History, wanted: History) -> str:
    """The first metric that differs, with its first different point."""
    for name in sorted({*found, *wanted}):
        has, wants = found.get(name, []), wanted.get(name, [])
        if has != wants:
            first = next((pair for pair in zip(has, wants, strict=False) if pair[0] != pair[1]), None)
            return f"{name}: got {len(has)} points, expected {len(wants)}; first difference: {first}"
    return "equal"
