"""MLflow: runs, corpora as runs, metrics that survive a crash. The only mlflow.

Read runs.py first, then metrics.py and corpus_runs.py.
"""

from orchestration.tracking.corpus_runs import corpus_progress, corpus_run, corpus_story, log_card
from orchestration.tracking.metadata import Story
from orchestration.tracking.metrics import METRICS_FILE, MetricLog, history
from orchestration.tracking.runs import (
    RUN_FILE,
    Place,
    Tracked,
    forgiven,
    known,
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
    "MetricLog",
    "Place",
    "Story",
    "Tracked",
    "corpus_progress",
    "corpus_run",
    "corpus_story",
    "forgiven",
    "history",
    "known",
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
