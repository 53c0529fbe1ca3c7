"""Trained models as MLflow models, and the model registry.

A model is a directory of plain files that `mlflow.transformers` and `mlflow.pyfunc` can load if transformers is
installed: MLmodel (flavors, signature), weights as safetensors, the tokenizer, an input example, requirements, and a
card. This module writes it without `mlflow.transformers.log_model`, which needs transformers, builds the model, copies
its weights twice and fetches a card from the hub.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from orchestration.reports import render_finetuned_card
from orchestration.reports.model_card import RESULT, model_card
from orchestration.tracking import names
from orchestration.tracking.metadata import NOTE
from orchestration.tracking.runs import UNFINISHED, TrackedRun, client_of, existing_run
from orchestration.tracking.store_timeout import database_file, folder_of, redact, summarize_error, without_password
from preprocessing.errors import BadInput
from preprocessing.files import read_object
from preprocessing.tokenization import Vocab
from training.formats import TransformersPipeline
from training.run import CHECKPOINTS, load_stored_run, step_of
from training.run import steps as list_checkpoints

# directories of a model: the model of its pipeline, and the whole export, if the pipeline does not use all weights
PIPELINE, WHOLE = "model", "pretraining"
MLMODEL: Final = "MLmodel"  # the file that describes a model; a directory with it is a model
STATE: Final = "sesame.model_status"  # tag of a run: a description of its model, or the reason why it has none
VERSIONS: Final = "mlflow.modelVersions"  # tag of a model by which the UI shows its registered versions
INSTANCES: Final = {  # the pipeline classes of transformers
    "fill-mask": "FillMaskPipeline",
    "text-generation": "TextGenerationPipeline",
    "feature-extraction": "FeatureExtractionPipeline",
    "text2text-generation": "Text2TextGenerationPipeline",
    "text-classification": "TextClassificationPipeline",
    "token-classification": "TokenClassificationPipeline",
    "question-answering": "QuestionAnsweringPipeline",
    "multiple-choice": "MultipleChoicePipeline",  # never existed: the model is loaded by its components
}
NEW_TOKENS: Final = 20  # tokens that a generating model adds if the caller sets no number
SENTENCE: Final = "The people of the town came to the house"
REQUIRED: Final = ("mlflow", "torch", "transformers")
_OF_TASKS: Final = re.compile(r"/(pretrained|random)_[^/]+$|/by_labels/|^eval/glue/average_")  # scores of tasks


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model."""

    name: str
    number: str
    uri: str  # models:/NAME/NUMBER, or models:/NAME@ALIAS
    store: str  # address of the MLflow store
    is_new: bool
    example: str  # an example input


@dataclass(frozen=True)
class FinetunedFacts:
    """What MLflow shows of a fine-tuned model: its name, its last update, its card and its scores."""

    name: str
    steps: int
    about: Mapping[str, Any]  # its task, its scores and its origin, for the card
    place: str  # absolute path of the directory of the user
    scores: Sequence[tuple[str, float, tuple[str, str] | None]]  # metric, value, name and digest of its dataset


