"""Metrics of downstream tasks, computed from predictions and gold answers as in their papers and official scripts.

Reading order: labels.py (accuracy, F1, correlations of GLUE), squad.py (exact match and F1 of answers), cmrc.py (the
same for Chinese), mlqa.py (for seven languages), entities.py (CoNLL), texts.py (BLEU, ROUGE, CoQA), glue.py
(averages, leaderboard files), significance.py (intervals of scores and tests of gains) and comparison.py (two models on
the same questions). Standard metrics
come from libraries: scikit-learn, scipy, seqeval, sacrebleu, rouge-score. This package does not import torch.
"""

from training.evaluation.metrics.cmrc import cmrc
from training.evaluation.metrics.comparison import (
    SLOW_METRICS,
    ModelScores,
    ScoreDifference,
    compare_scores,
    holm,
    mcnemar,
)
from training.evaluation.metrics.entities import OUTSIDE, PREFIXES, Scheme, entity_f1, no_tags_of, outside_of
from training.evaluation.metrics.glue import Average, glue_average, submission
from training.evaluation.metrics.labels import accuracy, explain_undefined, f1, macro_f1, matthews, pearson, spearman
from training.evaluation.metrics.mlqa import LANGUAGES, mlqa
from training.evaluation.metrics.significance import (
    LEVEL,
    PairedDifference,
    compare_paired,
    interval,
    over_seeds,
    pool_values,
    unit_values,
)
from training.evaluation.metrics.squad import best_threshold, squad1, squad2
from training.evaluation.metrics.texts import ROUGES, SignedScore, bleu, chrf, coqa_f1, measure_kept_by_rouge, rouge

__all__ = [
    "LANGUAGES",
    "LEVEL",
    "OUTSIDE",
    "PREFIXES",
    "ROUGES",
    "SLOW_METRICS",
    "Average",
    "ModelScores",
    "PairedDifference",
    "Scheme",
    "ScoreDifference",
    "SignedScore",
    "accuracy",
    "best_threshold",
    "bleu",
    "chrf",
    "cmrc",
    "compare_paired",
    "compare_scores",
    "coqa_f1",
    "entity_f1",
    "explain_undefined",
    "f1",
    "glue_average",
    "holm",
    "interval",
    "macro_f1",
    "matthews",
    "mcnemar",
    "measure_kept_by_rouge",
    "mlqa",
    "no_tags_of",
    "outside_of",
    "over_seeds",
    "pearson",
    "pool_values",
    "rouge",
    "spearman",
    "squad1",
    "squad2",
    "submission",
    "unit_values",
]
