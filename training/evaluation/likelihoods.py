"""Evaluate a model by the likelihood that it assigns to texts, without training."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from preprocessing.errors import BadInput
from training.evaluation.by_unit import constant, of_constant, units_of
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.likelihood.models import CausalLikelihood
from training.evaluation.tasks import ScoredTask, TaskItem
from training.finetuning import OnStep, ignore_activity
from training.formats import half
from training.model import Model
from training.specs import EngineSettings


def evaluate_likelihoods(
    net: EvaluatedModel,
    task: ScoredTask,
    items: Mapping[str, Sequence[TaskItem]],
    *,
    seed: int = 0,
    machine: EngineSettings | None = None,
    on_step: OnStep = ignore_activity,
) -> EvalResult:
    """Return predictions and scores on all splits except `train`; few-shot examples are drawn from `train`.

    The evaluation runs in float32, in one process. `seed` initializes random weights. `on_step` receives how many
    texts of a split are done, and their total number. Raises BadInput if the model gives no likelihood, or a text is
    too long for it.
    """
    machine = machine or EngineSettings()
    reader = CausalLikelihood(model_of(net, seed, machine), net.vocab, machine.micro_tokens, on_step)
    scores, predictions, notes = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]](), list(which_of(net))
    units, constants = dict[str, Sequence[float]](), dict[str, str]()
    train, example = items.get("train", ()), ""
    for split in items:
        if split != "train":
            answers = task.answers(items[split], train, reader)
            if any(item.gold is not None for item in items[split]):
                scores[split] = task.scores(items[split], answers)
                both = [
                    pair for pair in zip(items[split], answers, strict=True) if not getattr(pair[1], "left_out", "")
                ]
                units[split] = units_of(task, [one for one, _ in both], [one for _, one in both])
            predictions[split] = task.predictions(items[split], answers)
            constants[split] = _constant_choice(items[split], predictions[split])
            count, of = len(items[split]), scores.get(split, {})
            notes += of_constant(split, constants[split], count, task.metrics[0], of)
            notes += [f"{split}: {note}" for note in task.notes(items[split], answers, reader)]
            example = example or task.example(items[split], train, reader)
    return EvalResult(scores, predictions, (), tuple(notes), example, units, constants)


def _constant_choice(items: Sequence[TaskItem], predictions: Sequence[Any]) -> str:
    """The choice that was predicted for all scored questions, if they all have the same choices; else ""."""
    is_scored = [not (isinstance(one, dict) and "left_out" in one) for one in predictions]
    options = {tuple(getattr(i.texts[0], "options", ())) for i, one in zip(items, is_scored, strict=True) if one}
    chosen = [one["answer"] for one in predictions if isinstance(one, dict) and "answer" in one]
    is_one = len(options) == 1 and len(next(iter(options))) > 1 and len(chosen) == sum(is_scored)
    return constant(chosen) if is_one else ""


def which_of(net: EvaluatedModel) -> tuple[str, ...]:
    """A note that the generator is evaluated, if the model is a generator with a discriminator."""
    return ("evaluates the generator: the discriminator does not predict tokens",) if _has_generator(net) else ()


def _has_generator(net: EvaluatedModel) -> bool:
    """Whether the model is a generator with a discriminator (ELECTRA)."""
    return len(net.spec.model.nets) > 1 and any(loss.logits_for == "masked" for loss in net.spec.losses)


def model_of(net: EvaluatedModel, seed: int, machine: EngineSettings) -> Model:
    """The model with its pretraining heads, on its device. For a generator with a discriminator, return the
    generator, because only the generator predicts tokens."""
    with torch.random.fork_rng(devices=[]):
        model = Model(net.spec.model, net.spec.losses, net.spec.vocab_size, seed)
    weights = net.weights
    if _has_generator(net):
        whole = dict(model.named_parameters()) if weights is None else weights
        weights, spec = half(whole, net.spec, "generator")
        model = Model(spec.model, spec.losses, spec.vocab_size, seed)
    if weights is not None:
        missing = dict(model.named_parameters()).keys() - weights.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise BadInput(f"missing weights {names}; give a model that still has its pretraining heads")
        model.load_state_dict(weights, strict=False)  # not strict: shared weights are stored under one name
    return model.to(machine.device).eval()
