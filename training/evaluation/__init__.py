"""Downstream evaluation: scores of a model on tasks, and linear probes of frozen hidden states.

The packages tasks/, files/, metrics/, likelihood/ and generation/ are used through their own doors; this one imports
nothing before it is needed. Start with eval_result.py (`EvaluatedModel`, `EvalResult`), net.py (loads a model from
disk) and by_unit.py (the value of each question). Three modules evaluate on task files: finetune_trial.py fine-tunes a
head, likelihoods.py scores texts by their likelihood, and generation_tasks.py generates text (prompt_formats.py defines
the prompts). scoring.py scores a model with a head; finetuned_model.py saves it, and loads it to score it again. Two
modules evaluate on held-out documents: finetuning.py (with the settings of budget.py) and cloze.py. during_training.py
scores a sample of questions while a model trains. probe.py probes a model without changing its weights.
"""

from typing import TYPE_CHECKING, Final

from preprocessing.imports import import_on_use

if TYPE_CHECKING:  # most import torch, which commands that read tasks do not need
    from training.evaluation.budget import Budget, FinetuneResult
    from training.evaluation.by_unit import is_log, of_constant
    from training.evaluation.cloze import fill_in, has_word_head, log_ps_of_blanks
    from training.evaluation.during_training import SampledTask, read_samples, score_samples, write_samples
    from training.evaluation.eval_result import EvalResult, EvaluatedModel
    from training.evaluation.finetune_trial import finetune_task
    from training.evaluation.finetuned_model import (
        FinetunedModel,
        check_savable,
        fit_labels,
        read_outputs,
        score_finetuned,
    )
    from training.evaluation.finetuning import finetune
    from training.evaluation.generation_tasks import evaluate_generation
    from training.evaluation.likelihoods import evaluate_likelihoods, model_of
    from training.evaluation.net import net_of, reads
    from training.evaluation.probe import evaluate_masked_tokens, load, load_held_out, pairs

__all__ = [
    "Budget",
    "EvalResult",
    "EvaluatedModel",
    "FinetuneResult",
    "FinetunedModel",
    "SampledTask",
    "check_savable",
    "evaluate_generation",
    "evaluate_likelihoods",
    "evaluate_masked_tokens",
    "fill_in",
    "finetune",
    "finetune_task",
    "fit_labels",
    "has_word_head",
    "is_log",
    "load",
    "load_held_out",
    "log_ps_of_blanks",
    "model_of",
    "net_of",
    "of_constant",
    "pairs",
    "read_outputs",
    "read_samples",
    "reads",
    "score_finetuned",
    "score_samples",
    "write_samples",
]

_LAZY: Final = {
    "budget": ("Budget", "FinetuneResult"),
    "by_unit": ("is_log", "of_constant"),
    "eval_result": ("EvalResult", "EvaluatedModel"),
    "cloze": (
        "fill_in",
        "has_word_head",
        "log_ps_of_blanks",
    ),
    "during_training": (
        "SampledTask",
        "read_samples",
        "score_samples",
        "write_samples",
    ),
    "finetune_trial": ("finetune_task",),
    "finetuned_model": (
        "FinetunedModel",
        "check_savable",
        "fit_labels",
        "read_outputs",
        "score_finetuned",
    ),
    "finetuning": ("finetune",),
    "generation_tasks": ("evaluate_generation",),
    "likelihoods": (
        "evaluate_likelihoods",
        "model_of",
    ),
    "net": (
        "net_of",
        "reads",
    ),
    "probe": (
        "evaluate_masked_tokens",
        "load",
        "load_held_out",
        "pairs",
    ),
}

__getattr__: Final = import_on_use(__name__, _LAZY)
