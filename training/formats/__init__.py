"""Weight files: directories in Sesame's own format, and directories for `transformers`. No file is unpickled.

Start with format.py (the interface of a format) and bert.py (one of the formats). weights.py, export.py and load.py
use them. task_heads.py writes and loads fine-tuned models.
"""

from training.formats.all import FORMATS
from training.formats.electra import half
from training.formats.export import (
    auto_class,
    describe_export,
    model_type,
    pipeline,
    to_transformers,
    uses_all_weights,
    without_heads,
    write_for_pipeline,
)
from training.formats.format import TransformersPipeline
from training.formats.load import from_transformers, model_spec
from training.formats.sharded import files as weight_files
from training.formats.sharded import with_heartbeat
from training.formats.start import build_model, describe_model, require_fitting_weights
from training.formats.task_heads import (
    TaskWeights,
    describe_task_export,
    describe_task_head,
    task_from_transformers,
    task_to_transformers,
)
from training.formats.weights import load_spec, load_weights, save_weights

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
