"""The evaluated model that the flags of a command name: a finished run, or a directory of `transformers`."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orchestration.config import SCALES, list_names, load
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.evaluation.grids import paper_of_folder, paper_of_run
from orchestration.jobs import (
    MARK,
    RESULT,
    TRAIN_AGAIN,
    JobFlags,
    eval_tasks_of,
    evaluations_of,
    find_finetuned,
    list_saved_steps,
    refuse_another_run,
    run_folder,
)
from orchestration.launch import RUN, WEIGHTS
from orchestration.reports.model_card import num_parameters
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object
from training.run import load_run

_HUB: Final = ("", "_uncased", "_cased", "_discriminator", "_v1")  # suffixes of recipe names on a hub
_READ: Final = ("*.json", "*.safetensors", "*.model", "*.txt")  # files that define the behavior of a model


def subject_of(flags: JobFlags) -> EvalTarget:
    """The model that a command names. Raises BadInput if it is missing or its training is not finished."""
    folder = folder_of(flags)
    return target_of_run(folder) if (folder / RUN).is_file() else target_of_directory(folder, flags.output_dir)


def folder_of(flags: JobFlags) -> Path:
    """The directory of the model that a command names. Raises BadInput if it is missing."""
    folder = Path(flags.recipe)
    if (folder / RUN).is_file() or not (folder / "config.json").is_file():
        return run_folder(flags)
    refuse_another_run(flags, folder)
    return folder


def target_of_directory(folder: Path, out: Path) -> EvalTarget:
    """The model of a `transformers` directory; its scores are stored below `out`. Raises BadInput without
    safetensors."""
    digest = hashlib.sha256()
    if not any((folder / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        raise BadInput(f"{folder}: model.safetensors is missing; write it with save_pretrained of transformers")
    for file in sorted({file for pattern in _READ for file in folder.glob(pattern)}):
        with file.open("rb") as opened:
            digest.update(f"{file.name} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    name, parameters = folder.resolve().name, num_parameters(folder, "model")
    paper, is_published, why = paper_of_folder(folder, parameters)
    finetuned = find_finetuned(folder)
    return EvalTarget(
        finetuned=finetuned,
        folder=evaluations_of(out, name, digest.hexdigest()),
        hash=digest.hexdigest(),
        name=name,
        parameters=parameters,
        weights=str(folder.absolute()),
        expected=_read_reported(_recipe_of(name)),
        is_published=is_published,
        paper=paper,
        why=why,
    )


def _recipe_of(name: str) -> str:
    """The recipe that a directory is named after, by its own name or its name on a hub; otherwise `name`.

    >>> [_recipe_of(name) for name in ("bert-base-uncased", "electra-small-discriminator", "albert-base-v2")]
    ['bert_base', 'electra_small', 'albert_base_v2']
    """
    of_recipe = (name.replace("-", "_").removesuffix(suffix) for suffix in _HUB)
    return next((one for one in of_recipe if one in list_names("recipes")), name)


def target_eval_tasks(flags: JobFlags) -> list[str]:
    """The evaluation tasks of the model's recipe. Raises BadInput for a directory of transformers, which has no
    recipe."""
    folder = Path(flags.recipe)
    if (folder / RUN).is_file() or not (folder / "config.json").is_file():
        return eval_tasks_of(flags)
    raise BadInput(
        f"{folder}: a directory of transformers has no list of tasks; set --tasks (`sesame tasks` lists them)"
    )


def target_of_run(folder: Path) -> EvalTarget:
    """The model of a finished run. Raises BadInput if it is not finished."""
    weights = folder / WEIGHTS
    if not (folder / MARK).is_file() or not (weights / "spec.json").is_file():
        raise BadInput(f"{folder}: this run is not finished; resume it with `sesame train`")
    name, run = folder.name.rpartition("-")[0] or folder.name, load_run(folder)
    with of_kind(folder / RUN, "repeat the same `sesame train` command to write it again"):
        corpus, is_published, longest_row = Path(run["corpus"]), _has_size_of(run, name), _longest_row(run)
    return EvalTarget(
        folder=folder,
        hash=read_object(folder / MARK, "delete it, then resume with `sesame train`", hash=str)["hash"],
        name=name,
        parameters=num_parameters(weights, "weights"),
        corpus=corpus,
        expected=_read_reported(name),
        is_published=is_published,
        paper=paper_of_run(run, name) if is_published else "",
        longest_row=longest_row,
    )


def _has_size_of(run: Mapping[str, Any], name: str) -> bool:
    """Whether the run has the type, number of layers and hidden size of the unscaled recipe that it is named after."""
    if name not in list_names("recipes"):
        return False
    trunk, model = load(name).model, run.get("model", {})
    return all(model.get(key) == getattr(trunk, key, None) for key in ("kind", "num_hidden_layers", "hidden_size"))


def _longest_row(run: Mapping[str, Any]) -> int:
    """Tokens of the longest training sequence, if the model has more learned positions than that; else 0.

    Also 0 if the number is unknown, e.g. if the run started from an `init_checkpoint`.

    >>> phases = [{"seq_length": 32, "steps": 9}, {"seq_length": 128, "steps": 1}]
    >>> table = lambda most: {"kind": "learned", "max_position_embeddings": most}
    >>> of = lambda most: {"model": {"position_embedding": table(most)}, "phases": phases}
    >>> _longest_row(of(512)), _longest_row(of(128)), _longest_row(of(512) | {"init_checkpoint": "bert"})
    (128, 0, 0)
    """
    positions = run.get("model", {}).get("position_embedding", {})
    row = max((phase["seq_length"] for phase in run.get("phases", ())), default=0)
    has_more = (
        positions.get("kind") == "learned"
        and positions.get("max_position_embeddings", 0) - positions.get("offset", 0) > row
    )
    return row if has_more and not run.get("init_checkpoint") else 0


def targets_at_steps(target: EvalTarget, every: int) -> list[EvalTarget]:
    """The model at each saved step that is a multiple of `every`, and at the end. A step is saved as weights or as a
    checkpoint. Raises BadInput if there is none."""
    result = target.folder / RESULT
    last = read_object(result, TRAIN_AGAIN, step=int)["step"] if result.is_file() else None
    saved_steps = list_saved_steps(target.folder)
    places = {step: place for step, place in sorted(saved_steps.items()) if step != last}
    targets = [replace(target, weights=place, step=step) for step, place in places.items() if step % every == 0]
    if not targets:
        steps = f"weights of steps {', '.join(map(str, places))}" if places else "only its final weights"
        remedy = "train with cluster.save_weights_every=STEPS, or change --checkpoints-every"
        raise BadInput(f"--checkpoints-every {every}: {target.folder} has {steps}; {remedy}")
    return [*targets, replace(target, step=last)]


def _read_reported(name: str) -> dict[str, Any]:
    """The reported results of the paper that a run is named after. All scales of a recipe have the same results.

    >>> _read_reported("bert_base_tiny")["squad"], _read_reported("mine")
    ({'em': 80.8, 'f1': 88.5}, {})
    """
    for scale in SCALES:
        name = name.removesuffix(f"_{scale}") if name not in list_names("recipes") else name
    return dict(load(name).reported_results) if name in list_names("recipes") else {}
