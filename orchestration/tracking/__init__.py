"""MLflow: runs, corpora as runs, metrics that survive a crash. The only mlflow.

Read runs.py first, then metadata.py (what a run says of itself), metrics.py, models.py (the net as an MLflow model, and
the registry), corpus_runs.py, scores.py (downstream tasks); server.py is the UI;
patience.py waits for a store that is slow, stores.py says which there are.
"""

from orchestration.tracking.corpus_runs import corpus_metadata, corpus_progress, corpus_run, log_card
from orchestration.tracking.metadata import Metadata, hardware
from orchestration.tracking.metrics import METRICS_FILE, MetricLog, history
from orchestration.tracking.models import STATE, ModelVersion, log_model, register
from orchestration.tracking.runs import (
    RUN_FILE,
    TrackedRun,
    TrackingStore,
    catch_up,
    client_of,
    complete,
    examined,
    known,
    log_and_suppress,
    log_figures,
    log_scores,
    log_table,
    mirror,
    owed,
    place,
    run,
    tag,
    tell,
    unanswered,
)
from orchestration.tracking.scores import TaskRecord, TrialRecord, log_page, log_task
from orchestration.tracking.store_timeout import (
    BEHIND,
    MOST_S,
    behind,
    forget,
    hidden,
    in_a_line,
    note_behind,
    while_there,
)

__all__ = [
    "BEHIND",
    "METRICS_FILE",
    "MOST_S",
    "RUN_FILE",
    "STATE",
    "Metadata",
    "MetricLog",
    "ModelVersion",
    "TaskRecord",
    "TrackedRun",
    "TrackingStore",
    "TrialRecord",
    "behind",
    "catch_up",
    "client_of",
    "complete",
    "corpus_metadata",
    "corpus_progress",
    "corpus_run",
    "examined",
    "forget",
    "hardware",
    "hidden",
    "history",
    "in_a_line",
    "known",
    "log_and_suppress",
    "log_card",
    "log_figures",
    "log_model",
    "log_page",
    "log_scores",
    "log_table",
    "log_task",
    "mirror",
    "note_behind",
    "owed",
    "place",
    "register",
    "run",
    "tag",
    "tell",
    "unanswered",
    "while_there",
]
