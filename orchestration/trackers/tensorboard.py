"""TensorBoard: event files in `tensorboard/` of the run directory, by torch's SummaryWriter.

Each command adds an event file; TensorBoard shows the files of a directory as one run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from orchestration.trackers.tracker import TrackerSetup, draw_pixels

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure


class TensorBoard:
    """Writes scalars, images of figures, and the parameters as text and as hyperparameters."""

    kind: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"
    directory: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path, setup: TrackerSetup, is_new: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(folder / self.directory))
        if not is_new:
            return
        rows = "\n".join(f"| {name} | {_escape(value)} |" for name, value in setup.params.items())
        self._writer.add_text("description", setup.note or setup.name, 0)
        self._writer.add_text("parameters", f"| parameter | value |\n|---|---|\n{rows}", 0)
        for summary in hparams(dict(setup.params), {"train/loss": 0.0}):
            self._writer._get_file_writer().add_summary(summary)

    def log_metrics(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=time_s)

    def log_figures(self, step: int, figures: "Mapping[str, Figure]") -> None:
        for name, figure in figures.items():
            self._writer.add_image(f"figures/{name}", draw_pixels(figure), step, dataformats="HWC")

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _escape(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
