"""Weights & Biases: files in `wandb/` of the run directory. Nothing is sent, unless the user sets WANDB_MODE.

Each command adds a directory `offline-run-TIME-ID` with the same run ID. `wandb sync` sends all of them to one run
(before version 0.30 with `--append`).
"""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from orchestration.trackers.tracker import TrackerSetup, draw_pixels

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure

PROJECT: Final = "sesame"  # unless WANDB_PROJECT is set


class WandB:
    """Writes metrics, images of figures, and the parameters as the configuration of a run, in offline mode."""

    kind: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"
    directory: ClassVar[str] = "wandb"

    def __init__(self, folder: Path, setup: TrackerSetup, is_new: bool) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read at the import
        wandb: Any = import_module(self.package)  # by its name, because it is no requirement of Sesame
        self._run = wandb.init(
            id=setup.run_id,
            name=setup.name,
            notes=setup.note,
            project=os.environ.get("WANDB_PROJECT", "") or PROJECT,
            dir=str(folder),
            config=dict(setup.params),
            mode=os.environ.get("WANDB_MODE", "") or "offline",
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                silent=True,
                save_code=False,
                disable_git=True,
                disable_job_creation=True,
                x_disable_stats=True,  # MLflow has the metrics of the machine
                x_disable_machine_info=True,
            ),
        )
        self._run.define_metric("*", step_metric="step")
        self._image = wandb.Image

    def log_metrics(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step, "_timestamp": time_s})

    def log_figures(self, step: int, figures: "Mapping[str, Figure]") -> None:
        self._run.log({f"figures/{name}": self._image(draw_pixels(figure)) for name, figure in figures.items()})

    def flush(self) -> None:
        """W&B writes by itself, in another process."""

    def close(self) -> None:
        self._run.finish(exit_code=0)
