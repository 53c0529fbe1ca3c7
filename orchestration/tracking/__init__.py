"""MLflow: runs of training, corpora as runs, and metrics that survive a crash. Only this package imports mlflow.

Read runs.py first. The metadata of a run are in metadata.py, and its metrics in metrics.py. Trained models and the
model registry are in models.py, builds of corpora in corpus_runs.py, and scores of downstream tasks in scores.py. The
UI is served by server.py. Slow stores are handled by store_timeout.py, and addresses of stores are checked by
stores.py.
"""

from typing import TYPE_CHECKING, Final

from orchestration.tracking.metadata import Metadata, flatten_params, hardware, run_name
from orchestration.tracking.metrics import METRICS_FILE, MetricLog, history
from orchestration.tracking.runs import (
    RUN_FILE,
    TrackedRun,
    TrackingStore,
    catch_up,
    client_of,
    complete,
    examine_store,
    existing_run,
    explain_missing_run,
    find_run_directories,
    load_mlflow,
    log_and_suppress,
    log_figures,
    log_scores,
    log_table,
    log_tags,
    mirror,
    read_unlogged_metrics,
    run,
    tag,
    tracking_store,
)
from orchestration.tracking.store_timeout import (
    BEHIND,
    MOST_S,
    add_pending,
    clear_pending,
    pending_updates,
    redact,
    summarize_error,
    wait_while_available,
)
from preprocessing.imports import import_on_use

if TYPE_CHECKING:  # these import recipes and reports, which the workers do not need
    from orchestration.tracking.corpus_runs import corpus_metadata, corpus_progress, corpus_run, log_card
    from orchestration.tracking.models import STATE, ModelVersion, log_model, register, update_card
    from orchestration.tracking.scores import (
        FinetunedRecord,
        TaskDataset,
        TaskRecord,
        TrialRecord,
        log_comparison,
        log_finetuned,
        log_page,
        log_task,
        register_finetuned,
    )

__all__ = [
    "BEHIND",
    "METRICS_FILE",
    "MOST_S",
    "RUN_FILE",
    "STATE",
    "FinetunedRecord",
    "Metadata",
    "MetricLog",
    "ModelVersion",
    "TaskDataset",
    "TaskRecord",
    "TrackedRun",
    "TrackingStore",
    "TrialRecord",
    "add_pending",
    "catch_up",
    "clear_pending",
    "client_of",
    "complete",
    "corpus_metadata",
    "corpus_progress",
    "corpus_run",
    "examine_store",
    "existing_run",
    "explain_missing_run",
    "find_run_directories",
    "flatten_params",
    "hardware",
    "history",
    "load_mlflow",
    "log_and_suppress",
    "log_card",
    "log_comparison",
    "log_figures",
    "log_finetuned",
    "log_model",
    "log_page",
    "log_scores",
    "log_table",
    "log_tags",
    "log_task",
    "mirror",
    "pending_updates",
    "read_unlogged_metrics",
    "redact",
    "register",
    "register_finetuned",
    "run",
    "run_name",
    "summarize_error",
    "tag",
    "tracking_store",
    "update_card",
    "wait_while_available",
]

_LAZY: Final = {
    "corpus_runs": ("corpus_metadata", "corpus_progress", "corpus_run", "log_card"),
    "models": ("STATE", "ModelVersion", "log_model", "register", "update_card"),
    "scores": (
        *("FinetunedRecord", "TaskDataset", "TaskRecord", "TrialRecord", "log_comparison"),
        *("log_finetuned", "log_page", "log_task", "register_finetuned"),
    ),
}

__getattr__: Final = import_on_use(__name__, _LAZY)
