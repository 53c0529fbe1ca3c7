"""Checks before a run whether the architecture of a model supports a task."""

from typing import cast

from orchestration.evaluation.eval_request import EvalTarget
from orchestration.launch import RUN
from preprocessing.errors import BadInput, with_article
from preprocessing.spec import part
from training.evaluation.tasks import GenerationTask, ScoredTask, TaskFile
from training.run import load_run
from training.specs import Architecture


def check_task_support(target: EvalTarget, task: TaskFile, *, is_tuned: bool) -> None:
    """Raises BadInput if the model of a run cannot do a task. Models of transformers are checked when they are
    loaded."""
    trunk = _architecture_of(target)
    if trunk is None:
        return
    kind = with_article(trunk.kind)
    predicts = not trunk.reads_source and (trunk.attention_mask == "causal" or trunk.hides_own_token)
    if task.task.way == "scored" and cast(ScoredTask, task.task).left_to_right and not predicts:
        raise BadInput(f"task {task.name}: perplexity requires a causal language model, not {kind}; evaluate a decoder")
    if task.task.way != "written":
        return
    fresh = cast(GenerationTask, task.task).generation.decoder == "random"
    if not trunk.writes and not fresh:
        raise BadInput(
            f"task {task.name}: {kind} does not generate text; evaluate a decoder, an encoder or an encoder_decoder"
        )
    if not is_tuned and (fresh or trunk.writes not in ("causal", "encoder_decoder")):
        raise BadInput(
            f"task {task.name}: {kind} generates text only after fine-tuning, which this task lacks; use a task file "
            "with a train split, without num_fewshot and zero_shot"
        )


def _architecture_of(target: EvalTarget) -> Architecture | None:
    """The architecture of a run; None if it is unknown."""
    run = load_run(target.folder) if (target.folder / RUN).is_file() else {}
    return part(Architecture, run["model"]) if "model" in run else None
