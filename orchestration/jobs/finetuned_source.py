"""The source of a fine-tuned model that is scored without training: its task head, its labels, and its task."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orchestration.config import validate
from orchestration.jobs.job_flags import JobFlags
from orchestration.jobs.run_names import refuse_another_run
from orchestration.launch import CARD, RUN, SAVED
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object, xxh3_file
from preprocessing.tokenization import of_folder, with_template
from training.evaluation.tasks import TaskFile

_HEADS: Final = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")


@dataclass(frozen=True)
class FinetunedSource:
    """The task head of a fine-tuned model."""

    folder: Path
    kind: str  # kind of its fine-tuning target
    labels: tuple[str, ...]  # () for answers and choices
    about: Mapping[str, Any] = field(default_factory=dict)  # the content of SAVED; {} for a model of transformers

    @property
    def length(self) -> int:
        """Maximum tokens of a sequence in the fine-tuning; 0: unknown."""
        return int(self.about.get("max_seq_length", 0))


def find_finetuned(folder: Path) -> FinetunedSource | None:
    """The task head of a directory of transformers; None if it has none.

    Raises BadInput if the head is not supported, or if a file differs from the saved one.
    """
    remedy = "write the directory again"
    config = read_object(folder / "config.json", remedy)
    with of_kind(folder / "config.json", remedy):
        architecture = (config.get("architectures") or [""])[0]
    if not isinstance(architecture, str) or not any(head in architecture for head in _HEADS):
        return None
    from training.formats import describe_task_head

    kind, labels = describe_task_head(folder)
    file = folder / SAVED
    if not file.is_file():
        _check_template(folder)
        return FinetunedSource(folder.absolute(), kind, labels)
    content = {"task": dict, "data": str, "max_seq_length": int, "splits": dict, "scores": dict, "sha256": dict}
    about = read_object(file, "evaluate the model with --save again", **content)
    saved = {name: digest for name, digest in about["sha256"].items() if name != CARD}
    digests = {name: xxh3_file(folder / name) for name in saved if (folder / name).is_file()}
    if other := sorted(name for name, digest in saved.items() if digests.get(name) != digest):
        problem = "is missing" if other[0] not in digests else "has changed since the model was saved"
        raise BadInput(f"{folder / other[0]}: {problem}; restore it, or delete {SAVED} to score it as another model")
    return FinetunedSource(folder.absolute(), kind, labels, about)


def match_finetuned(flags: JobFlags) -> FinetunedSource | None:
    """The fine-tuned model in the directory that the flags name; None if they name a run, a recipe or another model.

    Raises BadInput if flags would change the model.
    """
    folder = Path(flags.recipe)
    if (folder / RUN).is_file() or not (folder / "config.json").is_file():
        return None
    if found := find_finetuned(folder):
        refuse_another_run(flags, folder)
    return found


def _check_template(folder: Path) -> None:
    """Raise BadInput if the tokenizer of a foreign model adds no special tokens: Sesame would add an end token, which
    the model may not have been fine-tuned with."""
    vocab = of_folder(folder)
    if with_template(vocab) is not vocab:
        raise BadInput(
            f"{folder}: its tokenizer adds no special tokens, so the form of its sequences is unknown; use a model "
            "whose tokenizer has a template, or one that `sesame eval --save` wrote"
        )


def task_of(source: FinetunedSource) -> tuple[TaskFile, Path | None]:
    """The task that a saved model was fine-tuned on, and the directory of its files; None if that does not exist any
    more, as the files may have absolute paths. Raises BadInput without SAVED."""
    if not source.about:
        raise BadInput(
            f"{source.folder}: its task is unknown, because it was not saved by Sesame; name a task with --tasks, or a "
            "table with --csv"
        )
    data = Path(source.about["data"])
    return validate(TaskFile, source.about["task"], str(source.folder / SAVED)), data if data.is_dir() else None


def fit_task(task: TaskFile, source: FinetunedSource) -> tuple[TaskFile, str]:
    """The task with the labels, and the parameters, of a fine-tuned model, and a note ("" if nothing is unusual).

    Raises BadInput if the task is not for such a head, or if it has other labels.
    """
    from training.evaluation import fit_labels

    if task.task.way != "tuned":
        raise BadInput(
            f"task {task.name}: is scored without a task head, but {source.folder} has one; use a labeled task, or the "
            "pretrained model"
        )
    try:
        kind, note = fit_labels(task.task, source.kind, source.labels, source.folder)
    except BadInput as error:
        raise BadInput(f"task {task.name}: {error}") from None
    own = source.about.get("task", {}).get("task", {})
    threshold = own.get("null_score_diff_threshold")
    if threshold is not None and getattr(kind, "null_score_diff_threshold", 0.0) is None:
        kind = replace(kind, null_score_diff_threshold=threshold)
    return replace(task, task=kind), note
