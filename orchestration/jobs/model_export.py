"""The export of a trained model: its files for `transformers`, its upload to a hub, and its version in MLflow."""

import os
import shutil
from pathlib import Path

from orchestration import launch, tracking
from orchestration.full_disk import AGAIN, explain_full_disk
from orchestration.jobs import hub, stages
from orchestration.jobs.finetuned_source import find_finetuned
from orchestration.jobs.job import JobFlags
from orchestration.jobs.run_names import refuse_another_run
from orchestration.jobs.runs import evaluations_of, list_saved_steps, run_folder
from orchestration.reports.model_card import model_card
from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, is_new, of_kind, sums_of, whole_folder, write_atomic
from preprocessing.folders import require_local_path
from preprocessing.tokenization import Vocab
from training.run import load_stored_run

EXPORT_AGAIN = (
    f"delete {stages.MARK} beside {launch.EXPORT}, then repeat the same `sesame train` command to write it again"
)


def export(
    folder: Path, to: Path, *, heads: bool = True, license: str = "unknown", repo: str = "", step: int = 0
) -> tuple[list[str], str, str]:
    """Copy the export of a finished run and a model card to `to`, which must be new or empty.

    Returns the names of the files, a description of the transformers classes, and the address on the hub. Raises
    BadInput also if transformers has no such model.

    `heads` False exports the model without heads, for `AutoModel`. `repo` is a repository of a hub that gets the
    directory too. `step` exports a saved checkpoint or saved weights of this step; the run need not be finished.
    """
    from training.formats import describe_export, load_spec, load_weights, to_transformers, without_heads

    require_local_path("DIR", to)
    if step:
        return _export_step(folder, to, step, heads=heads, repo=repo)
    source, weights = _check_export(folder), folder / launch.WEIGHTS
    if not (weights / "spec.json").is_file():
        raise BadInput(
            f"{folder}: this run is not finished, so it has nothing to export; resume it with `sesame train`, or "
            "export a saved step with --step N"
        )
    vocab = Path(load_stored_run(folder).corpus) / "vocab"
    becomes = describe_export(load_spec(weights), Vocab.load(source if source.is_dir() else vocab).pad)
    if not source.is_dir():
        raise BadInput(f"{source}: is missing; {EXPORT_AGAIN}")
    if not is_new(to):
        raise BadInput(f"{to}: exists and is not an empty directory; use another one")
    api = hub.connect(repo) if repo else None
    with explain_full_disk(to, lambda: "", AGAIN), whole_folder(to) as unfinished:
        if heads:
            shutil.copytree(source, unfinished, dirs_exist_ok=True)
        else:
            spec, tensors = load_weights(weights)
            to_transformers(tensors, spec, source, unfinished, heads=False)
            becomes = without_heads(becomes.split(",")[0])
        card = model_card(folder, license=license, heads=heads, address=repo or str(to.absolute()))
        write_atomic(unfinished / "README.md", card.encode())
    address = hub.push(api, to, repo) if api else ""
    return sorted(path.name for path in to.iterdir()), becomes, address


def _export_step(folder: Path, to: Path, step: int, *, heads: bool, repo: str) -> tuple[list[str], str, str]:
    """Export one saved step of a run. Its model card has no scores, because scores are those of the last step."""
    from training.formats import describe_export, load_weights, to_transformers, without_heads

    if repo:
        raise BadInput(
            f"--push-to-hub {repo}: --step cannot be combined with it; push a finished run, or leave --push-to-hub out"
        )
    if not is_new(to):
        raise BadInput(f"{to}: exists and is not an empty directory; use another one")
    run, saved = load_stored_run(folder), list_saved_steps(folder)
    if step not in saved:
        has = ", ".join(map(str, sorted(saved))) or "none"
        raise BadInput(
            f"invalid --step: got {step}, expected a saved step of {folder} ({has}); use one of these, or save more "
            "with cluster.keep_checkpoint_every=STEPS"
        )
    spec, tensors = load_weights(folder / saved[step])
    vocab = Path(run.corpus) / "vocab"
    becomes = describe_export(spec, Vocab.load(vocab).pad)
    name = folder.name.rpartition("-")[0] or folder.name
    text = f"# {name}, step {step:,} of {run.steps:,}\n\nWeights before the end of the training, from {saved[step]}.\n"
    with explain_full_disk(to, lambda: "", AGAIN), whole_folder(to) as unfinished:
        to_transformers(tensors, spec, vocab, unfinished, heads=heads, rows=run.sampling)
        write_atomic(unfinished / "README.md", text.encode())
    becomes = becomes if heads else without_heads(becomes.split(",")[0])
    return sorted(path.name for path in to.iterdir()), becomes, ""


def register(flags: JobFlags, name: str, alias: str = "") -> tracking.ModelVersion:
    """Register the model of a finished run, or a saved fine-tuned model, in MLflow's model registry. Raises BadInput if
    the run or the store is missing."""
    given = Path(flags.recipe)  # a name may be too long for a path
    if os.path.isfile(given / launch.SAVED) and not os.path.isfile(given / launch.RUN):
        refuse_another_run(flags, given)
        return _register_finetuned(Path(flags.recipe), flags.output_dir, name, alias)
    folder = run_folder(flags)
    if not (folder / stages.MARK).is_file():
        raise BadInput(f"{folder}: this run is not finished, so it has no model; resume it with `sesame train`")
    return tracking.register(folder, _check_export(folder), name, alias)


def _register_finetuned(folder: Path, out: Path, name: str, alias: str) -> tracking.ModelVersion:
    """Register the MLflow model that `sesame eval --save` logged beside the directory of a model.

    Raises BadInput if MLflow has no such model.
    """
    source = find_finetuned(folder)
    about = source.about if source else {}
    with of_kind(folder / launch.SAVED, "evaluate the model with --save again"):
        base, scores, command = about["base"], f"{about['task']['name']}-{about['evaluation'][:8]}", about["command"]
        run = Path(base["folder"])
        # a base model of transformers has the run of its evaluations
        tracked = run if (run / launch.RUN).is_file() else evaluations_of(out, base["name"], base["hash"])
    if found := tracking.register_finetuned(tracked, scores, folder, name, alias):
        return found
    raise BadInput(
        f"{folder}: MLflow has no model of it in the run of {tracked}; repeat `{command}` with another --save, which "
        "logs its model, and register that directory"
    )


def _check_export(folder: Path) -> Path:
    """The directory of a run's export, which may be missing. Raises BadInput if its files have changed.

    Runs of older versions have no record of their files, which are then not checked.
    """
    export_folder, record = folder / launch.EXPORT, folder / launch.EXPORTED
    if not (record.is_file() and export_folder.is_dir()):
        return export_folder
    with of_kind(record, EXPORT_AGAIN):
        recorded = from_checked_json(record.read_bytes())
    digests = sums_of(export_folder)
    if other := sorted(name for name, digest in recorded.items() if digests.get(name) != digest):
        problem = "is missing" if other[0] not in digests else "has changed since the export"
        raise BadInput(f"{export_folder / other[0]}: {problem}; {EXPORT_AGAIN}")
    return export_folder