def log_model(tracked: TrackedRun, export: Path, finetuned: FinetunedFacts | None = None) -> str:
    """Log the exported directory as the run's MLflow model, once per run; returns its ID.

    The model is named after the run and its last step, or as a fine-tuned model. Weights are hard links instead of
    copies if the artifacts of the store are on the same disk, and if the class of the pipeline has all weights.
    """
    client = client_of(tracked.uri)
    run = client.get_run(tracked.run_id)
    if ids := find_models(client, run):
        return ids[0]
    from mlflow.entities import LoggedModelOutput

    from training.formats import pipeline

    what = pipeline(export)
    last_step = finetuned.steps if finetuned else _last_step(run, export)
    model = client.create_logged_model(
        run.info.experiment_id,
        names.model_of_run(finetuned.name if finetuned else f"{run.info.run_name}-step-{last_step}"),
        source_run_id=tracked.run_id,
        params=dict(run.data.params),
        model_type=what.task,
    )
    status = "FAILED"
    try:
        with tempfile.TemporaryDirectory(dir=export.parent, prefix=UNFINISHED) as folder:
            _write_weights(Path(folder), export)
            address = _Address.of(tracked, model.model_id, export)
            card = _card(run, export, what, address, finetuned)
            _write(Path(folder), export, what, card, model, tracked.run_id)
            _publish(client, model, Path(folder))
        client.set_logged_model_tags(model.model_id, {NOTE: names.value(card)})
        status = "READY"
    finally:
        client.finalize_logged_model(model.model_id, status)
    client.log_outputs(tracked.run_id, [LoggedModelOutput(model.model_id, last_step)])
    if finetuned:
        now_ms = int(time.time() * 1000)
        for key, value, dataset in finetuned.scores:
            point = (key, value, now_ms, last_step)
            names.log_metrics(client, tracked.run_id, [point], model.model_id, dataset)
    else:
        client.log_batch(tracked.run_id, metrics=_find_last_metrics(run, model.model_id))
    client.set_tag(tracked.run_id, STATE, _state(what))
    return str(model.model_id)


def find_models(client: Any, run: Any) -> list[str]:
    """The IDs of the models of a run, the newest first. Models that a user has deleted are left out."""
    ids = [output.model_id for output in reversed(run.outputs.model_outputs if run.outputs else [])]
    return [model_id for model_id in ids if _is_stored(partial(client.get_logged_model, model_id))]


def _is_stored(request: Callable[[], object]) -> bool:
    """Whether a request finds its entity in the store."""
    from mlflow.exceptions import MlflowException

    try:
        request()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def _last_step(run: Any, export: Path) -> int:
    """The last step of a run, from its newest checkpoint or its result, because training may end early; for other
    weights, from its metrics."""
    if saved := list_checkpoints(export.parent / CHECKPOINTS):
        return step_of(saved[0])
    if (export.parent / RESULT).is_file():
        return int(read_object(export.parent / RESULT, "train the run again", step=int)["step"])
    try:
        return load_stored_run(export.parent).steps
    except BadInput:
        return max((point.step for point in run.data.to_proto().metrics), default=0)


def _find_last_metrics(run: Any, model_id: str) -> list[Any]:
    """The last training loss and the last point of each metric on held-out text, as metrics of the model.

    Their dataset is the corpus of the run, so that the UI shows it as the dataset of the model. Scores of tasks are
    left out: they have other datasets.
    """
    from mlflow.entities import Metric

    inputs = run.inputs.dataset_inputs if run.inputs else []
    corpus = (inputs[0].dataset.name, inputs[0].dataset.digest) if inputs else (None, None)
    points = [
        point
        for point in run.data.to_proto().metrics
        if point.key == "train/loss" or (point.key.startswith("eval/") and not _OF_TASKS.search(point.key))
    ]
    return [Metric(point.key, point.value, point.timestamp, point.step, model_id, *corpus) for point in points]


def _state(what: TransformersPipeline) -> str:
    description = f"{what.task} by {what.model_class}"
    return f"{description}; load it with return_type='components': {what.lacks}" if what.lacks else description


# The directory of a model


def update_card(tracked: TrackedRun, export: Path) -> None:
    """Replace the description of the run's model, and of its registered versions: it has scores of tasks now."""
    client = client_of(tracked.uri)
    run = client.get_run(tracked.run_id)
    if not export.is_dir() or not (ids := find_models(client, run)):
        return
    from training.formats import pipeline

    tags = client.get_logged_model(ids[0]).tags
    card = names.value(_card(run, export, pipeline(export), _Address.of(tracked, ids[0], export)))
    client.set_logged_model_tags(ids[0], {NOTE: card})
    for version in json.loads(tags.get(VERSIONS, "[]")):
        _is_stored(partial(client.update_model_version, version["name"], version["version"], card))


