"""Whether a net can do a task, as far as its trunk says: what is impossible is refused before anything runs."""

from typing import cast

from orchestration.jobs.eval_request import EvalTarget
from orchestration.launch import RUN
from preprocessing.errors import BadInput, with_article
from preprocessing.spec import part
from training.run import load_run
from training.specs import Architecture
from training.tasks import GenerationTask, ScoredTask, TaskFile


def check_task_support(subject: EvalTarget, task: TaskFile, *, is_tuned: bool) -> None:
    """BadInput where the net of a run cannot do a task; what a folder of transformers can is seen when it is read."""
    trunk = _trunk(subject)
    if trunk is None:
        return
    a_net = with_article(trunk.kind)
    predicts = not trunk.reads_source and (trunk.attention_mask == "causal" or trunk.hides_own_token)
    if task.task.way == "scored" and cast(ScoredTask, task.task).left_to_right and not predicts:
        raise BadInput(
            f"task {task.name}: {a_net} does not predict a text from left to right, so that it has no perplexity of "
            "one; score a decoder"
        )
    if task.task.way != "written":
        return
    fresh = cast(GenerationTask, task.task).generation.decoder == "random"
    if not trunk.writes and not fresh:
        raise BadInput(f"task {task.name}: {a_net} does not write; score a decoder, an encoder, or both")
    if not is_tuned and (fresh or trunk.writes not in ("causal", "encoder_decoder")):
        raise BadInput(
            f"task {task.name}: {a_net} writes once it is fine-tuned to, and nothing is fine-tuned here: a task file "
            "names a split train, without num_fewshot and without zero_shot"
        )


def _trunk(subject: EvalTarget) -> Architecture | None:
    """That of a run; None where that is not known."""
    run = load_run(subject.folder) if (subject.folder / RUN).is_file() else {}
    return part(Architecture, run["model"]) if "model" in run else None
