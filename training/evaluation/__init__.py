"""Downstream: what a net scores on tasks (training/tasks), and linear probes of frozen states.

Read outcome.py (`EvaluatedModel`, `EvalResult`), net.py (from disk), by_unit.py (what a score rests on), then the ways
to evaluate on files: tuned.py (a head is fine-tuned), likelihoods.py (how likely a net finds texts), writing.py (what
it writes; forms.py); and on held-out documents: finetuning.py, cloze.py. probe.py (`load`, `held_out`, `masked`,
`pairs`) asks what a net knows as it is.
"""

from training.evaluation.by_unit import is_log, of_constant
from training.evaluation.cloze import fill_in
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.finetune_trial import finetune_task
from training.evaluation.finetuning import Budget, FinetuneResult, finetune
from training.evaluation.generation_tasks import evaluate_generation
from training.evaluation.likelihoods import evaluate_likelihoods, model_of
from training.evaluation.net import net_of, reads
from training.evaluation.probe import held_out, load, masked, pairs

__all__ = [
    "Budget",
    "EvalResult",
    "EvaluatedModel",
    "FinetuneResult",
    "evaluate_generation",
    "evaluate_likelihoods",
    "fill_in",
    "finetune",
    "finetune_task",
    "held_out",
    "is_log",
    "load",
    "masked",
    "model_of",
    "net_of",
    "of_constant",
    "pairs",
    "reads",
]