def _write_weights(folder: Path, export: Path) -> None:
    """Write the model of the pipeline.

    If its class lacks some weights, they are left out, because transformers would print a report of them at each load.
    The whole export is then beside it. Weights are hard links to the exported files if possible.
    """
    from training.formats import write_for_pipeline

    if not write_for_pipeline(export, folder / PIPELINE):
        shutil.copytree(export, folder / PIPELINE, copy_function=_link)
        return
    for file in export.iterdir():
        if not (folder / PIPELINE / file.name).exists() and not file.name.startswith("model"):
            _link(file, folder / PIPELINE / file.name)
    shutil.copytree(export, folder / WHOLE, copy_function=_link)


def _write(folder: Path, export: Path, what: TransformersPipeline, card: str, model: Any, run_id: str) -> None:
    """Write the other files of a model, MLmodel last."""
    tokenizer = folder / "components" / "tokenizer"
    tokenizer.mkdir(parents=True)
    for file in export.iterdir():
        if file.name != "config.json" and file.suffix not in (".safetensors", ".md"):
            _link(file, tokenizer / file.name)
    if what.task == "text-generation":  # the default of the pipeline is 256, more positions than small models have
        (folder / PIPELINE / "generation_config.json").write_text(json.dumps({"max_new_tokens": NEW_TOKENS}))
    example = example_of(export, what.task)
    (folder / "input_example.json").write_text(json.dumps(example))
    (folder / "serving_input_example.json").write_text(json.dumps({"inputs": example}))
    (folder / "model_card.md").write_text(card, encoding="utf-8")
    _write_environment(folder)
    _mlmodel(what, model, run_id, folder).save(str(folder / MLMODEL))


