"""The interface of a tracker, and the file in the run directory with the trackers of a run."""

import importlib.metadata
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from preprocessing.files import of_kind, parse_json, write_atomic

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

SETUP: Final = "trackers.json"  # file in the run directory
_REMEDY: Final = "delete it, and resume the run with `sesame train`"


@dataclass(frozen=True, kw_only=True)
class TrackerSetup:
    """The trackers of a run, what they record at its start, and how many bytes of its metrics each of them has."""

    run_id: str  # letters and digits
    name: str
    kinds: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # description in Markdown
    sent: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "TrackerSetup | None":
        """The trackers of the run in `folder`; None if it has none. Raises BadInput if the file is damaged."""
        file = folder / SETUP
        if not file.is_file():
            return None
        with of_kind(file, _REMEDY):
            values: dict[str, Any] = parse_json(file.read_bytes())
            return cls(**{**values, "kinds": tuple(values["kinds"])})

    def write(self, folder: Path) -> None:
        """Write the file of the run in `folder`."""
        write_atomic(folder / SETUP, json.dumps(asdict(self), indent=1).encode())


class Tracker(Protocol):
    """A tracker of one run. Its methods are called in one thread; any exception ends this tracker, and not the run."""

    kind: ClassVar[str]
    """Its name in `cluster.trackers`."""

    package: ClassVar[str]
    """The package that it needs, as `pip install` names it."""

    directory: ClassVar[str]
    """The directory inside the run directory that it writes to."""

    def __init__(self, folder: Path, setup: TrackerSetup, is_new: bool) -> None:
        """Continue the files of the run in `folder`; with `is_new`, record its parameters and its description."""

    def log_metrics(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        """Record metrics of a step. `time_s` is in seconds since the epoch. Values may be NaN."""

    def log_figures(self, step: int, figures: "Mapping[str, Figure]") -> None:
        """Record figures by name."""

    def flush(self) -> None:
        """Write everything to disk."""

    def close(self) -> None:
        """Write everything to disk, and end."""


def draw_pixels(figure: "Figure") -> Any:
    """The pixels of a figure: uint8 [height, width, 3]. torch's add_figure would use pyplot, which has global state."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def is_installed(tracker: type[Tracker]) -> bool:
    """Whether the package of a tracker is installed."""
    try:
        importlib.metadata.distribution(tracker.package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def write_setup(folder: Path, kinds: Sequence[str], name: str, params: Mapping[str, str], note: str) -> None:
    """Set the trackers of the run in `folder`. A tracker that it has already continues; a new one gets all metrics of
    the run. Without `kinds`, the run has no tracker from now on."""
    before = TrackerSetup.read(folder)
    if not kinds and before is None:
        return
    known = before or TrackerSetup(run_id=uuid.uuid4().hex[:12], name=name, kinds=())
    setup = TrackerSetup(
        run_id=known.run_id, name=name, kinds=tuple(kinds), params=dict(params), note=note, sent=known.sent
    )
    setup.write(folder)
