"""The parallel layouts of a run over time: `layouts.json` in its directory, and tags in MLflow.

A run may continue with another number of workers, another ZeRO stage or another precision. Each layout is recorded with
the step at which it began, so that the history of a run is known.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import of_kind, parse_json, write_atomic
from training.specs import EngineSettings

LAYOUTS: Final = "layouts.json"  # file in the run directory
_REMEDY: Final = "delete it, which loses the earlier layouts of the run"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The number of workers, and how they share a model and its batch."""

    num_workers: int
    zero_stage: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    sequence_parallel_size: int
    precision: str

    @classmethod
    def of(cls, engine: EngineSettings, num_workers: int) -> "Layout":
        """The layout of an engine with this number of workers."""
        return cls(
            num_workers=num_workers,
            zero_stage=engine.zero_stage,
            tensor_parallel_size=engine.tensor_parallel_size,
            pipeline_parallel_size=engine.pipeline_parallel_size,
            sequence_parallel_size=engine.sequence_parallel_size,
            precision=engine.precision,
        )

    def describe(self) -> str:
        """The layout in a few words.

        >>> Layout.of(EngineSettings(zero_stage=3, tensor_parallel_size=2), 4).describe()
        '4 workers, ZeRO 3, tensor parallel 2, fp32'
        """
        sizes = {name: getattr(self, f"{name}_parallel_size") for name in ("tensor", "pipeline", "sequence")}
        parallel = [f"{name} parallel {size}" for name, size in sizes.items() if size > 1]
        workers = f"{self.num_workers:,} worker{'s' * (self.num_workers != 1)}"
        return ", ".join([workers, f"ZeRO {self.zero_stage}", *parallel, self.precision])


@dataclass(frozen=True, kw_only=True)
class LayoutPeriod:
    """A layout, the step from which it was used, and the command and the cluster file that set it."""

    step: int
    layout: Layout
    time: str = ""  # ISO 8601, UTC
    command: str = ""
    cluster: str = ""  # YAML


@dataclass(frozen=True)
class LayoutHistory:
    """The layouts of the run in `folder`. `origin` has the command and the cluster file of this command."""

    folder: Path
    origin: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> list[LayoutPeriod]:
        """The recorded periods in order. Raises BadInput if the file is damaged."""
        file = self.folder / LAYOUTS
        if not file.is_file():
            return []
        with of_kind(file, _REMEDY):
            return [LayoutPeriod(**{**one, "layout": Layout(**one["layout"])}) for one in parse_json(file.read_bytes())]

    def check_precision(self, step: int, precision: str) -> None:
        """Raise BadInput if the run was trained with another precision until `step`, where it continues.

        A worker would refuse the checkpoint, but only after the history and MLflow had got the layout.
        """
        before = [period.layout.precision for period in self.read() if period.step < step]
        if before and before[-1] != precision:
            raise BadInput(
                f"{self.folder}: was trained with precision {before[-1]}, but this run has precision {precision}; "
                f"resume with cluster.engine.precision={before[-1]}, or start again with --resume never"
            )

    def add(self, step: int, layout: Layout) -> list[LayoutPeriod]:
        """Record a layout that begins at `step`, unless it is the current one; returns all periods.

        Periods that began at this step or later are removed, because the run repeats their steps.
        """
        periods = [period for period in self.read() if period.step < step]
        if not periods or periods[-1].layout != layout:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            periods.append(LayoutPeriod(step=step, layout=layout, time=now, **self.origin))
        content = json.dumps([asdict(period) for period in periods], indent=1)
        write_atomic(self.folder / LAYOUTS, content.encode())
        return periods


def tags_of(periods: Sequence[LayoutPeriod], num_planned: int) -> dict[str, Any]:
    """The tags of a run with several layouts: its current number of workers, and both histories.

    {} if the run has had one layout, with the planned number of workers, from the start.

    >>> two, one = Layout.of(EngineSettings(), 2), Layout.of(EngineSettings(zero_stage=3), 1)
    >>> periods = [LayoutPeriod(step=0, layout=two), LayoutPeriod(step=501, layout=one)]
    >>> tags_of(periods, 1)["num_workers_history"]
    '2 from step 0, 1 from step 501'
    >>> tags_of(periods, 1)["layout_history"]
    '2 workers, ZeRO 2, fp32 from step 0; 1 worker, ZeRO 3, fp32 from step 501'
    >>> tags_of(periods[:1], 2)
    {}
    """
    current = periods[-1].layout.num_workers
    if len(periods) == 1 and periods[0].step == 0 and current == num_planned:
        return {}
    numbers = [next(group) for _, group in groupby(periods, key=lambda period: period.layout.num_workers)]
    return {
        "num_workers": current,
        "num_workers_history": ", ".join(f"{one.layout.num_workers} from step {one.step}" for one in numbers),
        "layout_history": "; ".join(f"{one.layout.describe()} from step {one.step}" for one in periods),
    }
