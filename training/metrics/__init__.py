"""Metrics of downstream tasks, computed from predictions and gold answers as in their papers and official scripts.

Reading order: labels.py (accuracy, F1, correlations of GLUE), squad.py (exact match and F1 of answers), cmrc.py (the
same for Chinese), mlqa.py (for seven languages), entities.py (CoNLL), texts.py (BLEU, ROUGE, CoQA), glue.py
(averages, leaderboard files) and significance.py (intervals of scores and tests of differences). Standard metrics
come from libraries: scikit-learn, scipy, seqeval, sacrebleu, rouge-score. This package does not import torch.
"""

from training.metrics.cmrc import cmrc
from training.metrics.entities import OUTSIDE, PREFIXES, Scheme, entity_f1, no_tags_of, outside_of
from training.metrics.glue import Average, glue_average, submission
from training.metrics.labels import accuracy, f1, macro_f1, matthews, pearson, spearman, undefined
from training.metrics.mlqa import LANGUAGES, mlqa
from training.metrics.significance import (
    LEVEL,
    PairedDifference,
    interval,
    over_seeds,
    paired_difference,
    pool_values,
    unit_values,
)
from training.metrics.squad import best_threshold, squad1, squad2
from training.metrics.texts import ROUGES, SignedScore, bleu, chrf, coqa_f1, kept_by_rouge, rouge

__all__ = [
    "LANGUAGES",
    "LEVEL",
    "OUTSIDE",
    "PREFIXES",
    "ROUGES",
    "Average",
    "PairedDifference",
    "Scheme",
    "SignedScore",
    "accuracy",
    "best_threshold",
    "bleu",
    "chrf",
    "cmrc",
    "coqa_f1",
    "entity_f1",
    "f1",
    "glue_average",
    "interval",
    "kept_by_rouge",
    "macro_f1",
    "matthews",
    "mlqa",
    "no_tags_of",
    "outside_of",
    "over_seeds",
    "paired_difference",
    "pearson",
    "pool_values",
    "rouge",
    "spearman",
    "squad1",
    "squad2",
    "submission",
    "undefined",
    "unit_values",
]
