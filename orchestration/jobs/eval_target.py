"""What is evaluated: a finished run of ours, or a folder of `transformers`, as the flags of a command name it."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orchestration.config import SCALES, load, names
from orchestration.jobs import pretrain, stages
from orchestration.jobs.eval_request import EvalTarget
from orchestration.jobs.grids import paper_of_folder, paper_of_run
from orchestration.jobs.job import JobFlags
from orchestration.launch import RUN, WEIGHTS
from orchestration.reports.model_card import num_parameters
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object
from training.run import load_run

_HUB: Final = ("", "_uncased", "_cased", "_discriminator", "_v1")  # what a hub puts behind the name of a recipe
_READ: Final = ("*.json", "*.safetensors", "*.model", "*.txt")  # files of a folder that say what it does


def subject_of(flags: JobFlags) -> EvalTarget:
    """The net that a command names; BadInput where it is not there, or its training is not finished."""
    folder = folder_of(flags)
    return target_of_run(folder) if (folder / RUN).is_file() else target_of_directory(folder, flags.output_dir)


def folder_of(flags: JobFlags) -> Path:
    """The folder of the net that a command names; BadInput where it is not there."""
    given = Path(flags.recipe)
    if (given / RUN).is_file() or not (given / "config.json").is_file():
        return pretrain.run_folder(flags)
    pretrain.refuse_another_run(flags, given)
    return given


def target_of_directory(given: Path, out: Path) -> EvalTarget:
    """The net of a folder of transformers; its scores are kept below `out`. BadInput where it has no safetensors."""
    digest = hashlib.sha256()
    if not any((given / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        raise BadInput(f"{given}: has no model.safetensors; write one with save_pretrained of transformers")
    for file in sorted({file for pattern in _READ for file in given.glob(pattern)}):
        with file.open("rb") as opened:
            digest.update(f"{file.name} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    name, parameters = given.resolve().name, num_parameters(given, "model")
    paper, is_published, why = paper_of_folder(given, parameters)
    return EvalTarget(
        folder=out / "evals" / f"{name}-{digest.hexdigest()[:8]}",
        hash=digest.hexdigest(),
        name=name,
        parameters=parameters,
        weights=str(given.absolute()),
        expected=_expected(_recipe_of(name)),
        is_published=is_published,
        paper=paper,
        why=why,
    )


def _recipe_of(name: str) -> str:
    """The recipe that a folder is named after, by its own name or by that of a hub; itself where there is none.

    >>> [_recipe_of(name) for name in ("bert-base-uncased", "electra-small-discriminator", "albert-base-v2")]
    ['bert_base', 'electra_small', 'albert-base-v2']
    """
    of_recipe = (name.replace("-", "_").removesuffix(suffix) for suffix in _HUB)
    return next((one for one in of_recipe if one in names("recipes")), name)


def target_eval_tasks(flags: JobFlags) -> list[str]:
    """The tasks of the recipe of a net; BadInput for a folder of transformers, which names none."""
    given = Path(flags.recipe)
    if (given / RUN).is_file() or not (given / "config.json").is_file():
        return pretrain.eval_tasks_of(flags)
    raise BadInput(f"{given}: a net of transformers names no tasks; name some with --tasks; `sesame tasks` lists them")


def target_of_run(folder: Path) -> EvalTarget:
    """The net of a finished run; BadInput where it is not finished."""
    weights = folder / WEIGHTS
    if not (folder / stages.MARK).is_file() or not (weights / "spec.json").is_file():
        raise BadInput(f"{folder}: this run is not finished; go on with `sesame train`")
    name, run = folder.name.rpartition("-")[0] or folder.name, load_run(folder)
    with of_kind(folder / RUN, "the same `sesame train` as before writes it anew"):
        corpus, is_published, longest_row = Path(run["corpus"]), _has_size_of(run, name), _longest_row(run)
    return EvalTarget(
        folder=folder,
        hash=read_object(folder / stages.MARK, "delete it, and go on with `sesame train`", hash=str)["hash"],
        name=name,
        parameters=num_parameters(weights, "weights"),
        corpus=corpus,
        expected=_expected(name),
        is_published=is_published,
        paper=paper_of_run(run, name) if is_published else "",
        longest_row=longest_row,
    )


def _has_size_of(run: Mapping[str, Any], name: str) -> bool:
    """Whether a run has layers of the number and width of the recipe that it is named after, without a scale."""
    if name not in names("recipes"):
        return False
    trunk, mine = load(name).model, run.get("model", {})
    return all(mine.get(key) == getattr(trunk, key, None) for key in ("kind", "num_hidden_layers", "hidden_size"))


def _longest_row(run: Mapping[str, Any]) -> int:
    """Tokens of the longest row of a run whose net has positions behind it that no row reached; 0 where it has none, or
    where that is not known, as after weights that the run began with.

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


def targets_at_steps(subject: EvalTarget, every: int) -> list[EvalTarget]:
    """The net after each `every` steps of which weights or a checkpoint are kept, and at the end; BadInput where there
    are none."""
    result = subject.folder / pretrain.RESULT
    last = read_object(result, pretrain.TRAIN_AGAIN, step=int)["step"] if result.is_file() else None
    places = pretrain.list_saved_steps(subject.folder)
    found = {step: place for step, place in sorted(places.items()) if step != last}
    chosen = [replace(subject, weights=place, step=step) for step, place in found.items() if step % every == 0]
    if not chosen:
        steps = f"weights of the steps {', '.join(map(str, found))}" if found else "no weights but those of its end"
        remedy = "train with cluster.save_weights_every=STEPS, or give another number"
        raise BadInput(f"--checkpoints-every {every}: {subject.folder} has {steps}; {remedy}")
    return [*chosen, replace(subject, step=last)]


def _expected(name: str) -> dict[str, Any]:
    """The figures of the paper that a run is named after, at whichever scale it is.

    >>> _expected("bert_base_tiny")["squad"], _expected("mine")
    ({'em': 80.8, 'f1': 88.5}, {})
    """
    for scale in SCALES:
        name = name.removesuffix(f"_{scale}") if name not in names("recipes") else name
    return dict(load(name).reported_results) if name in names("recipes") else {}
