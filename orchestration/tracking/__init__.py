"""MLflow: runs, corpora as runs, metrics that survive a crash. The only mlflow.

Read runs.py first, then metrics.py and corpus_runs.py.
"""

from orchestration.tracking.corpus_runs import corpus_metadata, corpus_progress, corpus_run, log_card
from orchestration.tracking.metadata import Metadata
from orchestration.tracking.metrics import METRICS_FILE, MetricLog, history
from orchestration.tracking.runs import (
    RUN_FILE,
    Place,
    Tracked,
    known,
    log_and_suppress,
    log_eval,
    log_figures,
    log_model,
    log_scores,
    log_table,
    place,
    run,
    tag,
)

__all__ = [
    "METRICS_FILE",
    "RUN_FILE",
    "Metadata",
    "MetricLog",
    "Place",
    "Tracked",
    "corpus_metadata",
    "corpus_progress",
    "corpus_run",
    "history",
    "known",
    "log_and_suppress",
    "log_card",
    "log_eval",
    "log_figures",
    "log_model",
    "log_scores",
    "log_table",
    "place",
    "run",
    "tag",
]
