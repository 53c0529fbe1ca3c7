"""One trial of an ablation table: measures a finished run in a Ray process, without a change of its weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Final

from orchestration.launch import WEIGHTS, finetune_one, load_held_out_task
from orchestration.tracking import history
from preprocessing.errors import BadInput, DataError
from training.evaluation.tasks import LENGTH
from training.run import Run

FINETUNINGS: Final = (0, 1, 2)  # seeds of the examples, their order and the classifier
LABELS, STEPS = 1_000, 600  # examples and steps; with 200 of each, models trained for minutes score at chance


@dataclass(frozen=True)
class MeasureRequest:
    """A measure in a form that can be sent to a process. `rows` is the run whose sequences it uses, as JSON; "" if it
    uses none."""

    kind: str
    of: str
    rows: str = ""


@dataclass(frozen=True)
class MeasuredScore:
    """A measured accuracy or loss in nats, and a description of what it is measured on."""

    value: float
    rests_on: str
    # number of questions that an accuracy averages; 0: not an accuracy, or a score of an earlier version
    questions: int = 0


def measure_run(folder: Path, run_json: str, questions: dict[str, MeasureRequest]) -> dict[str, MeasuredScore]:
    """The scores of the finished run in `folder`, by column. Raises DataError if its held-out text is too small."""
    import torch

    torch.set_num_threads(1)
    run = Run.from_json(run_json)
    return {column: _score(folder, run, one) for column, one in questions.items()}


def _score(folder: Path, run: Run, question: MeasureRequest) -> MeasuredScore:
    from training.evaluation import Budget, evaluate_masked_tokens, load, load_held_out, pairs
    from training.formats import load_spec

    match question.kind:
        case "masked":
            result = evaluate_masked_tokens(load(folder / WEIGHTS), load_held_out(_rows(run, question)))
            return MeasuredScore(result.accuracy, f"{result.scored:,} masked tokens of held-out text", result.scored)
        case "loss":
            result = evaluate_masked_tokens(load(folder / WEIGHTS), load_held_out(_rows(run, question)))
            return MeasuredScore(result.loss, f"{result.scored:,} masked tokens of held-out text")
        case "rise":
            losses = [value for _, value in history(folder)["train/loss"]]
            return MeasuredScore(measure_rise(losses), f"{len(losses):,} mean losses of training steps")
        case "validation":
            losses = [value for _, value in history(folder).get("eval/loss", ())]
            if not losses:
                raise DataError(f"{folder}: no validation loss; hold out more text with --holdout-ratio, e.g. 0.05")
            return MeasuredScore(losses[-1], "the validation text")
        case "pairs":
            result = pairs(load(folder / WEIGHTS), load_held_out(_rows(run, question)))
            how = f"fitted to {result.fitted:,} held-out pairs, scored on {result.scored:,} others"
            return MeasuredScore(result.accuracy, how, result.scored)
        case "task":
            corpus, longest = Path(run.corpus), load_spec(folder / WEIGHTS).model.longest
            pool = load_held_out_task(question.of, corpus, min(LENGTH, longest), folder).pool
            budget = Budget(labels=min(LABELS, len(pool)), steps=STEPS)
            outcomes = [finetune_one(folder, corpus, question.of, "pretrained", seed, budget) for seed in FINETUNINGS]
            how = f"{budget.labels:,} labeled examples, {budget.steps} steps, mean of {len(FINETUNINGS)} fine-tunings"
            how += f"; chance is {outcomes[0].chance:.3f}"
            return MeasuredScore(mean(outcome.accuracy for outcome in outcomes), how, len(outcomes[0].right))
        case _:
            raise BadInput(
                f"invalid measure: got {question.kind!r}, expected masked, loss, pairs, task, rise or "
                "validation; use one of these"
            )


def measure_rise(losses: Sequence[float]) -> float:
    """The largest rise of the loss above its lowest earlier value; infinite if a loss is not finite.

    >>> measure_rise([5.0, 3.0, 4.5, 2.0, 2.5])
    1.5
    """
    if not all(map(math.isfinite, losses)):
        return math.inf
    return max(loss - lowest for loss, lowest in zip(losses, accumulate(losses, min), strict=True))


def _rows(run: Run, question: MeasureRequest) -> Run:
    """The run whose sequences are used, on the corpus of `run`, so that text and vocabulary are the same."""
    return replace(Run.from_json(question.rows), corpus=run.corpus)