def _mlmodel(what: TransformersPipeline, model: Any, run_id: str, folder: Path) -> Any:
    """The content of MLmodel: flavors, signature and the rest."""
    from mlflow.models import Model

    mlmodel = Model(
        artifact_path=model.artifact_location,
        run_id=run_id,
        model_id=model.model_id,
        signature=_signature(what.task),
        saved_input_example_info={
            "artifact_path": "input_example.json",
            "serving_input_path": "serving_input_example.json",
            "type": "json_object",
        },
        model_size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )
    installed = _find_version("transformers")
    mlmodel.add_flavor(
        "transformers",
        task=what.task,
        instance_type=INSTANCES[what.task],
        pipeline_model_type=what.model_class,
        model_binary=PIPELINE,
        source_model_name=what.model_class,
        torch_dtype="torch.float32",
        components=["tokenizer"],
        tokenizer_type="PreTrainedTokenizerFast",
        code=None,
        **({"transformers_version": installed} if installed else {}),
    )
    if not what.lacks:
        mlmodel.add_flavor(
            "python_function",
            loader_module="mlflow.transformers",
            python_version=platform.python_version(),
            env={"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
            # long texts are truncated, as in the fine-tuning; other pipelines truncate them, or cannot
            **({"config": {"truncation": True}} if what.task == "text-classification" else {}),
        )
    return mlmodel


def _signature(task: str) -> Any:
    """The signature: texts as input; texts as output, or one row of numbers per text for token vectors."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    if task == "text-classification":
        return ModelSignature(
            Schema([ColSpec("string")]), Schema([ColSpec("string", "label"), ColSpec("double", "score")])
        )
    out = TensorSpec(np.dtype("float64"), [-1, -1]) if task == "feature-extraction" else ColSpec("string")
    length = ParamSpec("max_new_tokens", "long", NEW_TOKENS)
    params = ParamSchema([length]) if task == "text-generation" else None
    return ModelSignature(Schema([ColSpec("string")]), Schema([out]), params)


def example_of(export: Path, task: str) -> str:
    """An example text for the model: an English sentence, or words of the vocabulary if the sentence has unknown
    tokens.

    It is never text of the corpus, because other people may read the tracking server. For fill-mask, one word is
    masked.
    """
    vocab = Vocab.load(export)
    words = SENTENCE.split()
    if vocab.unk is not None and vocab.unk in vocab.encode(SENTENCE):
        ordinary = (vocab.decode([id]).strip() for id in range(vocab.size) if id not in vocab.special_ids)
        words = [piece for piece in ordinary if piece.isalnum()][-len(words) :] or words
    if task == "fill-mask":
        words[len(words) // 2] = _mask(export)
    return " ".join(words)


def _mask(export: Path) -> str:
    return str(read_object(export / "tokenizer_config.json", "export the run again", mask_token=str)["mask_token"])


def _write_environment(folder: Path) -> None:
    """Write the requirements for loading the model, in the three formats of MLflow."""
    versions = {name: _find_version(name) for name in REQUIRED}
    lines = [f"{name}=={version}" if version else f"{name}>=5" for name, version in versions.items()]
    python = platform.python_version()
    pip = "".join(f"  - {line}\n" for line in lines)
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    (folder / "python_env.yaml").write_text(f"python: {python}\ndependencies:\n- -r requirements.txt\n")
    (folder / "conda.yaml").write_text(
        f"name: mlflow-env\nchannels:\n- conda-forge\ndependencies:\n- python={python}\n- pip\n- pip:\n{pip}"
    )


def _find_version(name: str) -> str:
    """The version of a library without its build suffix; "" if it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class _Address:
    """Where a model is: its ID, its store, and whether the model of the pipeline is the whole model."""

    model_id: str
    store: str
    is_whole: bool

    @classmethod
    def of(cls, tracked: TrackedRun, model_id: str, export: Path) -> "_Address":
        """The address of a model in the store of its run."""
        from training.formats import uses_all_weights

        return cls(model_id, without_password(tracked.uri), uses_all_weights(export))

    @property
    def uri(self) -> str:
        return f"models:/{self.model_id}"

    @property
    def folder(self) -> str:
        """The directory of the whole model inside the MLflow model."""
        return PIPELINE if self.is_whole else WHOLE

    @property
    def setup(self) -> tuple[str, str]:
        """Python lines that connect to the store."""
        return "import mlflow", f"mlflow.set_tracking_uri({json.dumps(self.store)})"


def _card(
    run: Any, export: Path, what: TransformersPipeline, at: _Address, finetuned: FinetunedFacts | None = None
) -> str:
    """A description of the model and of how to load it, in Markdown."""
    uri, name = at.uri, run.info.run_name
    how = f'mlflow.transformers.load_model("{uri}", return_type="components")'
    if not what.lacks:
        example = json.dumps(example_of(export, what.task), ensure_ascii=False)
        how = (
            f'mlflow.pyfunc.load_model("{uri}").predict({example})\nmlflow.transformers.load_model("{uri}")({example})'
        )
    download = f"folder = mlflow.artifacts.download_artifacts({json.dumps(uri)}) + {json.dumps('/' + at.folder)}"
    setup = (*at.setup, download)
    try:
        if finetuned:
            about = [render_finetuned_card(finetuned.about, finetuned.place, setup, for_hub=False).rstrip()]
        else:
            about = [model_card(export.parent, setup=setup, for_hub=False).rstrip()]
        about.append("## With MLflow")
    except BadInput:  # the weights do not belong to a run of Sesame
        about = [f"# {name}", run.data.tags.get(NOTE, "")]
    lines = [
        *about,
        f"As an MLflow model it is `{what.model_class}` of transformers, task `{what.task}`.",
        f"It does not support: {what.lacks}." if what.lacks else "",
        "`pyfunc` returns the vectors of the first of several texts." if what.task == "feature-extraction" else "",
        "```python\n{}\n\n{}\n{}\n```".format(*at.setup, how),
        f"Its directory `{at.folder}/` has the whole model, for `from_pretrained`. No file is pickled, and loading "
        "downloads nothing.",
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _publish(client: Any, model: Any, folder: Path) -> None:
    """Put the files into the artifact location of the store: by hard links on the same disk, or by upload to a
    server."""
    if urlsplit(model.artifact_location).scheme not in ("", "file"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        # one call per file, because each answer resets the timeout
        for file in sorted(files, key=lambda path: path.name == MLMODEL):
            below = file.relative_to(folder).parent.as_posix()
            client.log_model_artifact(model.model_id, str(file), below if below != "." else None)
        return
    shutil.copytree(folder, folder_of(model.artifact_location), copy_function=_link, dirs_exist_ok=True)


def _link(source: "str | Path", target: "str | Path") -> None:
    """Create a hard link, or copy the file if that is impossible. Files of Sesame are always replaced, never modified
    in place."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


# The registry


def register(folder: Path, export: Path, name: str, alias: str = "") -> ModelVersion:
    """Register the model of the run in `folder` as the next version of `name`, unless it is registered already.

    `alias` then refers to this version, and to no other version of `name` any more.

    If the store was unavailable when the run finished, the model is logged now. Raises BadInput if the store, the run
    or its model is missing, or if `name` or `alias` is not valid.
    """
    name, alias, tracked = names.model(name), alias and names.alias(alias), existing_run(folder)
    if tracked is None:
        raise BadInput(f"{folder}: it has no MLflow run; train it again with `sesame train --resume never`")
    with _connect(tracked) as client:
        run = client.get_run(tracked.run_id)
        if not export.is_dir() and not find_models(client, run):
            reason = run.data.tags.get(STATE, "transformers has no such model")
            raise BadInput(
                f"{folder}: this run has no MLflow model to register ({reason}); register a run whose model "
                "`sesame export` can export"
            )
        return _register(client, tracked, log_model(tracked, export), export, name, alias)


def register_logged(
    tracked: TrackedRun,
    find: Callable[[TrackedRun], tuple[TrackedRun, str] | None],
    export: Path,
    name: str,
    alias: str,
) -> ModelVersion | None:
    """Register a model that a run of the store of `tracked` has; None if `find` finds no such run and model.

    `export`: the directory of the model. Errors are those of `register`.
    """
    name, alias = names.model(name), alias and names.alias(alias)
    with _connect(tracked) as client:
        return _register(client, *found, export, name, alias) if (found := find(tracked)) else None


def _register(client: Any, tracked: TrackedRun, model_id: str, export: Path, name: str, alias: str) -> ModelVersion:
    """Register a logged model as the next version of `name`, unless it is registered already."""
    if found := _version_of(client, name, tracked.run_id, model_id):
        number, is_new = found, False
    else:
        number, is_new = _next_version(client, name, tracked, model_id), True
    task = client.get_logged_model(model_id).model_type
    if alias:
        client.set_registered_model_alias(name, alias, number)
    uri = f"models:/{name}@{alias}" if alias else f"models:/{name}/{number}"
    example = example_of(export, task) if export.is_dir() else SENTENCE
    return ModelVersion(name, number, uri, without_password(tracked.uri), is_new, example)


@contextmanager
def _connect(tracked: TrackedRun) -> Iterator[Any]:
    """A client of the store of a run. Raises BadInput with one line if the store is missing, or refuses a request."""
    if (file := database_file(tracked.uri)) and not file.is_file():
        raise BadInput(
            f"{file}: no such store, but the run was tracked in it; restore the file, or train the run again"
        )
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield client_of(tracked.uri)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise BadInput(f"MLflow at {redact(tracked.uri)}: {summarize_error(error)}") from error


def _version_of(client: Any, name: str, run_id: str, model_id: str) -> str:
    """The version of `name` that this model already has; "" if it has none."""
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return next((str(one.version) for one in versions if one.name == name and model_id in one.source), "")


def _next_version(client: Any, name: str, tracked: TrackedRun, model_id: str) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    model = client.get_logged_model(model_id)
    # A server finds the model by its ID. Without a server, MLflow would search for the model in the default store of
    # the process, which is another store.
    source = f"models:/{model_id}" if tracked.uri.startswith("http") else model.artifact_location
    note = model.tags.get(NOTE, "")
    created = client.create_model_version(name, source, tracked.run_id, description=note, model_id=model_id)
    versions = [*json.loads(model.tags.get(VERSIONS, "[]")), {"name": name, "version": created.version}]
    client.set_logged_model_tags(model_id, {VERSIONS: json.dumps(versions)})
    return str(created.version)
