"""Weight files: directories in Sesame's own format, and directories for `transformers`. No file is unpickled.

Start with bert.py and opt.py (formats are tables), then format.py (what a format does with its tables), keys.py,
names.py and round_trip.py (whether two models compute the same). classes.py finds the class and the pipeline of a
model. weights.py, export.py and load.py write and read weights, task_heads.py those of fine-tuned models.
The formats, classes.py and spec_file.py do not import torch: the driver describes models without it.
"""

from typing import TYPE_CHECKING, Final

from preprocessing.imports import import_on_use
from training.formats.transformers_pipeline import TransformersPipeline

if TYPE_CHECKING:
    from training.formats.all import FORMATS
    from training.formats.classes import (
        auto_class,
        describe_export,
        model_type,
        pipeline,
        uses_all_weights,
        without_heads,
        write_for_pipeline,
    )
    from training.formats.electra import half
    from training.formats.export import to_transformers
    from training.formats.load import from_transformers, model_spec
    from training.formats.sharded import weight_files, with_heartbeat
    from training.formats.spec_file import load_spec
    from training.formats.start import build_model, describe_model, require_fitting_weights
    from training.formats.task_heads import (
        TaskWeights,
        describe_task_export,
        describe_task_head,
        task_from_transformers,
        task_to_transformers,
    )
    from training.formats.weights import load_weights, save_weights

__all__ = [
    "FORMATS",
    "TaskWeights",
    "TransformersPipeline",
    "auto_class",
    "build_model",
    "describe_export",
    "describe_model",
    "describe_task_export",
    "describe_task_head",
    "from_transformers",
    "half",
    "load_spec",
    "load_weights",
    "model_spec",
    "model_type",
    "pipeline",
    "require_fitting_weights",
    "save_weights",
    "task_from_transformers",
    "task_to_transformers",
    "to_transformers",
    "uses_all_weights",
    "weight_files",
    "with_heartbeat",
    "without_heads",
    "write_for_pipeline",
]

_LAZY: Final = {
    "all": ("FORMATS",),
    "electra": ("half",),
    "classes": (
        "auto_class",
        "describe_export",
        "model_type",
        "pipeline",
        "uses_all_weights",
        "without_heads",
        "write_for_pipeline",
    ),
    "export": ("to_transformers",),
    "load": (
        "from_transformers",
        "model_spec",
    ),
    "sharded": (
        "weight_files",
        "with_heartbeat",
    ),
    "start": (
        "build_model",
        "describe_model",
        "require_fitting_weights",
    ),
    "task_heads": (
        "TaskWeights",
        "describe_task_export",
        "describe_task_head",
        "task_from_transformers",
        "task_to_transformers",
    ),
    "spec_file": ("load_spec",),
    "weights": (
        "load_weights",
        "save_weights",
    ),
}

__getattr__: Final = import_on_use(__name__, _LAZY)
